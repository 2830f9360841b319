//! Comments begin with their subject.

use super::comments::paragraphs;
use super::{Report, Rule, Tree};
use std::collections::BTreeMap;

pub(super) const RULE: Rule = Rule {
    name: "comment-opening",
    why: "a paragraph that opens with a relative clause names its subject last, and is read twice.",
    check,
};

/// First words that announce such a clause.
const OPENINGS: &[&str] = &["What", "Who", "So", "Of"];
/// Such paragraphs that a crate may have among a hundred.
const SHARE_PERCENT: usize = 1;

/// Crates that have more than their share, and how many paragraphs open so there. A count may only fall:
/// whoever lowers it in the code lowers it here, and a crate within its share has no row.
pub(super) const LEFT: &[(&str, usize)] = &[];

/// The paragraphs of a crate that open so, and how many paragraphs it has.
#[derive(Default)]
struct Openings<'a> {
    places: Vec<(&'a str, usize, String)>,
    paragraphs: usize,
}

fn check(tree: &Tree, report: &mut Report<'_>) {
    check_against(tree, LEFT, report);
}

fn check_against(tree: &Tree, left: &[(&str, usize)], report: &mut Report<'_>) {
    let crates = openings(tree);
    for (name, found) in &crates {
        let count = found.places.len();
        let share = found.paragraphs * SHARE_PERCENT / 100;
        let row = left.iter().find(|(known, _)| known == name).map_or(0, |(_, allowed)| *allowed);
        if count > share.max(row) {
            for (path, line, word) in &found.places {
                let what = format!(
                    "a comment opens with `{word}`; {name} has {count} such, {} are left",
                    share.max(row)
                );
                report.add(
                    path,
                    *line,
                    what,
                    "begin with the subject: \"A stored word ...\", not \"What is stored ...\"",
                );
            }
        } else if row > 0 && (count < row || count <= share) {
            let (path, to) =
                (found.places.first().map_or(*name, |place| place.0), if count <= share { 0 } else { count });
            let what =
                format!("{name} has {count} comments that open with a relative clause, its row allows {row}");
            let fix = if to == 0 {
                "take its row out of LEFT (xtask/src/tidy/comment_opening.rs)".to_owned()
            } else {
                format!("lower its row in LEFT (xtask/src/tidy/comment_opening.rs) to {to}")
            };
            report.add(path, 1, what, fix);
        }
    }
}

fn openings(tree: &Tree) -> BTreeMap<&str, Openings<'_>> {
    let mut crates: BTreeMap<&str, Openings<'_>> = BTreeMap::new();
    for file in tree.rust_files() {
        let found = crates.entry(crate_of(file.path)).or_default();
        let paragraphs = paragraphs(&file);
        found.paragraphs += paragraphs.len();
        let opening = paragraphs.iter().filter(|p| OPENINGS.contains(&p.first_word()));
        found.places.extend(opening.map(|p| (file.path, p.line, p.first_word().to_owned())));
    }
    crates
}

/// The folder of the crate that a file belongs to: `crates/pool`, `xtask`.
fn crate_of(path: &str) -> &str {
    let parents = ["crates/", "research/", "tools/"];
    let parent = parents.iter().find(|parent| path.starts_with(**parent)).map_or(0, |parent| parent.len());
    let end = path[parent..].find('/').map_or(path.len(), |at| parent + at);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    /// Where a tree of these files breaks the rule, with this table.
    fn broken_with(left: &[(&str, usize)], files: &[(&str, &str)]) -> Vec<String> {
        let (tree, mut violations) = (Tree::of(files), Vec::new());
        check_against(&tree, left, &mut Report { rule: &RULE, violations: &mut violations });
        violations.iter().map(|v| format!("{}:{}", v.path, v.line)).collect()
    }

    #[test]
    fn each_opening_is_found_in_its_line() {
        for word in OPENINGS {
            for marker in ["//!", "///", "//", "/// -"] {
                let source = format!("fn f() {{}}\n{marker} {word} is here.\n");
                assert_eq!(broken(&RULE, &[(PATH, &source)]), [format!("{PATH}:2")], "{source}");
            }
        }
    }

    #[test]
    fn other_words_and_later_lines_are_free() {
        let source = "// Whole words.\n// What follows on the second line.\nlet s = \"What\"; // Some.\n/// Offsets.\n";
        assert_eq!(broken(&RULE, &[(PATH, source)]), [""; 0]);
    }

    #[test]
    fn one_in_a_hundred_is_within_the_share() {
        let source = format!("{}// So it is.\n", "// A.\n\n".repeat(99));
        assert_eq!(broken(&RULE, &[(PATH, &source)]), [""; 0]);
        assert_eq!(broken(&RULE, &[(PATH, &format!("{source}\n// Of two.\n"))]).len(), 2);
    }

    #[test]
    fn a_row_may_only_fall() {
        let files = [(PATH, "// What one.\n\n// Who two.\n")];
        assert_eq!(broken_with(&[("crates/a", 2)], &files), [""; 0]);
        assert_eq!(broken_with(&[("crates/a", 1)], &files).len(), 2);
        assert_eq!(broken_with(&[("crates/a", 3)], &files), [format!("{PATH}:1")]);
        assert_eq!(broken_with(&[("crates/a", 3)], &[(PATH, "// Clean.\n")]).len(), 1);
    }

    #[test]
    fn a_file_counts_for_its_crate() {
        let crates = [
            "crates/pool/src/tx/mod.rs",
            "research/papers/src/lib.rs",
            "tools/goals/src/a.rs",
            "xtask/src/main.rs",
        ];
        assert_eq!(crates.map(crate_of), ["crates/pool", "research/papers", "tools/goals", "xtask"]);
    }
}
