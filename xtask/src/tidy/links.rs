//! Links between documents lead somewhere.

use super::tree::TextFile;
use super::{Report, Rule, Tree};
use std::collections::BTreeSet;

pub(super) const RULE: Rule = Rule {
    name: "links",
    why: "a document that points nowhere is out of date, and its reader is lost.",
    check,
};

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.text_files().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            if let Err(what) = resolve(tree, file, &target) {
                report.add(&file.path, line, what, "correct the link, or write what it should lead to");
            }
        }
    }
}

/// The targets of the links of a document, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, prose) in prose_lines(text) {
        if let Some((_, target)) = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.push((line, target_of(target)));
        }
        for part in prose.split("](").skip(1) {
            found.push((line, target_of(part.split(')').next().unwrap_or(part))));
        }
    }
    found
}

/// A target without its title and its angle brackets.
fn target_of(text: &str) -> String {
    let text = text.trim();
    let bracketed = text.strip_prefix('<').and_then(|rest| rest.split('>').next());
    bracketed.or_else(|| text.split_whitespace().next()).unwrap_or("").to_owned()
}

/// The lines that are neither inside code fences nor code spans, with their numbers.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((at + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("`")));
        }
    }
    lines
}

fn resolve(tree: &Tree, from: &TextFile, target: &str) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let directory = from.path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let whole = if path.is_empty() { Some(from.path.clone()) } else { join(directory, path) };
    let Some(whole) = whole.filter(|whole| tree.exists(whole)) else {
        return Err(format!("the link `{target}` leads to no file"));
    };
    match (anchor, tree.text(&whole)) {
        (Some(anchor), Some(file)) if whole.ends_with(".md") && !anchors(&file.text).contains(anchor) => {
            Err(format!("{whole} has no heading `#{anchor}`"))
        }
        _ => Ok(()),
    }
}

/// `path` as seen from `directory`; none if it leaves the repository.
fn join(directory: &str, path: &str) -> Option<String> {
    let mut names: Vec<&str> = directory.split('/').filter(|name| !name.is_empty()).collect();
    if path.starts_with('/') {
        names.clear();
    }
    for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
        if name == ".." {
            names.pop()?;
        } else {
            names.push(name);
        }
    }
    Some(names.join("/"))
}

/// The anchors of a document's headings, as the usual renderers make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let slug: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let repeats = (1..).map(|n| format!("{slug}-{n}"));
        let free = [slug.clone()].into_iter().chain(repeats).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    fn broken_in(document: &str) -> Vec<String> {
        let files = [
            ("docs/a.md", document),
            ("docs/b.md", "# The `Pool`: layout\n## Twice\n## Twice\n```\n# not one\n```\n"),
            ("README.md", ""),
            ("crates/pool/src/lib.rs", ""),
        ];
        broken(&RULE, &files)
    }

    #[test]
    fn links_that_lead_somewhere_are_accepted() {
        let document = "[b](b.md) [up](../README.md) [dir](../crates/pool/) [x](https://x.org/y) [t](b.md \"Title\")\n\
                        [a](b.md#the-pool-layout) [a2](b.md#twice-1) [`code`](./b.md) [root](/README.md)\n\
                        # Here\n[own](#here)\n[ref]: <b.md>\n";
        assert_eq!(broken_in(document), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found_in_their_line() {
        let seeded = [
            "[x](c.md)",
            "[x](../../README.md)",
            "[x](b.md#none)",
            "[x](b.md#not-one)",
            "[x](b.md#twice-2)",
            "[x](#none)",
            "[x]: c.md",
            "[`x`](c.md)",
            "![picture](c.png)",
        ];
        for link in seeded {
            assert_eq!(broken_in(&format!("text\n{link}\n")), ["docs/a.md:2"], "{link}");
        }
    }

    #[test]
    fn code_is_not_a_link() {
        assert_eq!(broken_in("`a[i](x)`\n```\n[x](c.md)\n```\n"), [""; 0]);
    }
}
