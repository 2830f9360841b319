//! Keys and values as arguments, as JSON, and as text for people.

use crate::args::Encoding;
use crate::failure::{Failure, Outcome};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The bytes that an argument stands for.
pub(super) fn of_argument(text: &str, encoding: Encoding) -> Outcome<Vec<u8>> {
    let bytes = match encoding {
        Encoding::Text => Ok(text.as_bytes().to_vec()),
        Encoding::Hex => of_hex(text),
        Encoding::Base64 => of_base64(text),
    };
    bytes.map_err(|why| Failure::Usage(format!("{text:?} {why}")))
}

/// Bytes for people, on one line.
pub(super) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() || c == '\\') => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Bytes in JSON that was read: text, or an object with one form of other bytes.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, {\"base64\": \"...\"} or {\"hex\": \"...\"}")]
pub(super) enum JsonBytes {
    Text(String),
    Base64(Base64),
    Hex(Hex),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Base64 {
    base64: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hex {
    hex: String,
}

impl JsonBytes {
    pub(super) fn into_bytes(self) -> Result<Vec<u8>, String> {
        match self {
            JsonBytes::Text(text) => Ok(text.into_bytes()),
            JsonBytes::Base64(Base64 { base64 }) => {
                of_base64(&base64).map_err(|why| format!("{base64:?} {why}"))
            }
            JsonBytes::Hex(Hex { hex }) => of_hex(&hex).map_err(|why| format!("{hex:?} {why}")),
        }
    }
}

fn of_base64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|e| format!("is not base64: {e}"))
}

fn of_hex(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || "is not hexadecimal: expected two digits for each byte".to_owned();
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2)).ok_or_else(wrong)?;
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_stand_for_bytes_in_three_forms() {
        let cases: [(&str, Encoding, &[u8]); 5] = [
            ("ff00", Encoding::Text, b"ff00"),
            ("ff00", Encoding::Hex, b"\xff\0"),
            ("FF0a", Encoding::Hex, b"\xff\n"),
            ("", Encoding::Hex, b""),
            ("/wA=", Encoding::Base64, b"\xff\0"),
        ];
        for (text, encoding, bytes) in cases {
            assert_eq!(of_argument(text, encoding).unwrap(), bytes, "{text}");
        }
        for (text, encoding) in [("f", Encoding::Hex), ("gg", Encoding::Hex), ("a", Encoding::Base64)] {
            assert!(matches!(of_argument(text, encoding), Err(Failure::Usage(_))), "{text}");
        }
    }

    #[test]
    fn people_read_one_line() {
        assert_eq!(shown("Käse".as_bytes()), "Käse");
        assert_eq!(shown(b"a\nb\xff"), "a\\nb\\xff");
        assert_eq!(shown(b"a\\n"), "a\\\\n");
    }
}
