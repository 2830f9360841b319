//! A thread of the workload: random transactions of every kind, recorded.

use super::record::{
    AUDITED, HOT, Id, KEYS, Key, Mode, Op, Outcome, Record, SPACES, Space, TAILS, WIDE, Walk, id_of,
    key_bytes, key_of, value_bytes,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_store::{Commit, Entries, Error, Keyspace, Snapshot, Store, Transaction};

/// Commits that a thread has asked for and not waited for, at most.
const PENDING_MAX: usize = 6;
const KEPT_MAX: usize = 2;
const HELD_MAX: usize = 3;

/// The shared parts of a round.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) spaces: [Keyspace; SPACES.len()],
    pub(crate) clock: AtomicU64,
    /// From which snapshot on every version of the audited keyspace is retained.
    pub(crate) retained_from: u64,
}

impl Shared {
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[usize::from(space)]
    }
}

/// The state of a thread from round to round.
pub(crate) struct Worker {
    thread: usize,
    rng: Xoshiro256PlusPlus,
    ids: u64,
    names: u64,
    /// Snapshots that it keeps in the pool: name and number.
    pub(crate) kept: Vec<(String, u64)>,
    /// Snapshots that it holds open.
    pub(crate) held: Vec<Snapshot>,
    /// Numbers of some of its commits.
    numbers: Vec<u64>,
    pending: Vec<(Commit, Record)>,
    pub(crate) records: Vec<Record>,
}

impl Worker {
    pub(crate) fn new(thread: usize, seed: u64) -> Worker {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (thread as u64 + 1).wrapping_mul(0x9E37_79B9));
        let (kept, held, numbers) = (Vec::new(), Vec::new(), Vec::new());
        let (pending, records) = (Vec::new(), Vec::new());
        Worker { thread, rng, ids: 0, names: 0, kept, held, numbers, pending, records }
    }

    fn id(&mut self) -> Id {
        self.ids += 1;
        (self.thread as u64 + 1) << 40 | self.ids
    }

    /// Performs so many transactions, and waits for all that it has asked for.
    pub(crate) fn run(&mut self, shared: &Shared, transactions: usize) {
        let before = self.records.len();
        while self.records.len() + self.pending.len() < before + transactions {
            match self.rng.random_range(0..100) {
                0..66 => self.current(shared),
                66..76 => self.at_a_held_snapshot(shared),
                76..80 => self.at_a_kept_snapshot(shared),
                80..84 => self.at_a_retained_snapshot(shared),
                84..90 => self.blind(shared),
                90..94 => self.repeated(shared),
                94..97 => self.get(shared),
                _ => self.look(shared),
            }
            if self.rng.random_ratio(1, 60) {
                self.keep_and_hold(shared);
            }
            while self.pending.len() > self.rng.random_range(0..=PENDING_MAX) {
                self.wait_for_one(shared);
            }
        }
        while !self.pending.is_empty() {
            self.wait_for_one(shared);
        }
    }

    fn wait_for_one(&mut self, shared: &Shared) {
        let (commit, record) = self.pending.swap_remove(self.rng.random_range(0..self.pending.len()));
        let outcome = commit.wait();
        self.finish(shared, record, outcome);
    }

    fn finish(&mut self, shared: &Shared, mut record: Record, outcome: Result<u64, Error>) {
        record.done = shared.now();
        record.outcome = match outcome {
            Ok(number) => {
                if self.numbers.len() < 50 {
                    self.numbers.push(number);
                } else {
                    self.numbers[(number % 50) as usize] = number;
                }
                Outcome::Committed(number)
            }
            Err(Error::Conflict { keyspace, key, by, snapshot }) => {
                assert_eq!(snapshot, record.snapshot, "the snapshot of a conflict");
                let space = SPACES.iter().position(|name| *name == keyspace).expect("a known keyspace");
                Outcome::Conflict { space: space as Space, key: key_of(&key), by }
            }
            Err(e) => panic!("{e}: {record:?}"),
        };
        self.records.push(record);
    }

    /// A transaction of the current snapshot.
    fn current(&mut self, shared: &Shared) {
        let begun = shared.now();
        let (mode, tx) = if self.rng.random_ratio(1, 3) {
            (Mode::Serializable, shared.store.begin_serializable())
        } else {
            (Mode::Snapshot, shared.store.begin())
        };
        self.transaction(shared, tx, mode, begun, None);
    }

    fn at_a_held_snapshot(&mut self, shared: &Shared) {
        if self.held.is_empty() {
            return self.current(shared);
        }
        let begun = shared.now();
        let snapshot = &self.held[self.rng.random_range(0..self.held.len())];
        let tx = shared.store.begin_at(snapshot).unwrap();
        self.transaction(shared, tx, Mode::Old, begun, None);
    }

    fn at_a_kept_snapshot(&mut self, shared: &Shared) {
        if self.kept.is_empty() {
            return self.current(shared);
        }
        let begun = shared.now();
        let (name, number) = &self.kept[self.rng.random_range(0..self.kept.len())];
        let snapshot = shared.store.at_name(name).unwrap();
        assert_eq!(snapshot.number(), *number, "the number of a kept snapshot");
        let tx = shared.store.begin_at(&snapshot).unwrap();
        self.transaction(shared, tx, Mode::Old, begun, None);
    }

    /// At a snapshot that nobody has, in the keyspace that retains it.
    fn at_a_retained_snapshot(&mut self, shared: &Shared) {
        let number = match self.numbers.len() {
            0 => return self.current(shared),
            count => self.numbers[self.rng.random_range(0..count)],
        };
        let number = number + self.rng.random_range(0..2) * self.rng.random_range(0..2000);
        if number < shared.retained_from {
            return self.current(shared);
        }
        let begun = shared.now();
        let snapshot = match shared.store.at(number) {
            Ok(snapshot) => snapshot,
            Err(Error::SnapshotGone { current, .. }) if number > current => return,
            Err(e) => panic!("{e}"),
        };
        let tx = shared.store.begin_at(&snapshot).unwrap();
        self.transaction(shared, tx, Mode::Old, begun, Some(AUDITED));
    }

    fn record(&self, shared: &Shared, tx: &mut Transaction, mode: Mode, begun: u64) -> Record {
        let snapshot = tx.snapshot().number();
        let seen = shared.now();
        let (thread, ops) = (self.thread, Vec::new());
        Record { thread, mode, snapshot, ops, outcome: Outcome::Aborted, begun, seen, asked: 0, done: 0 }
    }

    /// Performs a transaction, in one keyspace alone if one is given, and ends it.
    fn transaction(
        &mut self,
        shared: &Shared,
        mut tx: Transaction,
        mode: Mode,
        begun: u64,
        only: Option<Space>,
    ) {
        let mut record = self.record(shared, &mut tx, mode, begun);
        self.steps(shared, &mut tx, &mut record.ops, only);
        if self.rng.random_ratio(1, 20) {
            tx.abort();
            record.done = shared.now();
            return self.records.push(record);
        }
        record.asked = shared.now();
        if self.rng.random_ratio(1, 4) {
            let commit = tx.commit_async();
            return self.pending.push((commit, record));
        }
        let outcome = tx.commit();
        self.finish(shared, record, outcome);
    }

    fn steps(&mut self, shared: &Shared, tx: &mut Transaction, ops: &mut Vec<Op>, only: Option<Space>) {
        if only.is_none() && self.rng.random_ratio(1, 3) {
            self.tails(shared, tx, ops);
        }
        let count = match self.rng.random_range(0..400) {
            0..280 => self.rng.random_range(1..5),
            280..390 => self.rng.random_range(5..12),
            390..399 => self.rng.random_range(12..60),
            _ => 250,
        };
        let mut savepoint = None;
        for _ in 0..count {
            let space = only.unwrap_or([HOT, WIDE, WIDE, AUDITED][self.rng.random_range(0..4)]);
            match self.rng.random_range(0..40) {
                0 => {
                    savepoint = Some(tx.savepoint());
                    ops.push(Op::Savepoint);
                }
                1 => {
                    if let Some(savepoint) = savepoint {
                        tx.rollback_to(savepoint);
                        ops.push(Op::Rollback);
                    }
                }
                _ => self.step(shared, tx, ops, space),
            }
            // The processor goes to another thread, as it does between the statements of a real one.
            if self.rng.random_ratio(1, 12) {
                std::thread::yield_now();
            }
        }
        if only.is_none() && self.rng.random_bool(0.4) {
            let (key, id) = (self.thread as Key, self.id());
            tx.put(shared.space(TAILS), key_bytes(key), value_bytes(id)).unwrap();
            ops.push(Op::Put { space: TAILS, key, id });
        }
    }

    /// The last commit of each thread that counts.
    fn tails(&mut self, shared: &Shared, tx: &mut Transaction, ops: &mut Vec<Op>) {
        let entries = tx.range(shared.space(TAILS), key_bytes(0)..key_bytes(KEYS[usize::from(TAILS)]));
        let found = walked(entries.unwrap(), Walk::Forwards, usize::MAX);
        let high = KEYS[usize::from(TAILS)];
        ops.push(Op::Range { space: TAILS, low: 0, high, walk: Walk::Forwards, limit: usize::MAX, found });
    }

    fn step(&mut self, shared: &Shared, tx: &mut Transaction, ops: &mut Vec<Op>, space: Space) {
        let keyspace = shared.space(space);
        let keys = KEYS[usize::from(space)];
        let key = self.rng.random_range(0..keys);
        let width = self.rng.random_range(0..if space == WIDE { 60 } else { 6 });
        match self.rng.random_range(0..100) {
            0..42 => {
                let found = tx.get(keyspace, key_bytes(key)).unwrap().map(|value| id_of(&value));
                ops.push(Op::Get { space, key, found });
            }
            42..78 => {
                let id = self.id();
                tx.put(keyspace, key_bytes(key), value_bytes(id)).unwrap();
                ops.push(Op::Put { space, key, id });
            }
            78..88 => {
                tx.delete(keyspace, key_bytes(key)).unwrap();
                ops.push(Op::Delete { space, key });
            }
            88..98 => {
                let walk = [Walk::Forwards, Walk::Backwards, Walk::Both][self.rng.random_range(0..3)];
                let limit = if self.rng.random() { usize::MAX } else { self.rng.random_range(0..20) };
                let (low, high) = (key, key + width);
                let entries = tx.range(keyspace, key_bytes(low)..key_bytes(high)).unwrap();
                let found = walked(entries, walk, limit);
                ops.push(Op::Range { space, low, high, walk, limit, found });
            }
            _ => {
                let (low, high) = (key, key + width / 4);
                let count = tx.delete_range(keyspace, key_bytes(low)..key_bytes(high)).unwrap();
                ops.push(Op::DeleteRange { space, low, high, count });
            }
        }
    }

    /// One write without a transaction of its own.
    fn blind(&mut self, shared: &Shared) {
        let space = [HOT, WIDE, AUDITED][self.rng.random_range(0..3)];
        let (keyspace, key) = (shared.space(space), self.rng.random_range(0..KEYS[usize::from(space)]));
        let begun = shared.now();
        let (op, outcome) = if self.rng.random_bool(0.8) {
            let id = self.id();
            let outcome = shared.store.put(keyspace, key_bytes(key), value_bytes(id));
            (Op::Put { space, key, id }, outcome)
        } else {
            (Op::Delete { space, key }, shared.store.delete(keyspace, key_bytes(key)))
        };
        let (thread, ops, outcome_so_far) = (self.thread, vec![op], Outcome::Aborted);
        let (mode, snapshot) = (Mode::Blind, 0);
        let times = (begun, begun, begun);
        let record = Record {
            thread,
            mode,
            snapshot,
            ops,
            outcome: outcome_so_far,
            begun: times.0,
            seen: times.1,
            asked: times.2,
            done: 0,
        };
        self.finish(shared, record, outcome);
    }

    /// A read without a snapshot or a transaction.
    fn get(&mut self, shared: &Shared) {
        let space = [HOT, HOT, WIDE, TAILS, AUDITED][self.rng.random_range(0..5)];
        let key = self.rng.random_range(0..KEYS[usize::from(space)]);
        self.records.push(get(shared, self.thread, space, key));
    }

    /// A transaction that runs again as long as it conflicts.
    fn repeated(&mut self, shared: &Shared) {
        let (keyspace, key) = (shared.space(HOT), self.rng.random_range(0..KEYS[usize::from(HOT)]));
        let mut last = None;
        let store = shared.store.clone();
        let outcome = store.transact(|tx| {
            let begun = shared.now();
            let mut record = self.record(shared, tx, Mode::Snapshot, begun);
            let found = tx.get(keyspace, key_bytes(key))?.map(|value| id_of(&value));
            record.ops.push(Op::Get { space: HOT, key, found });
            std::thread::yield_now();
            let id = self.id();
            tx.put(keyspace, key_bytes(key), value_bytes(id))?;
            record.ops.push(Op::Put { space: HOT, key, id });
            record.asked = shared.now();
            last = Some(record);
            Ok(())
        });
        // The attempts that conflicted are not recorded: nobody sees with what.
        let record = last.expect("it was tried");
        self.finish(shared, record, outcome.map(|(_, number)| number));
    }

    /// Reads a snapshot without a transaction.
    fn look(&mut self, shared: &Shared) {
        let begun = shared.now();
        let snapshot = shared.store.snapshot();
        let seen = shared.now();
        let mut ops = Vec::new();
        for _ in 0..self.rng.random_range(1..6) {
            let space = self.rng.random_range(0..SPACES.len()) as Space;
            let high = KEYS[usize::from(space)];
            let key = self.rng.random_range(0..high);
            let keyspace = shared.space(space);
            if self.rng.random() {
                let found = snapshot.get(keyspace, key_bytes(key)).unwrap().map(|value| id_of(&value));
                ops.push(Op::Get { space, key, found });
            } else {
                let low = if space == WIDE { high - 100 } else { 0 };
                let found = walked(
                    snapshot.range(keyspace, key_bytes(low)..key_bytes(high)).unwrap(),
                    Walk::Both,
                    usize::MAX,
                );
                ops.push(Op::Range { space, low, high, walk: Walk::Both, limit: usize::MAX, found });
            }
            std::thread::yield_now();
        }
        let (thread, mode, outcome) = (self.thread, Mode::Snapshot, Outcome::Aborted);
        let number = snapshot.number();
        let done = shared.now();
        self.records.push(Record {
            thread,
            mode,
            snapshot: number,
            ops,
            outcome,
            begun,
            seen,
            asked: done,
            done,
        });
    }

    /// Opens, keeps or lets go a snapshot.
    fn keep_and_hold(&mut self, shared: &Shared) {
        let store = &shared.store;
        if self.held.len() >= HELD_MAX || self.rng.random_ratio(1, 3) && !self.held.is_empty() {
            self.held.swap_remove(self.rng.random_range(0..self.held.len()));
        } else {
            self.held.push(store.snapshot());
        }
        if self.kept.len() >= KEPT_MAX || self.rng.random_ratio(1, 3) && !self.kept.is_empty() {
            let (name, _) = self.kept.swap_remove(self.rng.random_range(0..self.kept.len()));
            return store.delete_kept(&name).unwrap();
        }
        self.names += 1;
        let name = format!("{} {}", self.thread, self.names);
        let snapshot = match self.held.last() {
            Some(held) if self.rng.random() => held.clone(),
            _ => store.snapshot(),
        };
        store.keep(snapshot.number(), &name).unwrap();
        self.kept.push((name, snapshot.number()));
    }
}

fn get(shared: &Shared, thread: usize, space: Space, key: Key) -> Record {
    let begun = shared.now();
    let found = shared.store.get(shared.space(space), key_bytes(key)).unwrap().map(|value| id_of(&value));
    let done = shared.now();
    let (mode, snapshot, outcome) = (Mode::Get, 0, Outcome::Aborted);
    let ops = vec![Op::Get { space, key, found }];
    Record { thread, mode, snapshot, ops, outcome, begun, seen: done, asked: done, done }
}

/// Gets keys that everybody writes, as fast as it can until the others are done, so that some gets are
/// interrupted between any two of their steps. Records those beside which much has happened, and a few more.
pub(crate) fn get_all_the_time(
    shared: &Shared,
    thread: usize,
    is_done: &AtomicBool,
    seed: u64,
) -> Vec<Record> {
    const MUCH: u64 = 8;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut records = Vec::new();
    while !is_done.load(Ordering::Relaxed) {
        for i in 0..256 {
            let record = get(shared, thread, HOT, rng.random_range(0..KEYS[usize::from(HOT)]));
            if i == 0 || record.done - record.begun > MUCH {
                records.push(record);
            }
        }
        std::thread::yield_now();
    }
    records
}

/// Up to so many entries, in the order of their keys.
fn walked(mut entries: Entries, walk: Walk, limit: usize) -> Vec<(Key, Id)> {
    let entry = |entry: Result<(Vec<u8>, Vec<u8>), Error>| {
        let (key, value) = entry.unwrap();
        (key_of(&key), id_of(&value))
    };
    match walk {
        Walk::Forwards => entries.take(limit).map(entry).collect(),
        Walk::Backwards => {
            let mut found: Vec<_> = entries.rev().take(limit).map(entry).collect();
            found.reverse();
            found
        }
        Walk::Both => {
            let (mut front, mut back) = (Vec::new(), Vec::new());
            while let Some(first) = entries.next() {
                front.push(entry(first));
                back.extend(entries.next_back().map(entry));
            }
            front.extend(back.into_iter().rev());
            front
        }
    }
}

/// The contents of a keyspace in a snapshot.
pub(crate) fn contents(snapshot: &Snapshot, keyspace: &Keyspace) -> Vec<(Key, Id)> {
    walked(snapshot.iter(keyspace).unwrap(), Walk::Forwards, usize::MAX)
}
