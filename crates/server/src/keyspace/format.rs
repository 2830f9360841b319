//! How a Redis key, its value and its expiry time lie in the pool's maps.
//!
//! # Media layout
//!
//! ```text
//!   map "dbN"           key                      -> value      N = 0..15, decimal
//!   map "dbN.expires"   deadline_be key          -> (empty)
//!
//!   value    = header [ deadline_le ] payload
//!   header   = one byte
//!                bits 0..3  type: 0 string; others are reserved
//!                bit  6     MODIFIED: the string was edited in place (OBJECT ENCODING says raw)
//!                bit  7     EXPIRES: a deadline follows
//!   deadline = 8 bytes: milliseconds since the Unix epoch, UTC
//! ```
//!
//! The header is one byte because it is paid for every key; a deadline is paid only where there is one. In
//! the second map the deadline is big-endian so that the map's order is the order of expiry.
//!
//! # Invariants
//!
//! [`check`](super::check) proves them.
//!
//! - **I1** A value is well formed: it decodes without error.
//! - **I2** `deadline_be key` is in "dbN.expires" exactly if `key` is in "dbN" with that deadline. Both maps
//!   are only ever changed together, in one batch.

use crate::fault::Fault;

/// Databases that SELECT can choose from.
pub(crate) const DATABASES: usize = 16;

/// Longest key in bytes: what the pool's maps take, less the deadline in front of it in "dbN.expires".
pub(crate) const KEY_BYTES_MAX: usize = 65536 - DEADLINE_BYTES;

const DEADLINE_BYTES: usize = 8;
/// Header and deadline.
pub(crate) const PREFIX_BYTES_MAX: usize = 1 + DEADLINE_BYTES;

const TYPE_STRING: u8 = 0;
const MODIFIED: u8 = 0x40;
const EXPIRES: u8 = 0x80;

/// The contents of a value's prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// When the key expires, in milliseconds since the Unix epoch.
    pub(crate) deadline: Option<u64>,
    /// The string was edited in place.
    pub(crate) modified: bool,
}

/// A value as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored<'a> {
    pub(crate) meta: Meta,
    pub(crate) payload: &'a [u8],
}

/// A value that breaks I1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Fault::Malformed
    }
}

impl<'a> Stored<'a> {
    pub(crate) fn decode(value: &'a [u8]) -> Result<Self, Malformed> {
        let (&header, rest) = value.split_first().ok_or(Malformed)?;
        if header & !(MODIFIED | EXPIRES) != TYPE_STRING {
            return Err(Malformed);
        }
        let modified = header & MODIFIED != 0;
        if header & EXPIRES == 0 {
            return Ok(Stored { meta: Meta { deadline: None, modified }, payload: rest });
        }
        let (deadline, payload) = rest.split_first_chunk().ok_or(Malformed)?;
        let deadline = Some(u64::from_le_bytes(*deadline));
        Ok(Stored { meta: Meta { deadline, modified }, payload })
    }
}

/// The bytes in front of a payload.
pub(crate) struct Prefix {
    bytes: [u8; PREFIX_BYTES_MAX],
    len: usize,
}

impl Prefix {
    pub(crate) fn encode(meta: Meta) -> Self {
        let mut bytes = [0; PREFIX_BYTES_MAX];
        bytes[0] = TYPE_STRING | if meta.modified { MODIFIED } else { 0 };
        let mut len = 1;
        if let Some(deadline) = meta.deadline {
            bytes[0] |= EXPIRES;
            bytes[1..].copy_from_slice(&deadline.to_le_bytes());
            len = PREFIX_BYTES_MAX;
        }
        Prefix { bytes, len }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes the key under which "dbN.expires" holds `key`.
pub(crate) fn encode_expiry(out: &mut Vec<u8>, deadline: u64, key: &[u8]) {
    out.clear();
    out.extend_from_slice(&deadline.to_be_bytes());
    out.extend_from_slice(key);
}

/// The deadline and the key that an entry of "dbN.expires" stands for.
pub(crate) fn decode_expiry(entry: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let (deadline, key) = entry.split_first_chunk().ok_or(Malformed)?;
    Ok((u64::from_be_bytes(*deadline), key))
}

/// The names of a database's two maps.
pub(crate) fn map_names(database: usize) -> (String, String) {
    (format!("db{database}"), format!("db{database}.expires"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_value_costs_one_byte() {
        assert_eq!(Prefix::encode(Meta::default()).as_bytes(), [0]);
    }

    #[test]
    fn values_decode_to_what_was_encoded() {
        for deadline in [None, Some(0), Some(1_700_000_000_123), Some(u64::MAX)] {
            for modified in [false, true] {
                let meta = Meta { deadline, modified };
                let mut value = Prefix::encode(meta).as_bytes().to_vec();
                value.extend_from_slice(b"payload");
                assert_eq!(Stored::decode(&value), Ok(Stored { meta, payload: b"payload" }));
            }
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        for value in [&b""[..], b"\x01abc", b"\x0f", b"\x10abc", b"\x20abc", b"\x80", b"\x80\0\0\0\0\0\0\0"] {
            assert_eq!(Stored::decode(value), Err(Malformed), "{value:?}");
        }
        assert_eq!(decode_expiry(b"1234567"), Err(Malformed));
    }

    #[test]
    fn expiry_entries_sort_by_deadline() {
        let entry = |deadline, key: &[u8]| {
            let mut out = b"left over".to_vec();
            encode_expiry(&mut out, deadline, key);
            assert_eq!(decode_expiry(&out), Ok((deadline, key)));
            out
        };
        assert!(entry(255, b"z") < entry(256, b"a"));
        assert!(entry(256, b"a") < entry(256, b"b"));
    }
}
