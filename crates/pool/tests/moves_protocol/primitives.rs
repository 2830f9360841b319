//! The primitives under `alloc` and `epoch.rs`, with weakenings.

use super::{Mutant, is};
use loom::sync::atomic;
pub(crate) use std::sync::atomic::{Ordering, compiler_fence};

pub(crate) const SLOTS: usize = 2;
pub(crate) const THREADS: usize = 1;

loom::lazy_static! {
    static ref BARRIERS: atomic::AtomicU64 = atomic::AtomicU64::new(0);
}

/// Loom takes no account of sequential consistency but in barriers, and does not try all orders of these by
/// themselves.
fn barrier() {
    BARRIERS.fetch_add(0, Ordering::Relaxed);
    atomic::fence(Ordering::SeqCst);
}

/// A sequentially consistent load comes after a barrier, which parts it from the change of another word
/// before it: unless one of the two is weaker.
fn barrier_at(order: Ordering, dropped: [Mutant; 2]) {
    if order == Ordering::SeqCst && !dropped.into_iter().any(is) {
        barrier();
    }
}

fn weaker(order: Ordering, otherwise: Ordering) -> Ordering {
    if order == Ordering::SeqCst { otherwise } else { order }
}

pub(crate) fn fence(_: Ordering) {
    barrier();
}

pub(crate) fn fence_after_exchange() {
    barrier();
}

pub(crate) fn has_heavy_fence() -> bool {
    false
}

pub(crate) fn heavy_fence() {}

pub(crate) fn first_slot() -> usize {
    0
}

pub(crate) fn thread_number() -> usize {
    THREADS
}

pub(crate) fn known_thread_number() -> usize {
    THREADS
}

#[derive(Debug, Default)]
pub(crate) struct AtomicU64(atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> AtomicU64 {
        AtomicU64(atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        barrier_at(order, [Mutant::LooksAtBitsWeakly, Mutant::LetsGoWeakly]);
        self.0.load(weaker(order, Ordering::Acquire))
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let old = self.0.fetch_add(value, weaker(order, Ordering::AcqRel));
        barrier();
        old
    }

    pub(crate) fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_or(bits, order)
    }

    pub(crate) fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_and(bits, weaker(order, Ordering::AcqRel))
    }

    pub(crate) fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        order: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(old, new, weaker(order, Ordering::AcqRel), failure)
    }
}

#[derive(Debug)]
pub(crate) struct AtomicBool(atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> AtomicBool {
        AtomicBool(atomic::AtomicBool::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        barrier_at(order, [Mutant::LooksAtHoldersWeakly, Mutant::ReleasesWeakly]);
        let value = self.0.load(weaker(order, Ordering::Acquire));
        value && !(order == Ordering::SeqCst && is(Mutant::HoldsWhatIsHeld))
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        self.0.store(value, order);
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        let old = self.0.swap(value, weaker(order, Ordering::AcqRel));
        let is_claim = value && order == Ordering::AcqRel;
        old && !(is_claim && (is(Mutant::HoldsWhatIsHeld) || is(Mutant::BothClaim)))
    }
}

#[derive(Debug)]
pub(crate) struct AtomicUsize(atomic::AtomicUsize);

impl AtomicUsize {
    pub(crate) fn new(value: usize) -> AtomicUsize {
        AtomicUsize(atomic::AtomicUsize::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> usize {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: usize, order: Ordering) {
        self.0.store(value, order);
    }
}

#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}
