//! Per-thread counters of the cost of persistence: words stored, lines flushed, fences.
//!
//! They advance only for regions opened with [`RegionOptions::count`](crate::RegionOptions), and
//! for simulated ones; other regions pay one predictable branch per store.
//!
//! Write-backs and fences are counted in all other regions as well ([`write_backs`]), for a program that is
//! watched. In `page-cache` there is nothing to write back: nothing is counted, and counting costs nothing.
//! Elsewhere a fence pays for one addition to a word of the thread, a flush for two or three instructions.

use std::cell::Cell;
use std::ops::Sub;
use std::thread::LocalKey;

/// The words, lines and fences of this thread so far, in counting regions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// 8-byte words stored to persistent memory (a partial word counts as one).
    pub words: u64,
    /// Cache lines whose write-back was started.
    pub lines: u64,
    /// Fences.
    pub fences: u64,
}

impl Sub for Counts {
    type Output = Counts;
    fn sub(self, earlier: Counts) -> Counts {
        Counts {
            words: self.words - earlier.words,
            lines: self.lines - earlier.lines,
            fences: self.fences - earlier.fences,
        }
    }
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { words: 0, lines: 0, fences: 0 }) };
}

/// The write-backs and fences of a thread so far, in all regions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteBacks {
    /// Cache lines whose write-back was started, including those stored past the caches.
    pub lines: u64,
    /// Fences that ordered something.
    pub fences: u64,
}

thread_local! {
    static LINES: Cell<u64> = const { Cell::new(0) };
    static FENCES: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's write-backs.
pub fn write_backs() -> WriteBacks {
    WriteBacks { lines: LINES.get(), fences: FENCES.get() }
}

#[inline(always)]
pub(crate) fn note_write_back(lines: u64) {
    add_to(&LINES, lines);
}

#[inline(always)]
pub(crate) fn note_fence() {
    add_to(&FENCES, 1);
}

/// Adds in place: `LocalKey::set` is a call of a function that could initialise the variable.
#[inline(always)]
fn add_to(count: &'static LocalKey<Cell<u64>>, more: u64) {
    count.with(|count| count.set(count.get().wrapping_add(more)));
}

/// The calling thread's counters. The cost of an operation is the difference of two snapshots.
pub fn snapshot() -> Counts {
    COUNTS.get()
}

pub(crate) fn add(words: u64, lines: u64, fences: u64) {
    let c = COUNTS.get();
    COUNTS.set(Counts { words: c.words + words, lines: c.lines + lines, fences: c.fences + fences });
}
