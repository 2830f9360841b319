//! Bias: locks that one thread takes without a locked instruction, as long as no other thread takes any of them.
//!
//! A locked instruction waits for all write-backs that its thread has under way. Between two changes that are each made durable that is the time
//! of a whole fence, in which the second could otherwise look for its place already.
//!
//! The first thread that takes a lock gets the bias, and from then on says in a word of its own how many locks it holds, before it looks whether
//! it still has the bias. Any other thread that wants a lock takes the bias away for good: it makes every thread of the process pass a
//! barrier (`membarrier`), and waits until the holder has no lock. From then on locks are taken by locked instructions.
//!
//! ORDER: the holder stores its word and then loads who holds the bias; who takes the bias away stores that and then, after the barrier,
//! loads the word. So one of them sees the other's store. The barrier that the holder lacks is the other's. Where the system has no such call, nobody
//! gets the bias.
//!
//! # Source
//!
//! Biased locking as in Dice, Moir and Scherer's "Quickly Reacquirable Locks" (2003); for many locks at once here, and never given back.

use crate::sync::{
    AtomicU64, Mutex, Ordering, THREADS, compiler_fence, has_remote_barriers, pause, remote_barrier,
    thread_number,
};
use crossbeam_utils::CachePadded;

/// Holders that are no threads: nobody yet; somebody whose bias is being taken away; nobody any more.
const NOBODY: u64 = u64::MAX - 2;
const LOSING: u64 = u64::MAX - 1;
const SHARED: u64 = u64::MAX;

/// Which thread, if any, takes some locks without locked instructions.
#[derive(Debug)]
pub struct Bias {
    holder: CachePadded<AtomicU64>,
    /// The thread that has or had the bias, and the locks that it holds by it. Stored to by that thread only.
    first: AtomicU64,
    held: AtomicU64,
    /// Held while the bias is taken away.
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
    /// Before a lock is taken: whether the thread has the bias, so that it takes the lock by a plain store, once it has seen that the lock is
    /// free, and calls [`leave`](Self::leave) after it has let the lock go. Otherwise it takes the lock by a locked instruction.
    ///
    /// Waits for the holder, if that is another thread and has locks.
    #[inline(always)]
    pub fn enter(&self) -> bool {
        // ORDER: acquire: all that the last holder has stored is to be seen when it has lost the bias.
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

    /// Whether locks are taken by locked instructions now, since several threads take some. Only a hint.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == SHARED
    }

    /// After a lock that was taken by the bias was let go.
    #[inline(always)]
    pub fn leave(&self) {
        let held = self.held.load(Ordering::Relaxed);
        // ORDER: release: what was stored under the lock, and its end, are seen by who waits for this.
        self.held.store(held - 1, Ordering::Release);
    }

    #[cold]
    fn enter_slowly(&self, me: u64) -> bool {
        // Of what this thread stores itself it sees the last.
        if self.first.load(Ordering::Relaxed) == me && self.held.load(Ordering::Relaxed) > 0 {
            // The bias is being taken away, and that waits for the locks that this thread has.
            self.held.store(self.held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return true;
        }
        let may_have = has_remote_barriers() && me < THREADS as u64;
        if may_have && self.holder.compare_exchange(NOBODY, me, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.first.store(me, Ordering::Relaxed);
            return self.enter();
        }
        self.take_away();
        false
    }

    fn take_away(&self) {
        let _one = self.losing.lock();
        if self.holder.load(Ordering::Acquire) == SHARED {
            return;
        }
        self.holder.store(LOSING, Ordering::SeqCst);
        if has_remote_barriers() {
            // ORDER: between that store and the loads below, and in the holder between its store and its load.
            remote_barrier();
        }
        let mut rounds = 0;
        // ORDER: acquire, with the release of `leave`.
        while self.held.load(Ordering::Acquire) != 0 {
            rounds += 1;
            pause(rounds);
        }
        self.holder.store(SHARED, Ordering::Release);
    }
}
