//! Flush and fence: making stores durable.

use super::Region;
use crate::flush::{self, FlushInstruction};
use crate::map::round_up;
use crate::{Domain, LINE_BYTES, PAGE_BYTES, SyncError, counters};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// The action of a flush in this region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flusher {
    Nothing,
    Instruction(FlushInstruction),
    Pages,
    Journal,
    Record,
}

/// Pages flushed since the last synchronisation, as byte ranges.
#[derive(Default)]
pub(super) struct DirtyPages {
    ranges: Vec<(u64, u64)>,
}

/// How many lines a range touches.
#[inline(always)]
pub(super) fn lines_of(off: u64, bytes: u64) -> u64 {
    (off + bytes).div_ceil(LINE_BYTES) - off / LINE_BYTES
}

impl Region {
    /// Starts the write-back of the lines (or pages) of a range. A range outside the region is ignored.
    #[inline(always)]
    pub fn flush(&self, off: u64, bytes: u64) {
        if self.instrumented {
            self.note_flush(off, bytes);
        }
        self.start_write_back(off, bytes);
    }

    /// As [`flush`](Self::flush) of whole lines, by their numbers: offsets divided by [`LINE_BYTES`].
    #[inline]
    pub fn flush_lines(&self, lines: &[u64]) {
        if !lines.is_empty() {
            self.flush_some_lines(lines);
        }
    }

    fn flush_some_lines(&self, lines: &[u64]) {
        match self.flusher {
            Flusher::Nothing if !self.instrumented => {}
            Flusher::Instruction(instruction) if !self.instrumented => {
                let line_count = self.len() / LINE_BYTES;
                counters::note_write_back(lines.len() as u64);
                for line in lines.iter().filter(|line| **line < line_count) {
                    // SAFETY: as in `start_write_back`.
                    unsafe { instruction.flush_line(self.range.base().add((line * LINE_BYTES) as usize)) };
                }
            }
            _ => lines.iter().for_each(|line| self.flush(line.saturating_mul(LINE_BYTES), LINE_BYTES)),
        }
    }

    #[inline(always)]
    pub(super) fn start_write_back(&self, off: u64, bytes: u64) {
        match self.flusher {
            Flusher::Nothing | Flusher::Record => {}
            Flusher::Instruction(instruction) => {
                if bytes != 0 && self.check(off, bytes).is_ok() {
                    counters::note_write_back(lines_of(off, bytes));
                    // SAFETY: the range is mapped (checked); the instruction was detected or forced by the
                    // user, who then vouches for it.
                    unsafe { instruction.flush_range(self.range.base().add(off as usize), bytes as usize) };
                }
            }
            Flusher::Pages => self.collect_pages(off, bytes),
            Flusher::Journal => self.note_lines(off, bytes),
        }
    }

    /// Waits until everything this thread flushed is durable.
    ///
    /// # Errors
    ///
    /// [`SyncError`] in the `Synced`, `Journaled` and `Relaxed` domains when the device fails; the region is
    /// then failed for good.
    #[inline(always)]
    pub fn fence(&self) -> Result<(), SyncError> {
        if self.instrumented {
            self.note_fence();
        }
        match self.flusher {
            Flusher::Instruction(_) => {
                counters::note_fence();
                flush::fence_stores();
            }
            Flusher::Pages => return self.sync_pages(),
            Flusher::Journal => return self.fence_to_journal(),
            Flusher::Nothing if self.domain == Domain::DaxCpuCache => {
                counters::note_fence();
                flush::fence_stores();
            }
            Flusher::Nothing | Flusher::Record => std::sync::atomic::compiler_fence(Ordering::SeqCst),
        }
        Ok(())
    }

    /// A flush and a fence.
    ///
    /// # Errors
    ///
    /// As for [`fence`](Self::fence).
    pub fn persist(&self, off: u64, bytes: u64) -> Result<(), SyncError> {
        self.flush(off, bytes);
        self.fence()
    }

    fn collect_pages(&self, off: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        counters::note_write_back(lines_of(off, bytes));
        let start = off & !(PAGE_BYTES - 1);
        let end = round_up(off + bytes, PAGE_BYTES);
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        match dirty.ranges.last_mut() {
            Some(last) if start >= last.0 && start <= last.1 => last.1 = last.1.max(end),
            _ => dirty.ranges.push((start, end)),
        }
    }

    /// Writes the collected pages to the device: one range by `msync`, several by one `fdatasync`.
    fn sync_pages(&self) -> Result<(), SyncError> {
        counters::note_fence();
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ranges =
            std::mem::take(&mut self.dirty.lock().unwrap_or_else(PoisonError::into_inner).ranges);
        if self.sync_failed.load(Ordering::Relaxed) {
            return Err(SyncError { message: "an earlier synchronisation failed".to_owned() });
        }
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let touching = next.0 <= kept.1;
            if touching {
                kept.1 = kept.1.max(next.1);
            }
            touching
        });
        let outcome = match (ranges.as_slice(), &self.file) {
            ([], _) | (_, None) => Ok(()),
            (&[(start, end)], Some(_)) => {
                // The region may have become shorter.
                let end = end.min(round_up(self.len(), PAGE_BYTES));
                if start < end { self.write_back(start, end) } else { Ok(()) }
            }
            (_, Some(file)) => rustix::fs::fdatasync(&**file),
        };
        outcome.map_err(|e| {
            self.sync_failed.store(true, Ordering::Relaxed);
            SyncError { message: e.to_string() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Durability, RegionOptions, snapshot, write_backs};

    /// The same work, told by both counters: a flush that counts nothing, or twice, shows.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn write_backs_are_those_that_a_counting_region_counts() {
        let work = |count: bool, durability| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(1 << 16).unwrap();
            let options = RegionOptions { count, durability, ..RegionOptions::default() };
            let region = Region::map_file(file, 1 << 16, &options, Access::ReadWrite).unwrap();
            let (before, counted) = (write_backs(), snapshot());
            region.store_u64(64, 1).unwrap();
            region.flush(64, 8);
            region.flush(60, 72);
            region.flush(0, 0);
            region.flush_lines(&[1, 2, 5]);
            region.writable_line(192).unwrap().flush();
            region.fence().unwrap();
            for (off, bytes) in [(4096, 64), (8192, 1000), (12_301, 5000), (20_480, 0)] {
                // SAFETY: no other code has the region.
                unsafe { region.write_and_flush(off, &vec![7; bytes]).unwrap() };
            }
            region.persist(128, 1).unwrap();
            let after = write_backs();
            ((after.lines - before.lines, after.fences - before.fences), snapshot() - counted)
        };
        let (plain, _) = work(false, Durability::Emulated);
        let (counting, counts) = work(true, Durability::Emulated);
        assert_eq!(plain, (counts.lines, counts.fences), "without the longer way of stores");
        assert_eq!(counting, (counts.lines, counts.fences), "with it");
        assert_eq!(plain.1, 2);
        let (nothing, _) = work(false, Durability::PageCache);
        assert_eq!(nothing, (0, 0), "there is nothing to write back");
    }
}
