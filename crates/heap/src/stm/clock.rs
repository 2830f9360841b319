//! The clock that numbers commits, and the flags of the owners that are storing. `orec.rs` describes the protocol.

use super::sync::{AtomicU64, Ordering, fence, fence_after_exchange};

/// What the clock tells: how many commits it has counted, and how commits are numbered.
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

/// A commit's number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number {
    pub version: u64,
    /// Where the clock stood before.
    before: ClockReading,
}

impl Number {
    /// Whether nobody has been numbered since the clock stood at `seen`.
    #[inline(always)]
    pub(crate) fn follows(self, seen: u64) -> bool {
        self.before == ClockReading::new(seen, ALONE)
    }
}

impl Clock {
    #[inline(always)]
    pub(crate) fn now(&self) -> ClockReading {
        // ORDER: everything committed up to this is to be seen, or seen as being committed; see the module.
        ClockReading(self.0.load(Ordering::SeqCst))
    }

    /// Numbers a commit whose records are marked, and says that its owner is going to store.
    #[inline(always)]
    pub(crate) fn number(&self, storing: &Storing, owner: u64) -> Number {
        if ClockReading(self.0.load(Ordering::Relaxed)).is_shared() {
            // ORDER: between the marks and the clock; see the module.
            storing.begin_and_wait(owner);
            let before = ClockReading(self.0.load(Ordering::Acquire));
            if before.is_shared() {
                return Number { version: before.count() + 1, before };
            }
        } else {
            storing.begin(owner);
        }
        // ORDER: between the marks and the validation of a commit; see the module.
        let before = ClockReading(self.0.fetch_add(1 << COUNT_SHIFT, Ordering::SeqCst));
        if before.is_shared() {
            // It was taken for one that commits advance: what `begin_and_wait` orders is ordered here.
            fence(Ordering::SeqCst);
        }
        Number { version: before.count() + 1, before }
    }

    /// Sees to it that the clock has counted so many.
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

    /// From now on commits leave the clock as it is. It never comes back to where it stood, so that who is ending that knows of it.
    #[cold]
    pub(crate) fn share(&self) {
        let now = self.now();
        if !now.is_shared() {
            let shared = ClockReading::new(now.count() + u64::from(!now.is_alone()), SHARED);
            let _ = self.0.compare_exchange(now.0, shared.0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// From now on each commit advances the clock again, unless one that has not may still be storing: then that is tried again when this is called
    /// again.
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
        // ORDER: of this thread and one that takes the clock for shared, one sees the other: this one the flag, or that one the state.
        fence(Ordering::SeqCst);
        if !storing.is_anyone() {
            // No version is newer than the clock then.
            let alone = ClockReading::new(now.count() + 1, ALONE);
            let _ = self.0.compare_exchange(now.0, alone.0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Whether it still stands at `seen`, and did when places were read: then nobody has stored to them since.
    #[inline(always)]
    pub(crate) fn stands_at(&self, seen: u64) -> bool {
        // ORDER: the loads of the places are done before this one: whoever loads what a commit has stored sees that it has advanced the clock, or that that is shared.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == seen << COUNT_SHIFT
    }
}

/// More owners than this are not looked at: among so many somebody is always storing.
const LOOKED_AT_MAX: u64 = 4;

/// A word with the line that it lies in, and the next, which processors fetch together, to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// A flag is the number of commits that the owner has begun or ended.
#[inline(always)]
fn is_storing(flag: u64) -> bool {
    flag % 2 == 1
}

/// Which owners are storing what they have committed.
#[derive(Debug)]
pub(crate) struct Storing {
    flags: Box<[Padded<AtomicU64>]>,
    /// The highest number of an owner that there has been.
    highest: Padded<AtomicU64>,
}

impl Storing {
    /// For owners with numbers from 1 to `owners`.
    pub(crate) fn new(owners: u64) -> Storing {
        Storing { flags: (0..owners).map(|_| Padded::default()).collect(), highest: Padded::default() }
    }

    /// Makes an owner known, before its first commit.
    pub(crate) fn add(&self, owner: u64) {
        self.highest.0.fetch_max(owner, Ordering::AcqRel);
    }

    /// Says that the owner is going to store. The clock's advance, which follows, orders that before everything else.
    #[inline(always)]
    pub(crate) fn begin(&self, owner: u64) {
        let flag = &self.flags[owner as usize - 1].0;
        flag.store(flag.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The same, with everything that it has stored before visible to all before anything that it loads then.
    #[inline(always)]
    fn begin_and_wait(&self, owner: u64) {
        let flag = &self.flags[owner as usize - 1].0;
        flag.swap(flag.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        fence_after_exchange();
    }

    /// Says that it has stored, and released its records; nothing if it has not [begun](Clock::number), as a commit that failed before.
    #[inline(always)]
    pub(crate) fn end(&self, owner: u64) {
        let flag = &self.flags[owner as usize - 1].0;
        let now = flag.load(Ordering::Relaxed);
        if is_storing(now) {
            // ORDER: release: who sees this sees what was stored.
            flag.store(now + 1, Ordering::Release);
        }
    }

    /// How many commits others than this owner have begun or ended.
    pub(crate) fn of_others(&self, owner: u64) -> u64 {
        let highest = self.highest.0.load(Ordering::Relaxed);
        let flags = self.flags.iter().zip(1..=highest);
        flags
            .filter(|(_, of)| *of != owner)
            .map(|(flag, _)| flag.0.load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }

    /// Whether anybody was storing who began to before the fence that precedes this.
    fn is_anyone(&self) -> bool {
        let highest = self.highest.0.load(Ordering::Acquire);
        let mut flags = self.flags.iter().zip(1..=highest);
        flags.any(|(flag, _)| is_storing(flag.0.load(Ordering::Acquire)))
    }

    /// Whether, after the clock was read, somebody may be storing what was numbered by then.
    #[inline]
    pub(crate) fn may_be_anyone(&self) -> bool {
        // ORDER: acquire, both: the clock's value tells of all that were numbered up to it, and the flags of what they have stored.
        let highest = self.highest.0.load(Ordering::Acquire);
        // One writer, mostly: a transaction that reads spares a loop.
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
