//! Numbered invariants and deviations have no gaps.

use super::lexer::Kind;
use super::tree::RustFile;
use super::{Report, Rule, Tree};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULE: Rule = Rule {
    name: "numbering",
    why: "code and tests cite invariants by number; a missing one reads as one that was forgotten.",
    check,
};

/// The series: invariants, deviations from a paper, lanes' invariants, opening's invariants.
const SERIES: &[char] = &['I', 'D', 'L', 'O'];

fn check(tree: &Tree, report: &mut Report<'_>) {
    let heads: Vec<Head<'_>> = tree.rust_files().map(|file| Head::of(&file)).collect();
    for head in heads.iter().filter(|head| !head.stated.is_empty()) {
        check_head(head, &heads, report);
    }
}

/// The labels in the head of a file.
struct Head<'a> {
    path: &'a str,
    /// The highest number that is stated of each series, and its line.
    stated: BTreeMap<char, (u32, usize)>,
    /// Every label that is named.
    named: BTreeSet<(char, u32)>,
}

impl<'a> Head<'a> {
    fn of(file: &RustFile<'a>) -> Head<'a> {
        let mut stated: BTreeMap<char, (u32, usize)> = BTreeMap::new();
        let mut words: Vec<&str> = Vec::new();
        for comment in file.tokens.iter().filter(|token| token.kind == Kind::ModuleDoc) {
            words.extend(comment.text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()));
            for (letter, number) in statements(comment.text) {
                let highest = stated.entry(letter).or_insert((number, comment.line));
                if number > highest.0 {
                    *highest = (number, comment.line);
                }
            }
        }
        Head { path: file.path, stated, named: named(&words) }
    }

    fn directory(&self) -> &'a str {
        self.path.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    /// Whether this is the head of a module that `other` is in.
    fn is_above(&self, other: &Head<'_>) -> bool {
        let is_module = ["mod.rs", "lib.rs"].iter().any(|name| self.path.ends_with(&format!("/{name}")));
        is_module && other.path != self.path && other.path.starts_with(&format!("{}/", self.directory()))
    }
}

/// A head that states a number names all below it, or the head of a module above does. A number is named by
/// its statement or by its place ("D2 to D4 are in `tree/mod.rs`").
fn check_head(head: &Head<'_>, heads: &[Head<'_>], report: &mut Report<'_>) {
    for (letter, (highest, line)) in &head.stated {
        let is_named = |number: &u32| {
            let label = (*letter, *number);
            head.named.contains(&label) || heads.iter().any(|h| h.is_above(head) && h.named.contains(&label))
        };
        for number in (1..*highest).filter(|number| !is_named(number)) {
            let what =
                format!("{letter}{highest} is stated, and no head here or above names {letter}{number}");
            report.add(head.path, *line, what, "close the gap, or say which file has the missing one");
        }
    }
}

/// Labels with a colon, such as `I3:`.
fn statements(line: &str) -> impl Iterator<Item = (char, u32)> {
    line.split_whitespace()
        .map(|word| word.trim_start_matches(['(', '`']))
        .filter_map(|word| word.strip_suffix(':').and_then(label))
}

fn label(word: &str) -> Option<(char, u32)> {
    let letter = word.chars().next().filter(|letter| SERIES.contains(letter))?;
    let digits = &word[1..];
    let is_number = !digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|b| b.is_ascii_digit());
    Some((letter, is_number.then(|| digits.parse().ok())??))
}

/// The labels that are named, ranges ("I1 to I5") in full.
fn named(words: &[&str]) -> BTreeSet<(char, u32)> {
    let label_at = |at: usize| words.get(at).and_then(|word| label(word));
    let mut named = BTreeSet::new();
    for at in 0..words.len() {
        let Some((letter, first)) = label_at(at) else { continue };
        let end = if words.get(at + 1) == Some(&"to") { label_at(at + 2) } else { None };
        let last = end.filter(|(series, _)| *series == letter).map_or(first, |(_, last)| last);
        named.extend((first..=last).map(|number| (letter, number)));
    }
    named
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, messages};
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    #[test]
    fn a_gap_is_found_in_the_line_of_the_highest_number() {
        for letter in SERIES {
            let source = format!("//! - {letter}1: a\n//! - {letter}2: b\n//! * {letter}4: d\n");
            assert_eq!(broken(&RULE, &[(PATH, &source)]), [format!("{PATH}:3")]);
            let message = messages(&RULE, &[(PATH, &source)]);
            assert!(message.contains(&format!("no head here or above names {letter}3")), "{message}");
        }
    }

    #[test]
    fn a_number_that_is_stated_elsewhere_is_no_gap() {
        let source =
            "//! D1: one. D5: five. D2 to D4 are in `tree/mod.rs`.\n//! - I3: c\n//! I1 and I2 are above.\n";
        assert_eq!(broken(&RULE, &[(PATH, source)]), [""; 0]);
    }

    #[test]
    fn a_module_goes_on_with_the_numbers_of_those_above() {
        let head = ("crates/a/src/log/mod.rs", "//! - I1: a\n//! - I2: b\n");
        let below = ("crates/a/src/log/lane.rs", "//! - I3: c\n");
        let beside = ("crates/a/src/alloc/mod.rs", "//! - I3: c\n");
        assert_eq!(broken(&RULE, &[head, below]), [""; 0]);
        assert_eq!(broken(&RULE, &[head, beside]).len(), 2);
    }

    #[test]
    fn the_first_number_is_one() {
        assert_eq!(broken(&RULE, &[(PATH, "//! - I2: b\n")]), [format!("{PATH}:1")]);
    }

    #[test]
    fn citations_and_other_comments_state_nothing() {
        assert_eq!(broken(&RULE, &[(PATH, "//! As I7 says.\n/// - I9: x\n// PERSIST(I4): y\n")]), [""; 0]);
    }
}
