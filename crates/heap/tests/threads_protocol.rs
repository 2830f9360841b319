//! Ownership and versions under a model checker: `stm/orec.rs` and `stm/clock.rs` themselves, with loom's
//! atomics in place of the processor's, so that it tries every interleaving and every value that the
//! orderings allow.
//!
//! The rest is modelled: reads, writes and commits with the steps of `stm/validate.rs`, `tx/read.rs` and
//! `counts/commit.rs` in their order, on two words. The test has to catch each of a list of weakenings.
//!
//! `LOOM_MAX_PREEMPTIONS=4 cargo test --release -p tembo-heap --test threads_protocol` is the long form.

#[path = "../src/stm/clock.rs"]
mod clock;
#[path = "../src/stm/orec.rs"]
mod orec;

/// The atomics of `orec.rs` and `clock.rs`, with weakenings.
mod sync {
    use super::{Mutant, Sharing, WAY, is};
    pub(super) use std::sync::atomic::Ordering;

    #[derive(Debug, Default)]
    pub(super) struct AtomicU64(loom::sync::atomic::AtomicU64);

    /// Changes nothing.
    pub(super) fn prefetch_for_store(_: &AtomicU64) {}

    impl AtomicU64 {
        pub(super) fn new(value: u64) -> AtomicU64 {
            AtomicU64(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(super) fn load(&self, order: Ordering) -> u64 {
            let is_weak = is(Mutant::LoadsRelaxed) && order == Ordering::Acquire;
            self.0.load(if is_weak { Ordering::Relaxed } else { order })
        }

        pub(super) fn store(&self, value: u64, order: Ordering) {
            let is_weak = is(Mutant::ReleasesRelaxed) && order == Ordering::Release;
            self.0.store(value, if is_weak { Ordering::Relaxed } else { order });
        }

        pub(super) fn compare_exchange(
            &self,
            old: u64,
            new: u64,
            order: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.0.compare_exchange(old, new, order, failure)
        }

        pub(super) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
            self.0.fetch_max(value, order)
        }

        pub(super) fn swap(&self, value: u64, order: Ordering) -> u64 {
            self.0.swap(value, if is(Mutant::SharesUnfenced) { Ordering::Relaxed } else { order })
        }

        pub(super) fn fetch_add(&self, by: u64, order: Ordering) -> u64 {
            self.0.fetch_add(by, if is(Mutant::ClockRelaxed) { Ordering::Relaxed } else { order })
        }
    }

    pub(super) fn fence(order: Ordering) {
        let is_weak = match order {
            Ordering::SeqCst => is(Mutant::EndsUnfenced),
            _ => is(Mutant::NoOrderOfLoads),
        };
        if !is_weak {
            loom::sync::atomic::fence(order);
        }
    }

    pub(super) fn fence_after_exchange() {
        if !is(Mutant::SharesUnfenced) {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// Loom takes sequentially consistent loads for ones that acquire. That a record is loaded after the
    /// clock in the order that all agree about is what a fence between the two gives as well. Where the clock
    /// is never shared it need only acquire.
    pub(super) fn load_in_order(word: &AtomicU64) -> u64 {
        if WAY.get().sharing != Sharing::Never && !is(Mutant::LoadsOutOfOrder) {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
        word.load(Ordering::Acquire)
    }
}

use clock::{Clock, Storing};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use orec::Orecs;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    LoadsRelaxed,
    ReleasesRelaxed,
    ClockRelaxed,
    /// Nothing orders the loads of places before the second look at the record. (Loads with acquire would do,
    /// and so would the fence alone.)
    NoOrderOfLoads,
    /// A commit does not say that it is going to store.
    NoMark,
    /// It says so only after it has validated.
    MarksLate,
    /// It does not validate what was read.
    NoValidation,
    /// It validates versions, and not whether somebody is storing.
    IgnoresMarks,
    /// A reader does not look at the record again.
    LooksOnce,
    /// A reader takes what is newer than its clock.
    TakesNewer,
    /// A writer owns what has changed since its clock.
    OwnsNewer,
    /// A commit owns all that was written but the last.
    OwnsNotAll,
    /// It marks only what was owned before it began.
    OwnsAfterMarking,
    /// It becomes the owner of what it has written only after it has validated.
    OwnsLate,
    /// A read of what the transaction has written, and does not own yet, gives what was there before.
    ForgetsOwn,
    /// A read by a record of which the transaction has written something, and does not own it yet, is not
    /// noted.
    NotesNoneOfWritten,
    /// A transaction whose clock nobody advanced validates nothing, although it was read before.
    ExtendsBlindly,
    /// Every transaction thinks that it began in quiet.
    AlwaysQuiet,
    /// In quiet, nobody looks at the clock.
    NeverLooksAtClock,
    /// A commit says that it stores only after it has advanced the clock.
    SaysLate,
    /// It says that it has stored before it has.
    SaysEarly,
    /// A transaction that advances its clock goes on as if it were quiet.
    StaysQuiet,
    /// One that knows not what it has read goes on when the clock moves.
    TrustsForever,
    /// A commit that leaves the clock as it is does not wait for its marks to be visible.
    SharesUnfenced,
    /// Nor does who ends sharing look at who is storing only after the others can know.
    EndsUnfenced,
    /// Loads of the clock and of records are not in one order for all.
    LoadsOutOfOrder,
    /// A transaction that meets a version newer than its clock does not raise the clock.
    NeverRaises,
    /// A transaction takes the clock for one that every commit advances.
    NeverSeesSharing,
    /// A commit before which the clock did not move validates nothing, although others leave it as it is.
    ValidatesByClock,
}

/// Those that only matter where commits leave the clock as it is.
const SHARING: [Mutant; 6] = [
    Mutant::SharesUnfenced,
    Mutant::EndsUnfenced,
    Mutant::LoadsOutOfOrder,
    Mutant::NeverRaises,
    Mutant::NeverSeesSharing,
    Mutant::ValidatesByClock,
];

thread_local! {
    // Loom runs the threads of a model on one thread.
    static MUTANT: Cell<Mutant> = const { Cell::new(Mutant::None) };
    static WAY: Cell<Way> = const { Cell::new(WAYS[0]) };
}

/// A way in which transactions run.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    /// They look at the clock in place of records as long as they meet nobody.
    quiet: bool,
    /// They keep no list of what they read as long as that is so.
    trusting: bool,
    /// They own what they write at once, rather than in their commits.
    early: bool,
    sharing: Sharing,
}

/// When commits leave the clock as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sharing {
    #[default]
    Never,
    Always,
    /// From when the main thread begins its transactions.
    Begun,
    /// Until then, if that can be had.
    Ended,
    /// The same, and commits that have met others begin it again.
    Changing,
}

const ALONE: Way = Way { quiet: false, trusting: false, early: false, sharing: Sharing::Never };

const WAYS: [Way; 10] = [
    ALONE,
    Way { quiet: true, ..ALONE },
    Way { quiet: true, trusting: true, ..ALONE },
    Way { early: true, ..ALONE },
    Way { quiet: true, early: true, ..ALONE },
    Way { sharing: Sharing::Always, ..ALONE },
    Way { early: true, sharing: Sharing::Always, ..ALONE },
    Way { quiet: true, trusting: true, sharing: Sharing::Begun, ..ALONE },
    Way { quiet: true, trusting: true, sharing: Sharing::Ended, ..ALONE },
    Way { quiet: true, early: true, sharing: Sharing::Changing, ..ALONE },
];

fn is(mutant: Mutant) -> bool {
    MUTANT.get() == mutant
}

/// Two words, each with its own record.
struct Shared {
    orecs: Orecs,
    clock: Clock,
    storing: Storing,
    words: [AtomicU64; 2],
    records: [u32; 2],
}

impl Shared {
    /// Both words have the same record.
    fn of_one_record() -> Shared {
        let shared = Shared::new();
        Shared { records: [shared.records[0]; 2], ..shared }
    }

    fn new() -> Shared {
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
    fn change_sharing(&self) {
        match WAY.get().sharing {
            Sharing::Never | Sharing::Always => (),
            Sharing::Begun => self.clock.share(),
            Sharing::Ended | Sharing::Changing => self.clock.end_sharing(&self.storing),
        }
    }
}

struct Conflict;

/// One attempt of a transaction.
struct Tx<'s> {
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
    fn begin(shared: &'s Shared, me: u64) -> Tx<'s> {
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
    fn read(&mut self, place: usize) -> Result<u64, Conflict> {
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
    fn write(&mut self, place: usize, value: u64) -> Result<(), Conflict> {
        self.own(place)?;
        self.writes.push((place, value));
        Ok(())
    }

    /// As `Tx::own`.
    fn own(&mut self, place: usize) -> Result<(), Conflict> {
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
    fn commit(mut self) -> Result<(), Conflict> {
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

/// Runs a model under every schedule with so many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

fn spawn(shared: &Arc<Shared>, run: impl Fn(&Shared) + 'static) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || run(&shared))
}

/// Writes both words, which are the same in every state.
fn write_both(shared: &Shared, me: u64, value: u64) -> Result<(), Conflict> {
    let mut tx = Tx::begin(shared, me);
    tx.write(0, value)?;
    tx.write(1, value)?;
    tx.commit()
}

/// Reads both words, in a transaction that need not be committed.
fn read_both(shared: &Shared, me: u64) -> Result<u64, Conflict> {
    shared.change_sharing();
    read_both_as_it_is(shared, me)
}

fn read_both_as_it_is(shared: &Shared, me: u64) -> Result<u64, Conflict> {
    let mut tx = Tx::begin(shared, me);
    let first = tx.read(0)?;
    let second = tx.read(1)?;
    assert_eq!(first, second, "one state");
    Ok(first)
}

/// Also a transaction that is going to be run again sees one state.
fn readers_see_one_state() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let done = Arc::new(AtomicU64::new(0));
        let count = done.clone();
        let writer = spawn(&shared, move |shared| {
            if write_both(shared, 1, 1).is_ok() {
                count.store(1, Relaxed);
            }
        });
        let _ = read_both(&shared, 9);
        writer.join().unwrap();
        let done = done.load(Relaxed);
        assert!(matches!(read_both(&shared, 9), Ok(both) if both == done), "what was committed is read");
        let may_fail = !matches!(WAY.get().sharing, Sharing::Never | Sharing::Always);
        assert!(may_fail || done == 1, "the writer met nobody");
    });
}

/// The same after something else was read, with a second commit that the clock is advanced for.
fn readers_see_one_state_between_two_commits() {
    explore(2, || {
        let shared = Arc::new(Shared::new());
        let writer = spawn(&shared, |shared| {
            let _ = write_both(shared, 1, 1);
            let _ = write_both(shared, 1, 2);
        });
        if let (Ok(first), Ok(second)) = (read_both(&shared, 9), read_both(&shared, 9)) {
            assert!(first <= second, "{first}, then {second}");
        }
        writer.join().unwrap();
    });
}

/// A writer that has read one word, and owns the other.
fn writers_see_one_state() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let writer = spawn(&shared, |shared| _ = write_both(shared, 1, 1));
        shared.change_sharing();
        let attempt = || {
            let mut tx = Tx::begin(&shared, 2);
            let first = tx.read(0)?;
            tx.own(1)?;
            assert_eq!(tx.read(1)?, first, "one state");
            Ok::<_, Conflict>(())
        };
        let _ = attempt();
        writer.join().unwrap();
    });
}

/// A writer advances its clock to where others may still be storing.
fn no_write_is_skewed_after_an_extension() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let other = spawn(&shared, |shared| {
            let attempt = || {
                let mut tx = Tx::begin(shared, 2);
                tx.own(1)?;
                if tx.read(0)? == 0 {
                    tx.write(1, 1)?;
                    tx.commit()?;
                }
                Ok::<_, Conflict>(())
            };
            let _ = attempt();
        });
        shared.change_sharing();
        let attempt = || {
            let mut tx = Tx::begin(&shared, 1);
            tx.write(1, 0)?;
            tx.commit()?;
            let mut tx = Tx::begin(&shared, 1);
            if tx.read(1)? == 0 {
                tx.write(0, 1)?;
                tx.commit()?;
            }
            Ok::<_, Conflict>(())
        };
        let _ = attempt();
        other.join().unwrap();
        let both = [shared.words[0].load(Relaxed), shared.words[1].load(Relaxed)];
        assert_ne!(both, [1, 1], "each thought that the other had not");
    });
}

/// Two transactions add one each to a word.
fn no_update_is_lost() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let done = Arc::new(AtomicU64::new(0));
        let add = |me: u64, done: Arc<AtomicU64>| {
            move |shared: &Shared| {
                let attempt = || {
                    let mut tx = Tx::begin(shared, me);
                    let value = tx.read(0)?;
                    tx.write(0, value + 1)?;
                    tx.commit()
                };
                if attempt().is_ok() {
                    done.fetch_add(1, Relaxed);
                }
            }
        };
        let other = spawn(&shared, add(1, done.clone()));
        shared.change_sharing();
        add(2, done.clone())(&shared);
        other.join().unwrap();
        assert_eq!(shared.words[0].load(Relaxed), done.load(Relaxed), "every commit counts");
    });
}

/// Each writes what the other reads: one of them has to see the other's change.
fn no_write_is_skewed() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let take = |me: u64, mine: usize| {
            move |shared: &Shared| {
                let attempt = || {
                    let mut tx = Tx::begin(shared, me);
                    if tx.read(1 - mine)? == 0 {
                        tx.write(mine, 1)?;
                        tx.commit()?;
                    }
                    Ok::<_, Conflict>(())
                };
                let _ = attempt();
            }
        };
        let other = spawn(&shared, take(1, 0));
        shared.change_sharing();
        take(2, 1)(&shared);
        other.join().unwrap();
        let both = [shared.words[0].load(Relaxed), shared.words[1].load(Relaxed)];
        assert_ne!(both, [1, 1], "each thought that the other had not");
    });
}

/// A writer reads its own writes, and its other reads under the same record still hold when it commits.
fn who_writes_sees_it_and_loses_nothing() {
    explore(3, || {
        let shared = Arc::new(Shared::of_one_record());
        let done = Arc::new(AtomicU64::new(0));
        let add = |me: u64, done: Arc<AtomicU64>| {
            move |shared: &Shared| {
                let attempt = || {
                    let mut tx = Tx::begin(shared, me);
                    tx.write(1, 7)?;
                    assert_eq!(tx.read(1)?, 7, "its own");
                    let value = tx.read(0)?;
                    tx.write(0, value)?;
                    let again = tx.read(0)?;
                    assert_eq!(again, value, "its own");
                    tx.write(0, again + 1)?;
                    tx.commit()
                };
                if attempt().is_ok() {
                    done.fetch_add(1, Relaxed);
                }
            }
        };
        let other = spawn(&shared, add(1, done.clone()));
        shared.change_sharing();
        add(2, done.clone())(&shared);
        other.join().unwrap();
        assert_eq!(shared.words[0].load(Relaxed), done.load(Relaxed), "every commit counts");
    });
}

/// A reader has met a version of somebody else's, and raised the clock to it; the commit that goes on
/// meanwhile has the same.
fn readers_see_one_state_after_raising_the_clock() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let writer = spawn(&shared, |shared| _ = write_both(shared, 1, 1));
        shared.clock.raise(1);
        let _ = read_both(&shared, 9);
        writer.join().unwrap();
    });
}

/// Somebody else finds that nobody stores any more, so that readers look at the clock again.
fn readers_see_one_state_when_another_ends_sharing() {
    if !matches!(WAY.get().sharing, Sharing::Ended | Sharing::Changing) {
        return;
    }
    explore(2, || {
        let shared = Arc::new(Shared::new());
        let threads = [
            spawn(&shared, |shared| _ = write_both(shared, 1, 1)),
            spawn(&shared, Shared::change_sharing),
            spawn(&shared, |shared| _ = read_both_as_it_is(shared, 9)),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

const MODELS: [(&str, fn()); 9] = [
    ("readers see one state", readers_see_one_state),
    ("writers see one state", writers_see_one_state),
    ("no update is lost", no_update_is_lost),
    ("who writes sees it and loses nothing", who_writes_sees_it_and_loses_nothing),
    ("no write is skewed", no_write_is_skewed),
    ("no write is skewed after an extension", no_write_is_skewed_after_an_extension),
    ("readers see one state between two commits", readers_see_one_state_between_two_commits),
    ("readers see one state after raising the clock", readers_see_one_state_after_raising_the_clock),
    ("readers see one state when another ends sharing", readers_see_one_state_when_another_ends_sharing),
];

#[test]
fn the_protocol_holds_under_every_interleaving() {
    for way in WAYS {
        WAY.set(way);
        for (name, model) in MODELS {
            let start = std::time::Instant::now();
            model();
            println!("{name}, {way:?}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn weakenings_are_caught() {
    all_are_caught(&[
        Mutant::LoadsRelaxed,
        Mutant::ReleasesRelaxed,
        Mutant::ClockRelaxed,
        Mutant::NoOrderOfLoads,
        Mutant::NoMark,
        Mutant::MarksLate,
        Mutant::NoValidation,
        Mutant::IgnoresMarks,
        Mutant::LooksOnce,
        Mutant::TakesNewer,
        Mutant::OwnsNewer,
        Mutant::OwnsNotAll,
        Mutant::OwnsAfterMarking,
        Mutant::OwnsLate,
        Mutant::ForgetsOwn,
        Mutant::NotesNoneOfWritten,
        Mutant::ExtendsBlindly,
        Mutant::AlwaysQuiet,
        Mutant::NeverLooksAtClock,
        Mutant::SaysLate,
        Mutant::SaysEarly,
        Mutant::StaysQuiet,
        Mutant::TrustsForever,
    ]);
}

#[test]
fn weakenings_of_sharing_are_caught() {
    all_are_caught(&SHARING);
}

fn all_are_caught(mutants: &[Mutant]) {
    let mut missed = Vec::new();
    for &mutant in mutants {
        MUTANT.set(mutant);
        let of_sharing = SHARING.contains(&mutant);
        let ways = || WAYS.into_iter().rev().filter(|way| (way.sharing != Sharing::Never) == of_sharing);
        let is_caught = |model: &fn()| {
            ways().any(|way| {
                WAY.set(way);
                std::panic::catch_unwind(model).is_err()
            })
        };
        let caught = MODELS.iter().find(|(_, model)| is_caught(model));
        println!("{mutant:?}: {}", caught.map_or("missed", |(name, _)| name));
        missed.extend(caught.is_none().then_some(mutant));
        MUTANT.set(Mutant::None);
    }
    assert!(missed.is_empty(), "nothing caught {missed:?}");
}
