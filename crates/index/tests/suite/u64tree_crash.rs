//! Crashes at every flush and fence of the tree of fixed-size keys: records, divisions, joins, several
//! threads.
//!
//! `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-index --test suite u64tree_crash` is the long
//! campaign.

use crate::crashes::nodes::{Allocated, Changes, Nodes};
use crate::crashes::{InPool, Script, scripted_in_a_pool, survived, text};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::ops::Range;
use tembo_crashsim::{
    Audit, Failure, Mutation, Report, Scenario, SharedScenario, Simulation, Target, campaign,
};
use tembo_index::U64Tree;
use tembo_pmem::Region;
use tembo_pool::{Marks, Pool};

type Model = BTreeMap<u64, u64>;

/// The bytes of a node in the pool.
const NODE_BYTES: u64 = 2048;

#[derive(Debug, Clone, Copy)]
enum Op {
    Put(u64, u64),
    Remove(u64),
    /// Replaces a value if it is this one.
    Swap(u64, u64, u64),
    Open,
    /// A reader looks a key up; values are the numbers of the operations that put them, from 1.
    Get(u64),
}

struct Records {
    script: Script<Op>,
    /// Keys that are there before, with the value 0, and those of them that are removed again.
    start: Vec<u64>,
    removed: Vec<u64>,
    nodes: Nodes,
}

struct State {
    pool: Pool,
    tree: Option<U64Tree>,
    allocated: Allocated,
}

impl InPool for State {
    fn open(pool: Pool) -> Result<State, String> {
        let tree = match U64Tree::open(&pool, "tree").map_err(text)? {
            Some(tree) => tree,
            None => U64Tree::create(&pool, "tree").map_err(text)?,
        };
        Ok(State { pool, tree: Some(tree), allocated: Allocated::default() })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn check(&self, marks: &mut Marks) -> Result<(), String> {
        self.tree().check(marks).map(drop).map_err(text)
    }
}

impl State {
    fn tree(&self) -> &U64Tree {
        self.tree.as_ref().expect("an open tree")
    }

    fn perform(&self, op: Op) -> Result<Option<u64>, String> {
        let tree = self.tree();
        match op {
            Op::Put(key, value) => tree.put(key, value),
            Op::Remove(key) => tree.remove(key),
            Op::Swap(key, expected, value) => tree.compare_and_swap(key, expected, value),
            Op::Get(key) => tree.get(key),
            Op::Open => Ok(None),
        }
        .map_err(text)
    }
}

impl Scenario for Records {
    type State = State;
    type Op = Op;
    type Model = Model;

    scripted_in_a_pool!();

    fn setup(&self, region: Region) -> Result<State, String> {
        let mut state = State::create_in(region)?;
        for key in &self.start {
            state.perform(Op::Put(*key, 0))?;
        }
        for key in &self.removed {
            state.perform(Op::Remove(*key))?;
        }
        state.allocated = Allocated::now(&state.pool)?;
        Ok(state)
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        if let Op::Open = op {
            // Everything that DRAM knows is forgotten.
            drop(state.tree.take());
            state.tree = U64Tree::open(&state.pool, "tree").map_err(text)?;
        }
        state.perform(*op)?;
        self.nodes.note(&state.allocated, &state.pool)
    }

    fn initial(&self) -> Model {
        let mut model: Model = self.start.iter().map(|key| (*key, 0)).collect();
        self.removed.iter().for_each(|key| _ = model.remove(key));
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match *op {
            Op::Put(key, value) => _ = model.insert(key, value),
            Op::Remove(key) => _ = model.remove(&key),
            Op::Swap(key, expected, value) => {
                model.entry(key).and_modify(|v| *v = if *v == expected { value } else { *v });
            }
            Op::Open | Op::Get(_) => {}
        }
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        let walked: Model = state.tree().iter().collect::<Result<_, _>>().map_err(text)?;
        for (key, value) in &walked {
            if state.tree().get(*key).map_err(text)? != Some(*value) {
                return Err(format!("key {key} is met by a walk and not by a lookup"));
            }
        }
        Ok(walked)
    }
}

/// A writer's numbers, and what a reader saw of them.
impl SharedScenario for Records {
    fn thread_of(&self, op: &Op) -> usize {
        match op {
            Op::Get(_) => 0,
            Op::Put(key, _) | Op::Remove(key) | Op::Swap(key, ..) => 1 + (key % 2) as usize,
            Op::Open => unreachable!("no thread opens the tree for another"),
        }
    }

    fn apply_shared(&self, state: &State, op: &Op) -> Result<Vec<usize>, String> {
        let seen = state.perform(*op)?;
        self.nodes.note(&state.allocated, &state.pool)?;
        match op {
            Op::Get(_) => Ok(seen.and_then(|value| (value as usize).checked_sub(1)).into_iter().collect()),
            _ => Ok(Vec::new()),
        }
    }
}

/// Divisions and joins leave home lines to later flushes; a record by itself leaves nothing.
fn audit(changes_structure: bool) -> Audit {
    if changes_structure {
        let late = Audit::strict().flushed_within(None).fenced_within(None);
        return late.allow_idle_flush(true).allow_idle_fence(true);
    }
    Audit::strict()
}

/// Runs a scenario that adds and joins this many nodes.
fn run(scenario: &Records, limit: usize, changes: (u64, u64)) {
    survived(Simulation::new(scenario).limit(limit).audit(audit(true)).run());
    assert_eq!(scenario.nodes.changes(), changes, "nodes added and joined by {:?}", scenario.script.name);
}

fn directed(name: &str, start: Vec<u64>, removed: Vec<u64>, ops: Vec<Op>) -> Records {
    let continuation = vec![Op::Put(5, 50), Op::Remove(10), Op::Put(u64::MAX, 1)];
    let (script, nodes) = (Script::new(name, ops, continuation), Nodes::of(NODE_BYTES));
    Records { script, start, removed, nodes }
}

/// A campaign of threads.
#[derive(Default)]
struct Threads {
    changes: Changes,
}

impl Threads {
    fn run(&mut self, seed: u64, records: Records) -> Result<Report, Box<Failure>> {
        let simulation = Simulation::new(&records).limit(16).depth(0).audit(Audit::off()).seed(seed);
        let report = simulation.run_shared()?;
        self.changes.add(&records.nodes);
        Ok(report)
    }

    /// That nodes were added, and joined, if that is asked for, unless the campaign was very short.
    fn assert_changed(&self, joining: bool) {
        self.changes.assert_in_campaign(true, joining);
    }
}

fn tens(count: u64) -> Vec<u64> {
    (0..count).map(|i| i * 10).collect()
}

#[test]
fn records_survive_crashes_and_leave_nothing_to_flush() {
    let ops = vec![
        Op::Put(15, 1),
        Op::Put(15, 2),
        Op::Swap(15, 2, 3),
        Op::Swap(15, 2, 4),
        Op::Remove(15),
        Op::Put(0, 1),
        Op::Put(u64::MAX, 7),
        Op::Put(u64::MAX, 8),
        Op::Remove(u64::MAX),
        Op::Put(u64::MAX, 0),
        Op::Put(u64::MAX - 1, 0),
        Op::Remove(0),
    ];
    let scenario = directed("records", tens(20), vec![], ops);
    survived(Simulation::new(&scenario).limit(4096).audit(audit(false)).run());
}

#[test]
fn divisions_survive_crashes() {
    // The root that is a leaf; leaves with neighbours, in the middle and at the end.
    run(
        &directed("division of the root", tens(124), vec![], vec![Op::Put(333, 1), Op::Put(334, 2)]),
        256,
        (2, 0),
    );
    let two = directed(
        "division of a leaf",
        tens(240),
        vec![],
        vec![Op::Put(1235, 1), Op::Put(1236, 2), Op::Put(9999, 3)],
    );
    run(&two, 256, (1, 0));
    let ops = vec![Op::Put(1239, 1), Op::Put(1249, 1), Op::Open, Op::Put(1259, 1)];
    run(&directed("ascending keys", tens(124), vec![], ops), 256, (2, 0));
}

#[test]
fn joins_survive_crashes() {
    // Ascending keys make leaves of 124. Every other record of the last but one is left, and of the last
    // just as many as a leaf may have alone: two removals later it is joined. With two leaves, the joined
    // one becomes the root; with a third, full leaf, another one is added then.
    for leaves in [2, 3] {
        let full = 124 * (leaves - 1);
        let removed = (full - 124..full).step_by(2).chain(full + 16..full + 124).map(|i| i * 10).collect();
        let mut ops: Vec<Op> = (0..4).map(|i| Op::Remove((full + 3 * i) * 10)).collect();
        ops.push(Op::Put(77, 1));
        let name = format!("a join, {leaves} leaves");
        run(&directed(&name, tens(full + 124), removed, ops), 96, (leaves - 2, 4 - leaves));
    }
    // A leaf that was divided holds dead copies of records, which a join must not revive.
    let start: Vec<u64> = (0..125).map(|i| i * 7 % 125 * 10).collect();
    let removed: Vec<u64> = (0..68).map(|i| i * 10).collect();
    let ops = vec![Op::Remove(680), Op::Remove(690), Op::Put(3, 3), Op::Remove(1190), Op::Put(1200, 9)];
    run(&directed("joins after a division", start, removed, ops), 96, (0, 2));
}

#[test]
fn inner_nodes_survive_crashes() {
    // One more leaf than an inner node has room for.
    let start: Vec<u64> = (0..124 * 124).map(|i| i * 2).collect();
    let middle = 124 * 124;
    let ops = vec![Op::Put(middle + 1, 1), Op::Put(middle + 3, 2), Op::Open, Op::Remove(middle)];
    let mut scenario = directed("division of an inner node", start, vec![], ops);
    scenario.script.bytes = 640 << 10;
    let simulation = Simulation::new(&scenario).limit(6).depth(0).audit(audit(true));
    survived(simulation.run());
    assert_eq!(scenario.nodes.changes(), (3, 0), "a leaf, an inner node, and a new root");
}

/// Three leaves: a full one, one that is half full, and one that is joined to that after two removals. Keys
/// are `11 * i`.
struct Uneven {
    start: Vec<u64>,
    removed: Vec<u64>,
    full: Range<u64>,
    sparse: Range<u64>,
}

fn uneven() -> Uneven {
    let (full, sparse) = (0..124, 248..264);
    let removed = (full.end..sparse.start).step_by(2).chain(sparse.end..372).map(|i| i * 11).collect();
    Uneven { start: (0..372).map(|i| i * 11).collect(), removed, full, sparse }
}

/// Operations on three uneven leaves.
fn random_changes(seed: u64) -> Records {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let Uneven { start, removed, full, sparse } = uneven();
    let ops = (1..11).map(|number| match rng.random_range(0..8) {
        0..2 => Op::Put(rng.random_range(full.clone()) * 11 + 5, number),
        2 => Op::Open,
        3 => Op::Remove(rng.random_range(0..sparse.end) * 11),
        4 => Op::Put(rng.random_range(0..sparse.end) * 11, number),
        _ => Op::Remove(rng.random_range(sparse.clone()) * 11),
    });
    directed(&format!("random changes of the structure, seed {seed}"), start, removed, ops.collect())
}

fn random(seed: u64) -> Records {
    if seed.is_multiple_of(8) {
        return random_changes(seed);
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let spread = rng.random_range(10..400);
    let count = [0, 100, 124, 200, 300][rng.random_range(0..5)];
    let mut key = {
        let mut rng = rng.clone();
        move || match rng.random_range(0..16) {
            0 => u64::MAX,
            1 => u64::MAX - 1,
            _ => rng.random_range(0..spread),
        }
    };
    let start: Vec<u64> = (0..count).map(|_| key()).collect();
    let removed: Vec<u64> = start.iter().copied().filter(|_| count > 150 && rng.random_bool(0.8)).collect();
    let mut op = |i: u64| match rng.random_range(0..12) {
        0..5 => Op::Put(key(), i + 1),
        5 => Op::Swap(key(), i, i + 1),
        6 => Op::Open,
        _ => Op::Remove(key()),
    };
    let ops = (0..10).map(&mut op).collect();
    let continuation = (10..13).map(&mut op).collect();
    let mut records = directed(&format!("random records, seed {seed}"), start, removed, ops);
    records.script.continuation = continuation;
    records
}

#[test]
fn campaign_of_random_operations() {
    let mut changes = Changes::default();
    survived(campaign(20_000, |seed| {
        let records = random(seed);
        let simulation = Simulation::new(&records).seed(seed).limit(48).nested_limit(6).depth(1);
        let report = simulation.audit(audit(true)).run()?;
        changes.add(&records.nodes);
        Ok(report)
    }));
    changes.assert_in_campaign(true, true);
}

#[test]
fn creation_survives_crashes() {
    let mut scenario = directed("creation", vec![], vec![], vec![Op::Put(1, 1)]);
    scenario.script.bytes = 128 << 10;
    survived(Simulation::new(&scenario).crash_setup(true).limit(256).audit(audit(true)).run());
}

#[test]
fn threads_that_write_at_once_survive_crashes_and_readers_saw_what_is_durable() {
    let mut threads = Threads::default();
    survived(campaign(6_000, |seed| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut ops = Vec::new();
        for _ in 0..12 {
            let key = 100 + rng.random_range(0..6);
            let number = ops.len() as u64 + 1;
            ops.push(match rng.random_range(0..6) {
                0..2 => Op::Get(key),
                2 => Op::Remove(key),
                _ => Op::Put(key, number),
            });
        }
        // Nearly full leaves, so that some of the insertions divide one.
        let start: Vec<u64> = (0..[60, 121, 122][seed as usize % 3]).map(|i| 1000 + i).collect();
        let records = directed(&format!("threads, seed {seed}"), start, vec![], ops);
        threads.run(seed, records)
    }));
    threads.assert_changed(false);
}

/// Insertions by two threads into full leaves below one node.
#[test]
fn threads_that_divide_leaves_beside_each_other_survive_crashes() {
    let mut threads = Threads::default();
    survived(campaign(2_000, |seed| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let leaves = rng.random_range(2..6);
        // Every leaf is full, so that the first insertion into it divides it.
        let ops = (1..12).map(|number| match rng.random_range(0..8) {
            0 => Op::Get(10 * rng.random_range(0..leaves * 124)),
            _ => Op::Put(10 * rng.random_range(0..leaves * 124) + rng.random_range(1..3), number),
        });
        let name = format!("threads that divide leaves, seed {seed}");
        let records = directed(&name, tens(leaves * 124), vec![], ops.collect());
        threads.run(seed, records)
    }));
    threads.assert_changed(false);
}

/// Removals by two threads that join leaves, and insertions that divide others, while a reader looks.
#[test]
fn threads_that_join_and_divide_leaves_survive_crashes() {
    let mut threads = Threads::default();
    survived(campaign(4_000, |seed| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        // The rest of two leaves after the division of 125 records, of which the lower or the upper is
        // about to be sparse; or three leaves of which one is divided.
        let (start, removed, filled, sparse) = if seed.is_multiple_of(2) {
            let Uneven { start, removed, full, sparse } = uneven();
            (start, removed, full, sparse)
        } else {
            let gone = if seed % 4 == 1 { 0..47 } else { 66..113 };
            let start = (0..125).map(|i| i * 7 % 125 * 11).collect();
            (start, gone.clone().map(|i| i * 11).collect(), gone.clone(), gone.end..gone.end + 6)
        };
        let mut ops = Vec::new();
        for _ in 0..14 {
            let number = ops.len() as u64 + 1;
            // Keys that the other leaf has too, so that writers and readers follow records that move.
            let key = rng.random_range(0..sparse.end) * 11 + rng.random_range(0..2);
            ops.push(match rng.random_range(0..8) {
                0..2 => Op::Get(key),
                2 => Op::Put(key, number),
                3 => Op::Put(rng.random_range(filled.start * 11 + 1..filled.end * 11), number),
                _ => Op::Remove(rng.random_range(sparse.clone()) * 11),
            });
        }
        let records = directed(&format!("threads that join, seed {seed}"), start, removed, ops);
        threads.run(seed, records)
    }));
    threads.assert_changed(true);
}

#[test]
fn seeded_bugs_are_caught() {
    let ops =
        vec![Op::Put(15, 1), Op::Put(15, 2), Op::Remove(20), Op::Put(u64::MAX, 3), Op::Remove(u64::MAX)];
    let scenario = directed("seeded bugs", tens(20), vec![], ops);
    let simulation = Simulation::new(&scenario).limit(64).depth(0).continue_ops(1).audit(audit(false));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mutants = simulation.mutants(Target::Operations, &Mutation::ALL);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    // Every flush is of one line, so that there is none to shorten; and what one line holds must arrive in
    // order and whole.
    let mutations = Mutation::ALWAYS_HARMFUL.iter().filter(|m| **m != Mutation::ShortenFlush).copied();
    report
        .assert_all_caught(&mutations.chain([Mutation::SwapStores, Mutation::TearStore]).collect::<Vec<_>>());
}

#[test]
fn seeded_bugs_of_a_division_are_caught() {
    // The next operations overwrite the division's record, after which its home words count.
    let ops = vec![Op::Put(333, 1), Op::Put(700, 2), Op::Put(1249, 3), Op::Put(5000, 4)];
    let scenario = directed("seeded bugs of a division", tens(124), vec![], ops);
    let simulation = Simulation::new(&scenario).limit(48).depth(0).continue_ops(1).audit(audit(true));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let classes: Vec<Mutation> = Mutation::ALWAYS_HARMFUL.into_iter().chain([Mutation::HoistStore]).collect();
    let mutants = simulation.mutants(Target::Operations, &classes);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_all_caught(&Mutation::ALWAYS_HARMFUL);
    report.assert_some_caught(&[Mutation::HoistStore]);
}

#[test]
fn seeded_bugs_of_joins_are_caught() {
    // Six leaves with as many records as a leaf may have alone. After two removals in one it is joined;
    // what follows kills the record of that.
    let per_leaf = 16;
    let removed = (0..6 * 124).filter(|i| i % 124 >= per_leaf).map(|i| i * 10).collect();
    let in_leaf = |leaf: u64| (0..2).map(move |i| Op::Remove((124 * leaf + 3 + i) * 10));
    let ops: Vec<Op> = [1, 3, 5].into_iter().flat_map(in_leaf).collect();
    let scenario = directed("seeded bugs of joins", tens(6 * 124), removed, ops);
    let simulation = Simulation::new(&scenario).limit(48).depth(0).continue_ops(1).audit(audit(true));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(scenario.nodes.changes(), (0, 3), "nodes added and joined");
    let classes: Vec<Mutation> = Mutation::ALWAYS_HARMFUL.into_iter().chain([Mutation::HoistStore]).collect();
    let mutants = simulation.mutants(Target::Operations, &classes);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    // Some are harmless: the flush and fence of a removal whose leaf is joined before the operation ends,
    // those of transactions after a join, which change nothing that is read, and those of the last join,
    // whose record nothing kills.
    for class in Mutation::ALWAYS_HARMFUL {
        let caught = report.of(class).filter(|mutant| mutant.caught_by.is_some()).count();
        assert!(2 * caught > report.of(class).count(), "{class:?}: {caught} caught\n{report}");
    }
    report.assert_some_caught(&[Mutation::HoistStore]);
}
