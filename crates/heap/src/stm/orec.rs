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

use super::sync::{AtomicU64, Ordering, fence, load_in_order, prefetch_for_store};

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
