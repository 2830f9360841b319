//! Bias: locks that one thread takes without a locked instruction, as long as no other thread takes any of
//! them.
//!
//! A locked instruction waits for all write-backs that its thread has started. Between two durable changes
//! that is the time of a whole fence, in which the search for the second change could run.
//!
//! The first thread that takes a lock gets the bias. From then on it stores, before each lock, how many locks
//! it holds, and then checks that it still has the bias. Any other thread that wants a lock revokes the bias
//! for good: it makes every thread of the process execute a fence ([`heavy_fence`]) and waits until the
//! holder has no lock. From then on every lock takes a locked instruction.
//!
//! ORDER: the holder stores its count and then loads the holder's name. The revoking thread stores that name
//! and then, after the heavy fence, loads the count. One of them therefore sees the other's store. Where the
//! system has no such fence, no thread gets the bias.
//!
//! # Source
//!
//! Biased locking as in Dice, Moir and Scherer's "Quickly Reacquirable Locks" (2003). Deviations: one bias
//! serves many locks, and is never given back.

use crate::primitives::{
    AtomicU64, Mutex, Ordering, THREADS, back_off, compiler_fence, has_heavy_fence, heavy_fence,
    thread_number,
};
use crossbeam_utils::CachePadded;

/// Values of `holder` that name no thread: no holder yet; a bias that is being revoked; no holder any more.
const NOBODY: u64 = u64::MAX - 2;
const LOSING: u64 = u64::MAX - 1;
const SHARED: u64 = u64::MAX;

/// The thread, if any, that takes a set of locks without locked instructions.
#[derive(Debug)]
pub struct Bias {
    holder: CachePadded<AtomicU64>,
    /// The thread that has or had the bias, and how many locks it holds by it. Only that thread stores these.
    first: AtomicU64,
    held: AtomicU64,
    /// Held while the bias is revoked.
    losing: Mutex<()>,
}

impl Default for Bias {
    fn default() -> Bias {
        Bias {
            holder: CachePadded::new(AtomicU64::new(NOBODY)),
            first: AtomicU64::new(NOBODY),
            held: AtomicU64::new(0),
            losing: Mutex::new(()),
        }
    }
}

impl Bias {
    /// Call before taking a lock. Returns whether the thread has the bias: it then takes the lock by a plain
    /// store, after it has seen that the lock is free, and calls [`leave`](Self::leave) after it has released
    /// the lock. Otherwise it takes the lock by a locked instruction.
    ///
    /// Waits for the holder if that is another thread that holds locks.
    #[inline(always)]
    pub fn enter(&self) -> bool {
        // ORDER: acquire: after a revocation, all that the last holder stored is visible.
        let holder = self.holder.load(Ordering::Acquire);
        if holder == SHARED {
            return false;
        }
        let me = thread_number() as u64;
        if holder == me {
            let held = self.held.load(Ordering::Relaxed);
            self.held.store(held + 1, Ordering::Relaxed);
            // ORDER: the store before the load; see the module.
            compiler_fence(Ordering::SeqCst);
            if self.holder.load(Ordering::Relaxed) == me {
                return true;
            }
            // ORDER: release, as in `leave`.
            self.held.store(held, Ordering::Release);
        }
        self.enter_slowly(me)
    }

    /// Whether several threads take locks, so that locked instructions are in use. A hint only.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == SHARED
    }

    /// Call after releasing a lock that was taken by the bias.
    #[inline(always)]
    pub fn leave(&self) {
        let held = self.held.load(Ordering::Relaxed);
        // ORDER: release: the revoking thread, which waits for this count, sees all stores made under the
        // lock.
        self.held.store(held - 1, Ordering::Release);
    }

    #[cold]
    fn enter_slowly(&self, me: u64) -> bool {
        // This thread sees the last of its own stores.
        if self.first.load(Ordering::Relaxed) == me && self.held.load(Ordering::Relaxed) > 0 {
            // The bias is being revoked, and the revocation waits for the locks that this thread holds.
            self.held.store(self.held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return true;
        }
        let may_have = has_heavy_fence() && me < THREADS as u64;
        if may_have && self.holder.compare_exchange(NOBODY, me, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.first.store(me, Ordering::Relaxed);
            return self.enter();
        }
        self.revoke();
        false
    }

    fn revoke(&self) {
        let _one = self.losing.lock();
        if self.holder.load(Ordering::Acquire) == SHARED {
            return;
        }
        self.holder.store(LOSING, Ordering::SeqCst);
        if has_heavy_fence() {
            // ORDER: between that store and the loads below, and in the holder between its store and its
            // load.
            heavy_fence();
        }
        let mut rounds = 0;
        // ORDER: acquire, with the release of `leave`.
        while self.held.load(Ordering::Acquire) != 0 {
            rounds += 1;
            back_off(rounds);
        }
        self.holder.store(SHARED, Ordering::Release);
    }
}
