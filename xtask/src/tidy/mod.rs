//! The tidy check: the rules of STYLE.md that need no judgement, kept by a program.
//!
//! A rule looks at the whole [`Tree`] and reports [`Violation`]s. Each rule is a file of this folder with
//! its reason, its check, and tests that seed a violation and require it to be found. To add one: write
//! the file, list it in [`RULES`], and mark the sentence of STYLE.md that it keeps.

mod circles;
mod claims;
mod comment_opening;
mod comment_width;
mod comments;
mod heads;
mod layers;
mod lengths;
mod lexer;
mod links;
mod machine_paths;
mod manifests;
mod media_types;
mod module_layers;
mod modules;
mod numbering;
mod paths;
mod persist_comments;
mod rule_tables;
mod terms;
mod tree;
mod unfinished;
mod unsafe_code;
mod weak_fence;

pub(crate) use tree::Tree;

use std::fmt;

/// One rule.
struct Rule {
    /// Names the rule in reports.
    name: &'static str,
    /// Why the project has it.
    why: &'static str,
    check: fn(&Tree, &mut Report<'_>),
}

const RULES: &[Rule] = &[
    layers::RULE,
    module_layers::RULE,
    circles::RULE,
    rule_tables::RULE,
    manifests::RULE,
    unsafe_code::RULE,
    weak_fence::RULE,
    media_types::RULE,
    heads::RULE,
    persist_comments::RULE,
    unfinished::RULE,
    numbering::RULE,
    comment_width::RULE,
    comment_opening::RULE,
    terms::RULE,
    lengths::RULE,
    machine_paths::RULE,
    links::RULE,
    claims::RULE,
];

/// A place where a rule is broken.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    what: String,
    why: &'static str,
    fix: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.what)?;
        writeln!(f, "    why: {}", self.why)?;
        write!(f, "    fix: {}", self.fix)
    }
}

/// Collects the violations of one rule.
struct Report<'a> {
    rule: &'static Rule,
    violations: &'a mut Vec<Violation>,
}

impl Report<'_> {
    /// Adds a violation: `what` is wrong in this line, and how to put it right.
    fn add(&mut self, path: &str, line: usize, what: impl Into<String>, fix: impl Into<String>) {
        self.violations.push(Violation {
            path: path.to_owned(),
            line,
            rule: self.rule.name,
            what: what.into(),
            why: self.rule.why,
            fix: fix.into(),
        });
    }
}

/// Checks every rule; the violations are in order of file and line.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for rule in RULES {
        (rule.check)(tree, &mut Report { rule, violations: &mut violations });
    }
    violations.sort();
    violations
}

/// How many rules there are.
pub(crate) fn rule_count() -> usize {
    RULES.len()
}

/// The rules with their reasons, for people.
pub(crate) fn describe_rules() -> String {
    RULES.iter().map(|rule| format!("{}\n    {}\n", rule.name, rule.why)).collect()
}

#[cfg(test)]
mod testing {
    use super::{Report, Rule, Tree};

    /// Where `rule` is broken in a tree of these files, as `path:line`.
    pub(super) fn broken(rule: &'static Rule, files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        let mut violations = Vec::new();
        (rule.check)(&tree, &mut Report { rule, violations: &mut violations });
        violations.sort();
        violations.iter().map(|v| format!("{}:{}", v.path, v.line)).collect()
    }

    /// The messages of `rule` about a tree of these files.
    pub(super) fn messages(rule: &'static Rule, files: &[(&str, &str)]) -> String {
        let tree = Tree::of(files);
        let mut violations = Vec::new();
        (rule.check)(&tree, &mut Report { rule, violations: &mut violations });
        violations.iter().map(|v| format!("{v}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rules_have_distinct_names_and_a_reason_each() {
        let names: BTreeSet<_> = RULES.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), RULES.len());
        assert!(RULES.iter().all(|rule| rule.why.ends_with('.')));
    }

    #[test]
    fn a_report_says_where_what_why_and_how_to_fix_it() {
        let tree = Tree::of(&[("crates/pool/src/a.rs", "fn f() {\n    dbg!(1);\n}\n")]);
        let violations = check(&tree);
        let text = violations.iter().find(|v| v.rule == "unfinished").unwrap().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("crates/pool/src/a.rs:2: [unfinished] "), "{text}");
        assert!(lines[1].starts_with("    why: ") && lines[2].starts_with("    fix: "), "{text}");
    }

    #[test]
    fn style_marks_every_rule_that_tidy_keeps() {
        let style = include_str!("../../../STYLE.md");
        for rule in RULES {
            let mark = format!("[tidy: {}]", rule.name);
            assert!(style.contains(&mark), "STYLE.md does not say {mark}");
        }
        for mark in style.split("[tidy: ").skip(1) {
            let name = mark.split(']').next().unwrap_or_default();
            assert!(RULES.iter().any(|rule| rule.name == name), "STYLE.md names an unknown rule {name}");
        }
    }
}
