//! Zipmaps: the packed form of small hashes before Redis 2.6.
//!
//! ```text
//!   zipmap = count { len field len free value free*byte } 0xff      count 254: not known
//!   len    = l | 0xfe l_le4
//! ```

use crate::error::Malformed;
use crate::listpack::{Entry, bytes_at};

const END: u8 = 0xff;
const LONG: u8 = 0xfe;
/// Counts from this one on stand for "walk and see".
const COUNT_UNKNOWN: u8 = 254;

/// A walk over a zipmap: field, value, field, value ...
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZipmapCursor {
    at: usize,
    /// Entries seen: fields and values.
    seen: u64,
}

impl ZipmapCursor {
    pub(crate) fn begin(blob: &[u8]) -> Result<Self, Malformed> {
        bytes_at(blob, 0, 1)?;
        Ok(ZipmapCursor { at: 1, seen: 0 })
    }

    /// The next field or value; `None` at the end.
    pub(crate) fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<Entry<'a>>, Malformed> {
        let (at, is_value) = (self.at, self.seen % 2 == 1);
        let first = bytes_at(blob, at, 1)?[0];
        if first == END && !is_value {
            return self.end(blob).map(|()| None);
        }
        let (len, len_bytes) = match first {
            LONG => {
                let len = bytes_at(blob, at + 1, 4)?;
                (u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize, 5)
            }
            END => return Err(Malformed { at, what: "a field has no value" }),
            len => (usize::from(len), 1),
        };
        let mut start = at + len_bytes;
        let mut free = 0;
        if is_value {
            free = usize::from(bytes_at(blob, start, 1)?[0]);
            start += 1;
        }
        let entry = bytes_at(blob, start, len)?;
        bytes_at(blob, start + len, free)?;
        self.at = start + len + free;
        self.seen += 1;
        Ok(Some(Entry::Bytes(entry)))
    }

    fn end(self, blob: &[u8]) -> Result<(), Malformed> {
        if blob[0] < COUNT_UNKNOWN && u64::from(blob[0]) != self.seen / 2 {
            return Err(Malformed { at: 0, what: "it has another number of fields" });
        }
        match self.at + 1 == blob.len() {
            true => Ok(()),
            false => Err(Malformed { at: self.at, what: "bytes follow its end" }),
        }
    }
}
