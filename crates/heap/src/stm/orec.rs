//! Ownership records: who may write what, and which version of it is the last.
//!
//! A record is a volatile word for all places of which the hash is the same, so that nothing of it is on media and no lock
//! can survive a crash. It has the *version* that was committed last (the clock's value then), the *owner*, who may commit
//! the next, and whether the owner is *committing*, that is, may be storing to the places. Places of others' transactions
//! keep their contents until then, so that readers pass owners by, and only wait for those that are committing.
//!
//! # Protocol
//!
//! A transaction reads the clock when it begins, and sees versions up to that. A reader loads the record, reads the
//! place, and loads the record again: the same version both times, not committing, not newer than its clock. A writer keeps what it
//! writes to itself, and notes the records. Its commit becomes the owner of all of them, marks them as committing, advances the clock, validates
//! that what was read is still as it was, makes the changes durable, stores them, and releases the records with the clock's new value.
//!
//! Before its commit a writer reads as everybody does, and finds what it has written itself in front of that. So what it reads of a place that it
//! has written a part of is validated, too: whoever commits there meanwhile is in conflict with it. What it writes without reading goes over
//! whatever was there.
//!
//! A transaction that is run again after a conflict with what it had noted becomes the owner with each first write, so that others wait for it
//! rather than take what it has read away. What it owns nobody else changes, and its reads of that need no validation; so if there is a version newer than its clock, that
//! is advanced first.
//!
//! ORDER: between marking and validating lies a locked instruction, on the clock or, where that is shared, on the owner's flag, so that of two transactions each of which read what
//! the other writes, one sees the other's mark. Between the loads of places and the second load of the record lies an acquire fence;
//! the marks are stored, and fenced, before the places.
//!
//! # When several commit
//!
//! If every commit advanced the clock, each thread that commits would wait for the line of the others' clock, and every reader for it, too. So once a
//! commit finds that another was numbered since its transaction began, the clock is *shared*: commits leave it as it is, and have the version after it. They look at it
//! behind a barrier, after they have marked their records. So who has read the clock before them sees that their version is newer, and who has read
//! it after them sees their marks.
//!
//! - Who meets a version that is newer than its clock raises the shared clock to that, and then goes on as ever: if all that it has read is still so. Also
//!   a thread that comes back to what it has committed itself; that is rare where there are many records.
//! - Two commits of one record may have the same version, but nobody can take the one for the other: who has used a version had a clock that was no older
//!   before it loaded the record, and a commit that marks the record after that sees that clock, and gets a newer one.
//! - The clock tells nothing of whether others have committed. So commits always validate, and no transaction runs in quiet; those that only read keep a
//!   list of what they read from the start.
//!
//! A thread that finds that no other has committed for a while *ends* sharing. From then on commits advance the clock again; those that had looked
//! at it before may still be storing. Once none of them is, which their flags tell, the clock goes on by one, so that no version is newer, and transactions may be
//! quiet again.
//!
//! ORDER: the flag of an owner is exchanged before it looks at a shared clock, and who ends sharing has a fence between the clock and the flags: one sees the other.
//! A reader that sees the clock raised sees the marks of those who had looked at it before: their barrier lies between mark and clock, and loads of the
//! clock and of records are sequentially consistent (which costs nothing on x86-64).
//!
//! # Quiet times
//!
//! Most transactions meet nobody. A transaction before which nobody but its own thread has committed for a while, and that finds nobody
//! storing when it begins ([`Storing`]), looks at the clock after each read, in place of the record: as long as the clock stands where it
//! stood, nobody has begun to store since. From the first time that it does not, the transaction looks at records. What was read in quiet is
//! still as it was as long as its record's version is not newer than the clock of that time.
//!
//! A transaction that writes keeps a list of the records of what it reads, by which it validates that. In quiet times its first attempt keeps none:
//! nothing that it has read has changed if no commit but its own has advanced the clock. If one has, the attempt is made again with a list, at
//! once, and so are the first attempts of the thread's next transactions.
//!
//! # Source
//!
//! NV-heaps 3.5 (ownership records by the low bits of an object's number, eager conflict detection for writes, versions for reads), as in the
//! transactional memories that it builds on: one clock and its extension for opacity; that commits need not advance the clock is known from TL2 (its variant
//! GV5). D1: changes are redone rather than undone, so that
//! readers are not in conflict with an owner before it commits. D2: conflicts of writers are detected by commits, but for transactions that have met
//! one. To become an owner takes a locked instruction, before which everything stored has to be in the cache, and after which the next load
//! begins: with one for each object, the objects of a transaction would come from memory one after the other. In a commit they have been asked for
//! by then, and come all at once.

use super::sync::{AtomicU64, Ordering, fence, fence_after_exchange, load_in_order, prefetch_for_store};

/// A record's word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Orec(u64);

const COMMITTING: u64 = 1;
const OWNER_SHIFT: u32 = 1;
const OWNER_BITS: u64 = 0x7FFF;
const VERSION_SHIFT: u32 = 16;

impl Orec {
    #[inline(always)]
    pub(crate) fn version(self) -> u64 {
        self.0 >> VERSION_SHIFT
    }

    /// Who owns it: a number from 1 on, or 0.
    #[inline(always)]
    pub(crate) fn owner(self) -> u64 {
        self.0 >> OWNER_SHIFT & OWNER_BITS
    }

    #[inline(always)]
    pub(crate) fn is_committing(self) -> bool {
        self.0 & COMMITTING != 0
    }

    fn owned_by(self, owner: u64) -> Orec {
        Orec(self.version() << VERSION_SHIFT | owner << OWNER_SHIFT)
    }
}

/// A table of them.
#[derive(Debug)]
pub(crate) struct Orecs {
    words: Box<[AtomicU64]>,
    shift: u32,
}

impl Orecs {
    /// A table of 2^`bits` records.
    pub(crate) fn new(bits: u32) -> Orecs {
        let words = (0..1_u64 << bits).map(|_| AtomicU64::new(0)).collect();
        Orecs { words, shift: 64 - bits }
    }

    /// The record of a key.
    #[inline(always)]
    pub(crate) fn index(&self, key: u64) -> u32 {
        (tembo_sync::hash_u64(key) >> self.shift) as u32
    }

    #[inline(always)]
    fn word(&self, index: u32) -> &AtomicU64 {
        &self.words[index as usize]
    }

    /// Has a record brought into the cache, for its owner-to-be.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        prefetch_for_store(self.word(index));
    }

    #[inline(always)]
    pub(crate) fn load(&self, index: u32) -> Orec {
        // ORDER: acquire, with the release of `release`: who sees a version sees what was committed with it. And in order with loads of the clock; see
        // the module.
        Orec(load_in_order(self.word(index)))
    }

    /// A record that nobody owns, of a version that is no newer than `rv`.
    #[inline(always)]
    pub(crate) fn load_idle(&self, index: u32, rv: u64) -> Option<Orec> {
        let seen = self.load(index);
        (seen.0 & ((1 << VERSION_SHIFT) - 1) == 0 && seen.version() <= rv).then_some(seen)
    }

    /// The record after places that it stands for were read.
    #[inline(always)]
    pub(crate) fn load_again(&self, index: u32) -> Orec {
        // ORDER: the loads of the places are done before this one; see the module.
        fence(Ordering::Acquire);
        Orec(self.word(index).load(Ordering::Relaxed))
    }

    /// Makes `me` the owner of a record that nobody owns, if it is still `seen`.
    #[inline(always)]
    pub(crate) fn try_own(&self, index: u32, seen: Orec, me: u64) -> bool {
        debug_assert!(seen.owner() == 0 && me != 0);
        let owned = seen.owned_by(me).0;
        self.word(index).compare_exchange(seen.0, owned, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Says that the owner is going to store. [`Clock::number`], which follows, orders that before everything else.
    #[inline(always)]
    pub(crate) fn mark_committing(&self, index: u32) {
        let word = self.word(index);
        word.store(word.load(Ordering::Relaxed) | COMMITTING, Ordering::Relaxed);
    }

    /// Ends ownership, after a commit with this version.
    #[inline(always)]
    pub(crate) fn release(&self, index: u32, version: u64) {
        // ORDER: release: the places' stores come before.
        self.word(index).store(version << VERSION_SHIFT, Ordering::Release);
    }

    /// Ends ownership; nothing was changed.
    #[inline(always)]
    pub(crate) fn give_back(&self, index: u32) {
        let word = self.word(index);
        let version = Orec(word.load(Ordering::Relaxed)).version();
        word.store(version << VERSION_SHIFT, Ordering::Release);
    }
}

/// What the clock tells: how many commits it has counted, and how commits are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(u64);

/// Each commit advances the clock.
const ALONE: u64 = 0;
/// Commits leave the clock as it is.
const SHARED: u64 = 1;
/// Each commit advances the clock again, but some that have not may still be storing.
const ENDING: u64 = 2;
const STATE_MASK: u64 = 3;
const COUNT_SHIFT: u32 = 2;

impl Moment {
    #[inline(always)]
    fn new(count: u64, state: u64) -> Moment {
        Moment(count << COUNT_SHIFT | state)
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
    before: Moment,
}

impl Number {
    /// Whether nobody has been numbered since the clock stood at `seen`.
    #[inline(always)]
    pub(crate) fn follows(self, seen: u64) -> bool {
        self.before == Moment::new(seen, ALONE)
    }
}

impl Clock {
    #[inline(always)]
    pub(crate) fn now(&self) -> Moment {
        // ORDER: everything committed up to this is to be seen, or seen as being committed; see the module.
        Moment(self.0.load(Ordering::SeqCst))
    }

    /// Numbers a commit whose records are marked, and says that its owner is going to store.
    #[inline(always)]
    pub(crate) fn number(&self, storing: &Storing, owner: u64) -> Number {
        if Moment(self.0.load(Ordering::Relaxed)).is_shared() {
            // ORDER: between the marks and the clock; see the module.
            storing.begin_and_wait(owner);
            let before = Moment(self.0.load(Ordering::Acquire));
            if before.is_shared() {
                return Number { version: before.count() + 1, before };
            }
        } else {
            storing.begin(owner);
        }
        // ORDER: between the marks and the validation of a commit; see the module.
        let before = Moment(self.0.fetch_add(1 << COUNT_SHIFT, Ordering::SeqCst));
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
            let raised = Moment::new(count, now.0 & STATE_MASK);
            match self.0.compare_exchange(now.0, raised.0, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(other) => now = Moment(other),
            }
        }
    }

    /// From now on commits leave the clock as it is. It never comes back to where it stood, so that who is ending that knows of it.
    #[cold]
    pub(crate) fn share(&self) {
        let now = self.now();
        if !now.is_shared() {
            let shared = Moment::new(now.count() + u64::from(!now.is_alone()), SHARED);
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
            let ending = Moment::new(now.count(), ENDING);
            if self.0.compare_exchange(now.0, ending.0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                return;
            }
            now = ending;
        }
        // ORDER: of this thread and one that takes the clock for shared, one sees the other: this one the flag, or that one the state.
        fence(Ordering::SeqCst);
        if !storing.is_anyone() {
            // No version is newer than the clock then.
            let alone = Moment::new(now.count() + 1, ALONE);
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
