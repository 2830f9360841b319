//! Asking for pages that are needed soon.

use super::Region;
use crate::PAGE_BYTES;
use crate::map::round_up;
use crate::paging::Turn;
use rustix::mm::Advice;

impl Region {
    /// Whether the region is, or was, larger than memory: its pages come from a disk one by one.
    #[inline(always)]
    pub fn is_larger_than_memory(&self) -> bool {
        self.paging.is_single()
    }

    /// Whether it pays to [request](Self::ask_for) pages that are needed soon: pages were missing recently,
    /// or were not checked for a while.
    #[inline(always)]
    pub fn lacks_pages(&self) -> bool {
        self.paging.is_single() && self.paging.is_asking()
    }

    /// Asks the kernel to read the pages of a range that are on the disk only, and does not wait, where the
    /// region is larger than memory. Elsewhere nothing happens. Never faults.
    #[inline(always)]
    pub fn ask_for(&self, off: u64, bytes: u64) {
        if self.paging.is_single() {
            self.ask_for_pages(off, bytes);
        }
    }

    #[cold]
    fn ask_for_pages(&self, off: u64, bytes: u64) {
        let turn = self.paging.turn();
        let (from, to) = (off / PAGE_BYTES * PAGE_BYTES, round_up(off.saturating_add(bytes), PAGE_BYTES));
        if turn == Turn::Pass || to > round_up(self.len(), PAGE_BYTES) {
            return;
        }
        if turn == Turn::Look {
            if self.range.has_page(from) {
                return;
            }
            self.paging.note_missing();
        }
        self.range.advise(from, to, Advice::WillNeed);
    }
}
