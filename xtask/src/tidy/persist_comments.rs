//! Every fence of a persistent component says what it orders.

use super::heads::{has_label, is_head};
use super::lexer::{Kind, Token};
use super::tree::RustFile;
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "persist-comment",
    why: "a fence is the most expensive statement there is and the one a crash depends on; the next reader must see what it is for.",
    check,
};

/// Crates whose code decides when something is durable.
pub(super) const CRATES: &[&str] = &["pool", "heap", "index"];
/// The persistence verbs that wait.
const VERBS: &[&str] = &["fence", "persist"];
/// How far above the call its comment may begin.
const REACH_LINES: usize = 8;
const MARK: &str = "PERSIST(";

fn check(tree: &Tree, report: &mut Report<'_>) {
    let files: Vec<RustFile<'_>> = tree.rust_files().collect();
    let concerned =
        |f: &&RustFile<'_>| CRATES.iter().any(|c| f.path.starts_with(&format!("crates/{c}/src/")));
    for file in files.iter().filter(concerned) {
        check_calls(file, report);
        check_labels(file, &files, report);
    }
}

fn check_calls(file: &RustFile<'_>, report: &mut Report<'_>) {
    for call in file.code().windows(3) {
        let waits =
            call[0].is_mark('.') && VERBS.iter().any(|verb| call[1].is_word(verb)) && call[2].is_mark('(');
        let line = call[1].line;
        if waits && !file.is_test_line(line) && !is_explained(file, line) {
            let what = format!("`.{}()` without a PERSIST comment above it", call[1].text);
            let fix = "write `// PERSIST(I3): ...` with the invariant it keeps, what is durable after it, and who relies on that";
            report.add(file.path, line, what, fix);
        }
    }
}

fn is_explained(file: &RustFile<'_>, line: usize) -> bool {
    let near = line.saturating_sub(REACH_LINES)..=line;
    persist_comments(file).any(|comment| near.contains(&comment.line))
}

fn persist_comments<'a>(file: &'a RustFile<'_>) -> impl Iterator<Item = &'a Token<'a>> {
    file.tokens.iter().filter(|token| token.kind == Kind::Comment && token.text.contains(MARK))
}

/// A label names an invariant that the head of the module, or of one above it, states.
fn check_labels(file: &RustFile<'_>, files: &[RustFile<'_>], report: &mut Report<'_>) {
    for comment in persist_comments(file) {
        let labels = comment.text.split(MARK).nth(1).and_then(|rest| rest.split(')').next()).unwrap_or("");
        for label in labels.split(',').map(str::trim) {
            if !states(file, label) && !is_stated_above(label, file.directory(), files) {
                let what = format!("PERSIST({label}) names an invariant that no head states, here or above");
                report.add(
                    file.path,
                    comment.line,
                    what,
                    "name one of the I1, I2, ... of the component's head",
                );
            }
        }
    }
}

/// Whether the head of `file` has this label.
fn states(file: &RustFile<'_>, label: &str) -> bool {
    file.tokens.iter().any(|token| token.kind == Kind::ModuleDoc && has_label(token.text, label))
}

fn is_stated_above(label: &str, directory: &str, files: &[RustFile<'_>]) -> bool {
    files.iter().any(|file| is_head(file, directory) && states(file, label))
        || directory.rsplit_once('/').is_some_and(|(above, _)| is_stated_above(label, above, files))
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    const PATH: &str = "crates/pool/src/lane/commit.rs";
    const HEAD: (&str, &str) = ("crates/pool/src/lib.rs", "//! # Invariants\n//! - I1: a\n//! - I2: b\n");

    #[test]
    fn an_unexplained_fence_is_found() {
        for call in ["region.fence()?;", "self.region\n        .persist(off, 8)?;"] {
            let source = format!("fn f() {{\n    // Why not.\n    {call}\n}}\n");
            assert_eq!(broken(&RULE, &[HEAD, (PATH, &source)]).len(), 1, "{call}");
        }
    }

    #[test]
    fn an_explained_fence_is_accepted() {
        let source = "fn f() {\n    // PERSIST(I1, I2): the record, before home.\n    region.fence()?;\n}\n";
        assert_eq!(broken(&RULE, &[HEAD, (PATH, source)]), [""; 0]);
        let own = format!("//! - I1, I2: stated here.\n{source}");
        assert_eq!(broken(&RULE, &[(PATH, &own)]), [""; 0]);
    }

    #[test]
    fn a_comment_far_away_explains_nothing() {
        let gap = "\n".repeat(REACH_LINES + 1);
        let source = format!("// PERSIST(I1): far.{gap}fn f() {{ r.fence() }}\n");
        assert_eq!(broken(&RULE, &[HEAD, (PATH, &source)]).len(), 1);
    }

    #[test]
    fn a_label_that_no_head_states_is_found() {
        let source = "fn f() {\n    // PERSIST(I1, I22): the record.\n    region.fence()?;\n}\n";
        assert_eq!(broken(&RULE, &[HEAD, (PATH, source)]), [format!("{PATH}:2")]);
    }

    #[test]
    fn tests_and_the_layers_without_media_are_free() {
        let test = "#[cfg(test)]\nmod tests {\n    fn f() { region.fence(); }\n}\n";
        assert_eq!(broken(&RULE, &[(PATH, test)]), [""; 0]);
        let source = "fn f() { region.fence() }\n";
        for path in ["crates/pmem/src/region.rs", "crates/pool/tests/a.rs"] {
            assert_eq!(broken(&RULE, &[(path, source)]), [""; 0]);
        }
    }
}
