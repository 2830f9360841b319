//! Crashes at every flush and fence of threads that change a tree of byte strings beside each other: in one
//! leaf, in neighbouring leaves, where leaves are divided and joined, and beside transactions that are
//! alone.
//!
//! `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-index --test suite concurrent_crash` is the long
//! campaign.

use crate::crashes::nodes::{Allocated, Changes, Nodes};
use crate::crashes::{InPool, Script, scripted_in_a_pool, survived, text};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::ops::Range;
use tembo_crashsim::{Audit, Mutation, Scenario, SharedScenario, Simulation, campaign};
use tembo_index::{WbTree, Writers};
use tembo_pmem::Region;
use tembo_pool::{Marks, Pool};

/// Numbers of keys, and their values.
type Model = BTreeMap<u32, u64>;

const THREADS: u32 = 2;
/// The bytes of a leaf in the pool.
const LEAF_BYTES: u64 = 512;

/// An operation of a thread. Numbers of keys belong to threads, except those that are counted in.
#[derive(Debug, Clone)]
enum Op {
    /// The value is the number of the operation, from 1.
    Put(u32, u64),
    Insert(u32, u64),
    Remove(u32),
    /// Adds 1 to a value, in this thread.
    Count(u32, u32),
    /// A transaction that is alone: numbers of one thread are put and removed, and the other tree is cleared.
    Alone {
        puts: Vec<u32>,
        removes: Vec<u32>,
        number: u64,
    },
    /// A reader looks a key up.
    Get(u32),
}

struct Threads {
    script: Script<Op>,
    /// The keys that are put first, with the value 0, and those of them that are removed again.
    start: Vec<u32>,
    removed: Vec<u32>,
    /// Whether the tree was cleared before that, and what it held is still to be freed.
    cleared: bool,
    leaves: Nodes,
}

struct State {
    pool: Pool,
    writers: Writers,
    tree: WbTree,
    other: WbTree,
    allocated: Allocated,
}

/// Keys that need the blocks of long separators too.
fn key(number: u32) -> Vec<u8> {
    let tail = if number.is_multiple_of(16) { "with something long behind" } else { "" };
    format!("key{number:05}{tail}").into_bytes()
}

fn number_of(key: &[u8]) -> Result<u32, String> {
    let digits = key.get(3..8).ok_or("a key that is too short")?;
    std::str::from_utf8(digits).map_err(text)?.parse().map_err(text)
}

fn value(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

impl InPool for State {
    fn open(pool: Pool) -> Result<State, String> {
        let writers = Writers::new(pool.lane().map_err(text)?);
        for _ in 1..=THREADS {
            assert!(writers.add().map_err(text)?, "the pool has lanes for all");
        }
        let tree = |name| match WbTree::open(&pool, name).map_err(text)? {
            Some(tree) => Ok::<WbTree, String>(tree),
            None => {
                let mut tx = writers.begin();
                let tree = WbTree::create(&mut tx, name).map_err(text)?;
                tx.commit().map_err(text)?;
                Ok(tree)
            }
        };
        let (tree, other) = (tree("tree")?, tree("other")?);
        Ok(State { pool, writers, tree, other, allocated: Allocated::default() })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn check(&self, marks: &mut Marks) -> Result<(), String> {
        self.tree.check(marks).map_err(text)?;
        self.other.check(marks).map_err(text)
    }
}

impl State {
    /// The value that a reader saw.
    fn perform(&self, op: &Op) -> Result<Option<u64>, String> {
        let tree = self.tree.concurrent(&self.writers);
        match op {
            Op::Put(number, value) => _ = tree.put(&key(*number), &[&value.to_le_bytes()]).map_err(text)?,
            Op::Insert(number, value) => {
                _ = tree.insert(&key(*number), &value.to_le_bytes()).map_err(text)?
            }
            Op::Remove(number) => _ = tree.remove(&key(*number)).map_err(text)?,
            Op::Count(number, _) => {
                let count = |old: Option<&[u8]>| Some((old.map_or(0, value) + 1).to_le_bytes());
                tree.modify(&key(*number), count).map_err(text)?;
            }
            Op::Alone { puts, removes, number } => {
                let mut tx = self.writers.begin();
                for i in puts {
                    self.tree.put(&mut tx, &key(*i), &[&number.to_le_bytes()]).map_err(text)?;
                    self.other.put(&mut tx, &key(*i), &[b"other"]).map_err(text)?;
                }
                for i in removes {
                    self.tree.remove(&mut tx, &key(*i)).map_err(text)?;
                }
                self.other.clear(&mut tx).map_err(text)?;
                tx.commit().map_err(text)?;
            }
            Op::Get(number) => {
                let found = self.tree.get_pinned(&key(*number)).map_err(text)?;
                return Ok(found.as_deref().map(value));
            }
        }
        Ok(None)
    }
}

impl Threads {
    fn new(name: &str, start: impl IntoIterator<Item = u32>, ops: Vec<Op>) -> Threads {
        let (script, leaves) = (Script::new(name, ops, vec![]), Nodes::of(LEAF_BYTES));
        Threads { script, start: start.into_iter().collect(), removed: vec![], cleared: false, leaves }
    }

    fn without(mut self, removed: impl IntoIterator<Item = u32>) -> Threads {
        self.removed = removed.into_iter().collect();
        self
    }

    fn run(&self, seed: u64, limit: usize) -> tembo_crashsim::Report {
        let simulation = Simulation::new(self).limit(limit).depth(0).audit(Audit::off()).seed(seed);
        simulation.run_shared().unwrap_or_else(|failure| panic!("{failure}"))
    }
}

impl Scenario for Threads {
    type State = State;
    type Op = Op;
    type Model = Model;

    scripted_in_a_pool!();

    fn setup(&self, region: Region) -> Result<State, String> {
        let mut state = State::create_in(region)?;
        if self.cleared {
            // More leaves than the start has records: each of them frees one.
            let mut tx = state.writers.begin();
            for i in 0..600 {
                state.tree.put(&mut tx, &key(i), &[&[7; 8]]).map_err(text)?;
            }
            state.tree.clear(&mut tx).map_err(text)?;
            tx.commit().map_err(text)?;
        }
        let mut tx = state.writers.begin();
        for i in &self.start {
            state.tree.put(&mut tx, &key(*i), &[&[0; 8]]).map_err(text)?;
        }
        for i in &self.removed {
            state.tree.remove(&mut tx, &key(*i)).map_err(text)?;
        }
        tx.commit().map_err(text)?;
        state.allocated = Allocated::now(&state.pool)?;
        Ok(state)
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        state.perform(op).map(drop)
    }

    fn initial(&self) -> Model {
        let mut model: Model = self.start.iter().map(|i| (*i, 0)).collect();
        self.removed.iter().for_each(|i| _ = model.remove(i));
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Put(number, value) => _ = model.insert(*number, *value),
            Op::Insert(number, value) => _ = model.entry(*number).or_insert(*value),
            Op::Remove(number) => _ = model.remove(number),
            Op::Count(number, _) => *model.entry(*number).or_insert(0) += 1,
            Op::Alone { puts, removes, number } => {
                puts.iter().for_each(|i| _ = model.insert(*i, *number));
                removes.iter().for_each(|i| _ = model.remove(i));
            }
            Op::Get(_) => {}
        }
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        let mut model = Model::new();
        let mut walk = state.tree.iter();
        while let Some((key, found)) = walk.advance().map_err(text)? {
            model.insert(number_of(key)?, value(found));
        }
        if state.tree.len().map_err(text)? != model.len() as u64 {
            return Err("the length is not the number of records".to_owned());
        }
        Ok(model)
    }
}

/// Whose number it is.
fn owner(number: u32) -> u32 {
    number / 2 % THREADS
}

impl SharedScenario for Threads {
    fn thread_of(&self, op: &Op) -> usize {
        let thread = match op {
            Op::Put(number, _) | Op::Insert(number, _) | Op::Remove(number) => owner(*number),
            Op::Count(_, thread) => *thread,
            Op::Alone { puts, .. } => owner(puts[0]),
            Op::Get(_) => THREADS,
        };
        thread as usize
    }

    fn apply_shared(&self, state: &State, op: &Op) -> Result<Vec<usize>, String> {
        let seen = state.perform(op)?;
        // In the middle of another thread's commit the pool cannot be counted.
        let _ = self.leaves.note(&state.allocated, &state.pool);
        Ok(seen.and_then(|number| (number as usize).checked_sub(1)).into_iter().collect())
    }
}

/// Even numbers in ascending order fill every leaf with 28, so that leaf `l` holds 56 `l` to 56 `l` + 54.
fn full_leaves(leaves: u32) -> impl Iterator<Item = u32> {
    (0..leaves * 28).map(|i| 2 * i)
}

/// Puts of numbers in turn, each by its owner, with readers behind them.
fn puts(numbers: &[u32]) -> Vec<Op> {
    let mut ops = Vec::new();
    for number in numbers {
        ops.push(Op::Put(*number, ops.len() as u64 + 1));
        ops.push(Op::Get(*number));
    }
    ops
}

/// Runs a scenario with several interleavings; in some, what has to happen to leaves happens.
fn run_all(scenario: impl Fn() -> Threads, grows: bool, shrinks: bool) {
    run_seeds(0..8, 16, scenario, grows, shrinks);
}

fn run_seeds(seeds: Range<u64>, limit: usize, scenario: impl Fn() -> Threads, grows: bool, shrinks: bool) {
    let (mut changes, mut images) = (Changes::default(), 0);
    for seed in seeds {
        let threads = scenario();
        images += threads.run(seed, limit).images;
        changes.add(&threads.leaves);
    }
    println!("{}: {images} images, {changes:?}", scenario().script.name);
    changes.assert(grows, shrinks);
}

#[test]
fn two_threads_in_one_leaf_survive_crashes() {
    run_all(|| Threads::new("one leaf", 0..12, puts(&[13, 15, 17, 4, 6, 19])), false, false);
    let counts = (0..12).map(|i| Op::Count(5 + i / 8, i % 2)).collect();
    run_all(|| Threads::new("one key", 0..12, Vec::clone(&counts)), false, false);
    run_all(|| Threads::new("the first leaf", [], puts(&[0, 2, 4, 6])), true, false);
    let empties =
        || vec![Op::Remove(0), Op::Remove(2), Op::Remove(4), Op::Put(6, 4), Op::Remove(6), Op::Put(8, 6)];
    run_all(|| Threads::new("the last record", [0, 2, 4], empties()), false, true);
}

#[test]
fn a_division_beside_other_changes_survives_crashes() {
    // Leaf 1 is divided by the first thread; the other one changes leaf 0, and what leaf 1 has become.
    let ops = || puts(&[57, 54, 59, 50, 61, 83, 85, 107]);
    run_all(|| Threads::new("a division", full_leaves(3), ops()), true, false);
    // Both divide it.
    let ops = || puts(&[57, 59, 85, 87, 103, 105]);
    run_all(|| Threads::new("divisions of one leaf", full_leaves(3), ops()), true, false);
    // The tree gets a root; and keys at its end, whose leaf stays as it is.
    let ops = || puts(&[13, 15, 57, 59, 61, 63]);
    run_all(|| Threads::new("divisions of the root", full_leaves(1), ops()), true, false);
    let ops = || puts(&[2353, 2355, 2357, 2359, 1, 3]);
    run_seeds(0..2, 4, || Threads::new("divisions of inner nodes", full_leaves(42), ops()), true, false);
}

/// Leaves 0 and 1 with few records, so that the next removal but one joins them, beside a full one.
fn about_to_join(ops: Vec<Op>) -> Threads {
    let removed = full_leaves(2).filter(|i| ![0, 2, 4, 6, 8, 10, 12, 14].contains(&(i % 56)));
    Threads::new("a join", full_leaves(3), ops).without(removed)
}

#[test]
fn a_join_beside_other_changes_survives_crashes() {
    let mut ops = Vec::new();
    for (remove, put) in [(0, 63), (4, 67), (8, 71), (12, 59), (56, 3), (60, 15)] {
        let number = ops.len() as u64 + 2;
        ops.extend([Op::Remove(remove), Op::Put(put, number), Op::Get(put)]);
    }
    run_all(|| about_to_join(ops.clone()), false, true);
    // Both remove, each in one of the two leaves.
    let ops = || [0, 58, 4, 62, 8, 66, 12, 70].map(Op::Remove).to_vec();
    run_all(|| about_to_join(ops()), false, true);
}

#[test]
fn transactions_that_are_alone_survive_crashes_beside_others() {
    let alone = |puts: &[u32], removes: &[u32], number| Op::Alone {
        puts: puts.to_vec(),
        removes: removes.to_vec(),
        number,
    };
    let ops = || {
        vec![
            alone(&[57, 61, 65], &[0, 4, 8], 1),
            Op::Put(59, 2),
            Op::Put(63, 3),
            alone(&[69, 1], &[12], 4),
            Op::Get(59),
            Op::Put(67, 6),
            Op::Count(16, 1),
            Op::Put(5, 8),
        ]
    };
    run_all(|| Threads::new("a transaction that is alone", full_leaves(3), ops()), true, false);
    let ops = || puts(&[57, 59, 61, 83, 85, 107]);
    let cleared = || Threads { cleared: true, ..Threads::new("something to free", 0..16, ops()) };
    run_seeds(0..2, 4, cleared, false, true);
}

fn random(seed: u64) -> Threads {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut threads = match seed % 4 {
        0 => about_to_join(vec![]),
        1 => Threads::new("", full_leaves(rng.random_range(0..4)), vec![]),
        2 => Threads::new("", 0..rng.random_range(0..60), vec![]),
        _ => Threads { cleared: true, ..Threads::new("", 0..rng.random_range(0..20), vec![]) },
    };
    threads.script.name = format!("random changes, seed {seed}");
    // Counted numbers are odd, others are even or large, so that the threads' changes commute.
    for _ in 0..14 {
        let number = threads.script.ops.len() as u64 + 1;
        let any = rng.random_range(0..120);
        let own = any / 4 * 4 + 2 * rng.random_range(0..2);
        threads.script.ops.push(match rng.random_range(0..12) {
            0..3 => Op::Put(own, number),
            3 => Op::Insert(own, number),
            4..8 => Op::Remove(own),
            8 => Op::Count(any | 1, rng.random_range(0..THREADS)),
            9 => Op::Put(1000 + own, number),
            10 => Op::Alone { puts: vec![own], removes: vec![own + 4, own + 8], number },
            _ => Op::Get(own),
        });
    }
    // The model cannot say which of two insertions was first, nor what a reader of a count has seen.
    threads
}

#[test]
fn campaign_of_random_threads() {
    let mut changes = Changes::default();
    survived(campaign(12_000, |seed| {
        let threads = random(seed);
        let simulation = Simulation::new(&threads).limit(12).depth(0).audit(Audit::off()).seed(seed);
        let report = simulation.run_shared()?;
        changes.add(&threads.leaves);
        Ok(report)
    }));
    changes.assert_in_campaign(true, true);
}

#[test]
fn bugs_seeded_into_threads_are_caught() {
    let threads = Threads::new("seeded bugs", full_leaves(2), puts(&[57, 59, 13, 15, 61, 63, 85, 87]));
    let wanted = [Mutation::DropFence, Mutation::ForeignFence];
    let simulation = Simulation::new(&threads).limit(48).depth(0).audit(Audit::off());
    let report = simulation.mutants_shared(&wanted).unwrap();
    println!("{report}");
    report.assert_some_caught(&wanted);
}
