//! Intsets: small sets of integers.
//!
//! ```text
//!   intset = width_le4 count_le4 { integer_le }            width 2, 4 or 8; in order
//! ```

use crate::error::Malformed;
use crate::listpack::{Entry, bytes_at, signed_le};

const HEADER_BYTES: usize = 8;

/// A walk over an intset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntsetCursor {
    at: usize,
    width: usize,
    before: Option<i64>,
}

impl IntsetCursor {
    pub(crate) fn begin(blob: &[u8]) -> Result<Self, Malformed> {
        let header = bytes_at(blob, 0, HEADER_BYTES)?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let width = match word(0) {
            width @ (2 | 4 | 8) => width as usize,
            _ => return Err(Malformed { at: 0, what: "its integers have an unknown width" }),
        };
        if u64::from(word(4)) * width as u64 != (blob.len() - HEADER_BYTES) as u64 {
            return Err(Malformed { at: 4, what: "it has another number of integers" });
        }
        Ok(IntsetCursor { at: HEADER_BYTES, width, before: None })
    }

    /// The next integer; `None` at the end.
    pub(crate) fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<Entry<'a>>, Malformed> {
        if self.at == blob.len() {
            return Ok(None);
        }
        let integer = signed_le(bytes_at(blob, self.at, self.width)?);
        if self.before.is_some_and(|before| before >= integer) {
            return Err(Malformed { at: self.at, what: "its integers are not in order" });
        }
        self.before = Some(integer);
        self.at += self.width;
        Ok(Some(Entry::Integer(integer)))
    }
}

/// The intset of `integers`, which are in order, of the smallest width.
pub(crate) fn build(integers: &[i64]) -> Vec<u8> {
    let fits = |bits: u32| integers.iter().all(|n| (n >> bits) == 0 || (n >> bits) == -1);
    let width = if fits(15) {
        2
    } else if fits(31) {
        4
    } else {
        8
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + width * integers.len());
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&(integers.len() as u32).to_le_bytes());
    for integer in integers {
        bytes.extend_from_slice(&integer.to_le_bytes()[..width]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intsets_hold_what_they_are_built_of() {
        for integers in [
            &[][..],
            &[-1, 0, 5],
            &[-0x8000, 0x7fff],
            &[-0x8001, 7],
            &[-0x8000_0000, 0x7fff_ffff],
            &[i64::MIN, 0, 0x8000_0000, i64::MAX],
        ] {
            let blob = build(integers);
            let mut cursor = IntsetCursor::begin(&blob).unwrap();
            for &integer in integers {
                assert_eq!(cursor.next(&blob), Ok(Some(Entry::Integer(integer))));
            }
            assert_eq!(cursor.next(&blob), Ok(None));
        }
        assert!(IntsetCursor::begin(&build(&[1, 2])[..10]).is_err());
        let blob = build(&[2, 1]);
        let mut cursor = IntsetCursor::begin(&blob).unwrap();
        assert!(cursor.next(&blob).is_ok() && cursor.next(&blob).is_err());
    }
}
