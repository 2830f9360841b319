//! The modelled transactions: each method has the steps of the product's that it names.

use crate::clock::{Clock, Storing};
use crate::orec::Orecs;
use crate::{Mutant, Sharing, WAY, is};
use loom::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Two words, each with its own record.
pub(crate) struct Shared {
    pub(crate) orecs: Orecs,
    pub(crate) clock: Clock,
    pub(crate) storing: Storing,
    pub(crate) words: [AtomicU64; 2],
    pub(crate) records: [u32; 2],
}

impl Shared {
    /// Both words have the same record.
    pub(crate) fn of_one_record() -> Shared {
        let shared = Shared::new();
        Shared { records: [shared.records[0]; 2], ..shared }
    }

    pub(crate) fn new() -> Shared {
        let orecs = Orecs::new(1);
        let key = |record| (0..).find(|key| orecs.index(*key) == record).expect("some key has it");
        let records = [orecs.index(key(0)), orecs.index(key(1))];
        let storing = Storing::new(2);
        (1..=2).for_each(|owner| storing.add(owner));
        assert_eq!(storing.of_others(1), 0, "nobody has stored anything");
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let shared = Shared { orecs, clock: Clock::default(), storing, words, records };
        if matches!(WAY.get().sharing, Sharing::Always | Sharing::Ended | Sharing::Changing) {
            shared.clock.share();
        }
        shared
    }

    /// The actions of the main thread before a transaction.
    pub(crate) fn change_sharing(&self) {
        match WAY.get().sharing {
            Sharing::Never | Sharing::Always => (),
            Sharing::Begun => self.clock.share(),
            Sharing::Ended | Sharing::Changing => self.clock.end_sharing(&self.storing),
        }
    }
}

pub(crate) struct Conflict;

/// One attempt of a transaction.
pub(crate) struct Tx<'s> {
    shared: &'s Shared,
    me: u64,
    rv: u64,
    is_quiet: bool,
    /// Whether what it reads is noted.
    notes: bool,
    reads: Vec<(u32, u64)>,
    writes: Vec<(usize, u64)>,
    wanted: Vec<u32>,
    owned: Vec<u32>,
}

impl<'s> Tx<'s> {
    pub(crate) fn begin(shared: &'s Shared, me: u64) -> Tx<'s> {
        let now = shared.clock.now();
        let rv = now.count();
        let is_alone = now.is_alone() || is(Mutant::NeverSeesSharing);
        let is_quiet =
            WAY.get().quiet && (is(Mutant::AlwaysQuiet) || is_alone && !shared.storing.may_be_anyone());
        let notes = !(WAY.get().trusting && is_quiet);
        Tx { shared, me, rv, is_quiet, notes, reads: vec![], writes: vec![], wanted: vec![], owned: vec![] }
    }

    /// As `State::reads_hold`.
    fn reads_hold(&self) -> bool {
        let are_known = self.notes || is(Mutant::TrustsForever);
        are_known
            && self.reads.iter().all(|(record, seen)| {
                let now = self.shared.orecs.load(*record);
                let is_stored_to = now.is_committing() && now.owner() != self.me && !is(Mutant::IgnoresMarks);
                now.version() <= *seen && !is_stored_to
            })
    }

    /// As `State::extend`.
    fn extend(&mut self, version: u64) -> Result<(), Conflict> {
        if !is(Mutant::NeverRaises) {
            self.shared.clock.raise(version);
        }
        let now = self.shared.clock.now().count();
        if !is(Mutant::ExtendsBlindly) && !self.reads_hold() {
            return Err(Conflict);
        }
        self.rv = now;
        self.is_quiet &= is(Mutant::StaysQuiet);
        Ok(())
    }

    /// As `State::end_quiet`.
    fn end_quiet(&mut self) -> Result<(), Conflict> {
        if !self.notes && !is(Mutant::TrustsForever) {
            return Err(Conflict);
        }
        self.is_quiet = false;
        Ok(())
    }

    /// As `State::note_read`.
    fn note_read(&mut self, place: usize, version: u64) {
        let record = self.shared.records[place];
        let is_written = self.writes.iter().any(|(written, _)| self.shared.records[*written] == record);
        if self.notes && !(is(Mutant::NotesNoneOfWritten) && is_written) {
            self.reads.push((record, version));
        }
    }

    /// As `ReadTx::read_words`; waiting is giving up.
    pub(crate) fn read(&mut self, place: usize) -> Result<u64, Conflict> {
        let record = self.shared.records[place];
        let own = self.writes.iter().rev().find(|(written, _)| *written == place).copied();
        let order = if is(Mutant::NoOrderOfLoads) { Relaxed } else { Acquire };
        if self.is_quiet {
            let value = self.shared.words[place].load(order);
            if self.shared.clock.stands_at(self.rv) || is(Mutant::NeverLooksAtClock) {
                self.shared.orecs.prefetch(record);
                self.note_read(place, self.rv);
                return Ok(own.map_or(value, |(_, value)| value));
            }
            self.end_quiet()?;
        }
        // As `word_by_record`.
        if WAY.get().sharing != Sharing::Never
            && own.is_none()
            && let Some(seen) = self.shared.orecs.load_idle(record, self.rv)
        {
            let value = self.shared.words[place].load(Acquire);
            if self.shared.orecs.load_again(record) == seen {
                self.note_read(place, seen.version());
                return Ok(value);
            }
        }
        let mut seen = self.shared.orecs.load(record);
        if seen.owner() == self.me {
            return Ok(own.map_or_else(|| self.shared.words[place].load(Acquire), |(_, value)| value));
        }
        if seen.is_committing() {
            return Err(Conflict);
        }
        if seen.version() > self.rv && !is(Mutant::TakesNewer) {
            self.extend(seen.version())?;
            seen = self.shared.orecs.load(record);
            if seen.is_committing() || seen.version() > self.rv {
                return Err(Conflict);
            }
        }
        let value = self.shared.words[place].load(order);
        let again = self.shared.orecs.load_again(record);
        if !is(Mutant::LooksOnce) && (again.version() != seen.version() || again.is_committing()) {
            return Err(Conflict);
        }
        self.note_read(place, seen.version());
        Ok(own.filter(|_| !is(Mutant::ForgetsOwn)).map_or(value, |(_, value)| value))
    }

    /// As `Tx::write_words`.
    pub(crate) fn write(&mut self, place: usize, value: u64) -> Result<(), Conflict> {
        self.own(place)?;
        self.writes.push((place, value));
        Ok(())
    }

    /// As `Tx::own`.
    pub(crate) fn own(&mut self, place: usize) -> Result<(), Conflict> {
        let record = self.shared.records[place];
        if WAY.get().early {
            return self.become_owner(record);
        }
        self.wanted.push(record);
        Ok(())
    }

    /// As `Session::own_wanted`.
    fn own_wanted(&mut self) -> Result<(), Conflict> {
        let mut wanted = std::mem::take(&mut self.wanted);
        if is(Mutant::OwnsNotAll) {
            wanted.pop();
        }
        wanted.into_iter().try_for_each(|record| self.become_owner(record))
    }

    /// As `Session::own`.
    fn become_owner(&mut self, record: u32) -> Result<(), Conflict> {
        let seen = self.shared.orecs.load(record);
        if seen.owner() != self.me {
            if seen.owner() != 0 {
                return Err(Conflict);
            }
            if seen.version() > self.rv && !is(Mutant::OwnsNewer) {
                self.extend(seen.version())?;
            }
            if !self.shared.orecs.try_own(record, seen, self.me) {
                return Err(Conflict);
            }
            self.owned.push(record);
        }
        Ok(())
    }

    fn mark(&self) {
        self.owned.iter().for_each(|record| self.shared.orecs.mark_committing(*record));
    }

    /// As `commit`, `publish` and the end of `commit_work`.
    pub(crate) fn commit(mut self) -> Result<(), Conflict> {
        if is(Mutant::OwnsAfterMarking) {
            self.mark();
        }
        if !is(Mutant::OwnsLate) {
            self.own_wanted()?;
        }
        if !is(Mutant::OwnsAfterMarking) && !is(Mutant::NoMark) && !is(Mutant::MarksLate) {
            self.mark();
        }
        let storing = &self.shared.storing;
        let number = match is(Mutant::SaysLate) {
            // It says so of somebody else, and of itself only then.
            true => {
                let number = self.shared.clock.number(&Storing::new(2), self.me);
                self.shared.storing.begin(self.me);
                number
            }
            false => self.shared.clock.number(storing, self.me),
        };
        let version = number.version;
        let is_next =
            if is(Mutant::ValidatesByClock) { version == self.rv + 1 } else { number.follows(self.rv) };
        if !is_next && WAY.get().sharing == Sharing::Changing {
            self.shared.clock.share();
        }
        if !is_next && !is(Mutant::NoValidation) && !self.reads_hold() {
            storing.end(self.me);
            return Err(Conflict);
        }
        if is(Mutant::OwnsLate)
            && let Err(conflict) = self.own_wanted()
        {
            storing.end(self.me);
            return Err(conflict);
        }
        if is(Mutant::SaysEarly) {
            storing.end(self.me);
        }
        if is(Mutant::MarksLate) {
            self.mark();
        }
        for (place, value) in &self.writes {
            self.shared.words[*place].store(*value, Release);
        }
        self.owned.drain(..).for_each(|record| self.shared.orecs.release(record, version));
        storing.end(self.me);
        Ok(())
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        self.owned.iter().for_each(|record| self.shared.orecs.give_back(*record));
    }
}
