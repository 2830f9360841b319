//! Crashes at every flush and fence of threads that commit at once, over two keyspaces, beside a reader and
//! a collector: a transaction is there in full or not at all, and nothing is seen that a crash takes back.
//!
//! `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-store --test suite threads_crash::campaign` is
//! the long form.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use tembo_crashsim::{Audit, Mutation, Report, Scenario, SharedScenario, Simulation, campaign};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Keyspace, Snapshot, Store};

const THREADS: u64 = 2;
/// The thread that reads and collects.
const READER: u64 = THREADS;
/// A key that all threads count in.
const COUNTER: u64 = 1 << 32;

/// An operation, with the thread that performs it.
#[derive(Debug, Clone)]
enum Op {
    /// A transaction of a thread's own keys, with the lengths of their values or none, that enters its number
    /// (its position, from 1) into the journal.
    Commit {
        thread: u64,
        number: u64,
        writes: Vec<(u64, Option<usize>)>,
    },
    /// As `Commit`, of two transactions that are asked for together; the number is that of both.
    Pair {
        thread: u64,
        number: u64,
        keys: [u64; 2],
    },
    /// Counts, with as many attempts as it takes.
    Count {
        thread: u64,
        number: u64,
    },
    /// Looks at a snapshot.
    Look,
    Collect(usize),
    /// Keeps the current snapshot, or deletes the kept one.
    Keep(bool),
}

/// The contents of both keyspaces; a value is its length.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    accounts: BTreeMap<u64, u64>,
    journal: BTreeMap<u64, u64>,
}

struct Threads {
    name: String,
    start: u64,
    ops: Vec<Op>,
}

struct State {
    pool: Pool,
    store: Store,
    accounts: Keyspace,
    journal: Keyspace,
}

fn text(e: impl ToString) -> String {
    e.to_string()
}

fn number(bytes: &[u8]) -> Result<u64, String> {
    bytes.try_into().map(u64::from_be_bytes).map_err(text)
}

impl State {
    fn new(pool: Pool) -> Result<State, String> {
        let store = Store::open(&pool, "store").map_err(text)?;
        let keyspace = |name| store.keyspace(name).map_err(text);
        let (accounts, journal) = (keyspace("accounts")?, keyspace("journal")?);
        Ok(State { pool, store, accounts, journal })
    }

    fn read(&self, snapshot: &Snapshot) -> Result<Model, String> {
        let mut model = Model::default();
        for entry in snapshot.iter(&self.accounts).map_err(text)? {
            let (key, value) = entry.map_err(text)?;
            let key = number(&key)?;
            let value = if key == COUNTER { number(&value)? } else { value.len() as u64 };
            model.accounts.insert(key, value);
        }
        for entry in snapshot.iter(&self.journal).map_err(text)? {
            let (key, value) = entry.map_err(text)?;
            model.journal.insert(number(&key)?, value.len() as u64);
        }
        Ok(model)
    }

    /// The numbers that a reader saw.
    fn perform(&self, op: &Op) -> Result<Vec<u64>, String> {
        let State { store, accounts, journal, .. } = self;
        match op {
            Op::Commit { number, writes, .. } => {
                let mut tx = store.begin();
                for (key, len) in writes {
                    match len {
                        Some(len) => tx.put(accounts, key.to_be_bytes(), vec![*key as u8; *len]),
                        None => tx.delete(accounts, key.to_be_bytes()),
                    }
                    .map_err(text)?;
                }
                tx.put(journal, number.to_be_bytes(), "").map_err(text)?;
                tx.commit().map_err(text)?;
            }
            Op::Pair { number, keys, .. } => {
                let (mut first, mut second) = (store.begin(), store.begin());
                first.put(accounts, keys[0].to_be_bytes(), "pair").map_err(text)?;
                second.put(accounts, keys[1].to_be_bytes(), "of two").map_err(text)?;
                second.put(journal, number.to_be_bytes(), "").map_err(text)?;
                let (first, second) = (first.commit_async(), second.commit_async());
                second.wait().map_err(text)?;
                first.wait().map_err(text)?;
            }
            Op::Count { number: op, .. } => {
                let count = store.transact(|tx| {
                    let found = tx.get(accounts, COUNTER.to_be_bytes())?;
                    let count = found.map_or(0, |value| number(&value).unwrap_or(u64::MAX - 1)) + 1;
                    tx.put(accounts, COUNTER.to_be_bytes(), count.to_be_bytes())?;
                    tx.put(journal, op.to_be_bytes(), "")
                });
                count.map_err(text)?;
            }
            Op::Look => return Ok(self.read(&store.snapshot())?.journal.into_keys().collect()),
            Op::Collect(tables) => _ = store.collect(*tables).map_err(text)?,
            Op::Keep(true) => match store.keep(store.snapshot().number(), "kept") {
                Ok(()) | Err(tembo_store::Error::SnapshotExists { .. }) => {}
                Err(e) => return Err(text(e)),
            },
            Op::Keep(false) => match store.delete_kept("kept") {
                Ok(()) | Err(tembo_store::Error::NoSuchSnapshot { .. }) => {}
                Err(e) => return Err(text(e)),
            },
        }
        Ok(Vec::new())
    }
}

impl Scenario for Threads {
    type State = State;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn region_bytes(&self) -> u64 {
        512 << 10
    }

    fn setup(&self, region: Region) -> Result<State, String> {
        let state = State::new(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)?;
        let mut tx = state.store.begin();
        (0..self.start)
            .try_for_each(|key| tx.put(&state.accounts, key.to_be_bytes(), [0; 9]))
            .map_err(text)?;
        tx.commit().map_err(text)?;
        Ok(state)
    }

    fn recover(&self, region: Region) -> Result<State, String> {
        State::new(Pool::open_in(region).map_err(text)?)
    }

    fn region<'s>(&self, state: &'s State) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        state.perform(op).map(drop)
    }

    fn initial(&self) -> Model {
        Model { accounts: (0..self.start).map(|key| (key, 9)).collect(), journal: BTreeMap::new() }
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Commit { number, writes, .. } => {
                for (key, len) in writes {
                    match len {
                        Some(len) => _ = model.accounts.insert(*key, *len as u64),
                        None => _ = model.accounts.remove(key),
                    }
                }
                model.journal.insert(*number, 0);
            }
            Op::Pair { number, keys, .. } => {
                model.accounts.insert(keys[0], 4);
                model.accounts.insert(keys[1], 6);
                model.journal.insert(*number, 0);
            }
            Op::Count { number, .. } => {
                *model.accounts.entry(COUNTER).or_insert(0) += 1;
                model.journal.insert(*number, 0);
            }
            Op::Look | Op::Collect(_) | Op::Keep(_) => {}
        }
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        let kept = state.store.kept().map_err(text)?;
        for kept in kept {
            state.read(&state.store.at(kept.number).map_err(text)?)?;
        }
        state.read(&state.store.snapshot())
    }

    /// A crash between the two commits of a pair leaves the first.
    fn between(&self, before: &Model, op: &Op) -> Vec<Model> {
        let Op::Pair { keys, .. } = op else { return Vec::new() };
        let mut model = before.clone();
        model.accounts.insert(keys[0], 4);
        vec![model]
    }

    fn check(&self, state: &State) -> Result<(), String> {
        let mut marks = state.pool.marks().map_err(text)?;
        state.store.check(&mut marks).map_err(text)?;
        marks.finish().map(drop).map_err(text)
    }
}

impl SharedScenario for Threads {
    fn thread_of(&self, op: &Op) -> usize {
        let thread = match op {
            Op::Commit { thread, .. } | Op::Pair { thread, .. } | Op::Count { thread, .. } => *thread,
            Op::Look | Op::Collect(_) | Op::Keep(_) => READER,
        };
        thread as usize
    }

    fn apply_shared(&self, state: &State, op: &Op) -> Result<Vec<usize>, String> {
        Ok(state.perform(op)?.into_iter().map(|number| number as usize - 1).collect())
    }
}

/// Numbers the operations, and gives their keys to their threads.
fn numbered(name: &str, start: u64, mut ops: Vec<Op>) -> Threads {
    for (i, op) in ops.iter_mut().enumerate() {
        let own = |thread: u64, key: &mut u64| *key = *key / THREADS * THREADS + thread;
        match op {
            Op::Commit { thread, number, writes } => {
                *number = i as u64 + 1;
                writes.iter_mut().for_each(|(key, _)| own(*thread, key));
            }
            Op::Pair { thread, number, keys } => {
                *number = i as u64 + 1;
                // Two keys, so that the two do not conflict.
                keys.iter_mut().for_each(|key| own(*thread, key));
                keys[1] = if keys[0] == keys[1] { keys[1] + THREADS } else { keys[1] };
            }
            Op::Count { number, .. } => *number = i as u64 + 1,
            Op::Look | Op::Collect(_) | Op::Keep(_) => {}
        }
    }
    Threads { name: name.to_owned(), start, ops }
}

fn commit(thread: u64, writes: &[(u64, Option<usize>)]) -> Op {
    Op::Commit { thread, number: 0, writes: writes.to_vec() }
}

fn script() -> Threads {
    let count = |thread| Op::Count { thread, number: 0 };
    let ops = vec![
        commit(0, &[(0, Some(20)), (2, None)]),
        commit(1, &[(0, Some(30)), (4, Some(3))]),
        Op::Look,
        count(0),
        count(1),
        Op::Keep(true),
        commit(0, &[(0, Some(8)), (6, Some(1))]),
        Op::Pair { thread: 1, number: 0, keys: [2, 4] },
        Op::Look,
        Op::Collect(8),
        commit(1, &[(0, None), (8, Some(200))]),
        count(0),
        Op::Keep(false),
        Op::Look,
        Op::Collect(20),
    ];
    numbered("two writers", 8, ops)
}

fn run(threads: &Threads, seed: u64, limit: usize) -> Result<Report, Box<tembo_crashsim::Failure>> {
    Simulation::new(threads).limit(limit).depth(0).audit(Audit::off()).seed(seed).run_shared()
}

#[test]
fn two_writers_a_reader_and_a_collector_survive_crashes() {
    let mut images = 0;
    for seed in 0..8 {
        images += run(&script(), seed, 16).unwrap_or_else(|failure| panic!("{failure}")).images;
    }
    println!("{images} images");
}

fn random(seed: u64) -> Threads {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let keys = [6, 40, 200][rng.random_range(0..3)];
    let mut ops = Vec::new();
    for _ in 0..12 {
        let thread = rng.random_range(0..THREADS);
        let write = |rng: &mut Xoshiro256PlusPlus| {
            let len = [3, 20, 60, 1500][rng.random_range(0..4)];
            (rng.random_range(0..keys), rng.random_bool(0.7).then_some(len))
        };
        ops.push(match rng.random_range(0..12) {
            0 => Op::Look,
            1 => Op::Collect(rng.random_range(1..30)),
            2 => Op::Keep(rng.random()),
            3 => Op::Count { thread, number: 0 },
            4 => Op::Pair { thread, number: 0, keys: [rng.random_range(0..keys), rng.random_range(0..keys)] },
            _ => commit(thread, &(0..rng.random_range(1..6)).map(|_| write(&mut rng)).collect::<Vec<_>>()),
        });
    }
    numbered(&format!("random threads, seed {seed}"), rng.random_range(0..keys), ops)
}

#[test]
fn campaign_of_random_threads() {
    let report = campaign(4000, |seed| run(&random(seed), seed, 10));
    println!("{}", report.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn bugs_seeded_into_threads_are_caught() {
    let wanted = [Mutation::DropFence, Mutation::ForeignFence];
    let script = script();
    let simulation = Simulation::new(&script).limit(48).depth(0).audit(Audit::off());
    let report = simulation.mutants_shared(&wanted).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&wanted);
}
