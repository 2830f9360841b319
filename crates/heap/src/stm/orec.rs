//! Ownership records: for every place, the transaction that may write there and the last version committed
//! there.
//!
//! A record is a volatile word for all places with the same hash; it is not on media, so no lock survives a
//! crash. It holds the *version* committed last (a value of the clock), the *owner*, which may commit the
//! next version, and whether the owner is *committing*, that is, may be storing to the places. Until then the
//! places keep their contents. Readers therefore ignore owners, and wait only for committing ones.
//!
//! # Protocol
//!
//! A transaction reads the clock when it begins, and sees versions up to that value. A reader loads the
//! record, reads the place, and loads the record again. The read is valid if both loads give the same
//! version, not committing and not newer than the transaction's clock. A writer buffers what it writes, and
//! notes the records. Its commit becomes the owner of all of them, marks them as committing, advances the
//! clock, and validates its reads. Then it makes the changes durable, stores them, and releases the records
//! with the clock's new value.
//!
//! Until its commit a writer reads as a reader does, and then overlays its own writes. A read of a place that
//! it has partly written is therefore validated too: a concurrent commit there is a conflict. A write without
//! a read overwrites any earlier value.
//!
//! A transaction that retries after a conflict on its reads owns each record from its first write on. Other
//! transactions then wait for it, and cannot invalidate its reads again. Only the owner changes the places of
//! a record, so its own reads there need no validation. It first advances its clock to the record's version
//! if that is newer.
//!
//! ORDER: a locked instruction lies between marking and validating: on the clock or, while the clock is
//! shared, on the owner's flag. Of two transactions that each read what the other writes, one sees the
//! other's mark. An acquire fence lies between the loads of places and the second load of the record; the
//! marks are stored, and fenced, before the places.
//!
//! # Several committing threads
//!
//! If every commit advanced the clock, committing threads and all readers would contend for its cache line.
//! When a commit finds that another got a number since its transaction began, the clock therefore becomes
//! *shared*: commits leave it as it is, and take the version after it. They load the clock after marking
//! their records, behind a barrier. A transaction that loaded the clock before them sees that their version
//! is newer; one that loads it after them sees their marks.
//!
//! - A transaction that meets a version newer than its clock raises the shared clock to that version. It
//!   continues if all its reads are still valid. A thread that meets its own commit does so, too; with many
//!   records that is rare.
//! - Equal versions cannot be confused. A reader raises the clock to at least V before it uses version V. Any
//!   commit that marks the record later reads that clock, so its own version is greater than V.
//! - The clock does not show whether others have committed. So every commit validates, no transaction is
//!   quiet, and readers keep a list of their reads from the start.
//!
//! A thread that finds no commit of another thread for a while *ends* sharing. From then on commits advance
//! the clock again. Commits that loaded the clock before may still be storing. Once their flags show that
//! none is, the clock advances by one, so that no version is newer, and transactions may be quiet again.
//!
//! ORDER: an owner exchanges its flag before it loads a shared clock. A thread that ends sharing has a fence
//! between the clock and the flags, so that one of them sees the other. A reader that sees the raised clock
//! sees the marks of commits that loaded it before: their barrier lies between mark and clock, and loads of
//! the clock and of records are sequentially consistent, which costs nothing on x86-64.
//!
//! # Quiet times
//!
//! Most transactions meet no other. A transaction begins *quiet* if only its own thread has committed for a
//! while, and no owner is storing when it begins ([`Storing`](super::clock::Storing)). After each read it
//! loads the clock instead of the record: while the clock has its old value, no commit has begun to store. As
//! soon as the clock differs, the transaction reads by records. A quiet read still holds if the record's
//! version is not newer than the clock of that time.
//!
//! A writing transaction validates by a list of the records that it has read. In quiet times its first
//! attempt keeps no list: its reads hold if no other commit has advanced the clock. If one has, the attempt
//! is retried with a list at once, and the thread's next transactions keep a list from the start.
//!
//! # Source
//!
//! NV-heaps 3.5: ownership records by the low bits of an object's number, eager conflict detection for
//! writes, versions for reads. The clock and its extension for opacity come from the transactional memories
//! that it builds on; the shared clock is TL2's variant GV5. D1: changes are redone rather than undone, so
//! that readers do not conflict with an owner before it commits. D2: writers conflict at their commits,
//! except in retries. A locked instruction takes ownership; it waits for all earlier stores, and later loads
//! wait for it. With one for each object as it is first written, the misses of a transaction's objects would
//! be served one after another. At a commit the objects are prefetched, so the misses overlap.

use super::sync::{AtomicU64, Ordering, fence, load_in_order, prefetch_for_store};

/// The word of a record.
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

    /// The number of its owner, from 1 on, or 0.
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

/// A table of ownership records.
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

    /// The index of a key's record.
    #[inline(always)]
    pub(crate) fn index(&self, key: u64) -> u32 {
        (tembo_sync::hash_u64(key) >> self.shift) as u32
    }

    #[inline(always)]
    fn word(&self, index: u32) -> &AtomicU64 {
        &self.words[index as usize]
    }

    /// Prefetches a record for its future owner.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        prefetch_for_store(self.word(index));
    }

    #[inline(always)]
    pub(crate) fn load(&self, index: u32) -> Orec {
        // ORDER: acquire, paired with the release in `release`: a thread that sees a version sees the stores
        // of its commit. Sequentially consistent with loads of the clock; see the module.
        Orec(load_in_order(self.word(index)))
    }

    /// The record, if it has no owner and a version no newer than `rv`.
    #[inline(always)]
    pub(crate) fn load_idle(&self, index: u32, rv: u64) -> Option<Orec> {
        let seen = self.load(index);
        (seen.0 & ((1 << VERSION_SHIFT) - 1) == 0 && seen.version() <= rv).then_some(seen)
    }

    /// The record, after reads of its places.
    #[inline(always)]
    pub(crate) fn load_again(&self, index: u32) -> Orec {
        // ORDER: the loads of the places come before this one; see the module.
        fence(Ordering::Acquire);
        Orec(self.word(index).load(Ordering::Relaxed))
    }

    /// Makes `me` the owner of a record without one, if it is still `seen`.
    #[inline(always)]
    pub(crate) fn try_own(&self, index: u32, seen: Orec, me: u64) -> bool {
        debug_assert!(seen.owner() == 0 && me != 0);
        let owned = seen.owned_by(me).0;
        self.word(index).compare_exchange(seen.0, owned, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Marks the record: its owner is going to store. [`Clock::number`](super::clock::Clock::number), which
    /// follows, orders the mark before the validation.
    #[inline(always)]
    pub(crate) fn mark_committing(&self, index: u32) {
        let word = self.word(index);
        word.store(word.load(Ordering::Relaxed) | COMMITTING, Ordering::Relaxed);
    }

    /// Ends ownership after a commit with this version.
    #[inline(always)]
    pub(crate) fn release(&self, index: u32, version: u64) {
        // ORDER: release: the stores to the places come before.
        self.word(index).store(version << VERSION_SHIFT, Ordering::Release);
    }

    /// Ends ownership without a change.
    #[inline(always)]
    pub(crate) fn give_back(&self, index: u32) {
        let word = self.word(index);
        let version = Orec(word.load(Ordering::Relaxed)).version();
        word.store(version << VERSION_SHIFT, Ordering::Release);
    }
}
