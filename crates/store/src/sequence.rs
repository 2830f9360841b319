//! The numbers of commits, and which of them readers see.
//!
//! A commit takes a number, higher than all before it. Commits on several lanes end in any order, but readers
//! see them in the order of their numbers: the *current* number is the highest one below which every commit
//! has ended. So no reader ever sees a snapshot with a gap that is filled later.
//!
//! Each lane has a slot in which it announces its commit: first a bound, then the number itself, and zero at
//! the end. Whoever raises the current number loads the last number that was taken, and then the slots.
//!
//! ORDER: the bound is stored before the number is taken, by an exchange that releases it. Who loads a number
//! that was taken since therefore sees the announcement, or one that the lane has stored after it; and who
//! sees that, or zero, sees all that the commit has stored.
//!
//! # Gaps
//!
//! A crash, or a commit that finds no space, leaves a number without a commit. No reader has seen a snapshot
//! from that number on before the commit was decided, and afterwards nothing ever has the number: the gap
//! cannot be told from a number that was never taken. A commit with a higher number, which was durable and
//! had not returned, is there after the crash, as any commit may be whose caller was not told.

use crate::primitives::{AtomicU64, Ordering, back_off};
use crossbeam_utils::CachePadded;

/// The numbers of a store's commits.
pub(crate) struct Sequence {
    /// The number that readers see.
    current: CachePadded<AtomicU64>,
    /// The last number that was taken.
    last: CachePadded<AtomicU64>,
    /// By lane: a bound of the number of its commit, or that number; 0 if it is making none.
    in_flight: Box<[CachePadded<AtomicU64>]>,
}

/// A number whose commit is being made. It is decided when this is dropped.
pub(crate) struct InFlight<'s> {
    slot: &'s AtomicU64,
    pub(crate) number: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // ORDER: release: who sees it sees what the commit has stored.
        self.slot.store(0, Ordering::Release);
    }
}

impl Sequence {
    pub(crate) fn new(current: u64, lanes: usize) -> Sequence {
        Sequence {
            current: CachePadded::new(AtomicU64::new(current)),
            last: CachePadded::new(AtomicU64::new(current)),
            in_flight: (0..lanes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        }
    }

    /// The number that readers see.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        // ORDER: acquire: who loads it sees all commits up to it.
        self.current.load(Ordering::Acquire)
    }

    /// As [`current`](Self::current), in the order of all sequentially consistent accesses.
    pub(crate) fn current_in_order(&self) -> u64 {
        self.current.load(Ordering::SeqCst)
    }

    /// Takes a number, beside other lanes. The caller has the turn of the lane until it has dropped the
    /// result.
    #[inline]
    pub(crate) fn take(&self, lane: usize, now: u64) -> InFlight<'_> {
        let slot = &*self.in_flight[lane];
        let mut last = self.last.load(Ordering::Relaxed);
        // ORDER: release, for what the lane's commits before this one have stored; see the module, too.
        slot.store(last + 1, Ordering::Release);
        loop {
            let number = now.max(last + 1);
            match self.last.compare_exchange_weak(last, number, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    slot.store(number, Ordering::Release);
                    return InFlight { slot, number };
                }
                Err(found) => last = found,
            }
        }
    }

    /// Raises the current number as far as all commits below are decided.
    fn raise(&self) {
        let mut visible = self.last.load(Ordering::Acquire);
        for slot in &self.in_flight {
            let number = slot.load(Ordering::Acquire);
            if number != 0 {
                visible = visible.min(number - 1);
            }
        }
        // ORDER: release, for all that the acquiring loads above have seen.
        self.current.fetch_max(visible, Ordering::AcqRel);
    }

    /// Waits until readers see a number that is decided.
    #[inline]
    pub(crate) fn wait_until_visible(&self, number: u64) {
        let mut rounds = 0;
        loop {
            self.raise();
            if self.current.load(Ordering::Relaxed) >= number {
                return;
            }
            // Two threads that end at once may miss each other, so each looks again by itself.
            rounds += 1;
            back_off(rounds);
        }
    }

    /// The next number for a caller who keeps all lanes from committing.
    #[inline]
    pub(crate) fn next_alone(&self, now: u64) -> u64 {
        now.max(self.last.load(Ordering::Relaxed) + 1)
    }

    /// Makes a number current, for such a caller; its commit has returned.
    #[inline]
    pub(crate) fn publish_alone(&self, number: u64) {
        // ORDER: release, both: who reads the number sees what was committed under it.
        self.last.store(number, Ordering::Release);
        self.current.store(number, Ordering::Release);
    }

    /// Makes the last number current, for such a caller: a thread whose commit has ended may not have done so
    /// yet.
    #[inline]
    pub(crate) fn catch_up_alone(&self) {
        let last = self.last.load(Ordering::Relaxed);
        if self.current.load(Ordering::Relaxed) != last {
            self.current.store(last, Ordering::Release);
        }
    }
}
