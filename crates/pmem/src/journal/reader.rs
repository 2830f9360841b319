//! Reading records one after another.

use super::layout::{Contents, RECORD_HEAD_BYTES, decode, is_whole, length_at, run_of};
use super::ring::Ring;
use super::{Medium, RECORD_MAX_BYTES};
use std::io;

/// The lines of a record.
pub(super) struct RecordLines<'r> {
    /// The position of their contents, which are one behind the other.
    pub(super) pos: u64,
    /// A word for each run.
    words: &'r [u8],
    /// The contents.
    pub(super) contents: &'r [u8],
}

impl RecordLines<'_> {
    /// Runs of lines: the number of the first, and how many.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        let words =
            self.words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        words.map(run_of)
    }
}

/// Reads records one after another.
pub(super) struct Reader<'m> {
    medium: &'m dyn Medium,
    ring: &'m Ring,
    /// Where the next record begins.
    pub(super) pos: u64,
    /// The generation of the next record.
    pub(super) generation: u64,
    /// Records lie before this position.
    end: u64,
    /// The records were read as a whole before.
    pub(super) has_read: bool,
    /// Bytes from `ahead_at` on that were read already.
    ahead: Vec<u8>,
    ahead_at: u64,
}

/// Bytes that are read at once.
pub(super) const AHEAD_BYTES: u64 = 256 << 10;

impl<'m> Reader<'m> {
    /// The records from the ring's tail to `end`.
    pub(super) fn new(medium: &'m dyn Medium, ring: &'m Ring, tail: u64, end: u64) -> Reader<'m> {
        let (generation, ahead, ahead_at) = (ring.generation, Vec::new(), tail);
        Reader { medium, ring, pos: tail, generation, end, has_read: false, ahead, ahead_at }
    }

    /// The next record with lines, if there is one.
    pub(super) fn next(&mut self) -> io::Result<Option<RecordLines<'_>>> {
        let Some((at, bytes, words_bytes)) = self.find_next()? else { return Ok(None) };
        let (words, contents) = self.ahead[at..at + bytes][RECORD_HEAD_BYTES..].split_at(words_bytes);
        Ok(Some(RecordLines { pos: self.pos - contents.len() as u64, words, contents }))
    }

    /// Skips the next record with lines. Returns its place in the bytes that were read, its length, and the
    /// length of its runs' words.
    fn find_next(&mut self) -> io::Result<Option<(usize, usize, usize)>> {
        loop {
            let left = self.end - self.pos;
            if left < RECORD_HEAD_BYTES as u64 {
                return Ok(None);
            }
            let pos = self.pos;
            let head = self.bytes(pos, RECORD_HEAD_BYTES as u64)?;
            let Some(bytes) = length_at(head, pos, left.min(RECORD_MAX_BYTES)) else { return Ok(None) };
            let (has_read, generation) = (self.has_read, self.generation);
            let record = self.bytes(pos, bytes)?;
            if !has_read && !is_whole(record, generation) {
                return Ok(None);
            }
            let Some(contents) = decode(record) else { return Ok(None) };
            self.pos += bytes;
            match contents {
                Contents::Generation(next) => self.generation = next,
                Contents::Lines(words_bytes) => {
                    return Ok(Some(((pos - self.ahead_at) as usize, bytes as usize, words_bytes)));
                }
            }
        }
    }

    /// Bytes at a position, not behind the end.
    fn bytes(&mut self, pos: u64, bytes: u64) -> io::Result<&[u8]> {
        let has = self.ahead_at + self.ahead.len() as u64;
        if pos + bytes > has {
            self.ahead.resize((self.end - pos).min(AHEAD_BYTES.max(bytes)) as usize, 0);
            self.ring.read_at(self.medium, pos, &mut self.ahead)?;
            self.ahead_at = pos;
        }
        let at = (pos - self.ahead_at) as usize;
        Ok(&self.ahead[at..at + bytes as usize])
    }
}
