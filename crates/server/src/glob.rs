//! Redis's glob patterns.
//!
//! ```text
//!   *        any bytes, also none           [abc]  one of these bytes     [a-c]  one of a range
//!   ?        any byte                       [^abc] none of these          \x     x itself
//! ```
//!
//! A class that is not closed ends with the pattern. Matching takes time proportional to the lengths of
//! pattern and text multiplied, whatever the pattern.

/// Whether all of `text` matches `pattern`. With `fold`, ASCII letters match in either case.
pub(crate) fn matches(pattern: &[u8], text: &[u8], fold: bool) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // Where to resume if the pattern after the last star does not match here: one byte further.
    let mut resume: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some((b'*', rest)) = pattern.split_first() {
            pattern = rest;
            resume = Some((rest, text));
            continue;
        }
        match (text.split_first(), one(pattern, text.first().copied(), fold)) {
            (None, _) if pattern.is_empty() => return true,
            (Some((_, after)), Some(rest)) => (pattern, text) = (rest, after),
            _ => match resume {
                Some((rest, [_, after @ ..])) => {
                    resume = Some((rest, after));
                    (pattern, text) = (rest, after);
                }
                _ => return false,
            },
        }
    }
}

/// The literal bytes that every match begins with.
pub(crate) fn literal_prefix(pattern: &[u8]) -> Vec<u8> {
    split_literal(pattern).0
}

/// The literal bytes before a star that ends the pattern, if there is nothing else in it.
pub(crate) fn as_prefix(pattern: &[u8]) -> Option<Vec<u8>> {
    let (prefix, rest) = split_literal(pattern);
    (rest == b"*").then_some(prefix)
}

/// The literal bytes at the beginning of a pattern, and what follows them.
fn split_literal(pattern: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut prefix = Vec::new();
    let mut rest = pattern;
    loop {
        rest = match rest {
            [b'*' | b'?' | b'[', ..] | [] => return (prefix, rest),
            [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                prefix.push(*byte);
                after
            }
        }
    }
}

/// Matches one byte with the front of `pattern`, which is not a star; returns the rest of the pattern.
fn one(pattern: &[u8], byte: Option<u8>, fold: bool) -> Option<&[u8]> {
    let byte = byte?;
    let equal = |wanted: u8| wanted == byte || fold && wanted.eq_ignore_ascii_case(&byte);
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', class @ ..] => {
            let (is_in, rest) = in_class(class, byte, fold);
            is_in.then_some(rest)
        }
        [b'\\', wanted, rest @ ..] | [wanted, rest @ ..] => equal(*wanted).then_some(rest),
    }
}

/// Whether `byte` is in the class whose text begins after `[`, and what follows the class.
fn in_class(class: &[u8], byte: u8, fold: bool) -> (bool, &[u8]) {
    let lower = |byte: u8| if fold { byte.to_ascii_lowercase() } else { byte };
    let byte = lower(byte);
    let (negated, mut class) = match class {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    loop {
        class = match class {
            [] => return (found != negated, class),
            [b']', rest @ ..] => return (found != negated, rest),
            [b'\\', wanted, rest @ ..] => {
                found |= lower(*wanted) == byte;
                rest
            }
            [low, b'-', high, rest @ ..] => {
                let (low, high) = (lower(*low), lower(*high));
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                rest
            }
            [wanted, rest @ ..] => {
                found |= lower(*wanted) == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_matches(pattern: &str, texts: &[&str]) {
        for text in texts {
            assert!(matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} should match {text}");
        }
    }

    #[track_caller]
    fn assert_differs(pattern: &str, texts: &[&str]) {
        for text in texts {
            assert!(
                !matches(pattern.as_bytes(), text.as_bytes(), false),
                "{pattern} should not match {text}"
            );
        }
    }

    #[test]
    fn stars_match_any_bytes() {
        assert_matches("*", &["", "a", "abc"]);
        assert_matches("**", &["", "a"]);
        assert_matches("a*", &["a", "ab"]);
        assert_differs("a*", &["", "ba"]);
        assert_matches("*a*b*c", &["abc", "xaxxbxbxc", "abcabc"]);
        assert_differs("*a*b*c", &["acb", "abcd"]);
    }

    #[test]
    fn question_marks_match_one_byte() {
        assert_matches("h?llo", &["hello", "hallo", "h?llo"]);
        assert_differs("h?llo", &["hllo", "heello"]);
        assert_differs("?", &[""]);
    }

    #[test]
    fn classes_match_one_of_their_bytes() {
        assert_matches("h[ae]llo", &["hello", "hallo"]);
        assert_differs("h[ae]llo", &["hillo", "hllo"]);
        assert_matches("[a-c]", &["a", "b", "c"]);
        assert_matches("[c-a]", &["a", "b", "c"]);
        assert_differs("[a-c]", &["d", "-"]);
        assert_matches("[^a]", &["b"]);
        assert_differs("[^a]", &["a", ""]);
        assert_matches("[\\]]", &["]"]);
        assert_matches("[a-", &["a", "-"]);
        assert_matches("[ab", &["a", "b"]);
        assert_differs("[]", &["a", "]"]);
        assert_matches("[^]", &["a"]);
    }

    #[test]
    fn a_backslash_makes_any_byte_literal() {
        assert_matches("\\*\\?\\[", &["*?["]);
        assert_differs("\\*", &["a"]);
        assert_matches("a\\", &["a\\"]);
    }

    #[test]
    fn case_counts_unless_folded() {
        assert_differs("GET", &["get"]);
        assert!(matches(b"G[A-F]T*", b"getex", true));
    }

    #[test]
    fn a_hostile_pattern_takes_polynomial_time() {
        let pattern = "a*".repeat(30) + "b";
        assert_differs(&pattern, &[&"a".repeat(3000)]);
    }

    #[test]
    fn the_literal_prefix_ends_at_the_first_wildcard() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"us\\*er?"), b"us*er");
        assert_eq!(literal_prefix(b"[ab]"), b"");
        assert_eq!(literal_prefix(b"abc\\"), b"abc\\");
    }

    #[test]
    fn a_pattern_may_be_a_beginning() {
        for (pattern, expected) in [
            (&b"*"[..], Some(&b""[..])),
            (b"a*", Some(b"a")),
            (b"a\\*b*", Some(b"a*b")),
            (b"a\\\\*", Some(b"a\\")),
            (b"a", None),
            (b"a\\*", None),
            (b"a**", None),
            (b"a?*", None),
            (b"*a*", None),
            (b"", None),
        ] {
            assert_eq!(as_prefix(pattern).as_deref(), expected, "{}", pattern.escape_ascii());
        }
    }
}
