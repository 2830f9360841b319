//! The atomics of `orec.rs` and `clock.rs`, with weakenings.

use super::{Mutant, Sharing, WAY, is};
pub(super) use std::sync::atomic::Ordering;

#[derive(Debug, Default)]
pub(super) struct AtomicU64(loom::sync::atomic::AtomicU64);

/// Changes nothing.
pub(super) fn prefetch_for_store(_: &AtomicU64) {}

impl AtomicU64 {
    pub(super) fn new(value: u64) -> AtomicU64 {
        AtomicU64(loom::sync::atomic::AtomicU64::new(value))
    }

    pub(super) fn load(&self, order: Ordering) -> u64 {
        let is_weak = is(Mutant::LoadsRelaxed) && order == Ordering::Acquire;
        self.0.load(if is_weak { Ordering::Relaxed } else { order })
    }

    pub(super) fn store(&self, value: u64, order: Ordering) {
        let is_weak = is(Mutant::ReleasesRelaxed) && order == Ordering::Release;
        self.0.store(value, if is_weak { Ordering::Relaxed } else { order });
    }

    pub(super) fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        order: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(old, new, order, failure)
    }

    pub(super) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_max(value, order)
    }

    pub(super) fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, if is(Mutant::SharesUnfenced) { Ordering::Relaxed } else { order })
    }

    pub(super) fn fetch_add(&self, by: u64, order: Ordering) -> u64 {
        self.0.fetch_add(by, if is(Mutant::ClockRelaxed) { Ordering::Relaxed } else { order })
    }
}

pub(super) fn fence(order: Ordering) {
    let is_weak = match order {
        Ordering::SeqCst => is(Mutant::EndsUnfenced),
        _ => is(Mutant::NoOrderOfLoads),
    };
    if !is_weak {
        loom::sync::atomic::fence(order);
    }
}

pub(super) fn fence_after_exchange() {
    if !is(Mutant::SharesUnfenced) {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Loom takes sequentially consistent loads for ones that acquire. That a record is loaded after the
/// clock in the order that all agree about is what a fence between the two gives as well. Where the clock
/// is never shared it need only acquire.
pub(super) fn load_in_order(word: &AtomicU64) -> u64 {
    if WAY.get().sharing != Sharing::Never && !is(Mutant::LoadsOutOfOrder) {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
    word.load(Ordering::Acquire)
}
