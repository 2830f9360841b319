//! A lock that a plain store releases.
//!
//! On x86 a locked instruction waits for write-backs under way. A lock that is released behind a flush must
//! not execute one.

use crate::back_off;
use parking_lot::lock_api::{GuardNoSend, Mutex, MutexGuard, RawMutex};
use std::sync::atomic::{AtomicBool, Ordering};

/// The lock by itself. A holder may commit under it, which takes nanoseconds, or milliseconds if the commit
/// synchronises a device. Waiting threads therefore [back off](back_off).
#[derive(Debug, Default)]
pub struct SpinLock(AtomicBool);

/// A value under such a lock.
pub type SpinMutex<T> = Mutex<SpinLock, T>;
/// The value, locked as long as this lives.
pub type SpinMutexGuard<'m, T> = MutexGuard<'m, SpinLock, T>;

impl SpinLock {
    /// Waits for the lock and takes it.
    #[inline]
    pub fn acquire(&self) {
        if !self.try_acquire() {
            self.wait();
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        // ORDER: acquire, with the release of the last holder.
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        for round in 0.. {
            if !self.is_held() && self.try_acquire() {
                return;
            }
            back_off(round);
        }
    }

    /// Gives the lock up. The caller holds it.
    #[inline]
    pub fn release(&self) {
        // ORDER: release, for the next holder.
        self.0.store(false, Ordering::Release);
    }

    /// Whether anybody holds the lock.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

// SAFETY: the flag goes from false to true in one exchange, so one thread at a time has the lock; a `Mutex`
// gives its lock out by an unsafe function only, so that only its guard releases it.
unsafe impl RawMutex for SpinLock {
    const INIT: SpinLock = SpinLock(AtomicBool::new(false));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.acquire();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.try_acquire()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.release();
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.is_held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        let value = SpinMutex::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *value.lock() += 1));
            }
        });
        assert_eq!(*value.lock(), 40_000);
        let held = value.lock();
        assert!(value.try_lock().is_none() && value.is_locked());
        drop(held);
        assert!(value.try_lock().is_some());
    }
}
