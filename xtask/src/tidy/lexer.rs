//! A lexer for Rust, as exact as the rules need: it never takes the inside of a comment, string or
//! character for code, and it knows the line of every token.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An identifier or keyword; for a raw identifier without its `r#`.
    Word,
    /// A string of any sort, with its quotes.
    Text,
    /// A character or byte, a number, a lifetime.
    Other,
    /// One character of punctuation.
    Mark,
    /// A comment that documents the module it is in (`//!`).
    ModuleDoc,
    /// Any other comment.
    Comment,
}

/// A token of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// The line of its first character, from 1.
    pub(super) line: usize,
}

impl Token<'_> {
    pub(super) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark && self.text.starts_with(mark)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }

    pub(super) fn is_comment(&self) -> bool {
        matches!(self.kind, Kind::Comment | Kind::ModuleDoc)
    }
}

/// The tokens of `source`. An unfinished string or comment extends to the end.
pub(super) fn lex(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { rest: source, line: 1 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space();
        let Some((kind, bytes)) = measure(lexer.rest) else { return tokens };
        let line = lexer.line;
        let mut text = lexer.take(bytes);
        if kind == Kind::Word {
            text = text.strip_prefix("r#").unwrap_or(text);
        }
        tokens.push(Token { kind, text, line });
    }
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn skip_space(&mut self) {
        let space = self.rest.len() - self.rest.trim_start().len();
        self.take(space);
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }
}

/// The kind and length of the token that `rest` begins with.
fn measure(rest: &str) -> Option<(Kind, usize)> {
    let first = rest.chars().next()?;
    if rest.starts_with("//") {
        let bytes = rest.find('\n').unwrap_or(rest.len());
        let kind = if rest.starts_with("//!") { Kind::ModuleDoc } else { Kind::Comment };
        return Some((kind, bytes));
    }
    if rest.starts_with("/*") {
        return Some((Kind::Comment, block_comment_bytes(rest)));
    }
    if let Some(bytes) = string_bytes(rest) {
        return Some((Kind::Text, bytes));
    }
    if first == '\'' || rest.starts_with("b'") {
        return Some((Kind::Other, quote_bytes(rest)));
    }
    if first.is_ascii_digit() {
        return Some((Kind::Other, number_bytes(rest)));
    }
    if is_word_start(first) {
        let raw = if rest.starts_with("r#") { 2 } else { 0 };
        return Some((Kind::Word, raw + word_bytes(&rest[raw..])));
    }
    Some((Kind::Mark, first.len_utf8()))
}

fn is_word_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn word_bytes(rest: &str) -> usize {
    rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len())
}

/// A number with its suffix and, unless a range or a method follows, its fraction.
fn number_bytes(rest: &str) -> usize {
    let whole = word_bytes(rest);
    let mut after = rest[whole..].chars();
    match (after.next(), after.next()) {
        (Some('.'), Some(digit)) if digit.is_ascii_digit() => whole + 1 + word_bytes(&rest[whole + 1..]),
        _ => whole,
    }
}

/// Block comments nest.
fn block_comment_bytes(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            match rest[at..].chars().next() {
                Some(c) => at += c.len_utf8(),
                None => return at,
            }
        }
    }
}

/// The length of the string that `rest` begins with, its prefix and quotes included.
fn string_bytes(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r"].into_iter().find(|p| {
        rest.strip_prefix(p).is_some_and(|r| r.trim_start_matches('#').starts_with('"'))
            && (p.ends_with('r') || rest[p.len()..].starts_with('"'))
    });
    let prefix = prefix.unwrap_or("");
    let body = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let inside = hashes + 1;
        let length = body[inside..].find(&end).map_or(body.len(), |at| inside + at + end.len());
        return Some(prefix.len() + length);
    }
    body.starts_with('"').then(|| prefix.len() + escaped_bytes(body, '"'))
}

/// The length of a quoted literal with backslash escapes, both quotes included.
fn escaped_bytes(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// A character, a byte, or a lifetime.
fn quote_bytes(rest: &str) -> usize {
    let prefix = usize::from(rest.starts_with('b'));
    let mut inside = rest[prefix + 1..].chars();
    let (first, second) = (inside.next(), inside.next());
    if first.is_some_and(is_word_start) && second != Some('\'') {
        return prefix + 1 + word_bytes(&rest[prefix + 1..]);
    }
    prefix + escaped_bytes(&rest[prefix..], '\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        lex(source).into_iter().filter(|t| t.kind == Kind::Word).map(|t| t.text).collect()
    }

    #[test]
    fn comments_and_literals_hide_their_contents() {
        let hidden = [
            "// unsafe",
            "/* unsafe /* nested unsafe */ unsafe */",
            "\"unsafe \\\" unsafe\"",
            "r#\"unsafe \" unsafe\"#",
            "br##\"unsafe\"# unsafe\"##",
            "b\"unsafe\"",
            "c\"unsafe\"",
            "'\\''",
            "b'\\''",
        ];
        for source in hidden {
            assert_eq!(words(&format!("a {source}\n b")), ["a", "b"], "{source}");
        }
    }

    #[test]
    fn lifetimes_are_not_taken_for_characters() {
        assert_eq!(
            words("fn f<'a>(x: &'a str) -> &'static str { '_'; '\"'; x }"),
            ["fn", "f", "x", "str", "str", "x"]
        );
    }

    #[test]
    fn raw_identifiers_numbers_and_ranges() {
        assert_eq!(words("r#type 0x1f_u32 1.5e3 0..n 1.max(2) b r"), ["type", "n", "max", "b", "r"]);
    }

    #[test]
    fn lines_are_counted_through_multi_line_tokens() {
        let tokens = lex("/* 1\n2 */ a\n\"3\n4\" b");
        let lines: Vec<_> = tokens.iter().map(|t| (t.text.len(), t.line)).collect();
        assert_eq!(lines, [(9, 1), (1, 2), (5, 3), (1, 4)]);
    }

    #[test]
    fn unfinished_input_ends_instead_of_panicking() {
        for source in ["\"abc", "/* abc", "r#\"abc", "'", "b'", "'\\", "r#", "é", "\"é"] {
            lex(source);
        }
    }
}
