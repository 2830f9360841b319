//! Regions whose fences go to a journal ([`Journal`]).

use super::Region;
use super::options::RegionOptions;
use super::persist::{Flusher, lines_of};
use crate::journal::{DiskFile, Journal, JournalPlace, JournalStats, Worker};
use crate::map::{AddressRange, Sharing, round_up};
use crate::private::{Backing, Limit, PrivatePages};
use crate::{Domain, LINE_BYTES, OfProcess, PAGE_BYTES, RegionError, SyncError, counters};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

/// From this many bytes of records on, several threads store them when a journal is resumed.
const SHARED_BYTES: u64 = 4 << 20;
/// The threads that share them.
const PARTS_MAX: usize = 4;
/// Neighbouring lines of one thread: of 2 MiB, whose pages have one table in the kernel, with a lock.
const BLOCK_LINES: u64 = (2 << 20) / LINE_BYTES;

/// The parts of a run of lines that lie in one block each.
fn by_blocks((first, count): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let mut left = (first, count);
    std::iter::from_fn(move || {
        let (first, count) = left;
        let piece = count.min(BLOCK_LINES - first % BLOCK_LINES);
        left = (first + piece, count - piece);
        (piece > 0).then_some((first, piece))
    })
}

/// The first of two readings one after the other that agree.
#[inline(always)]
fn agreed(read: impl Fn() -> [u64; 8]) -> [u64; 8] {
    let mut once = read();
    loop {
        let again = read();
        if once == again {
            return once;
        }
        once = again;
    }
}

/// The journal of a region.
pub(crate) struct Journaled {
    pub(crate) journal: Arc<Journal>,
    pub(super) pages: Arc<PrivatePages>,
    /// The worker exists only in the process that opened the region: a child has none of its threads.
    worker: Mutex<Option<OfProcess<Worker>>>,
}

impl Journaled {
    /// Replays the journal in a file, which is mapped in the range, or resumes it.
    pub(super) fn open(
        file: &Arc<File>,
        range: &AddressRange,
        place: JournalPlace,
        options: &RegionOptions,
    ) -> Result<Journaled, RegionError> {
        let interval = options.durability.interval();
        // A page that was stored to takes longer to synchronise: no fence may wait for that.
        let medium = Box::new(DiskFile::new(file, &options.path, interval.is_some()));
        let journal = match &options.resumes {
            Some(records) => Journal::resume(medium, records, interval)?,
            None => Journal::open(medium, place, interval)?,
        };
        let limit = Limit::new(options.private_bytes_max);
        Ok(Journaled::over(journal, PrivatePages::new(range, Backing::Mapped, limit)))
    }

    /// A journal, without its threads, over these pages.
    fn over(journal: Journal, pages: PrivatePages) -> Journaled {
        let pages = Arc::new(pages);
        journal.set_pages(pages.clone());
        Journaled { journal: Arc::new(journal), pages, worker: Mutex::default() }
    }

    /// Stores the lines of the records with which the journal was resumed in the region's memory. Most of the
    /// time goes into the first store to each page, which copies it. So several threads share the pages.
    fn apply_found(&self, region: &Region) -> Result<(), RegionError> {
        let parts = match self.journal.found_bytes() {
            0 => return Ok(()),
            bytes if bytes < SHARED_BYTES => 1,
            _ => std::thread::available_parallelism().map_or(1, |count| count.get().min(PARTS_MAX)) as u64,
        };
        let apply = |part| move || self.apply_part(region, part, parts);
        std::thread::scope(|scope| {
            let start = |part| std::thread::Builder::new().spawn_scoped(scope, apply(part)).map_err(|_| part);
            let threads: Vec<_> = (1..parts).map(start).collect();
            let applied = apply(0)();
            let end = |thread: Result<ScopedJoinHandle<'_, _>, u64>| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // The system has no more threads.
                Err(part) => apply(part)(),
            };
            threads.into_iter().map(end).fold(applied, Result::and)
        })
        .map_err(|e| RegionError::io("reading the journal", e))
    }

    /// Stores the lines of one part of the pages: no two threads store to a page, and each stores the lines
    /// of a page in the order of their records.
    fn apply_part(&self, region: &Region, part: u64, parts: u64) -> io::Result<()> {
        self.journal.visit_found(|runs, contents, end| {
            let mut rest = contents;
            for (first, count) in runs.iter().copied().flat_map(by_blocks) {
                let (content, others) = rest.split_at((count * LINE_BYTES) as usize);
                rest = others;
                // The file may be longer than the region, after a kill while it grew.
                let (off, is_mine) = (first * LINE_BYTES, first / BLOCK_LINES % parts == part);
                let bytes = (content.len() as u64).min(region.len().saturating_sub(off));
                if is_mine && bytes > 0 {
                    self.pages.note_found(off, bytes, end);
                    // SAFETY: no other code has the region yet, nor another thread these pages, and the
                    // journal's threads have not started; the range is in the region.
                    unsafe { region.copy_alone(off, &content[..bytes as usize]) };
                }
            }
        })
    }

    /// Starts the threads of the journal. The region is complete, and stops them before it unmaps anything.
    fn start(&self) -> Result<(), RegionError> {
        let started = OfProcess::new(Worker::start(self.journal.clone())?);
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok(())
    }

    /// Ends the journal's thread. Nothing is written from then on but by fences.
    pub(crate) fn stop(&self) {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(worker);
    }
}

impl Region {
    /// Anonymous memory with the contents of `image` whose fences go to a journal, which has no thread. It
    /// grows to at most `max_bytes`. For the simulator of power failures.
    ///
    /// # Errors
    ///
    /// Failures of the system to provide memory.
    pub fn journaled(image: &[u8], max_bytes: u64, journal: Journal) -> Result<Region, RegionError> {
        let bytes = image.len() as u64;
        let mapped_bytes = round_up(bytes, PAGE_BYTES);
        let range = AddressRange::reserve(max_bytes.max(mapped_bytes), mapped_bytes)?;
        range.map_anonymous(0, mapped_bytes)?;
        let domain = if journal.interval().is_some() { Domain::Relaxed } else { Domain::Journaled };
        let mut region =
            Region::over(range, bytes, max_bytes.max(bytes), Sharing::Private, domain, Flusher::Journal);
        // SAFETY: no other code has the region yet.
        unsafe { region.write(0, image) }.expect("the region is as long as the image");
        let pages = PrivatePages::new(&region.range, Backing::Copied, Limit::Fixed(u64::MAX));
        region.journal = Some(Journaled::over(journal, pages));
        region.instrumented = true;
        region.apply_found()?;
        Ok(region)
    }

    pub(super) fn apply_found(&self) -> Result<(), RegionError> {
        self.journal.iter().for_each(|journaled| journaled.pages.note_length(self.len()));
        self.journal.as_ref().map_or(Ok(()), |journaled| journaled.apply_found(self))
    }

    /// Starts the threads of the journal, where there is one without threads.
    ///
    /// # Errors
    ///
    /// Failures of the system.
    pub fn start_journal(&self) -> Result<(), RegionError> {
        self.journal.as_ref().map_or(Ok(()), Journaled::start)
    }

    /// Writes an empty journal of `bytes` bytes into the file, which may grow to `most_bytes`. Nothing else
    /// uses that range. The rest of it is given back to the file system, where that can be done.
    ///
    /// # Errors
    ///
    /// Failures of the system.
    ///
    /// # Panics
    ///
    /// If the range is not aligned to 4 KiB, too short, or not in the region.
    pub fn format_journal(
        &self,
        place: JournalPlace,
        bytes: u64,
        most_bytes: u64,
    ) -> Result<(), RegionError> {
        assert!(place.off + most_bytes <= self.len(), "a journal lies in its region");
        let Some(file) = &self.file else { return Ok(()) };
        self.punch([(place.off + bytes, most_bytes - bytes)]);
        Journal::format(&**file, place, bytes, most_bytes)
            .map_err(|e| RegionError::io("writing the journal", e))
    }

    /// Writes the line of `off`, as the memory has it, to its place in the file, in front of its record's
    /// synchronisation, and lets the journal's threads make that record durable. Waits for no device.
    /// Only for a line of which any version is right on the device until a later record is durable.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the file cannot be written.
    pub fn show_at_home(&self, off: u64) -> Result<(), SyncError> {
        let Some(journal) = self.journal() else { return Ok(()) };
        let mut content = [0; LINE_BYTES as usize];
        self.copy_line(off / LINE_BYTES, &mut content);
        journal.show_at_home(off / LINE_BYTES * LINE_BYTES, &content)?;
        journal.want(journal.end());
        Ok(())
    }

    /// The state of the journal, if the domain has one.
    pub fn journal_stats(&self) -> Option<JournalStats> {
        self.journal.as_ref().map(|journaled| journaled.journal.stats())
    }

    /// The journal, if the domain has one.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref().map(|journaled| &*journaled.journal)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn note_lines(&self, off: u64, bytes: u64) {
        if bytes != 0
            && self.check(off, bytes).is_ok()
            && let Some(Journaled { journal, .. }) = &self.journal
        {
            let first = off / LINE_BYTES;
            let lines = lines_of(off, bytes);
            counters::note_write_back(lines);
            journal.note(first, lines);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn fence_to_journal(&self) -> Result<(), SyncError> {
        // A child of the process has nothing to fence, and a lock may be held by a thread that it lacks.
        let Some(Journaled { journal, .. }) = self.journal.as_ref().filter(|_| !self.is_empty()) else {
            return Ok(());
        };
        counters::note_fence();
        journal.fence(|| self.len().div_ceil(LINE_BYTES), |line, into| self.copy_line(line, into))
    }

    /// Copies a line as it is at one moment, although other threads may store to it: of two readings one
    /// after the other that agree, each word had its value at the moment between them, unless it changed and
    /// changed back meanwhile. No fence returns meanwhile, as each takes the lock under which lines are
    /// copied: a word that is only changed back after a fence cannot do that.
    fn copy_line(&self, line: u64, into: &mut [u8]) {
        let off = line * LINE_BYTES;
        // A line was checked when it was noted; a region that ends within it has its words up to there.
        let bytes = self.len().saturating_sub(off).min(LINE_BYTES);
        let Ok(words) = self.words(off, bytes / 8) else { return };
        // ORDER: acquire, so that the second reading follows the first, and each word follows the word before
        // it.
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        let agreed = match <&[AtomicU64; 8]>::try_from(words) {
            // Without a call for each word.
            Ok([a, b, c, d, e, f, g, h]) => {
                agreed(|| [load(a), load(b), load(c), load(d), load(e), load(f), load(g), load(h)])
            }
            Err(_) => agreed(|| std::array::from_fn(|i| words.get(i).map_or(0, load))),
        };
        let (into, _) = into.as_chunks_mut();
        into.iter_mut().zip(agreed).for_each(|(into, word)| *into = word.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_divided_where_the_pages_of_another_thread_begin() {
        let parts = |first, count| by_blocks((first, count)).collect::<Vec<_>>();
        assert_eq!(parts(5, 7), [(5, 7)]);
        let end = 3 * BLOCK_LINES;
        assert_eq!(parts(end - 2, 5), [(end - 2, 2), (end, 3)]);
        assert_eq!(parts(end, 2 * BLOCK_LINES), [(end, BLOCK_LINES), (end + BLOCK_LINES, BLOCK_LINES)]);
        assert_eq!(parts(1, 0), []);
    }
}
