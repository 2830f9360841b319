//! Ziplists: the packed form of small values before Redis 7.0.
//!
//! ```text
//!   ziplist = bytes_le4 tail_le4 count_le2 { entry } 0xff       count 65535: not known
//!   entry   = prev data                                         prev: the length of the entry before
//!   prev    = l | 0xfe l_le4
//!   data    = 00llllll bytes | 01llllll l bytes | 0x80 l_be4 bytes
//!           | 0xc0 x_le2 | 0xd0 x_le4 | 0xe0 x_le8 | 0xf0 x_le3 | 0xfe x | 1111xxxx      xxxx 1..13: 0..12
//! ```

use crate::error::Malformed;
use crate::listpack::{Entry, bytes_at, signed_le};

const HEADER_BYTES: usize = 10;
const END: u8 = 0xff;
const COUNT_UNKNOWN: u16 = u16::MAX;
/// Says that four bytes have the length of the entry before.
const LONG_PREV: u8 = 0xfe;

/// A walk over a ziplist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZiplistCursor {
    at: usize,
    /// The length of the entry before.
    prev: usize,
    seen: u64,
}

fn malformed<T>(at: usize, what: &'static str) -> Result<T, Malformed> {
    Err(Malformed { at, what })
}

fn u32_le(bytes: &[u8]) -> usize {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
}

impl ZiplistCursor {
    pub(crate) fn begin(blob: &[u8]) -> Result<Self, Malformed> {
        if u32_le(bytes_at(blob, 0, HEADER_BYTES)?) != blob.len() {
            return malformed(0, "its length is another one");
        }
        Ok(ZiplistCursor { at: HEADER_BYTES, prev: 0, seen: 0 })
    }

    /// The next entry; `None` at the end.
    pub(crate) fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<Entry<'a>>, Malformed> {
        let at = self.at;
        let first = bytes_at(blob, at, 1)?[0];
        if first == END {
            return self.end(blob).map(|()| None);
        }
        let (prev, prev_bytes) = match first {
            LONG_PREV => (u32_le(bytes_at(blob, at + 1, 4)?), 5),
            len => (usize::from(len), 1),
        };
        if prev != self.prev {
            return malformed(at, "the length of the entry before is another one");
        }
        let (entry, len) = decode(blob, at + prev_bytes)?;
        self.prev = prev_bytes + len;
        self.at = at + self.prev;
        self.seen += 1;
        Ok(Some(entry))
    }

    fn end(self, blob: &[u8]) -> Result<(), Malformed> {
        let count = u16::from_le_bytes([blob[8], blob[9]]);
        if count != COUNT_UNKNOWN && u64::from(count) != self.seen {
            return malformed(8, "it has another number of entries");
        }
        if u32_le(&blob[4..8]) != self.at - self.prev {
            return malformed(4, "its last entry is elsewhere");
        }
        if self.at + 1 != blob.len() { malformed(self.at, "bytes follow its end") } else { Ok(()) }
    }
}

/// The data at `at`, and its length.
fn decode(blob: &[u8], at: usize) -> Result<(Entry<'_>, usize), Malformed> {
    let first = bytes_at(blob, at, 1)?[0];
    let integer = |count| Ok((Entry::Integer(signed_le(bytes_at(blob, at + 1, count)?)), 1 + count));
    let string = |header, len| Ok((Entry::Bytes(bytes_at(blob, at + header, len)?), header + len));
    match first {
        0..0x40 => string(1, usize::from(first)),
        0x40..0x80 => string(2, usize::from(first & 0x3f) << 8 | usize::from(bytes_at(blob, at + 1, 1)?[0])),
        0x80 => {
            let len = bytes_at(blob, at + 1, 4)?;
            string(5, u32::from_be_bytes([len[0], len[1], len[2], len[3]]) as usize)
        }
        0xc0 => integer(2),
        0xd0 => integer(4),
        0xe0 => integer(8),
        0xf0 => integer(3),
        0xfe => integer(1),
        0xf1..=0xfd => Ok((Entry::Integer(i64::from(first & 0x0f) - 1), 1)),
        _ => malformed(at, "an entry has an unknown encoding"),
    }
}
