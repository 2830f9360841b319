//! What a running transaction keeps in ordinary memory.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::small_map::SmallMap;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Pointers to an object that a transaction adds (or, negative, takes away).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delta {
    pub strong: i64,
    pub weak: i64,
}

/// An object that the transaction allocated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreshObject {
    pub type_number: u16,
    pub is_array: bool,
}

/// What writing needs: a lane, and the buffers of one transaction after the other. A thread has it as long as its transaction
/// lasts.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number, from 1 on: the owner in ownership records.
    pub number: u64,
    pub ptx: tembo_pool::Tx<'static>,
    /// Data records that it owns.
    pub owned: Vec<u32>,
    pub deltas: SmallMap<Delta>,
    pub fresh: SmallMap<FreshObject>,
    /// Objects for which handles were made.
    pub held: Vec<crate::handle::Claim>,
    /// Where the head of its list of dying objects lies, and the head.
    pub dying_off: u64,
    pub dying_first: u64,
    pub scratch: crate::commit::Scratch,
}

impl Session {
    pub(crate) fn has_work(&self) -> bool {
        self.ptx.has_stored_words()
            || !(self.deltas.is_empty() && self.fresh.is_empty() && self.held.is_empty())
    }

    /// Whether nothing is to be done but to store what was written.
    pub(crate) fn only_writes(&self) -> bool {
        self.deltas.is_empty() && self.fresh.is_empty() && self.held.is_empty()
    }

    /// Forgets the transaction. The records that it owns are given back.
    pub(crate) fn abort(&mut self, core: &Core) {
        self.ptx.roll_back();
        self.owned.drain(..).for_each(|index| core.orecs.give_back(index));
        self.forget();
    }

    /// Forgets what the transaction was going to do.
    pub(crate) fn forget(&mut self) {
        self.deltas.clear();
        self.fresh.clear();
        self.held.clear();
    }
}

/// A transaction that is running. Shared by all its handles, and with transactions that are nested in it, on one thread.
pub(crate) struct State {
    /// The clock that it sees the heap at.
    pub rv: Cell<u64>,
    /// Owner number, once it has a session.
    pub number: Cell<u64>,
    /// Nobody was storing when it began, or nobody has since; see `orec.rs`.
    pub is_quiet: Cell<bool>,
    /// It is going to store something to what was there before.
    pub has_written: Cell<bool>,
    /// It has allocated something.
    pub has_fresh: Cell<bool>,
    /// It has met a conflict: whatever it does, it is going to be run again.
    pub doomed: Cell<bool>,
    /// A transaction nested in it has failed, so that it must not be committed either.
    pub nested_failed: Cell<bool>,
    /// Values that are borrowed mutably.
    pub borrowed: Cell<u32>,
    /// One more than the number of values written that may have variants.
    pub stamp: Cell<u64>,
    /// Whether what it reads is noted, so that its clock can be advanced, and its commit be validated.
    pub notes_reads: bool,
    pub may_write: bool,
    /// Records read, and what their versions are not newer than as long as nothing changes.
    pub reads: RefCell<Vec<(u32, u64)>>,
    pub session: RefCell<Option<Box<Session>>>,
}

/// So often a record of a committing or owning transaction is looked at again before the processor is given up, and before that is a
/// conflict.
const SPINS: u32 = 100;
const YIELDS: u32 = SPINS + 20;

impl State {
    pub(crate) fn begin(
        core: &Core,
        may_write: bool,
        notes_reads: bool,
        (mut reads, last_seen): (Vec<(u32, u64)>, u64),
    ) -> State {
        reads.clear();
        let rv = core.clock.now();
        State {
            rv: Cell::new(rv),
            // Where others are busy, looking for who is storing would cost more than it saves.
            is_quiet: Cell::new(last_seen == rv && !core.storing.may_be_anyone()),
            has_written: Cell::new(false),
            has_fresh: Cell::new(false),
            number: Cell::new(0),
            doomed: Cell::new(false),
            nested_failed: Cell::new(false),
            borrowed: Cell::new(0),
            stamp: Cell::new(1),
            notes_reads,
            may_write,
            reads: RefCell::new(reads),
            session: RefCell::new(None),
        }
    }

    #[cold]
    pub(crate) fn conflict<T>(&self) -> Result<T> {
        self.doomed.set(true);
        Err(Error::Conflict)
    }

    /// Waits a little for the holder of a record; an error when that is too long.
    #[cold]
    pub(crate) fn wait(&self, round: &mut u32) -> Result<()> {
        *round += 1;
        match *round {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => return self.conflict(),
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn note_read(&self, index: u32, version: u64) {
        if self.notes_reads {
            let mut reads = self.reads.borrow_mut();
            if reads.last() != Some(&(index, version)) {
                reads.push((index, version));
            }
        }
    }

    /// Lets the transaction see the heap as it is now, if all that it has read is still so.
    #[cold]
    pub(crate) fn extend(&self, core: &Core) -> Result<()> {
        let now = core.clock.now();
        if !self.notes_reads || !self.reads_hold(core) {
            return self.conflict();
        }
        self.rv.set(now);
        // What is numbered up to there may still be being stored.
        self.is_quiet.set(false);
        Ok(())
    }

    /// Whether everything that was read is still the last version, and nobody else is storing to it.
    pub(crate) fn reads_hold(&self, core: &Core) -> bool {
        let number = self.number.get();
        self.reads.borrow().iter().all(|(index, version)| {
            let now = core.records(*index).load(index & !COUNT_RECORD);
            now.version() <= *version && (!now.is_committing() || now.owner() == number)
        })
    }
}

/// Marks the records of counts among those that were read.
pub(crate) const COUNT_RECORD: u32 = 1 << 31;

/// How long a transaction that met a conflict waits before it is run again.
pub(crate) struct Backoff {
    attempts: u32,
    random: u64,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        // Of two threads that conflict, one should wait longer: their stacks differ.
        let here = 0_u8;
        let random = (&raw const here as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Backoff { attempts: 0, random }
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    #[cold]
    pub(crate) fn wait(&mut self) {
        self.attempts += 1;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let most = 1_u64 << self.attempts.min(14);
        let spins = self.random % most;
        if self.attempts <= 4 {
            (0..spins).for_each(|_| std::hint::spin_loop());
            return;
        }
        let until = Instant::now() + Duration::from_nanos(spins * 20);
        while Instant::now() < until {
            std::thread::yield_now();
        }
    }
}
