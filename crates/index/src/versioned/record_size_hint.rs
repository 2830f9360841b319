//! A hint of how many lines of a record to prefetch before its length is known: as many as earlier records
//! had.
//!
//! The length is in the record's first line. Waiting for it before requesting the rest would double the
//! latency, and delay the address translation of a second page. Records of one map are mostly of similar
//! length. `docs/decisions/0013-record-size-hint.md` has the figures.

use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pmem::{LINE_BYTES, Region};

/// The most lines that are prefetched.
const LINES_MAX: u64 = 64;

/// How many lines the next record probably has.
#[derive(Debug, Default)]
pub(crate) struct RecordSizeHint(AtomicU64);

impl RecordSizeHint {
    /// Prefetches as many lines from `off` on as the next record probably has.
    #[inline]
    pub(crate) fn fetch(&self, region: &Region, off: u64) {
        for line in 0..self.0.load(Ordering::Relaxed) {
            region.prefetch(off.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Notes the place and the length of a record. The hint falls at once and rises gradually: fetching lines
    /// that nobody reads costs more than fetching some late.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_falls_at_once_and_rises_gradually_to_its_maximum() {
        let hint = RecordSizeHint::default();
        let after = |off: u64, bytes: u64| {
            hint.note(off, bytes);
            hint.0.load(Ordering::Relaxed)
        };
        assert_eq!([after(0, 640), after(0, 640), after(0, 640)], [3, 5, 7]);
        assert_eq!(after(60, 8), 2, "a record that begins in one line and ends in the next");
        assert_eq!(after(0, 2 * LINES_MAX * LINE_BYTES), 18, "a quarter of the way to the maximum");
        for _ in 0..30 {
            hint.note(0, u64::MAX / 2);
        }
        assert_eq!(after(0, u64::MAX / 2), LINES_MAX);
    }
}
