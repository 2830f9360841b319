//! Numbered invariants and deviations have no gaps.

use super::lexer::Kind;
use super::tree::RustFile;
use super::{Report, Rule, Tree};
use std::collections::BTreeMap;

pub(super) const RULE: Rule = Rule {
    name: "numbering",
    why: "code and tests cite invariants by number; a missing one reads as one that was forgotten.",
    check,
};

/// The series: invariants, deviations from a paper, lanes' invariants, opening's invariants.
const SERIES: &[char] = &['I', 'D', 'L', 'O'];

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.rust_files() {
        check_head(&file, report);
    }
}

/// A head that states a number names all below it, each by its statement or by the place that has it ("D2 to
/// D4 are in `tree/mod.rs`").
fn check_head(file: &RustFile<'_>, report: &mut Report<'_>) {
    let mut stated: BTreeMap<char, (u32, usize)> = BTreeMap::new();
    let mut words: Vec<&str> = Vec::new();
    for comment in file.tokens.iter().filter(|token| token.kind == Kind::ModuleDoc) {
        words.extend(
            comment.text.split(|c: char| !c.is_ascii_alphanumeric() && c != ':').filter(|w| !w.is_empty()),
        );
        for (letter, number) in statements(comment.text) {
            let highest = stated.entry(letter).or_insert((number, comment.line));
            if number > highest.0 {
                *highest = (number, comment.line);
            }
        }
    }
    for (letter, (highest, line)) in stated {
        let named = named(&words, letter);
        for number in (1..highest).filter(|number| !named.contains(number)) {
            let what =
                format!("{letter}{highest} is stated, and {letter}{number} is named nowhere in this head");
            report.add(file.path, line, what, "close the gap, or say which file has the missing one");
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

/// The numbers of a series that are named, ranges ("I1 to I5") in full.
fn named(words: &[&str], series: char) -> Vec<u32> {
    let number = |at: usize| {
        let (letter, number) = label(words.get(at)?.trim_end_matches(':'))?;
        (letter == series).then_some(number)
    };
    let mut named = Vec::new();
    for at in 0..words.len() {
        let Some(first) = number(at) else { continue };
        let last = if words.get(at + 1) == Some(&"to") { number(at + 2) } else { None };
        named.extend(first..=last.unwrap_or(first));
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
            assert!(message.contains(&format!("{letter}3 is named nowhere")), "{message}");
        }
    }

    #[test]
    fn a_number_that_is_stated_elsewhere_is_no_gap() {
        let source =
            "//! D1: one. D5: five. D2 to D4 are in `tree/mod.rs`.\n//! - I3: c\n//! I1 and I2 are above.\n";
        assert_eq!(broken(&RULE, &[(PATH, source)]), [""; 0]);
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
