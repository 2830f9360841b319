//! Atomics of the ownership records and the clock. `tests/threads_protocol/` replaces them by those of a
//! model checker.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use tembo_pmem::prefetch_for_store;
pub(crate) use tembo_sync::fence_after_exchange;

/// A load in the single total order of sequentially consistent operations: other such loads of this thread,
/// and exchanges of other threads.
#[inline(always)]
pub(crate) fn load_in_order(word: &AtomicU64) -> u64 {
    word.load(Ordering::SeqCst)
}
