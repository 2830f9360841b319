//! The comments of a Rust file as a reader sees them: paragraphs of lines.

use super::tree::RustFile;

/// Consecutive lines of a comment, without markers, up to an empty line, a heading or an example.
pub(super) struct Paragraph<'a> {
    /// The line of its first words.
    pub(super) line: usize,
    /// Its lines in order.
    pub(super) lines: Vec<&'a str>,
}

impl Paragraph<'_> {
    /// The first word of the paragraph, without the mark of a list item.
    pub(super) fn first_word(&self) -> &str {
        let text = self.lines.first().map_or("", |line| line.trim_start_matches(['-', '*', ' ']));
        text.split(|c: char| !c.is_alphanumeric() && c != '\'').next().unwrap_or("")
    }
}

/// The paragraphs of all comments of `file`.
pub(super) fn paragraphs<'a>(file: &RustFile<'a>) -> Vec<Paragraph<'a>> {
    let mut found: Vec<Paragraph<'a>> = Vec::new();
    let mut last: Option<(usize, &str)> = None;
    let mut in_example = false;
    let mut continues = false;
    for (line, marker, text) in comment_lines(file) {
        let is_adjacent =
            marker != TRAILING && last.is_some_and(|(above, kind)| above + 1 == line && kind == marker);
        if !is_adjacent {
            (in_example, continues) = (false, false);
        }
        last = Some((line, marker));
        if text.starts_with("```") {
            in_example = !in_example;
            continues = false;
        } else if in_example || text.is_empty() || text.starts_with(['#', '|']) {
            continues = false;
        } else if let (true, Some(paragraph)) = (continues, found.last_mut()) {
            paragraph.lines.push(text);
        } else {
            found.push(Paragraph { line, lines: vec![text] });
            continues = true;
        }
    }
    found
}

/// The marker of a comment behind code: each is one by itself.
const TRAILING: &str = "code //";

/// Every line of every comment: its number, its marker and its text.
pub(super) fn comment_lines<'a>(file: &RustFile<'a>) -> Vec<(usize, &'static str, &'a str)> {
    let mut lines = Vec::new();
    for (at, comment) in file.tokens.iter().enumerate().filter(|(_, token)| token.is_comment()) {
        let before = at.checked_sub(1).map(|before| &file.tokens[before]);
        let is_trailing = before.is_some_and(|t| t.line + t.text.matches('\n').count() == comment.line);
        for (below, text) in comment.text.lines().enumerate() {
            let (marker, text) = strip(text.trim());
            let marker = if is_trailing { TRAILING } else { marker };
            lines.push((comment.line + below, marker, text));
        }
    }
    lines
}

/// A comment's line without its marker.
fn strip(line: &str) -> (&'static str, &str) {
    for marker in ["///", "//!", "//"] {
        if let Some(text) = line.strip_prefix(marker) {
            return (marker, text.trim());
        }
    }
    ("/*", line.trim_start_matches(['/', '*']).trim_end_matches(['/', '*']).trim())
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::*;

    #[test]
    fn paragraphs_end_at_empty_lines_headings_examples_and_other_comments() {
        let source = "//! One\n//! line.\n//!\n//! # Title\n//! Two.\n//! ```\n//! what();\n//! ```\n/// Three.\n\
                      // Four.\nlet a = 1; // Five.\n/* Six\n * goes on. */\n";
        let tree = Tree::of(&[("crates/a/src/lib.rs", source)]);
        let file = tree.rust_files().next().unwrap();
        let found: Vec<_> = paragraphs(&file).iter().map(|p| (p.line, p.lines.join(" "))).collect();
        let expected = [
            (1, "One line."),
            (5, "Two."),
            (9, "Three."),
            (10, "Four."),
            (11, "Five."),
            (12, "Six goes on."),
        ];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn the_mark_of_a_list_item_is_no_word() {
        let paragraph = Paragraph { line: 1, lines: vec!["* What's there."] };
        assert_eq!(paragraph.first_word(), "What's");
    }
}
