//! Key-value records: the form that keys and values have on media in all maps of byte strings.
//!
//! A record is a word with both lengths, then the key, then the value. It is written into a fresh block, and
//! never changes once it is published. `PmRecord` and `PmVersionedRecord` document that word for their maps.

use crate::error::{Error, Result};
use tembo_pool::Tx;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: u64 = 65_536;
/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: u64 = 512 << 20;

/// Bytes of a record before its key.
pub(crate) const RECORD_HEAD_BYTES: u64 = 8;
/// Records up to this size are composed on the stack and written at once.
const SMALL_RECORD_BYTES: usize = 512;

/// Where the value of a record lies in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuePlace {
    /// Its first byte.
    pub off: u64,
    /// Its length.
    pub bytes: u64,
}

/// Refuses a key or a value that is too long; returns the bytes of the value, which is the concatenation of
/// `value`.
#[inline]
pub(crate) fn check_lengths(key: &[u8], value: &[&[u8]]) -> Result<u64> {
    let key_bytes = key.len() as u64;
    if key_bytes > MAX_KEY_BYTES {
        return Err(Error::KeyTooLong { bytes: key_bytes, max_bytes: MAX_KEY_BYTES });
    }
    let value_bytes = value.iter().map(|part| part.len() as u64).sum();
    if value_bytes > MAX_VALUE_BYTES {
        return Err(Error::ValueTooLong { bytes: value_bytes, max_bytes: MAX_VALUE_BYTES });
    }
    Ok(value_bytes)
}

/// Writes a record into a fresh block.
pub(crate) fn write_record(tx: &mut Tx<'_>, key: &[u8], value: &[&[u8]], value_bytes: u64) -> Result<u64> {
    let off = tx.alloc(record_bytes(key, value_bytes))?;
    fill_record(tx, off, key, value, value_bytes)
}

/// As [`write_record`], for a record whose offset may be any multiple of 8.
pub(crate) fn write_record_of_words(
    tx: &mut Tx<'_>,
    key: &[u8],
    value: &[&[u8]],
    value_bytes: u64,
) -> Result<u64> {
    let off = tx.alloc_words(record_bytes(key, value_bytes))?;
    fill_record(tx, off, key, value, value_bytes)
}

fn record_bytes(key: &[u8], value_bytes: u64) -> u64 {
    RECORD_HEAD_BYTES + key.len() as u64 + value_bytes
}

#[inline(always)]
fn fill_record(tx: &mut Tx<'_>, off: u64, key: &[u8], value: &[&[u8]], value_bytes: u64) -> Result<u64> {
    let head = (key.len() as u64 | value_bytes << 32).to_ne_bytes();
    let bytes = record_bytes(key, value_bytes);
    if bytes <= SMALL_RECORD_BYTES as u64 {
        let mut image = [0; SMALL_RECORD_BYTES];
        let mut filled = 0;
        for part in [&head, key].iter().chain(value) {
            image[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        }
        tx.write_fresh(off, &image[..filled])?;
        return Ok(off);
    }
    let mut at = off;
    for part in [&head, key].iter().chain(value) {
        tx.write_fresh(at, part)?;
        at += part.len() as u64;
    }
    Ok(off)
}
