//! What the ownership records are made of. `tests/threads_protocol.rs` runs `orec.rs` with a model checker's in its place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use tembo_pmem::prefetch_for_store;

/// Of such loads of one thread, and the exchanges of others, the order is one that all threads agree about.
#[inline(always)]
pub(crate) fn load_in_order(word: &AtomicU64) -> u64 {
    word.load(Ordering::SeqCst)
}

/// Everything stored before the exchange that precedes this is visible to all before anything is loaded. (Miri goes by the language, in which an
/// exchange is no barrier.)
#[inline(always)]
pub(crate) fn fence_after_exchange() {
    if cfg!(all(target_arch = "x86_64", not(miri))) {
        // A locked instruction is a barrier by itself.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
