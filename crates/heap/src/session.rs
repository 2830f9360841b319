//! What a running transaction keeps in ordinary memory.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::layout::LINE;
use crate::orec::Moment;
use crate::place::FRESH;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tembo_sync::{SmallMap, hash_u64};

/// Pointers to an object that a transaction adds (or, negative, takes away).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delta {
    pub strong: i64,
    pub weak: i64,
}

impl Delta {
    pub(crate) fn is_any(self) -> bool {
        self.strong != 0 || self.weak != 0
    }
}

/// An object that the transaction allocated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreshObject {
    pub type_number: u16,
    pub is_array: bool,
    /// Pointers to it.
    pub pointers: Delta,
}

/// What writing needs: a lane, and the buffers of one transaction after the other. A thread has it as long as its transaction
/// lasts.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number, from 1 on: the owner in ownership records.
    pub number: u64,
    pub ptx: tembo_pool::Tx<'static>,
    /// Data records of what it is going to write, some of them perhaps more than once: the commit becomes their owner.
    pub wanted: Wanted,
    /// Data records that it owns.
    pub owned: Vec<u32>,
    /// Of objects that were there before.
    pub deltas: SmallMap<Delta>,
    pub fresh: SmallMap<FreshObject>,
    /// Objects for which handles were made.
    pub held: Vec<crate::handle::Claim>,
    /// Where the head of its list of dying objects lies, and the head.
    pub dying_off: u64,
    pub dying_first: u64,
    pub scratch: crate::commit::Scratch,
    /// Maps that nested transactions have inserted into or removed from, by what each begins with, and how many transactions had been nested then:
    /// iterators of outer ones look here.
    pub reshaped: Vec<(u64, u64)>,
    /// Why a borrowed value could not be written when the borrow ended, where nobody could be told.
    pub lost: Option<Error>,
}

impl Session {
    pub(crate) fn has_work(&self) -> bool {
        self.ptx.has_line_words()
            || !(self.deltas.is_empty() && self.fresh.is_empty() && self.held.is_empty())
    }

    /// Whether nothing is to be done but to store what was written.
    pub(crate) fn only_writes(&self) -> bool {
        self.deltas.is_empty() && self.fresh.is_empty() && self.held.is_empty()
    }

    /// Whether it is going to change anything that was there before.
    pub(crate) fn wants_any(&self) -> bool {
        !(self.wanted.is_empty() && self.owned.is_empty())
    }

    /// What is noted of pointers to an object.
    #[inline(always)]
    pub(crate) fn pointers_to(&mut self, object: u64) -> &mut Delta {
        match self.fresh.get_mut(object) {
            Some(fresh) => &mut fresh.pointers,
            None => self.deltas.get_or_insert_with(object, Default::default),
        }
    }

    /// Notes that what a record stands for is going to be written.
    #[inline(always)]
    pub(crate) fn want(&mut self, index: u32) {
        self.wanted.add(index);
    }

    /// Becomes the owner of all that is wanted.
    #[inline]
    pub(crate) fn own_wanted(&mut self, core: &Core, state: &State) -> Result<()> {
        for at in 0..self.wanted.0.len() {
            self.own(core, state, self.wanted.0[at])?;
        }
        self.wanted.clear();
        Ok(())
    }

    /// Becomes the owner of a data record.
    #[inline(always)]
    pub(crate) fn own(&mut self, core: &Core, state: &State, index: u32) -> Result<()> {
        let mut round = 0;
        loop {
            let seen = core.orecs.load(index);
            if seen.owner() == self.number {
                return Ok(());
            }
            if seen.owner() != 0 {
                state.wait(&mut round)?;
                continue;
            }
            if seen.version() > state.rv() {
                state.extend(core, seen.version())?;
                continue;
            }
            if core.orecs.try_own(index, seen, self.number) {
                self.owned.push(index);
                return Ok(());
            }
        }
    }

    /// Gives the records that it owns to all, with a new version.
    #[inline]
    pub(crate) fn release_owned(&mut self, core: &Core, version: u64) {
        for index in &self.owned {
            core.orecs.release(*index, version);
        }
        self.owned.clear();
    }

    /// Forgets the transaction. The records that it owns are given back.
    pub(crate) fn abort(&mut self, core: &Core) {
        self.ptx.roll_back();
        self.wanted.clear();
        self.owned.drain(..).for_each(|index| core.orecs.give_back(index));
        self.forget();
    }

    #[inline(always)]
    pub(crate) fn forget_reshaped(&mut self) {
        if !self.reshaped.is_empty() {
            self.reshaped.clear();
        }
    }

    /// Forgets what the transaction was going to do.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        self.deltas.clear();
        self.fresh.clear();
        if !self.held.is_empty() {
            self.held.clear();
        }
        self.forget_reshaped();
        if self.lost.is_some() {
            self.lost = None;
        }
    }
}

/// A transaction that is running. Shared by all its handles, and with transactions that are nested in it, on one thread.
pub(crate) struct State {
    /// The clock that it sees the heap at.
    rv: Cell<u64>,
    /// The same as long as there is nothing to look after, so that a word may be taken from where it lies if the clock stands there then; else
    /// [`NEVER`].
    quiet_at: Cell<u64>,
    /// Owner number, once it has a session.
    pub number: Cell<u64>,
    /// A bit for each line that it has written to, and others: of most lines it tells that it has not.
    written: Cell<u64>,
    /// What its reads and writes have to look after: none of it for most that only read.
    care: Cell<Care>,
    /// Transactions nested in it that may write, and have not ended well: unless there are none, it must not be committed either.
    pub nested_unfinished: Cell<u32>,
    /// Values that are borrowed mutably.
    pub borrowed: Cell<u32>,
    /// How many transactions that may write have been nested in it, ended or not: what was read before a program's own code ran, and is used
    /// after, still holds if there are no more.
    writers_begun: Cell<u64>,
    /// How many values were written that may have variants.
    variants: Cell<u64>,
    pub may_write: bool,
    /// It owns what it is going to write from the first write on, rather than in its commit: see `orec.rs`.
    pub owns_early: bool,
    /// Records read, and what their versions are not newer than as long as nothing changes.
    reads: RefCell<Option<Box<ReadList>>>,
    pub session: RefCell<Option<Box<Session>>>,
}

/// How an attempt at a transaction sees to it that what it has read still holds when it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// In quiet times it keeps no list of what it reads: if it writes, it can neither go on nor be committed once the clock has moved. If it only
    /// reads, it keeps one where commits leave the clock as it is.
    Trusting,
    /// It keeps one.
    Noting,
    /// It keeps one, also if it only reads; and owns what it is going to write from the first write on, rather than in its commit.
    Again,
}

thread_local! {
    /// The list of what is read, kept from one transaction to the next. Nothing is dropped by itself, so that to take it is a load and a store.
    static READS: Cell<Option<ManuallyDrop<Box<ReadList>>>> = const { Cell::new(None) };
    /// Drops the list when the thread ends.
    static READS_END: ReadsEnd = const { ReadsEnd };
}

struct ReadsEnd;

impl Drop for ReadsEnd {
    fn drop(&mut self) {
        drop(READS.take().map(ManuallyDrop::into_inner));
    }
}

/// Records, and versions that they are not newer than.
type ReadList = Vec<(u32, u64)>;

/// The thread's list, with room for what most transactions read.
#[inline(always)]
fn take_list() -> Box<ReadList> {
    match READS.take() {
        Some(list) => ManuallyDrop::into_inner(list),
        None => new_list(),
    }
}

#[inline(never)]
fn take_list_to_read() -> Box<ReadList> {
    take_list()
}

#[cold]
#[inline(never)]
fn new_list() -> Box<ReadList> {
    // A thread that is ending keeps it for good.
    let _ = READS_END.try_with(|_| ());
    Box::new(Vec::with_capacity(64))
}

/// Keeps a list for the thread's next transaction.
#[inline(always)]
fn keep_list(list: Box<ReadList>) {
    if let Some(other) = READS.replace(Some(ManuallyDrop::new(list))) {
        drop_list(other);
    }
}

#[cold]
#[inline(never)]
fn drop_list(list: ManuallyDrop<Box<ReadList>>) {
    drop(ManuallyDrop::into_inner(list));
}

/// Records that a transaction is going to own. Some may be there twice, but not many times.
#[derive(Debug, Default)]
pub(crate) struct Wanted(Vec<u32>);

/// So many are noted before it is looked whether some are there twice.
const WANTED_MIN: usize = 1024;

impl Wanted {
    #[inline(always)]
    fn add(&mut self, index: u32) {
        if self.0.last() != Some(&index) {
            if self.0.len() == self.0.capacity() {
                self.make_room();
            }
            self.0.push(index);
        }
    }

    /// Keeps the list from growing beyond about twice the number of records that there are, however often they are written.
    #[cold]
    fn make_room(&mut self) {
        if self.0.len() >= WANTED_MIN {
            self.0.sort_unstable();
            self.0.dedup();
        }
        self.0.reserve(self.0.len().max(16));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Reasons for a transaction not to take a word from where it lies, as bits, so that reads ask for all of them at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Care(u8);

impl Care {
    pub(crate) const NONE: Care = Care(0);
    /// It has met a conflict: whatever it does, it is going to be run again.
    pub(crate) const DOOMED: Care = Care(1);
    /// Others were storing when it began, or have been since, so that it looks at records; see `orec.rs`.
    pub(crate) const RECORDS: Care = Care(2);
    /// It is going to store something to what was there before.
    pub(crate) const WRITTEN: Care = Care(4);
    /// It has allocated something.
    pub(crate) const FRESH: Care = Care(8);
    /// What it reads is noted, so that its clock can be advanced, and its commit be validated.
    pub(crate) const NOTES: Care = Care(16);
    /// The heap runs without isolation ([`Parts`](crate::layer::Parts)).
    pub(crate) const BARE: Care = Care(32);
    /// A transaction that is nested in it has all that it had ([`State::lend`]). Together with [`DOOMED`](Self::DOOMED), which every way to read or
    /// to write asks for that is not quiet.
    const LENT: Care = Care(64);

    /// Whether there is nothing but these to look after.
    #[inline(always)]
    pub(crate) fn is_at_most(self, these: &[Care]) -> bool {
        these.iter().fold(self.0, |left, what| left & !what.0) == 0
    }

    const fn with(self, other: Care, is: bool) -> Care {
        if is { Care(self.0 | other.0) } else { self }
    }
}

/// So often a record of a committing or owning transaction is looked at again before the processor is given up, and before that is a
/// conflict.
const SPINS: u32 = 100;
const YIELDS: u32 = SPINS + 20;

/// No clock stands there.
const NEVER: u64 = u64::MAX;

/// The bit that stands for the line of `off`, and others, among those that were written to.
#[inline(always)]
fn line_bit(off: u64) -> u64 {
    1 << (off / LINE % 64)
}

impl State {
    #[inline(always)]
    pub(crate) fn begin(
        core: &Core,
        may_write: bool,
        manner: Manner,
        seems_quiet: impl FnOnce(&Core, Moment) -> bool,
    ) -> State {
        let mut now = core.clock.now();
        // Where others are busy, looking for who is storing would cost more than it saves.
        let is_quiet = seems_quiet(core, now) && !core.storing.may_be_anyone();
        if !now.is_alone() {
            // That may just have ended.
            now = core.clock.now();
        }
        let rv = now.count();
        let care = if is_quiet && manner == Manner::Trusting && core.parts.isolates {
            Care::NONE
        } else {
            State::care_at_first(core, may_write || !now.is_alone(), manner, is_quiet)
        };
        State {
            rv: Cell::new(rv),
            quiet_at: Cell::new(if care == Care::NONE { rv } else { NEVER }),
            care: Cell::new(care),
            number: Cell::new(0),
            written: Cell::new(0),
            nested_unfinished: Cell::new(0),
            borrowed: Cell::new(0),
            writers_begun: Cell::new(0),
            variants: Cell::new(0),
            may_write,
            owns_early: may_write && manner == Manner::Again,
            reads: RefCell::new(match care.0 & Care::NOTES.0 {
                0 => None,
                _ if may_write => Some(take_list()),
                // Not often, and what only reads is to be short.
                _ => Some(take_list_to_read()),
            }),
            session: RefCell::new(None),
        }
    }

    /// Gives all that it has to a transaction that is nested in it, until [`take_back`](Self::take_back). Its own tokens are refused meanwhile:
    /// they may be in reach of the nested one, by a mutex say, and what they would change is what that one's tokens take for borrowed.
    pub(crate) fn lend(&self) -> State {
        State {
            rv: self.rv.clone(),
            quiet_at: self.quiet_at.replace(NEVER).into(),
            number: self.number.clone(),
            written: self.written.clone(),
            care: self.care.replace(Care(Care::LENT.0 | Care::DOOMED.0)).into(),
            nested_unfinished: self.nested_unfinished.clone(),
            borrowed: self.borrowed.clone(),
            writers_begun: self.writers_begun.clone(),
            variants: self.variants.clone(),
            may_write: self.may_write,
            owns_early: self.owns_early,
            reads: RefCell::new(self.reads.take()),
            session: RefCell::new(self.session.take()),
        }
    }

    /// Has again what it has lent, as the nested transaction leaves it.
    pub(crate) fn take_back(&self, inner: &State) {
        self.rv.set(inner.rv.get());
        self.quiet_at.set(inner.quiet_at.get());
        self.number.set(inner.number.get());
        self.written.set(inner.written.get());
        self.care.set(inner.care.get());
        self.nested_unfinished.set(inner.nested_unfinished.get());
        self.borrowed.set(inner.borrowed.get());
        self.writers_begun.set(inner.writers_begun.get());
        self.variants.set(inner.variants.get());
        self.reads.replace(inner.reads.take());
        self.session.replace(inner.session.take());
    }

    /// Why nothing can be read or written, where [`DOOMED`](Care::DOOMED) says so.
    #[cold]
    pub(crate) fn refusal(&self) -> Error {
        if self.cares(Care::LENT) { Error::InnerRuns } else { Error::Conflict }
    }

    /// Notes that a nested transaction begins that may write.
    pub(crate) fn begin_writer(&self) {
        self.nested_unfinished.update(|count| count + 1);
        self.writers_begun.update(|count| count + 1);
    }

    /// Tells, when asked again, whether transactions that may write were nested in it meanwhile.
    #[inline(always)]
    pub(crate) fn writers_begun(&self) -> u64 {
        self.writers_begun.get()
    }

    #[inline(never)]
    fn care_at_first(core: &Core, may_note: bool, manner: Manner, is_quiet: bool) -> Care {
        let is_bare = !core.parts.isolates;
        let notes = match manner {
            Manner::Trusting => may_note && (!is_quiet || is_bare),
            Manner::Noting | Manner::Again => true,
        };
        Care::NONE.with(Care::RECORDS, !is_quiet).with(Care::NOTES, notes).with(Care::BARE, is_bare)
    }

    #[inline(always)]
    pub(crate) fn rv(&self) -> u64 {
        self.rv.get()
    }

    pub(crate) fn set_rv(&self, rv: u64) {
        self.rv.set(rv);
        self.quiet_at.set(if self.care.get() == Care::NONE { rv } else { NEVER });
    }

    /// A word that was just taken from where it lies is good if the clock stands here then; it never does while there is anything to look after.
    #[inline(always)]
    pub(crate) fn quiet_at(&self) -> u64 {
        self.quiet_at.get()
    }

    /// Whether the clock may stand there.
    #[inline(always)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet_at() != NEVER
    }

    #[inline(always)]
    pub(crate) fn care(&self) -> Care {
        self.care.get()
    }

    /// Whether it has to look after this.
    #[inline(always)]
    pub(crate) fn cares(&self, what: Care) -> bool {
        self.care.get().0 & what.0 != 0
    }

    /// Has it look after this from now on.
    #[inline(always)]
    pub(crate) fn care_for(&self, what: Care) {
        self.care.set(self.care.get().with(what, true));
        self.quiet_at.set(NEVER);
    }

    /// Notes that it has written words from `off` on.
    #[inline(always)]
    pub(crate) fn note_written(&self, off: u64, words: usize) {
        let last = off.wrapping_add(8 * words.saturating_sub(1) as u64);
        let lines = (last / LINE).wrapping_sub(off / LINE);
        self.note_written_lines(if lines < 2 { line_bit(off) | line_bit(last) } else { u64::MAX });
    }

    /// As [`note_written`](Self::note_written), of words of one line.
    #[inline(always)]
    pub(crate) fn note_written_line(&self, off: u64) {
        self.note_written_lines(line_bit(off));
    }

    #[inline(always)]
    fn note_written_lines(&self, bits: u64) {
        self.written.set(self.written.get() | bits);
        self.care_for(Care::WRITTEN);
    }

    /// Whether it looks at records, and there is nothing in the way of that.
    #[inline(always)]
    fn reads_records(&self) -> bool {
        let care = self.care.get();
        care.0 & Care::RECORDS.0 != 0
            && care.is_at_most(&[Care::RECORDS, Care::NOTES, Care::WRITTEN, Care::FRESH])
    }

    /// Whether it may have written to one of the lines of words from `off` on.
    #[inline(always)]
    fn may_have_written(&self, off: u64, words: usize) -> bool {
        let last = off.wrapping_add(8 * words.saturating_sub(1) as u64);
        let far = (last / LINE).wrapping_sub(off / LINE) > 1;
        self.written.get() & (line_bit(off) | line_bit(last)) != 0 || far && self.written.get() != 0
    }

    /// Whether there is nothing to look after but what it has written itself, of which nothing is in the line of `off`.
    #[inline(always)]
    pub(crate) fn is_quiet_beside_own(&self, off: u64) -> bool {
        self.care.get() == Care::WRITTEN && self.written.get() & line_bit(off) == 0
    }

    #[cold]
    pub(crate) fn conflict<T>(&self) -> Result<T> {
        self.care_for(Care::DOOMED);
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
        if self.cares(Care::NOTES) {
            let mut reads = self.reads.borrow_mut();
            let reads = reads.get_or_insert_with(take_list);
            if reads.last() != Some(&(index, version)) {
                reads.push((index, version));
            }
        }
    }

    /// As [`note_read`](Self::note_read), where there is room in the list; whether that was done. It calls nothing, so that who calls it has no
    /// registers to save.
    #[inline(always)]
    fn try_note_read(&self, index: u32, version: u64) -> bool {
        if !self.cares(Care::NOTES) {
            return true;
        }
        let Ok(mut reads) = self.reads.try_borrow_mut() else { return false };
        let Some(reads) = reads.as_deref_mut() else { return false };
        if reads.last() != Some(&(index, version)) {
            if reads.len() == reads.capacity() {
                return false;
            }
            reads.push((index, version));
        }
        true
    }

    /// Whether there may be a list of what was read.
    #[inline(always)]
    pub(crate) fn may_have_list(&self) -> bool {
        self.cares(Care::NOTES)
    }

    /// Forgets what was read.
    #[inline(always)]
    pub(crate) fn forget_reads(&self) {
        if let Some(mut reads) = self.reads.take() {
            reads.clear();
            keep_list(reads);
        }
    }

    /// What tells whether values that may have variants have been written since; never 0.
    #[inline(always)]
    pub(crate) fn stamp(&self) -> u64 {
        self.variants.get() + 1
    }

    #[inline(always)]
    pub(crate) fn note_variants(&self) {
        self.variants.set(self.variants.get() + 1);
    }

    /// The clock has moved since the transaction began: others store, or have stored, so that records have to be looked at.
    #[cold]
    pub(crate) fn end_quiet(&self) -> Result<()> {
        if self.may_write && !self.cares(Care::NOTES) {
            return self.conflict();
        }
        self.care_for(Care::RECORDS);
        Ok(())
    }

    /// Lets the transaction see the heap as it is now, if all that it has read is still so.
    #[cold]
    pub(crate) fn extend(&self, core: &Core, version: u64) -> Result<()> {
        core.clock.raise(version);
        let now = core.clock.now().count();
        if !self.reads_hold(core) {
            return self.conflict();
        }
        self.set_rv(now);
        // What is numbered up to there may still be being stored.
        self.care_for(Care::RECORDS);
        Ok(())
    }

    /// Whether everything that was read is known, is still the last version, and nobody else is storing to it.
    pub(crate) fn reads_hold(&self, core: &Core) -> bool {
        let number = self.number.get();
        self.cares(Care::NOTES)
            && self.reads.borrow().iter().flat_map(|reads| reads.iter()).all(|(index, version)| {
                let now = core.records(*index).load(index & !COUNT_RECORD);
                now.version() <= *version && (!now.is_committing() || now.owner() == number)
            })
    }
}

/// A word of an object that was there before, if its record allows it to be read, and it is none that the transaction may have written: what
/// most reads are when others commit. What comes back goes in registers.
#[inline(never)]
pub(crate) fn word_by_record(core: &Core, state: &State, key: u64, off: u64) -> Option<u64> {
    if !state.reads_records() || key == FRESH || state.may_have_written(off, 1) {
        return None;
    }
    let index = core.orecs.index(key);
    let seen = core.orecs.load_idle(index, state.rv())?;
    let word = core.region().loadable_words().load(off)?;
    let holds = core.orecs.load_again(index) == seen && state.try_note_read(index, seen.version());
    holds.then_some(word)
}

/// As [`word_by_record`], of several words; whether they are there.
#[inline(never)]
pub(crate) fn words_by_record(core: &Core, state: &State, key: u64, off: u64, out: &mut [u64]) -> bool {
    if !state.reads_records() || key == FRESH || state.may_have_written(off, out.len()) {
        return false;
    }
    let index = core.orecs.index(key);
    let Some(seen) = core.orecs.load_idle(index, state.rv()) else { return false };
    let Some(words) = core.region().loadable_words().words(off, out.len() as u64) else { return false };
    load_all(words, out);
    core.orecs.load_again(index) == seen && state.try_note_read(index, seen.version())
}

#[inline(always)]
pub(crate) fn load_all(words: &[AtomicU64], out: &mut [u64]) {
    for (out, word) in out.iter_mut().zip(words) {
        // ORDER: acquire, with the release of a commit's stores: whoever sees one sees the record marked.
        *out = word.load(Ordering::Acquire);
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
        let random = hash_u64(&raw const here as u64) | 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_written_by_turns_do_not_pile_up() {
        let mut wanted = Wanted::default();
        (0..1_000_000).for_each(|i| wanted.add(i % 3000));
        assert!(wanted.0.capacity() <= 4 * 3000, "{}", wanted.0.capacity());
        assert_eq!(wanted.0.iter().collect::<std::collections::BTreeSet<_>>().len(), 3000);
        wanted.clear();
        wanted.add(5);
        wanted.add(5);
        assert_eq!(wanted.0, [5]);
    }
}
