//! The clock that numbers commits, and the flags of the owners that are storing. `orec.rs` describes the
//! protocol.

use super::sync::{AtomicU64, Ordering, fence, fence_after_exchange};

/// A reading of the clock: the number of counted commits, and the way in which commits are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockReading(u64);

/// Each commit advances the clock.
const ALONE: u64 = 0;
/// Commits leave the clock as it is.
const SHARED: u64 = 1;
/// Each commit advances the clock again, but some that have not may still be storing.
const ENDING: u64 = 2;
const STATE_MASK: u64 = 3;
const COUNT_SHIFT: u32 = 2;

impl ClockReading {
    #[inline(always)]
    fn new(count: u64, state: u64) -> ClockReading {
        ClockReading(count << COUNT_SHIFT | state)
    }

    #[inline(always)]
    pub(crate) fn count(self) -> u64 {
        self.0 >> COUNT_SHIFT
    }

    /// Whether commits advance the clock.
    #[inline(always)]
    pub(crate) fn is_alone(self) -> bool {
        self.0 & STATE_MASK == ALONE
    }

    #[inline(always)]
    fn is_shared(self) -> bool {
        self.0 & STATE_MASK == SHARED
    }
}

/// The clock that numbers commits.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

/// The number of a commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number {
    pub version: u64,
    /// The clock before the commit.
    before: ClockReading,
}

impl Number {
    /// Whether no commit has been numbered since the clock was `seen`.
    #[inline(always)]
    pub(crate) fn follows(self, seen: u64) -> bool {
        self.before == ClockReading::new(seen, ALONE)
    }
}

impl Clock {
    #[inline(always)]
    pub(crate) fn now(&self) -> ClockReading {
        // ORDER: a transaction sees everything committed up to this value, or sees it being committed; see
        // the module.
        ClockReading(self.0.load(Ordering::SeqCst))
    }

    /// Numbers a commit whose records are marked, and sets its owner's flag: the owner is going to store.
    #[inline(always)]
    pub(crate) fn number(&self, storing: &Storing, owner: u64) -> Number {
        if ClockReading(self.0.load(Ordering::Relaxed)).is_shared() {
            // ORDER: between the marks and the clock; see `orec.rs`.
            storing.begin_and_wait(owner);
            let before = ClockReading(self.0.load(Ordering::Acquire));
            if before.is_shared() {
                return Number { version: before.count() + 1, before };
            }
        } else {
            storing.begin(owner);
        }
        // ORDER: between the marks and the validation of a commit; see `orec.rs`.
        let before = ClockReading(self.0.fetch_add(1 << COUNT_SHIFT, Ordering::SeqCst));
        if before.is_shared() {
            // The commit took the clock for one that commits advance. This fence orders what `begin_and_wait`
            // orders.
            fence(Ordering::SeqCst);
        }
        Number { version: before.count() + 1, before }
    }

    /// Raises the clock to at least this count.
    #[inline]
    pub(crate) fn raise(&self, count: u64) {
        let mut now = self.now();
        while now.count() < count {
            let raised = ClockReading::new(count, now.0 & STATE_MASK);
            match self.0.compare_exchange(now.0, raised.0, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(other) => now = ClockReading(other),
            }
        }
    }

    /// Makes the clock shared: commits leave it as it is. Its value never returns to an earlier one, so that
    /// a thread that is ending the sharing notices.
    #[cold]
    pub(crate) fn share(&self) {
        let now = self.now();
        if !now.is_shared() {
            let shared = ClockReading::new(now.count() + u64::from(!now.is_alone()), SHARED);
            let _ = self.0.compare_exchange(now.0, shared.0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Ends sharing: each commit advances the clock again. If a commit that does not may still be storing,
    /// the clock stays between the two states, and a later call tries again.
    #[cold]
    pub(crate) fn end_sharing(&self, storing: &Storing) {
        let mut now = self.now();
        if now.is_alone() {
            return;
        }
        if now.is_shared() {
            let ending = ClockReading::new(now.count(), ENDING);
            if self.0.compare_exchange(now.0, ending.0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                return;
            }
            now = ending;
        }
        // ORDER: of this thread and one that takes the clock for shared, at least one sees the other: this
        // thread sees the flag, or that thread sees the state.
        fence(Ordering::SeqCst);
        if !storing.is_anyone() {
            // Now no version is newer than the clock.
            let alone = ClockReading::new(now.count() + 1, ALONE);
            let _ = self.0.compare_exchange(now.0, alone.0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Whether the clock still is `seen`. If so, it had this value during all earlier reads, and no commit
    /// has stored to those places since.
    #[inline(always)]
    pub(crate) fn stands_at(&self, seen: u64) -> bool {
        // ORDER: the loads of the places come before this one. A thread that loads what a commit has stored
        // sees that the commit has advanced the clock, or that the clock is shared.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == seen << COUNT_SHIFT
    }
}

/// With more owners than this, some owner is nearly always storing, and no flag is loaded.
const LOOKED_AT_MAX: u64 = 4;

/// A word with two cache lines of its own, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// A flag counts the commits that its owner has begun or ended.
#[inline(always)]
fn is_storing(flag: u64) -> bool {
    flag % 2 == 1
}

/// The flags of the owners: whether each is storing what it has committed.
#[derive(Debug)]
pub(crate) struct Storing {
    flags: Box<[Padded<AtomicU64>]>,
    /// The highest owner number in use.
    highest: Padded<AtomicU64>,
}

impl Storing {
    /// Flags for owners with numbers from 1 to `owners`.
    pub(crate) fn new(owners: u64) -> Storing {
        Storing { flags: (0..owners).map(|_| Padded::default()).collect(), highest: Padded::default() }
    }

    /// Registers an owner before its first commit.
    pub(crate) fn add(&self, owner: u64) {
        self.highest.0.fetch_max(owner, Ordering::AcqRel);
    }

    /// Sets the owner's flag. The advance of the clock, which follows, orders this store before everything
    /// later.
    #[inline(always)]
    pub(crate) fn begin(&self, owner: u64) {
        let flag = &self.flags[owner as usize - 1].0;
        flag.store(flag.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// As [`begin`](Self::begin). All earlier stores of the owner become visible before its later loads.
    #[inline(always)]
    fn begin_and_wait(&self, owner: u64) {
        let flag = &self.flags[owner as usize - 1].0;
        flag.swap(flag.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        fence_after_exchange();
    }

    /// Clears the flag: the owner has stored, and released its records. Does nothing if the flag is not set,
    /// as after a commit that failed before its [number](Clock::number).
    #[inline(always)]
    pub(crate) fn end(&self, owner: u64) {
        let flag = &self.flags[owner as usize - 1].0;
        let now = flag.load(Ordering::Relaxed);
        if is_storing(now) {
            // ORDER: release: a thread that sees this sees the stores.
            flag.store(now + 1, Ordering::Release);
        }
    }

    /// The number of commits that owners other than this have begun or ended.
    pub(crate) fn of_others(&self, owner: u64) -> u64 {
        let highest = self.highest.0.load(Ordering::Relaxed);
        let flags = self.flags.iter().zip(1..=highest);
        flags
            .filter(|(_, of)| *of != owner)
            .map(|(flag, _)| flag.0.load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }

    /// Whether an owner is storing that began before the fence that precedes this call.
    fn is_anyone(&self) -> bool {
        let highest = self.highest.0.load(Ordering::Acquire);
        let mut flags = self.flags.iter().zip(1..=highest);
        flags.any(|(flag, _)| is_storing(flag.0.load(Ordering::Acquire)))
    }

    /// Whether an owner may be storing a commit that was numbered before the clock was read.
    #[inline]
    pub(crate) fn may_be_anyone(&self) -> bool {
        // ORDER: acquire, both: the clock's value shows all commits numbered up to it, and the flags show
        // their stores.
        let highest = self.highest.0.load(Ordering::Acquire);
        // With one writer, the common case, a reading transaction skips the loop.
        if highest == 1 {
            return is_storing(self.flags[0].0.load(Ordering::Acquire));
        }
        if highest > LOOKED_AT_MAX {
            return true;
        }
        let flags = self.flags.get(..highest as usize).unwrap_or_default();
        flags.iter().any(|flag| is_storing(flag.0.load(Ordering::Acquire)))
    }
}
