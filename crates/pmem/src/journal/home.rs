//! Writing lines home, and the tail behind them.

use super::replay::Reader;
use super::{Journal, Medium};
use crate::{LINE_BYTES, SyncError};
use std::io;
use std::sync::PoisonError;

const LINE: usize = LINE_BYTES as usize;
/// Lines are written by whole pages.
const PAGE_BYTES: u64 = 4096;
const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;
/// Bytes of neighbouring pages that are written at once.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of records that a step of a write-back takes.
const STEP_BYTES: u64 = 8 << 20;

/// The lines of some records.
#[derive(Default)]
pub(super) struct Gathered {
    /// Number of a line, and where its contents lie.
    lines: Vec<(u64, usize)>,
    contents: Vec<u8>,
}

impl Gathered {
    /// Adds the lines of the next record.
    pub(super) fn add(&mut self, lines: &[(u64, &[u8])]) {
        for (line, content) in lines {
            self.lines.push((*line, self.contents.len()));
            self.contents.extend_from_slice(content);
        }
    }

    /// The newest contents of each line, in the order of the lines.
    pub(super) fn newest(mut self) -> Vec<(u64, [u8; LINE])> {
        self.lines.sort_unstable();
        let content = |at: usize| self.contents[at..at + LINE].try_into().expect("a line");
        let is_last = |i: usize| self.lines.get(i + 1).is_none_or(|next| next.0 != self.lines[i].0);
        let newest = (0..self.lines.len()).filter(|i| is_last(*i));
        newest.map(|i| (self.lines[i].0, content(self.lines[i].1))).collect()
    }
}

/// Writes lines to their places. Returns how many.
pub(super) fn write_home(medium: &dyn Medium, gathered: Gathered) -> io::Result<u64> {
    let newest = gathered.newest();
    let (mut batch, mut batch_off) = (Vec::new(), 0);
    for page in newest.chunk_by(|(a, _), (b, _)| a / PAGE_LINES == b / PAGE_LINES) {
        let off = page[0].0 / PAGE_LINES * PAGE_BYTES;
        if off != batch_off + batch.len() as u64 || batch.len() >= BATCH_BYTES {
            medium.write(batch_off, &batch)?;
            batch.clear();
            batch_off = off;
        }
        let start = batch.len();
        batch.resize(start + PAGE_BYTES as usize, 0);
        if page.len() < PAGE_LINES as usize {
            medium.read(off, &mut batch[start..])?;
        }
        for (line, content) in page {
            let at = start + (line % PAGE_LINES * LINE_BYTES) as usize;
            batch[at..at + LINE].copy_from_slice(content);
        }
    }
    medium.write(batch_off, &batch)?;
    Ok(newest.len() as u64)
}

/// The right to write home and heads.
pub(super) struct Writer {
    /// The number of the head's last change.
    change: u64,
}

impl Writer {
    pub(super) fn new(change: u64) -> Writer {
        Writer { change }
    }
}

impl Journal {
    /// Writes some of the oldest records back.
    pub(super) fn write_some_back(&self) -> Result<(), SyncError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (tail, end) = {
            let state = self.lock();
            state.check()?;
            (state.tail, state.end)
        };
        if tail == end { Ok(()) } else { self.write_back_step(&mut writer, tail, end) }
    }

    /// Writes everything back that was recorded before the call.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the device fails.
    pub fn write_all_back(&self) -> Result<(), SyncError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.lock().end;
        loop {
            let tail = {
                let state = self.lock();
                state.check()?;
                state.tail
            };
            if tail >= end {
                return Ok(());
            }
            self.write_back_step(&mut writer, tail, end)?;
        }
    }

    /// Writes some of the records between the tail and `end` back.
    fn write_back_step(&self, writer: &mut Writer, tail: u64, end: u64) -> Result<(), SyncError> {
        // PERSIST(I3): the records are on the device before their lines are written home.
        self.wait_until_durable(end)?;
        let failed = |e: io::Error| self.lock().fail(&e);
        let new_tail = self.write_records_home(tail, end).map_err(failed)?;
        // PERSIST(I4): the lines are at home before a head says that replay may begin behind them.
        self.synchronise()?;
        writer.change += 1;
        self.ring.write_head(&*self.medium, writer.change, new_tail).map_err(failed)?;
        // PERSIST(I5): the head is on the device before the space of the records is written again, and (I4)
        // before the other copy is.
        self.synchronise()?;
        let mut state = self.lock();
        state.tail = new_tail;
        state.stats.write_backs += 1;
        Ok(())
    }

    /// Writes the lines of records home, of at least one and of not much more than a step. Returns the
    /// position behind them.
    fn write_records_home(&self, tail: u64, end: u64) -> io::Result<u64> {
        let mut reader = Reader::new(&*self.medium, &self.ring, tail, end);
        let mut gathered = Gathered::default();
        while reader.pos < end.min(tail + STEP_BYTES) {
            let Some(lines) = reader.next()? else {
                return Err(io::Error::other("the journal does not have what was written to it"));
            };
            gathered.add(&lines);
        }
        let new_tail = reader.pos;
        write_home(&*self.medium, gathered)?;
        Ok(new_tail)
    }
}
