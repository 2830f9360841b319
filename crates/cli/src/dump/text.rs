//! Arbitrary bytes in JSON: a string where they are plain text, `{"base64": ...}` where they are not.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

const BASE64: &str = "base64";

/// Bytes to be written.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = plain_text(self.0) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(BASE64, &STANDARD.encode(self.0))?;
        map.end()
    }
}

/// The bytes as text, if they are UTF-8 without control characters other than tab and line ends. Any other
/// control character takes six characters in JSON, and a person cannot read it.
fn plain_text(bytes: &[u8]) -> Option<&str> {
    let readable = |b: &u8| *b >= b' ' && *b != 0x7f || matches!(b, b'\t' | b'\n' | b'\r');
    std::str::from_utf8(bytes).ok().filter(|text| text.as_bytes().iter().all(readable))
}

/// Bytes that were read; either form is accepted for any bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Read, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or an object {\"base64\": string}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Read, E> {
        Ok(Read(text.as_bytes().to_vec()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Read, E> {
        Ok(Read(text.into_bytes()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Read, A::Error> {
        let unexpected = || A::Error::custom("expected an object with the one member \"base64\"");
        let (name, encoded) = map.next_entry::<String, String>()?.ok_or_else(unexpected)?;
        if name != BASE64 || map.next_key::<String>()?.is_some() {
            return Err(unexpected());
        }
        STANDARD.decode(encoded).map(Read).map_err(|e| A::Error::custom(format!("not base64: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_readable_and_other_bytes_are_encoded() {
        let cases: [(&[u8], &str); 7] = [
            (b"", "\"\""),
            (b"user:1", "\"user:1\""),
            ("Käse \"🧀\"".as_bytes(), "\"Käse \\\"🧀\\\"\""),
            (b"a\r\n\tb", "\"a\\r\\n\\tb\""),
            (b"\0", "{\"base64\":\"AA==\"}"),
            (b"\xff\xfe", "{\"base64\":\"//4=\"}"),
            (b"\x7f", "{\"base64\":\"fw==\"}"),
        ];
        for (bytes, json) in cases {
            assert_eq!(serde_json::to_string(&Shown(bytes)).unwrap(), json);
        }
    }

    #[test]
    fn every_byte_comes_back() {
        for first in 0..=u8::MAX {
            for bytes in [vec![first], vec![b'a', first, b'z'], vec![first; 300]] {
                let json = serde_json::to_string(&Shown(&bytes)).unwrap();
                assert_eq!(serde_json::from_str::<Read>(&json).unwrap().0, bytes, "{json}");
            }
        }
    }

    #[test]
    fn either_form_is_read_for_any_bytes() {
        for json in ["\"hi\"", "\"\\u0068i\"", "{\"base64\":\"aGk=\"}"] {
            assert_eq!(serde_json::from_str::<Read>(json).unwrap().0, b"hi", "{json}");
        }
    }

    #[test]
    fn other_json_is_refused() {
        let cases = [
            "1",
            "null",
            "[]",
            "{}",
            "{\"hex\":\"00\"}",
            "{\"base64\":1}",
            "{\"base64\":\"a\"}",
            "{\"base64\":\"aGk=\",\"x\":1}",
        ];
        for json in cases {
            assert!(serde_json::from_str::<Read>(json).is_err(), "{json}");
        }
    }
}
