//! What the ownership records are made of. `tests/threads_protocol.rs` runs `orec.rs` with a model checker's in its place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use tembo_pmem::prefetch_for_store;
pub(crate) use tembo_sync::fence_after_exchange;

/// Of such loads of one thread, and the exchanges of others, the order is one that all threads agree about.
#[inline(always)]
pub(crate) fn load_in_order(word: &AtomicU64) -> u64 {
    word.load(Ordering::SeqCst)
}
