//! A mutex that one thread takes without a locked instruction as long as no other thread takes it ([`Bias`]).
//!
//! There are two ways to hold the lock. The thread with the bias sets a flag of its own, after it entered the
//! bias and saw the inner mutex free. Every other thread revokes the bias and takes the inner mutex. The
//! thread with the bias may take the inner mutex too: for a guard that another thread may drop, and to wait
//! for such a guard.

use crate::Bias;
use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// A mutual exclusion lock around a value.
///
/// A thread must not keep a guard in a thread-local value: its thread number may belong to another thread by
/// the time that the guard is dropped.
#[doc(hidden)]
pub struct BiasedMutex<T> {
    bias: Bias,
    /// Whether the thread with the bias holds the lock by it. Only that thread stores and loads this.
    is_held_by_bias: AtomicBool,
    mutex: RawMutex,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock reaches the value.
unsafe impl<T: Send> Send for BiasedMutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}

/// The value, locked as long as this lives.
pub struct BiasedGuard<'m, T> {
    of: &'m BiasedMutex<T>,
    is_biased: bool,
    /// No other thread may leave a bias.
    not_send: PhantomData<*const ()>,
}

/// The value, locked as long as this lives, with a share of the lock. May be dropped by another thread.
pub struct ArcBiasedGuard<T> {
    of: Arc<BiasedMutex<T>>,
    /// Threads that share the guard share the value.
    value: PhantomData<T>,
}

impl<T> BiasedMutex<T> {
    /// A value that no thread has locked.
    pub fn new(value: T) -> BiasedMutex<T> {
        BiasedMutex {
            bias: Bias::default(),
            is_held_by_bias: AtomicBool::new(false),
            mutex: RawMutex::INIT,
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock if it is free. The first thread that asks while another has the bias waits until that
    /// one has no lock.
    #[inline]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        let is_biased = self.bias.enter();
        let is_locked = match is_biased {
            true => self.take_by_bias(),
            false => self.mutex.try_lock(),
        };
        is_locked.then(|| BiasedGuard { of: self, is_biased, not_send: PhantomData })
    }

    /// Takes the lock for the thread that has entered its bias. If it cannot, leaves the bias.
    #[inline]
    fn take_by_bias(&self) -> bool {
        if self.is_held_by_bias.load(Ordering::Relaxed) || self.mutex.is_locked() {
            self.bias.leave();
            return false;
        }
        // ORDER: acquire, with the release of the mutex by another thread.
        fence(Ordering::Acquire);
        self.is_held_by_bias.store(true, Ordering::Relaxed);
        true
    }

    /// Takes the lock.
    ///
    /// # Panics
    ///
    /// May panic if the thread has a guard of this lock already; otherwise it then waits for ever.
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| {
            self.take_mutex();
            BiasedGuard { of: self, is_biased: false, not_send: PhantomData }
        })
    }

    /// Whether the calling thread has the lock by its bias. Revokes the bias of another thread.
    pub fn is_held_by_bias(&self) -> bool {
        let may_be = self.bias.enter();
        if may_be {
            self.bias.leave();
        }
        may_be && self.is_held_by_bias.load(Ordering::Relaxed)
    }

    /// As [`lock`](Self::lock), with a share of the lock.
    ///
    /// # Panics
    ///
    /// As for [`lock`](Self::lock).
    pub fn lock_arc(self: &Arc<Self>) -> ArcBiasedGuard<T> {
        self.take_mutex();
        ArcBiasedGuard { of: self.clone(), value: PhantomData }
    }

    fn take_mutex(&self) {
        assert!(!self.is_held_by_bias(), "a thread that waits for a lock that it has");
        self.mutex.lock();
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard has the lock. By bias: no other thread gets it before this one has left, and this
        // one gets no second guard, as it looks at both ways first. By mutex: others need that as well, or
        // the bias, whose holder finds the mutex taken.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_biased {
            self.of.is_held_by_bias.store(false, Ordering::Relaxed);
            self.of.bias.leave();
        } else {
            // SAFETY: the guard has the mutex.
            unsafe { self.of.mutex.unlock() };
        }
    }
}

impl<T> Deref for ArcBiasedGuard<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard has the mutex; as for `BiasedGuard`.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for ArcBiasedGuard<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for ArcBiasedGuard<T> {
    fn drop(&mut self) {
        // SAFETY: the guard has the mutex.
        unsafe { self.of.mutex.unlock() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_take_a_lock_lose_nothing_whoever_had_it_first() {
        let value = Arc::new(BiasedMutex::new(0_u64));
        let (threads, each) = (4, 20_000);
        // By bias, first.
        (0..each).for_each(|_| *value.lock() += 1);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let value = &value;
                scope.spawn(move || {
                    for i in 0..each {
                        match (thread + i) % 3 {
                            0 => *value.lock() += 1,
                            1 => *value.lock_arc() += 1,
                            _ => loop {
                                if let Some(mut value) = value.try_lock() {
                                    *value += 1;
                                    break;
                                }
                            },
                        }
                    }
                });
            }
            (0..each).for_each(|_| *value.lock() += 1);
        });
        assert_eq!(*value.lock(), (threads + 2) * each);
    }

    #[test]
    fn a_lock_is_had_once_by_whatever_guard() {
        let value = Arc::new(BiasedMutex::new(1));
        let first = value.lock();
        assert!(value.try_lock().is_none());
        drop(first);
        let second = value.lock_arc();
        assert!(value.try_lock().is_none());
        // Dropped by another thread, while the first one waits for it.
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                let mut second = second;
                *second = 2;
            });
            assert_eq!(*value.lock(), 2);
        });
        assert!(value.try_lock().is_some());
    }

    #[test]
    #[should_panic(expected = "a thread that waits for a lock that it has")]
    fn a_thread_that_takes_a_lock_twice_by_bias_panics() {
        let value = BiasedMutex::new(1);
        let _first = value.lock();
        if crate::primitives::has_heavy_fence() {
            let _second = value.lock();
        } else {
            // No thread has a bias.
            panic!("a thread that waits for a lock that it has");
        }
    }
}
