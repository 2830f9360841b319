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
//! ORDER: between marking and validating lies a locked instruction on the clock, so that of two transactions each of which read what
//! the other writes, one sees the other's mark. Between the loads of places and the second load of the record lies an acquire fence;
//! the marks are stored, and fenced, before the places.
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
//! transactional memories that it builds on: one clock and its extension for opacity. D1: changes are redone rather than undone, so that
//! readers are not in conflict with an owner before it commits. D2: conflicts of writers are detected by commits, but for transactions that have met
//! one. To become an owner takes a locked instruction, before which everything stored has to be in the cache, and after which the next load
//! begins: with one for each object, the objects of a transaction would come from memory one after the other. In a commit they have been asked for
//! by then, and come all at once.

use super::sync::{AtomicU64, Ordering, fence, prefetch_word_for_store};

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
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as u32
    }

    #[inline(always)]
    fn word(&self, index: u32) -> &AtomicU64 {
        &self.words[index as usize]
    }

    /// Has a record brought into the cache, for its owner-to-be.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        prefetch_word_for_store(self.word(index));
    }

    #[inline(always)]
    pub(crate) fn load(&self, index: u32) -> Orec {
        // ORDER: acquire, with the release of `release`: who sees a version sees what was committed with it.
        Orec(self.word(index).load(Ordering::Acquire))
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

    /// Says that the owner is going to store. The clock's advance, which follows, orders that before everything else.
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

/// The clock that numbers commits.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        // ORDER: acquire: everything committed up to this is to be seen, or seen as being committed.
        self.0.load(Ordering::Acquire)
    }

    /// The next number.
    #[inline(always)]
    pub(crate) fn advance(&self) -> u64 {
        // ORDER: between the marks and the validation of a commit; see the module.
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether it still stands at `seen`, after places were read: then nobody has stored to them since.
    #[inline(always)]
    pub(crate) fn stands_at(&self, seen: u64) -> bool {
        // ORDER: the loads of the places are done before this one: whoever loads what a commit has stored sees that it has advanced the clock.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == seen
    }
}

/// More owners than this are not looked at: among so many somebody is always storing.
const LOOKED_AT_MAX: u64 = 4;

/// A word with the line that it lies in, and the next, which processors fetch together, to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

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
        self.flags[owner as usize - 1].0.store(1, Ordering::Relaxed);
    }

    /// Says that it has stored, and released its records.
    #[inline(always)]
    pub(crate) fn end(&self, owner: u64) {
        // ORDER: release: who sees this sees what was stored.
        self.flags[owner as usize - 1].0.store(0, Ordering::Release);
    }

    /// Whether, after the clock was read, somebody may be storing what was numbered by then.
    #[inline]
    pub(crate) fn may_be_anyone(&self) -> bool {
        // ORDER: acquire, both: the clock's value tells of all that were numbered up to it, and the flags of what they have stored.
        let highest = self.highest.0.load(Ordering::Acquire);
        // One writer, mostly: a transaction that reads spares a loop.
        if highest == 1 {
            return self.flags[0].0.load(Ordering::Acquire) != 0;
        }
        if highest > LOOKED_AT_MAX {
            return true;
        }
        let flags = self.flags.get(..highest as usize).unwrap_or_default();
        flags.iter().any(|flag| flag.0.load(Ordering::Acquire) != 0)
    }
}
