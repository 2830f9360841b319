//! Inline commands: one line typed by a person, split into arguments by Redis's quoting rules.
//!
//! ```text
//!   line    = *blank [ word *( 1*blank word ) ] *blank
//!   word    = *plain [ quoted ]                      ; a closing quote ends the word
//!   quoted  = DQUOTE *( escape / any ) DQUOTE        ; must be followed by a blank or the end of the line
//!           / "'" *( "\'" / any ) "'"                ; likewise
//!   escape  = "\x" HEX HEX / "\" any                 ; \n \r \t \b \a are control characters,
//!                                                    ; any other escaped byte is itself
//! ```
//!
//! As in Redis, `blank` is any of the six ASCII white space characters between words, but a plain word is
//! ended only by space, tab, CR or LF. The caller refuses lines with a NUL, which Redis takes for the end of
//! a C string; `"\x00"` is one all the same.

use crate::error::ProtocolError;
use crate::span::Span;

/// Splits `line` (without its line end) into words, unescaped into `text`; `words` are ranges of `text`.
/// Both are appended to. Linear in the length of the line.
pub(crate) fn split(line: &[u8], text: &mut Vec<u8>, words: &mut Vec<Span>) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        rest = skip_blanks(rest);
        if rest.is_empty() {
            return Ok(());
        }
        let start = text.len();
        rest = word(rest, text)?;
        words.push(Span { start, end: text.len() });
    }
}

fn skip_blanks(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|&&byte| is_blank(byte)).count();
    &line[blanks..]
}

/// C's `isspace`.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Takes one word off the front of `line` and returns what follows it.
fn word<'a>(line: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let plain = line.iter().take_while(|byte| !b" \t\n\r\"'".contains(byte)).count();
    let (plain, rest) = line.split_at(plain);
    text.extend_from_slice(plain);
    match rest.split_first() {
        Some((b'"', quoted)) => end_of_quote(double_quoted(quoted, text)?),
        Some((b'\'', quoted)) => end_of_quote(single_quoted(quoted, text)?),
        _ => Ok(rest),
    }
}

/// A closing quote must be followed by a blank or by the end of the line.
fn end_of_quote(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(&byte) if !is_blank(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

/// Unescapes up to the closing double quote; returns what follows it.
fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match *rest {
            [b'"', ref after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, ref after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                text.push(hex_digit(high) << 4 | hex_digit(low));
                after
            }
            [b'\\', escaped, ref after @ ..] => {
                text.push(unescape(escaped));
                after
            }
            [byte, ref after @ ..] => {
                text.push(byte);
                after
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
    }
}

/// Copies up to the closing single quote, where `\'` is a quote; returns what follows it.
fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match *rest {
            [b'\'', ref after @ ..] => return Ok(after),
            [b'\\', b'\'', ref after @ ..] => {
                text.push(b'\'');
                after
            }
            [byte, ref after @ ..] => {
                text.push(byte);
                after
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
    }
}

/// The value of an ASCII hexadecimal digit.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn unescape(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        split(line, &mut text, &mut spans)?;
        Ok(spans.iter().map(|span| text[span.start..span.end].to_vec()).collect())
    }

    #[track_caller]
    fn assert_words(line: &[u8], expected: &[&[u8]]) {
        let expected: Vec<Vec<u8>> = expected.iter().map(|word| word.to_vec()).collect();
        assert_eq!(words(line), Ok(expected));
    }

    #[test]
    fn blanks_separate_words() {
        assert_words(b"", &[]);
        assert_words(b" \t\x0b\x0c ", &[]);
        assert_words(b"  set\tkey \t value ", &[b"set", b"key", b"value"]);
        assert_words(b"a\rb", &[b"a", b"b"]);
        assert_words(b"a\x0bb \x0bc", &[b"a\x0bb", b"c"]);
    }

    #[test]
    fn double_quotes_unescape() {
        assert_words(br#""" "a b" x"y""#, &[b"", b"a b", b"xy"]);
        assert_words(br#""\n\r\t\b\a\\\"\q""#, &[b"\n\r\t\x08\x07\\\"q"]);
        assert_words(br#""\x00\xfF\x4a" "\xg0" "\x4""#, &[b"\x00\xffJ", b"xg0", b"x4"]);
        assert_words(br#""it's""#, &[b"it's"]);
    }

    #[test]
    fn single_quotes_keep_all_but_an_escaped_quote() {
        assert_words(br#"'a b' '' 'it\'s' 'x\n"'"#, &[b"a b", b"", b"it's", br#"x\n""#]);
    }

    #[test]
    fn outside_of_quotes_a_backslash_is_a_byte() {
        assert_words(br"a\nb \x41", &[br"a\nb", br"\x41"]);
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [
            &br#"""#[..],
            b"'",
            br#"set "a"#,
            br"set 'a",
            br#""a"b"#,
            br"'a'b",
            br#""a"'b'"#,
            br#""a\"#,
            br#""a\""#,
            br"'a\'",
            br#"set """test-key""" test-value"#,
        ] {
            assert_eq!(words(line), Err(ProtocolError::UnbalancedQuotes), "{}", line.escape_ascii());
        }
    }
}
