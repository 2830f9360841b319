//! The records that the last process left, and recovery.

use super::home::{Gathered, PAGE_BYTES, PAGE_LINES, write_home};
use super::reader::{AHEAD_BYTES, Reader, RecordLines};
use super::ring::Ring;
use super::{JournalPlace, Medium};
use crate::LINE_BYTES;
use crate::error::JournalError;
use std::io;

/// The work of recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records that were replayed.
    pub records: u64,
    /// Lines that were written home.
    pub lines: u64,
}

/// The records that a journal has, as the last process left them.
#[derive(Debug, Clone, Copy)]
pub struct Records {
    pub(super) ring: Ring,
    /// The number of the head's change.
    pub(super) change: u64,
    /// A synchronisation has failed, and was told to be.
    pub(super) has_failed: bool,
    /// The position behind the last one.
    pub(super) end: u64,
    /// The generation of the last one.
    pub(super) generation: u64,
    count: u64,
    lines: u64,
}

impl Records {
    /// Finds the records that are complete. Changes nothing.
    ///
    /// # Errors
    ///
    /// Failures of the medium, and damage.
    pub fn find(medium: &dyn Medium, place: JournalPlace) -> Result<Records, JournalError> {
        Records::find_and_visit(medium, place, |_| ())
    }

    /// As [`find`](Self::find). Returns the lines before that one, too, in the order of their records.
    ///
    /// # Errors
    ///
    /// As for [`find`](Self::find).
    pub fn find_with_lines(
        medium: &dyn Medium,
        place: JournalPlace,
        before: u64,
    ) -> Result<(Records, Vec<Line>), JournalError> {
        let mut lines = Vec::new();
        let records = Records::find_and_visit(medium, place, |record| {
            if record.runs().any(|(first, _)| first < before) {
                let numbers = record.runs().flat_map(|(first, count)| first..first + count);
                let all = numbers.zip(record.contents.as_chunks().0.iter().copied());
                lines.extend(all.filter(|(line, _)| *line < before));
            }
        })?;
        Ok((records, lines))
    }

    fn find_and_visit(
        medium: &dyn Medium,
        place: JournalPlace,
        mut visit: impl FnMut(&RecordLines<'_>),
    ) -> Result<Records, JournalError> {
        let (ring, head) = Ring::read(medium, place)?;
        let file_bytes = medium.bytes()?;
        let end = ring.tail.saturating_add(ring.capacity);
        let mut reader = Reader::new(medium, &ring, ring.tail, end);
        let (mut count, mut lines) = (0, 0);
        while let Some(record) = reader.next()? {
            let is_home = |(first, count): &(u64, u64)| {
                // The last line first: of a run that is that long all numbers are small.
                is_home(&ring, file_bytes, first + count - 1)
                    && (*first..first + count).all(|line| is_home(&ring, file_bytes, line))
            };
            if let Some((line, _)) = record.runs().find(|run| !is_home(run)) {
                let what =
                    format!("a record has line {line} or one behind it, for which the file has no place");
                return Err(JournalError::Damaged { off: ring.place.off, what });
            }
            visit(&record);
            count += 1;
            lines += record.runs().map(|(_, count)| count).sum::<u64>();
        }
        let (end, generation) = (reader.pos, reader.generation);
        let (change, has_failed) = (head.change, head.has_failed);
        Ok(Records { ring, change, has_failed, end, generation, count, lines })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.end == self.ring.tail
    }

    /// The number of their lines, repetitions included.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Visits them again: their runs of lines, the contents, and the position behind them.
    pub(super) fn visit_again(
        &self,
        medium: &dyn Medium,
        mut visit: impl FnMut(&[(u64, u64)], &[u8], u64),
    ) -> io::Result<()> {
        let mut reader = Reader::new(medium, &self.ring, self.ring.tail, self.end);
        reader.has_read = true;
        let mut runs = Vec::new();
        while let Some(record) = reader.next()? {
            runs.clear();
            runs.extend(record.runs());
            visit(&runs, record.contents, record.pos + record.contents.len() as u64);
        }
        Ok(())
    }
}

/// A line by its number, with its contents.
pub type Line = (u64, [u8; LINE_BYTES as usize]);

/// Finds all records that are complete, and gathers the places of their lines.
fn gather(medium: &dyn Medium, place: JournalPlace) -> Result<(Records, Gathered), JournalError> {
    let mut gathered = Gathered::default();
    let records = Records::find_and_visit(medium, place, |record| gathered.add(record))?;
    Ok((records, gathered))
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
/// Failures of the medium, and damage; the file is unchanged then.
pub fn recover(medium: &dyn Medium, place: JournalPlace) -> Result<Replayed, JournalError> {
    let (Records { ring, change, end, count, .. }, gathered) = gather(medium, place)?;
    let mut outcome = Replayed { records: count, lines: 0 };
    ring.write_head(medium, change, ring.tail)?;
    if count > 0 {
        rewrite(medium, &ring, ring.tail, end)?;
    }
    // PERSIST(I3): the records are on the device before their lines are written home. I4: so is the head that
    // was found, before the other copy is written.
    medium.synchronise()?;
    if count > 0 {
        outcome.lines = write_home(medium, &ring, gathered, None)?;
        // PERSIST(I4): the lines are at home before a head says that replay may begin behind them.
        medium.synchronise()?;
    }
    ring.next().write_head(medium, change + 1, 0)?;
    // PERSIST(I6): the generation is on the device before its first record.
    medium.synchronise()?;
    Ok(outcome)
}

/// Writes the bytes between two positions again, unchanged.
pub(super) fn rewrite(medium: &dyn Medium, ring: &Ring, from: u64, end: u64) -> io::Result<()> {
    let mut piece = Vec::new();
    let mut pos = from;
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
pub fn read_lines(medium: &dyn Medium, place: JournalPlace) -> Result<Vec<Line>, JournalError> {
    let (Records { ring, .. }, gathered) = gather(medium, place)?;
    let mut all = Vec::new();
    gathered.for_each_page(medium, &ring, |(page, lines, newest)| {
        let contents = newest.as_chunks::<{ LINE_BYTES as usize }>().0.iter().enumerate();
        let chosen = contents.filter(|(line, _)| lines >> line & 1 != 0);
        all.extend(chosen.map(|(line, content)| (page * PAGE_LINES + line as u64, *content)));
        Ok(())
    })?;
    Ok(all)
}
