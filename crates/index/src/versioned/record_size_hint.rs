//! How much of a record is asked for before anything of it is known: as much as the records had that were read before it.
//!
//! A record says how long it is, so that the rest of it could be asked for only when its first line has come. That takes as long again
//! as the first line took, and where the record lies on two pages, the second is looked up only then. Records of one map are mostly
//! alike.

use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pmem::{LINE_BYTES, Region};

/// Lines asked for ahead, at most.
const LINES_MAX: u64 = 64;

/// How many lines the next record probably has.
#[derive(Debug, Default)]
pub(crate) struct RecordSizeHint(AtomicU64);

impl RecordSizeHint {
    /// Asks for as many lines from `off` on as the next record probably has.
    #[inline]
    pub(crate) fn fetch(&self, region: &Region, off: u64) {
        for line in 0..self.0.load(Ordering::Relaxed) {
            region.prefetch(off.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Notes where a record was, and how long. What was too much counts at once, and what was too little by and by: lines that nobody reads cost
    /// more than lines that come late.
    #[inline]
    pub(crate) fn note(&self, off: u64, record_bytes: u64) {
        let lines = (off % LINE_BYTES + record_bytes).div_ceil(LINE_BYTES).min(LINES_MAX);
        let expected = self.0.load(Ordering::Relaxed);
        if lines != expected {
            let more = lines.saturating_sub(expected).div_ceil(4);
            self.0.store(lines.min(expected + more), Ordering::Relaxed);
        }
    }
}
