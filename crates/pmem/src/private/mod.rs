//! The private pages of a region with a journal: which there are, and how they are given back.
//!
//! A page of a private mapping that was stored to is a copy that only this process has. Once its records are
//! home, the file has the same, and the copy can be dropped: the next load reads the file. A store that came
//! after the last look at the page would be lost with it. So stores are excluded from that moment.
//!
//! # Invariants
//!
//! * P1: *all stores*. Each store to a region is one of `region/word.rs`, `line.rs` or `bulk.rs`. With a
//!   journal each enters its page before and leaves it behind ([`PrivatePages::enter`]), whether its line is
//!   noted or not: locks, hints and counters of readers too. Nothing above this crate has a writable pointer.
//!   Only an opening that resumes a journal stores without that: nothing gives pages back yet.
//! * P2: *table*. A page that was stored to has a word other than 0 in the table from before the store until
//!   it is given back. The word has the end of the last record with a line of the page, since before the
//!   record's contents were copied.
//! * P3: *equal*. A page is given back only when it equals the file byte for byte, and when all its records
//!   are before the durable tail, with no store to it from the comparison until it is dropped. A load returns
//!   the same before and after. Pages of free space that the file loses are dropped without that: no thread
//!   stores to them, and no record has lines of them ([`PrivatePages::forget`]).
//! * P4: *home stays*. No other thread changes the file's pages meanwhile (`writer` of the journal), and
//!   later write-backs change only pages with newer records, which are private again: a page that shows the
//!   file never changes under its readers. A record that copies lines of such a page has the file's contents.
//!
//! # Concurrency
//!
//! Entering is a store of the page to a word of the thread, and then a load of the pages that are being given
//! back. The other side stores those pages, executes a fence on all threads (`membarrier`), and then waits
//! until no thread is in one of them. One of the two sees the other. Where the system has no such fence,
//! entering executes one itself. A thread that stays long (its store waits for the device) costs only this:
//! its page is not given back. Threads that find their page being given back wait, for some microseconds.
//!
//! A record's end is stored to the table before its lines are copied, with a fence between them, and the
//! other side has one between the last store to a page and the load of its word. So either the word shows the
//! record, or the copied lines equal those of the file.

mod limit;
mod slots;
mod table;
#[cfg(all(test, not(miri)))]
mod tests;

pub(crate) use limit::{Limit, memory_bytes};

use crate::LINE_BYTES;
use crate::map::AddressRange;
use slots::Slot;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use table::Table;
use tembo_sync::{back_off, has_heavy_fence, hash_u64_to_bits};

/// Bytes of pages that are given back at once.
const BATCH_BYTES: u64 = 512 << 10;

/// How the pages of a region follow the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backing {
    /// The kernel maps the file where a page is not private.
    Mapped,
    /// Anonymous memory of a simulator, which copies where the kernel would map.
    Copied,
}

/// The private pages of a region.
pub(crate) struct PrivatePages {
    base: *mut u8,
    backing: Backing,
    page_shift: u32,
    table: Table,
    count: AtomicU64,
    /// Beyond it, some are given back.
    limit: Limit,
    /// The pages that are being given back, as bits of their numbers' hashes.
    leaving: AtomicU64,
    has_heavy_fence: bool,
    /// The system refuses to drop pages (they are locked in memory).
    is_refused: AtomicBool,
    given_back: AtomicU64,
}

// SAFETY: the memory behind `base` is reached by atomic words only, while the region lives: its journal's
// threads end before it is unmapped.
unsafe impl Send for PrivatePages {}
// SAFETY: as above.
unsafe impl Sync for PrivatePages {}

/// A page that may be given back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) page: u64,
    /// The page's word in the table.
    word: u64,
}

/// While this lives, its thread is inside a page.
pub(crate) struct Inside(Slot);

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The bit of a page among those that are being given back.
fn bit(page: u64) -> u64 {
    1 << hash_u64_to_bits(page, 6)
}

impl PrivatePages {
    pub(crate) fn new(range: &AddressRange, backing: Backing, limit: Limit) -> PrivatePages {
        let page_bytes = match backing {
            Backing::Mapped => rustix::param::page_size() as u64,
            Backing::Copied => crate::PAGE_BYTES,
        };
        PrivatePages {
            base: range.base(),
            backing,
            page_shift: page_bytes.ilog2(),
            table: Table::default(),
            count: AtomicU64::new(0),
            limit,
            leaving: AtomicU64::new(0),
            has_heavy_fence: has_heavy_fence(),
            is_refused: AtomicBool::new(false),
            given_back: AtomicU64::new(0),
        }
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    /// The number of private pages.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The number of private pages beyond which some are given back.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.bytes() >> self.page_shift
    }

    /// Notes the length of the region.
    pub(crate) fn note_length(&self, bytes: u64) {
        self.limit.note_length(bytes);
    }

    /// Bytes that were given back so far.
    pub(crate) fn given_back_bytes(&self) -> u64 {
        self.given_back.load(Ordering::Relaxed) << self.page_shift
    }

    /// By how much the limit is exceeded: 1 for a quarter of it or more.
    pub(crate) fn excess(&self) -> f64 {
        let limit = self.limit();
        let over = self.count().saturating_sub(limit);
        if over == 0 { 0.0 } else { (4.0 * over as f64 / limit.max(1) as f64).min(1.0) }
    }

    /// Enters the pages of a range, in which the caller stores until it drops the guard (P1).
    #[inline]
    pub(crate) fn enter(&self, off: u64, bytes: u64) -> Inside {
        let (first, last) = (off >> self.page_shift, (off + bytes.max(1) - 1) >> self.page_shift);
        let is_one = first == last;
        let (name, mask) = if is_one { (self.name(first), bit(first)) } else { (slots::ANY, u64::MAX) };
        let slot = Slot::of_this_thread();
        let mut round = 0;
        loop {
            slot.enter(name);
            if self.has_heavy_fence {
                compiler_fence(Ordering::SeqCst)
            } else {
                fence(Ordering::SeqCst)
            }
            // ORDER: acquire, with the release behind the dropping of pages: the word in the table is 0 then.
            if self.leaving.load(Ordering::Acquire) & mask == 0 {
                break;
            }
            slot.leave();
            back_off(round);
            round += 1;
        }
        for page in first..=last {
            if self.table.word(page).load(Ordering::Relaxed) == 0 {
                self.note_copy(page);
            }
        }
        Inside(slot)
    }

    #[cold]
    fn note_copy(&self, page: u64) {
        let word = self.table.word(page);
        if word.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The page as threads that are inside call it: its number in the address space.
    fn name(&self, page: u64) -> u64 {
        (self.base.addr() as u64 >> self.page_shift) + page
    }

    /// Notes that a record which ends at `end` has these runs of lines, whose contents are copied after this
    /// (P2).
    pub(crate) fn note_recorded(&self, runs: &[(u64, u64)], end: u64) {
        for (first, count) in runs {
            let at = |line: u64| (line * LINE_BYTES) >> self.page_shift;
            for page in at(*first)..=at(first + count - 1) {
                // ORDER: before the copies of the lines, by the fence below.
                if self.table.word(page).swap(1 + end, Ordering::Relaxed) == 0 {
                    self.count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        fence(Ordering::SeqCst);
    }

    /// Notes that a record of an earlier process, which ends at `end`, has bytes that an opening stores (P2).
    /// No other thread uses their pages, and records are noted in their order.
    pub(crate) fn note_found(&self, off: u64, bytes: u64, end: u64) {
        for page in off >> self.page_shift..=(off + bytes - 1) >> self.page_shift {
            let word = self.table.word(page);
            if word.load(Ordering::Relaxed) == 0 {
                self.count.fetch_add(1, Ordering::Relaxed);
            }
            word.store(1 + end, Ordering::Relaxed);
        }
    }

    /// Pages from `hand` on, in a circle, whose records are before `tail`: as many as are given back at once.
    /// `left` counts the pages that are still to be looked at.
    pub(crate) fn candidates(&self, hand: &mut u64, left: &mut u64, tail: u64) -> Vec<Candidate> {
        let most = (BATCH_BYTES >> self.page_shift).max(8) as usize;
        let mut found = Vec::new();
        while *left > 0 && found.len() < most {
            if *hand >= self.table.end() {
                *hand = 0;
            }
            let (page, word) = (*hand, self.table.word(*hand).load(Ordering::Relaxed));
            if word != 0 && word - 1 <= tail {
                found.push(Candidate { page, word });
            }
            (*hand, *left) = (*hand + 1, *left - 1);
        }
        found
    }

    /// Pages up to here can be private.
    pub(crate) fn end(&self) -> u64 {
        self.table.end()
    }

    /// Gives back those of the pages that equal the file's `contents` (P3). The caller holds the right to
    /// write home (P4). Returns how many.
    pub(crate) fn give_back(&self, candidates: Vec<Candidate>, contents: &[u8]) -> u64 {
        if self.is_refused.load(Ordering::Relaxed) {
            return 0;
        }
        let page_bytes = self.page_bytes() as usize;
        let pairs = candidates.into_iter().zip(contents.chunks_exact(page_bytes));
        // Without the exclusion: most of the pages that differ are found before a thread has to wait.
        let mut equal: Vec<_> = pairs.filter(|(found, page)| self.equals(found.page, page)).collect();
        if equal.is_empty() {
            return 0;
        }
        // ORDER: stored before the fence of all threads. Each thread then sees this mask, or
        // `wait_until_left` sees the thread in its slot.
        self.leaving.store(equal.iter().fold(0, |mask, (found, _)| mask | bit(found.page)), Ordering::SeqCst);
        slots::fence_on_all_threads(self.has_heavy_fence);
        let names: Vec<u64> = equal.iter().map(|(found, _)| self.name(found.page)).collect();
        let occupied = slots::wait_until_left(&names);
        // ORDER: with the fence between a record's end in the table and the copies of its lines.
        fence(Ordering::SeqCst);
        equal.retain(|(found, page)| {
            !occupied.contains(&self.name(found.page))
                && !occupied.contains(&slots::ANY)
                && self.table.word(found.page).load(Ordering::Relaxed) == found.word
                && self.equals(found.page, page)
        });
        let count = self.drop_pages(&equal);
        // ORDER: release, after the words in the table.
        self.leaving.store(0, Ordering::Release);
        count
    }

    /// Drops pages, in which no thread is, and their words in the table.
    fn drop_pages(&self, pages: &[(Candidate, &[u8])]) -> u64 {
        let mut count = 0;
        for run in pages.chunk_by(|(one, _), (next, _)| one.page + 1 == next.page) {
            let off = run[0].0.page << self.page_shift;
            match self.backing {
                Backing::Copied => run.iter().for_each(|(found, page)| self.show(found.page, page)),
                Backing::Mapped if self.discard(off, (run.len() as u64) << self.page_shift) => {}
                Backing::Mapped => {
                    self.is_refused.store(true, Ordering::Relaxed);
                    break;
                }
            }
            for (found, _) in run {
                // A record written meanwhile has the file's contents. Its end stays in the table.
                let word = self.table.word(found.page);
                if word.compare_exchange(found.word, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    count += 1;
                }
            }
        }
        self.count.fetch_sub(count, Ordering::Relaxed);
        self.given_back.fetch_add(count, Ordering::Relaxed);
        count
    }

    /// Drops the whole pages of a range, whatever they held: they show the file then. Nobody stores there, no
    /// record has lines of the range, and the caller holds the right to write home (P4).
    pub(crate) fn forget(&self, off: u64, bytes: u64) {
        let (first, end) = (off.div_ceil(self.page_bytes()), (off + bytes) >> self.page_shift);
        if first >= end {
            return;
        }
        let (off, bytes) = (first << self.page_shift, (end - first) << self.page_shift);
        if self.backing == Backing::Mapped && !self.discard(off, bytes) {
            // From now on no page is looked at: the range may soon have no memory.
            return self.is_refused.store(true, Ordering::Relaxed);
        }
        let words = (first..end.min(self.table.end())).map(|page| self.table.word(page));
        let count = words.filter(|word| word.swap(0, Ordering::Relaxed) != 0).count();
        self.count.fetch_sub(count as u64, Ordering::Relaxed);
    }

    /// Whether a page of the memory has these contents.
    fn equals(&self, page: u64, contents: &[u8]) -> bool {
        contents
            .chunks_exact(8)
            .zip(self.words(page))
            .all(|(bytes, word)| word.load(Ordering::Relaxed).to_ne_bytes() == bytes)
    }

    fn words(&self, page: u64) -> &[AtomicU64] {
        let words = 1 << (self.page_shift - 3);
        // SAFETY: a page with a word in the table was stored to, and others are of the region as it is; so it
        // is mapped, for as long as the region lives. All racing accesses are atomic by the contract of
        // the region's unsafe methods: none of those is under way when the comparison counts.
        unsafe {
            let first = self.base.add((page << self.page_shift) as usize);
            core::slice::from_raw_parts(first.cast::<AtomicU64>(), words)
        }
    }

    /// Lets pages of a mapped file show the file again; whether the system does that.
    fn discard(&self, off: u64, bytes: u64) -> bool {
        // SAFETY: the pages are mapped by the region from its file, privately. They equal it (P3), and no
        // load sees a difference; or they are free space, whose contents are not loaded any more.
        let outcome = unsafe {
            rustix::mm::madvise(
                self.base.add(off as usize).cast(),
                bytes as usize,
                rustix::mm::Advice::LinuxDontNeed,
            )
        };
        outcome.is_ok()
    }

    /// For a simulator: pages that are not private show the file, which has these contents at `off` now.
    pub(crate) fn show_written(&self, off: u64, contents: &[u8]) {
        if self.backing == Backing::Mapped {
            return;
        }
        let first = off >> self.page_shift;
        for (page, contents) in (first..).zip(contents.chunks_exact(self.page_bytes() as usize)) {
            if self.table.word(page).load(Ordering::Relaxed) == 0 {
                self.show(page, contents);
            }
        }
    }

    /// For a simulator: these whole pages show the file again, which has a hole there now.
    pub(crate) fn show_hole(&self, off: u64, bytes: u64) {
        let words =
            (off >> self.page_shift..(off + bytes) >> self.page_shift).flat_map(|page| self.words(page));
        words.for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn show(&self, page: u64, contents: &[u8]) {
        for (word, bytes) in self.words(page).iter().zip(contents.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }
}
