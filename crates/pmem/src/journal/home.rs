//! Writing lines home, and the tail behind them.
//!
//! Only the places of the records' lines are kept in memory, page by page; the contents of lines without a
//! newer record are read from the ring again. A step writes a page once, however often its lines were
//! changed: a longer step writes less.

use super::reader::{Reader, RecordLines};
use super::ring::Ring;
use super::{Journal, Medium};
use crate::private::PrivatePages;
use crate::{LINE_BYTES, SyncError};
use std::io;
use std::sync::PoisonError;

const LINE: usize = LINE_BYTES as usize;
/// Lines are written by whole pages.
pub(super) const PAGE_BYTES: usize = 4096;
/// Lines of a page, each of them a bit of a word.
pub(super) const PAGE_LINES: u64 = PAGE_BYTES as u64 / LINE_BYTES;
/// Bytes of neighbouring pages that are written at once.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes after which pages are synchronised: a synchronisation of the ring waits behind them in the device.
const SYNCHRONISED_BYTES: u64 = 16 << 20;

/// Neighbouring lines of one page in one record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    page: u64,
    /// The position of their contents in the ring.
    pos: u64,
    first: u8,
    count: u8,
}

impl Piece {
    /// Its lines as bits.
    fn lines(self) -> u64 {
        (u64::MAX >> (PAGE_LINES - u64::from(self.count))) << self.first
    }
}

/// The lines of some records.
#[derive(Default)]
pub(super) struct Gathered {
    pieces: Vec<Piece>,
}

/// Lines of a page: its number, their bits, and a page that has them in their places.
pub(super) type NewestLines<'p> = (u64, u64, &'p [u8; PAGE_BYTES]);

impl Gathered {
    /// Adds the lines of the next record.
    pub(super) fn add(&mut self, record: &RecordLines<'_>) {
        let mut pos = record.pos;
        for (mut line, mut left) in record.runs() {
            while left > 0 {
                let (page, first) = (line / PAGE_LINES, line % PAGE_LINES);
                let count = left.min(PAGE_LINES - first);
                self.pieces.push(Piece { page, pos, first: first as u8, count: count as u8 });
                (line, left, pos) = (line + count, left - count, pos + count * LINE_BYTES);
            }
        }
    }

    /// Visits the pages in their order, with the newest contents of each line. Returns the number of lines.
    pub(super) fn for_each_page(
        mut self,
        medium: &dyn Medium,
        ring: &Ring,
        mut visit: impl FnMut(NewestLines<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        self.pieces.sort_unstable();
        let (mut count, mut contents, mut newest) = (0, [0; PAGE_BYTES], [0; PAGE_BYTES]);
        for pieces in self.pieces.chunk_by(|a, b| a.page == b.page) {
            let mut lines = 0;
            // The newest first.
            for piece in pieces.iter().rev() {
                let older = lines;
                lines |= piece.lines();
                if lines == older {
                    continue;
                }
                let contents = &mut contents[..usize::from(piece.count) * LINE];
                ring.read_at(medium, piece.pos, contents)?;
                copy_lines(contents, &mut newest[usize::from(piece.first) * LINE..], !older >> piece.first);
            }
            count += u64::from(lines.count_ones());
            visit((pieces[0].page, lines, &newest))?;
        }
        Ok(count)
    }
}

/// Copies the lines whose bits are set.
fn copy_lines(from: &[u8], to: &mut [u8], lines: u64) {
    let pairs = from.chunks_exact(LINE).zip(to.chunks_exact_mut(LINE));
    let chosen = pairs.enumerate().filter(|(line, _)| lines >> line & 1 != 0);
    chosen.for_each(|(_, (from, to))| to.copy_from_slice(from));
}

/// Writes lines to their places. Returns how many. `pages` are those of an open region.
pub(super) fn write_home(
    medium: &dyn Medium,
    ring: &Ring,
    gathered: Gathered,
    pages: Option<&PrivatePages>,
) -> io::Result<u64> {
    let write = |off: u64, batch: &[u8]| {
        medium.write(off, batch)?;
        pages.iter().for_each(|pages| pages.show_written(off, batch));
        io::Result::Ok(())
    };
    let (mut batch, mut batch_off, mut since) = (Vec::with_capacity(BATCH_BYTES), 0, 0);
    let count = gathered.for_each_page(medium, ring, |(page, lines, newest)| {
        let off = page * PAGE_BYTES as u64;
        if off != batch_off + batch.len() as u64 || batch.len() >= BATCH_BYTES {
            write(batch_off, &batch)?;
            since += batch.len() as u64;
            if since >= SYNCHRONISED_BYTES {
                medium.synchronise()?;
                since = 0;
            }
            batch.clear();
            batch_off = off;
        }
        let start = batch.len();
        batch.resize(start + PAGE_BYTES, 0);
        if lines != u64::MAX {
            medium.read(off, &mut batch[start..])?;
        }
        copy_lines(newest, &mut batch[start..], lines);
        Ok(())
    })?;
    write(batch_off, &batch)?;
    Ok(count)
}

/// The right to write home and heads.
pub(super) struct Writer {
    /// The number of the head's last change.
    pub(super) change: u64,
    /// The next page to be looked at, whether it can be given back.
    pub(super) hand: u64,
}

impl Writer {
    pub(super) fn new(change: u64) -> Writer {
        Writer { change, hand: 0 }
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
        self.write_back_until_now(&mut self.writer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`write_all_back`](Self::write_all_back), under the lock.
    pub(super) fn write_back_until_now(&self, writer: &mut Writer) -> Result<(), SyncError> {
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
            self.write_back_step(writer, tail, end)?;
        }
    }

    /// Writes some of the records between the tail and `end` back.
    fn write_back_step(&self, writer: &mut Writer, tail: u64, end: u64) -> Result<(), SyncError> {
        // PERSIST(I3): the records are on the device before their lines are written home.
        self.wait_until_durable(end)?;
        let failed = |e: io::Error| self.fail(&mut self.lock(), &e);
        let (new_tail, generation) = self.write_records_home(tail, end).map_err(failed)?;
        // PERSIST(I4): the lines are at home before a head says that replay may begin behind them.
        self.medium.synchronise().map_err(failed)?;
        writer.change += 1;
        // The ring grows only under the lock that is held here.
        let ring = Ring { generation, ..self.lock().ring };
        ring.write_head(&*self.medium, writer.change, new_tail).map_err(failed)?;
        // PERSIST(I5): the head is on the device before the space of the records is written again, and (I4)
        // before the other copy is.
        self.medium.synchronise().map_err(failed)?;
        let mut state = self.lock();
        (state.tail, state.ring.generation) = (new_tail, generation);
        state.stats.write_backs += 1;
        Ok(())
    }

    /// Writes the lines of records home, of at least one and of not much more than half the ring. Returns the
    /// position behind them, and the generation there.
    fn write_records_home(&self, tail: u64, end: u64) -> io::Result<(u64, u64)> {
        let ring = self.lock().ring;
        let mut reader = Reader::new(&*self.medium, &ring, tail, end);
        let mut gathered = Gathered::default();
        while reader.pos < end.min(tail + ring.capacity / 2) {
            let is_there = reader.next()?.inspect(|record| gathered.add(record)).is_some();
            if !is_there {
                // The last one may begin a generation.
                if reader.pos == end {
                    break;
                }
                return Err(io::Error::other("the journal does not have what was written to it"));
            }
        }
        let behind = (reader.pos, reader.generation);
        write_home(&*self.medium, &ring, gathered, self.pages.get().map(|pages| &**pages))?;
        Ok(behind)
    }
}
