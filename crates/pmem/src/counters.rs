//! Per-thread counters of the cost of persistence: words stored, lines flushed, fences.
//!
//! They advance only for regions opened with [`RegionOptions::count`](crate::RegionOptions), and
//! for simulated ones; other regions pay one predictable branch per store.

use std::cell::Cell;
use std::ops::Sub;

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

/// The calling thread's counters. The cost of an operation is the difference of two snapshots.
pub fn snapshot() -> Counts {
    COUNTS.get()
}

pub(crate) fn add(words: u64, lines: u64, fences: u64) {
    let c = COUNTS.get();
    COUNTS.set(Counts { words: c.words + words, lines: c.lines + lines, fences: c.fences + fences });
}
