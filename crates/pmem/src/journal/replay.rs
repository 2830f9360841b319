//! Reading records back, and recovery.

use super::home::{Gathered, PAGE_BYTES, PAGE_LINES, write_home};
use super::layout::{RECORD_HEAD_BYTES, decode, length_at, run_of};
use super::ring::Ring;
use super::{JournalPlace, Medium, RECORD_MAX_BYTES};
use crate::LINE_BYTES;
use std::io;

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file could not be read or written.
    #[error("the journal could not be read or written: {0}")]
    Io(#[from] io::Error),
    /// The ring makes no sense.
    #[error("the journal at offset {off} is damaged: {what}")]
    Damaged {
        /// Where the journal lies.
        off: u64,
        /// The fault.
        what: String,
    },
}

/// The work of recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records that were replayed.
    pub records: u64,
    /// Lines that were written home.
    pub lines: u64,
}

/// The lines of a record.
pub(super) struct RecordLines<'r> {
    /// The position of their contents, which are one behind the other.
    pub(super) pos: u64,
    /// A word for each run.
    words: &'r [u8],
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
    /// Records lie before this position.
    end: u64,
    /// Bytes from `ahead_at` on that were read already.
    ahead: Vec<u8>,
    ahead_at: u64,
}

/// Bytes that are read at once.
const AHEAD_BYTES: u64 = 256 << 10;

impl<'m> Reader<'m> {
    /// The records from `tail` to `end`.
    pub(super) fn new(medium: &'m dyn Medium, ring: &'m Ring, tail: u64, end: u64) -> Reader<'m> {
        Reader { medium, ring, pos: tail, end, ahead: Vec::new(), ahead_at: tail }
    }

    /// The next record, if there is one.
    pub(super) fn next(&mut self) -> io::Result<Option<RecordLines<'_>>> {
        let left = self.end - self.pos;
        if left < RECORD_HEAD_BYTES as u64 {
            return Ok(None);
        }
        let pos = self.pos;
        let head = self.bytes(pos, RECORD_HEAD_BYTES as u64)?;
        let Some(bytes) = length_at(head, pos, left.min(RECORD_MAX_BYTES)) else { return Ok(None) };
        self.bytes(pos, bytes)?;
        let record = &self.ahead[(pos - self.ahead_at) as usize..][..bytes as usize];
        let Some((words, contents)) = decode(record, self.ring.generation) else { return Ok(None) };
        self.pos += bytes;
        Ok(Some(RecordLines { pos: self.pos - contents.len() as u64, words }))
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

/// Reads all records that are complete. Returns their count, their lines, and the position behind them.
fn read_all(medium: &dyn Medium, ring: &Ring) -> Result<(u64, Gathered, u64), JournalError> {
    let file_bytes = medium.bytes()?;
    let end = ring.tail.saturating_add(ring.capacity);
    let mut reader = Reader::new(medium, ring, ring.tail, end);
    let (mut records, mut gathered) = (0, Gathered::default());
    while let Some(record) = reader.next()? {
        records += 1;
        let is_home = |(first, count): &(u64, u64)| {
            // The last line first: of a run that is that long all numbers are small.
            is_home(ring, file_bytes, first + count - 1)
                && (*first..first + count).all(|line| is_home(ring, file_bytes, line))
        };
        if let Some((line, _)) = record.runs().find(|run| !is_home(run)) {
            let what = format!("a record has line {line} or one behind it, for which the file has no place");
            return Err(JournalError::Damaged { off: ring.place.off, what });
        }
        gathered.add(&record);
    }
    Ok((records, gathered, reader.pos))
}

/// Whether a line has a place in the file, outside the ring's range.
fn is_home(ring: &Ring, file_bytes: u64, line: u64) -> bool {
    let page_end = (line / PAGE_LINES + 1).saturating_mul(PAGE_BYTES as u64);
    page_end <= file_bytes && !(ring.place.off < page_end && page_end <= ring.range_end_off())
}

/// Replays the journal into the file and begins a new generation (`mod.rs`, Recovery).
///
/// # Errors
///
/// Failures of the medium, and damage; the file has what it had then.
pub fn recover(medium: &dyn Medium, place: JournalPlace) -> Result<Replayed, JournalError> {
    let (ring, change) = Ring::read(medium, place)?;
    let (records, gathered, end) = read_all(medium, &ring)?;
    let mut outcome = Replayed { records, lines: 0 };
    ring.write_head(medium, change, ring.tail)?;
    if records > 0 {
        rewrite(medium, &ring, end)?;
    }
    // PERSIST(I3): the records are on the device before their lines are written home. I4: so is the head that
    // was found, before the other copy is written.
    medium.synchronise()?;
    if records > 0 {
        outcome.lines = write_home(medium, &ring, gathered, None)?;
        // PERSIST(I4): the lines are at home before a head says that replay may begin behind them.
        medium.synchronise()?;
    }
    ring.next().write_head(medium, change + 1, 0)?;
    // PERSIST(I6): the generation is on the device before its first record.
    medium.synchronise()?;
    Ok(outcome)
}

/// Writes the records from the tail to `end` again, as they are.
fn rewrite(medium: &dyn Medium, ring: &Ring, end: u64) -> io::Result<()> {
    let mut piece = Vec::new();
    let mut pos = ring.tail;
    while pos < end {
        piece.resize((end - pos).min(AHEAD_BYTES) as usize, 0);
        ring.read_at(medium, pos, &mut piece)?;
        ring.write(medium, pos, &piece)?;
        pos += piece.len() as u64;
    }
    Ok(())
}

/// The lines that replay would write, by number, with their contents. Changes nothing.
///
/// # Errors
///
/// Failures of the medium, and damage.
pub fn read_lines(medium: &dyn Medium, place: JournalPlace) -> Result<Vec<(u64, [u8; 64])>, JournalError> {
    let (ring, _) = Ring::read(medium, place)?;
    let (_, gathered, _) = read_all(medium, &ring)?;
    let mut all = Vec::new();
    gathered.for_each_page(medium, &ring, |(page, lines, newest)| {
        let contents = newest.as_chunks::<{ LINE_BYTES as usize }>().0.iter().enumerate();
        let chosen = contents.filter(|(line, _)| lines >> line & 1 != 0);
        all.extend(chosen.map(|(line, content)| (page * PAGE_LINES + line as u64, *content)));
        Ok(())
    })?;
    Ok(all)
}
