//! Crashes at every flush and fence of threads that commit beside each other: single puts and transactions,
//! of keys that are there and of new ones, beside groups, collections and a held snapshot.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tembo_crashsim::{Audit, Failure, Mutation, Report, Scenario, SharedScenario, Simulation, campaign};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Snapshot, Store};

const THREADS: u32 = 2;
const KEYSPACES: [&str; 2] = ["even", "odd"];

/// Numbers of keys, and the numbers of the operations that gave them their values.
type Model = BTreeMap<u32, u64>;

/// An operation. Keys belong to threads; the value is the number of the operation, from 1.
#[derive(Debug, Clone)]
enum Op {
    Put(u32, u64),
    Delete(u32),
    /// A transaction of keys of one thread.
    Commit(Vec<u32>, u64),
    /// Two transactions that are asked for, and then waited for.
    Group([u32; 2], u64),
    /// A thread collects.
    Collect(u32),
    /// A thread holds the snapshot that it has opened until it opens another.
    Hold(u32),
    /// A reader looks a key up.
    Get(u32),
}

struct Threads {
    name: String,
    ops: Vec<Op>,
    /// The keys that are put first, with the value 0.
    start: Vec<u32>,
}

struct State {
    pool: Pool,
    store: Store,
    held: [Mutex<Option<Snapshot>>; THREADS as usize],
}

fn text(e: impl ToString) -> String {
    e.to_string()
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

/// A value that lies in its version, or in a block.
fn value(key: u32, number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(if key.is_multiple_of(5) { 40 } else { 8 }, key as u8);
    value
}

fn number(key: u32, found: &[u8]) -> Result<u64, String> {
    let number = found.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or("a short value")?;
    if found == value(key, number) { Ok(number) } else { Err(format!("key {key} has {found:?}")) }
}

impl State {
    fn open(pool: Pool) -> Result<State, String> {
        let store = Store::open(&pool, "store").map_err(text)?;
        for name in KEYSPACES {
            store.keyspace(name).map_err(text)?;
        }
        for _ in 1..=THREADS {
            assert!(store.add_lane().map_err(text)?, "the pool has lanes for all");
        }
        Ok(State { pool, store, held: Default::default() })
    }

    fn keyspace(&self, key: u32) -> Result<tembo_store::Keyspace, String> {
        self.store.keyspace(KEYSPACES[key as usize % 2]).map_err(text)
    }

    fn transaction(&self, keys: &[u32], number: u64) -> Result<tembo_store::Transaction, String> {
        let mut tx = self.store.begin();
        for i in keys {
            tx.put(&self.keyspace(*i)?, key(*i), value(*i, number)).map_err(text)?;
        }
        Ok(tx)
    }

    /// The value that a reader saw.
    fn perform(&self, op: &Op) -> Result<Option<u64>, String> {
        match op {
            Op::Put(i, number) => {
                _ = self.store.put(&self.keyspace(*i)?, key(*i), value(*i, *number)).map_err(text)?
            }
            Op::Delete(i) => _ = self.store.delete(&self.keyspace(*i)?, key(*i)).map_err(text)?,
            Op::Commit(keys, number) => _ = self.transaction(keys, *number)?.commit().map_err(text)?,
            Op::Group(keys, number) => {
                let asked = keys.map(|key| self.transaction(&[key], *number).map(|tx| tx.commit_async()));
                for commit in asked {
                    commit?.wait().map_err(text)?;
                }
            }
            Op::Collect(_) => _ = self.store.collect(10).map_err(text)?,
            Op::Hold(thread) => *self.held[*thread as usize].lock().unwrap() = Some(self.store.snapshot()),
            Op::Get(i) => {
                let found = self.store.get(&self.keyspace(*i)?, key(*i)).map_err(text)?;
                return found.map(|found| number(*i, &found)).transpose();
            }
        }
        Ok(None)
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
        384 << 10
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn setup(&self, region: Region) -> Result<State, String> {
        let state = State::open(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)?;
        self.start.iter().try_for_each(|i| state.perform(&Op::Put(*i, 0)).map(drop))?;
        Ok(state)
    }

    fn recover(&self, region: Region) -> Result<State, String> {
        State::open(Pool::open_in(region).map_err(text)?)
    }

    fn region<'s>(&self, state: &'s State) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn continuation(&self) -> &[Op] {
        &[]
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        state.perform(op).map(drop)
    }

    fn initial(&self) -> Model {
        self.start.iter().map(|i| (*i, 0)).collect()
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Put(key, number) => _ = model.insert(*key, *number),
            Op::Delete(key) => _ = model.remove(key),
            Op::Commit(keys, number) => keys.iter().for_each(|key| _ = model.insert(*key, *number)),
            Op::Group(keys, number) => keys.iter().for_each(|key| _ = model.insert(*key, *number)),
            Op::Collect(_) | Op::Hold(_) | Op::Get(_) => {}
        }
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        let mut model = Model::new();
        for name in KEYSPACES {
            let keyspace = state.store.keyspace(name).map_err(text)?;
            for entry in state.store.snapshot().iter(&keyspace).map_err(text)? {
                let (key, value) = entry.map_err(text)?;
                let digits = key.get(3..).and_then(|digits| std::str::from_utf8(digits).ok());
                let i = digits.and_then(|digits| digits.parse().ok()).ok_or("a key that nobody put")?;
                model.insert(i, number(i, &value)?);
            }
        }
        Ok(model)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        let mut marks = state.pool.marks().map_err(text)?;
        state.store.check(&mut marks).map_err(text)?;
        marks.finish().map(drop).map_err(text)
    }
}

/// Whose key it is.
fn owner(key: u32) -> u32 {
    key / 2 % THREADS
}

impl SharedScenario for Threads {
    fn thread_of(&self, op: &Op) -> usize {
        let thread = match op {
            Op::Put(key, _) | Op::Delete(key) | Op::Group([key, _], _) => owner(*key),
            Op::Commit(keys, _) => owner(keys[0]),
            Op::Collect(thread) | Op::Hold(thread) => *thread,
            Op::Get(_) => THREADS,
        };
        thread as usize
    }

    fn apply_shared(&self, state: &State, op: &Op) -> Result<Vec<usize>, String> {
        let seen = state.perform(op)?;
        Ok(seen.and_then(|number| (number as usize).checked_sub(1)).into_iter().collect())
    }
}

fn simulation(threads: &Threads, limit: usize, seed: u64) -> Simulation<'_, Threads> {
    Simulation::new(threads).limit(limit).depth(0).audit(Audit::off()).seed(seed)
}

fn run(name: &str, start: impl IntoIterator<Item = u32>, ops: &[Op]) {
    let threads = Threads { name: name.to_owned(), ops: ops.to_vec(), start: start.into_iter().collect() };
    for seed in 0..8 {
        let outcome: Result<Report, Box<Failure>> = simulation(&threads, 16, seed).run_shared();
        println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
    }
}

/// Operations in turn, numbered, each with a reader behind it.
fn numbered(ops: impl IntoIterator<Item = fn(u64) -> Op>) -> Vec<Op> {
    let mut all = Vec::new();
    for op in ops {
        let op = op(all.len() as u64 + 1);
        let key = match &op {
            Op::Put(key, _) | Op::Delete(key) | Op::Group([key, _], _) => Some(*key),
            Op::Commit(keys, _) => Some(keys[0]),
            _ => None,
        };
        all.push(op);
        all.extend(key.map(Op::Get));
    }
    all
}

#[test]
fn single_changes_beside_each_other_survive_crashes() {
    let ops: [fn(u64) -> Op; 8] = [
        |n| Op::Put(0, n),
        |n| Op::Put(2, n),
        |n| Op::Put(5, n),
        |n| Op::Put(3, n),
        |_| Op::Delete(0),
        |n| Op::Put(2, n),
        |n| Op::Put(5, n),
        |_| Op::Delete(3),
    ];
    run("keys that are there", 0..8, &numbered(ops));
    run("new keys", [], &numbered(ops));
    run("a leaf that is divided", (0..28).map(|i| 100 + 2 * i), &numbered(ops));
}

#[test]
fn transactions_beside_each_other_survive_crashes() {
    let ops: [fn(u64) -> Op; 8] = [
        |n| Op::Commit(vec![0, 1, 4], n),
        |n| Op::Commit(vec![2, 3, 10], n),
        |n| Op::Group([4, 5], n),
        |n| Op::Put(6, n),
        |n| Op::Commit(vec![0, 40, 41], n),
        |n| Op::Commit(vec![2, 10], n),
        |_| Op::Collect(0),
        |n| Op::Put(10, n),
    ];
    run("transactions", 0..12, &numbered(ops));
}

#[test]
fn held_snapshots_beside_commits_survive_crashes() {
    let ops: [fn(u64) -> Op; 10] = [
        |_| Op::Hold(0),
        |n| Op::Put(0, n),
        |n| Op::Put(10, n),
        |n| Op::Put(5, n),
        |_| Op::Hold(1),
        |n| Op::Put(10, n),
        |n| Op::Put(0, n),
        |n| Op::Put(5, n),
        |n| Op::Put(10, n),
        |_| Op::Collect(1),
    ];
    run("vectors", 0..12, &numbered(ops));
}

fn random(seed: u64) -> Threads {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut ops = Vec::new();
    for _ in 0..14 {
        let number = ops.len() as u64 + 1;
        let thread = rng.random_range(0..THREADS);
        let mut own = || 4 * rng.random_range(0..12) + 2 * thread + rng.random_range(0..2);
        let keys = [own(), own(), own()];
        ops.push(match rng.random_range(0..12) {
            0..4 => Op::Put(keys[0], number),
            4..6 => Op::Delete(keys[0]),
            6..8 => Op::Commit(keys.to_vec(), number),
            // The second of two transactions that write one key conflicts.
            8 if keys[0] != keys[1] => Op::Group([keys[0], keys[1]], number),
            9 => Op::Collect(thread),
            10 => Op::Hold(thread),
            _ => Op::Get(keys[0]),
        });
    }
    let start = (0..48).filter(|_| rng.random()).collect();
    Threads { name: format!("random commits, seed {seed}"), ops, start }
}

#[test]
fn campaign_of_random_threads() {
    let outcome = campaign(6_000, |seed| {
        let threads = random(seed);
        simulation(&threads, 12, seed).run_shared()
    });
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn bugs_seeded_into_threads_are_caught() {
    let ops: [fn(u64) -> Op; 6] = [
        |n| Op::Put(0, n),
        |n| Op::Put(2, n),
        |n| Op::Put(5, n),
        |n| Op::Commit(vec![2, 3], n),
        |n| Op::Put(0, n),
        |n| Op::Put(10, n),
    ];
    let threads = Threads { name: "seeded bugs".to_owned(), ops: numbered(ops), start: (0..12).collect() };
    let wanted = [Mutation::DropFence, Mutation::ForeignFence];
    let report = simulation(&threads, 48, 0).mutants_shared(&wanted).unwrap();
    println!("{report}");
    report.assert_some_caught(&wanted);
}
