//! Listpacks: the packed form of small values since Redis 7.0.
//!
//! ```text
//!   listpack = bytes_le4 count_le2 { entry } 0xff          count 65535: not known
//!   entry    = data backlen                                backlen: the length of data, to be read backwards
//!   data     = 0xxxxxxx                                    0..127
//!            | 10llllll bytes                              a string of up to 63 bytes
//!            | 110xxxxx x                                  an integer of 13 bits
//!            | 1110llll l bytes                            a string of up to 4095 bytes
//!            | 0xf0 l_le4 bytes                            a string
//!            | 0xf1 x_le2 | 0xf2 x_le3 | 0xf3 x_le4 | 0xf4 x_le8
//! ```

use crate::error::Malformed;
use crate::number::parse_canonical;

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
/// A count that stands for "walk and see".
const COUNT_UNKNOWN: u16 = u16::MAX;

/// The contents of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
}

impl Entry<'_> {
    /// Writes the entry as a string.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Entry::Integer(integer) => {
                out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
            }
            Entry::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// A walk over a listpack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListpackCursor {
    at: usize,
    seen: u64,
}

fn malformed<T>(at: usize, what: &'static str) -> Result<T, Malformed> {
    Err(Malformed { at, what })
}

/// The bytes from `at` on, if there are this many.
pub(crate) fn bytes_at(blob: &[u8], at: usize, len: usize) -> Result<&[u8], Malformed> {
    let end = at.checked_add(len);
    end.and_then(|end| blob.get(at..end)).ok_or(Malformed { at, what: "it ends in the middle of an entry" })
}

/// A little-endian signed integer of as many bytes as there are.
pub(crate) fn signed_le(bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[8 - bytes.len()..].copy_from_slice(bytes);
    i64::from_le_bytes(wide) >> (64 - 8 * bytes.len())
}

impl ListpackCursor {
    pub(crate) fn begin(blob: &[u8]) -> Result<Self, Malformed> {
        let header = bytes_at(blob, 0, HEADER_BYTES)?;
        if u64::from(u32::from_le_bytes([header[0], header[1], header[2], header[3]])) != blob.len() as u64 {
            return malformed(0, "its length is another one");
        }
        Ok(ListpackCursor { at: HEADER_BYTES, seen: 0 })
    }

    /// The next entry; `None` at the end.
    pub(crate) fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<Entry<'a>>, Malformed> {
        let at = self.at;
        let first = bytes_at(blob, at, 1)?[0];
        if first == END {
            return self.end(blob).map(|()| None);
        }
        let (entry, len) = decode(blob, at, first)?;
        let (backlen, count) = backlen(len);
        if bytes_at(blob, at + len, count)? != &backlen[..count] {
            return malformed(at + len, "the length behind an entry is another one");
        }
        self.at = at + len + count;
        self.seen += 1;
        Ok(Some(entry))
    }

    fn end(self, blob: &[u8]) -> Result<(), Malformed> {
        let count = u16::from_le_bytes([blob[4], blob[5]]);
        if count != COUNT_UNKNOWN && u64::from(count) != self.seen {
            return malformed(4, "it has another number of entries");
        }
        if self.at + 1 != blob.len() { malformed(self.at, "bytes follow its end") } else { Ok(()) }
    }
}

/// The entry at `at`, and the length of its data.
fn decode(blob: &[u8], at: usize, first: u8) -> Result<(Entry<'_>, usize), Malformed> {
    let integer = |count| Ok((Entry::Integer(signed_le(bytes_at(blob, at + 1, count)?)), 1 + count));
    let string = |header, len| Ok((Entry::Bytes(bytes_at(blob, at + header, len)?), header + len));
    let low = |mask: u8| usize::from(first & mask) << 8;
    match first {
        0..0x80 => Ok((Entry::Integer(i64::from(first)), 1)),
        0x80..0xc0 => string(1, usize::from(first & 0x3f)),
        0xc0..0xe0 => {
            let bits = (low(0x1f) | usize::from(bytes_at(blob, at + 1, 1)?[0])) as i64;
            Ok((Entry::Integer(if bits >= 1 << 12 { bits - (1 << 13) } else { bits }), 2))
        }
        0xe0..0xf0 => string(2, low(0x0f) | usize::from(bytes_at(blob, at + 1, 1)?[0])),
        0xf0 => {
            let len = bytes_at(blob, at + 1, 4)?;
            string(5, u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize)
        }
        0xf1 => integer(2),
        0xf2 => integer(3),
        0xf3 => integer(4),
        0xf4 => integer(8),
        0xf5..=0xff => malformed(at, "an entry has an unknown encoding"),
    }
}

/// The length of an entry as it stands behind it, and how many bytes that has.
fn backlen(len: usize) -> ([u8; 5], usize) {
    let count = match len {
        0..128 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut bytes = [0; 5];
    for (n, byte) in bytes[..count].iter_mut().enumerate() {
        let shifted = (len >> (7 * (count - 1 - n))) as u8 & 0x7f;
        *byte = shifted | if n == 0 { 0 } else { 0x80 };
    }
    (bytes, count)
}

/// A listpack that is being written.
#[derive(Debug)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    count: u64,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Builder { bytes: vec![0; HEADER_BYTES], count: 0 }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The length that it would have if it ended here.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Appends a string, as an integer if it is one.
    pub(crate) fn push(&mut self, item: &[u8]) {
        let start = self.bytes.len();
        match parse_canonical(item) {
            Some(integer) => self.push_integer(integer),
            None => self.push_bytes(item),
        }
        let (backlen, count) = backlen(self.bytes.len() - start);
        self.bytes.extend_from_slice(&backlen[..count]);
        self.count += 1;
    }

    fn push_integer(&mut self, integer: i64) {
        let wide = integer.to_le_bytes();
        let (tag, count) = match integer {
            0..=127 => return self.bytes.push(integer as u8),
            -4096..=4095 => {
                let bits = (integer & 0x1fff) as u16;
                return self.bytes.extend_from_slice(&(bits | 0xc000).to_be_bytes());
            }
            -0x8000..=0x7fff => (0xf1, 2),
            -0x80_0000..=0x7f_ffff => (0xf2, 3),
            -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
            _ => (0xf4, 8),
        };
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&wide[..count]);
    }

    fn push_bytes(&mut self, item: &[u8]) {
        match item.len() {
            len @ 0..64 => self.bytes.push(0x80 | len as u8),
            len @ 64..4096 => self.bytes.extend_from_slice(&(0xe000 | len as u16).to_be_bytes()),
            len => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(item);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        let count = self.count.min(u64::from(COUNT_UNKNOWN)) as u16;
        self.bytes[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listpacks_hold_what_was_pushed() {
        let mut items: Vec<Vec<u8>> = [0, 1, 127, 128, -1, 4095, 4096, -4096, -4097]
            .into_iter()
            .chain([15, 23, 31, 63].into_iter().flat_map(|bits| {
                let edge = 1i128 << bits;
                [edge - 1, edge, -edge, -edge - 1]
                    .map(|edge| edge.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
            }))
            .map(|integer: i64| integer.to_string().into_bytes())
            .collect();
        for len in [0, 1, 63, 64, 125, 126, 127, 128, 4095, 4096, 16_380, 16_400, 70_000] {
            items.push(vec![b'x'; len]);
        }
        items.extend([&b"007"[..], b"-0", b"+1", b"9223372036854775808", b"1e3"].map(<[u8]>::to_vec));
        let mut builder = Builder::new();
        items.iter().for_each(|item| builder.push(item));
        let blob = builder.finish();
        let (mut cursor, mut out) = (ListpackCursor::begin(&blob).unwrap(), Vec::new());
        for item in &items {
            cursor.next(&blob).unwrap().unwrap().write(&mut out);
            assert_eq!(&out, item);
        }
        assert_eq!(cursor.next(&blob), Ok(None));
    }

    #[test]
    fn no_cut_or_changed_listpack_panics_or_goes_on() {
        let mut builder = Builder::new();
        for item in [&b"1"[..], b"abc", b"-3000", b"70000", &[b'y'; 200]] {
            builder.push(item);
        }
        let blob = builder.finish();
        let walk = |blob: &[u8]| -> Result<usize, Malformed> {
            let mut cursor = ListpackCursor::begin(blob)?;
            let mut count = 0;
            while cursor.next(blob)?.is_some() {
                count += 1;
            }
            Ok(count)
        };
        assert_eq!(walk(&blob), Ok(5));
        for len in 0..blob.len() {
            assert!(walk(&blob[..len]).is_err());
        }
        for at in 0..blob.len() {
            for byte in 0..=255 {
                let mut changed = blob.clone();
                changed[at] = byte;
                assert!(walk(&changed).map_or(true, |count| count <= 5));
            }
        }
    }
}
