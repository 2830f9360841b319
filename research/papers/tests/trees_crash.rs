//! Crashes at every flush and fence of every persistent tree, and of what recovers from them.
//!
//! The directed scenarios find in a sequence of operations the first one of each kind, told by how many nodes
//! and levels it changes, and crash that. The campaign does operations at random on a tree that the seed
//! chooses: `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-bench --test trees_crash campaign` is the
//! long one.

mod common;

use common::{Index, create, open};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, HashMap, HashSet};
use tembo_bench::trees::{Config, Family, Solution, all};
use tembo_crashsim::{Audit, MutantOutcome, Mutation, Scenario, Simulation, Target, campaign};
use tembo_pmem::Region;

type Model = BTreeMap<u64, u64>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Insert(u64, u64),
    Update(u64, u64),
    Remove(u64),
}

impl Op {
    fn perform(self, tree: &mut dyn Index) -> Result<(), String> {
        let done = match self {
            Op::Insert(key, value) => tree.insert(key, value).map(drop),
            Op::Update(key, value) => tree.update(key, value).map(drop),
            Op::Remove(key) => tree.remove(key).map(drop),
        };
        done.map_err(|e| e.to_string())
    }

    fn model(self, model: &mut Model) {
        match self {
            Op::Insert(key, value) => _ = model.entry(key).or_insert(value),
            Op::Update(key, value) => _ = model.entry(key).and_modify(|v| *v = value),
            Op::Remove(key) => _ = model.remove(&key),
        }
    }
}

#[derive(Debug, Clone)]
struct Crash {
    name: String,
    solution: &'static Solution,
    config: Config,
    is_text: bool,
    start: Vec<Op>,
    /// Whether the tree is opened anew after that, so that its home locations are durable and its log is
    /// empty.
    is_reopened: bool,
    ops: Vec<Op>,
    continuation: Vec<Op>,
}

const REGION_BYTES: u64 = 64 << 10;

fn config(node_lines: u64) -> Config {
    Config { node_lines, log_bytes: Some(16 << 10) }
}

fn persistent() -> impl Iterator<Item = &'static Solution> {
    all().iter().filter(|solution| solution.is_persistent())
}

impl Scenario for Crash {
    type State = Box<dyn Index>;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        format!("{}, {}", self.solution.name, self.name)
    }

    fn region_bytes(&self) -> u64 {
        if self.config.node_lines > 4 { 2 * REGION_BYTES } else { REGION_BYTES }
    }

    fn setup(&self, region: Region) -> Result<Self::State, String> {
        let mut tree = create(self.solution, region, self.config, self.is_text).map_err(|e| e.to_string())?;
        self.start.iter().try_for_each(|op| op.perform(&mut *tree))?;
        if self.is_reopened { self.recover(tree.into_region()) } else { Ok(tree) }
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn recover(&self, region: Region) -> Result<Self::State, String> {
        open(self.solution, region, self.config, self.is_text).map_err(|e| e.to_string())
    }

    fn region<'s>(&self, state: &'s Self::State) -> &'s Region {
        state.mem().region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn continuation(&self) -> &[Op] {
        &self.continuation
    }

    fn apply(&self, state: &mut Self::State, op: &Op) -> Result<(), String> {
        op.perform(&mut **state)
    }

    fn initial(&self) -> Model {
        let mut model = Model::new();
        self.start.iter().for_each(|op| op.model(&mut model));
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        op.model(model);
    }

    fn observe(&self, state: &Self::State) -> Result<Model, String> {
        Ok(state.entries().into_iter().collect())
    }

    fn check(&self, state: &Self::State) -> Result<(), String> {
        state.check().map(drop)
    }
}

/// wB+-Trees flush all that they store and fence all but the emptying of the log, which the next operation's
/// fence covers. The others leave home locations to the log.
fn audit(solution: &Solution) -> Audit {
    match solution.family {
        Family::Atomic => Audit::strict().fenced_within(Some(1)),
        _ => Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true),
    }
}

/// Sequences that between them make every change of structure: a new entry in the left and in the right half
/// of a split node, leaves emptied at each position of their parents.
fn sequences() -> Vec<(&'static str, Vec<Op>)> {
    let count = 130;
    let inserts =
        |keys: &mut dyn Iterator<Item = u64>| keys.map(|k| Op::Insert(k, k + 1)).collect::<Vec<_>>();
    let removes = |keys: &mut dyn Iterator<Item = u64>| keys.map(Op::Remove).collect::<Vec<_>>();
    let scattered = |i: u64| i * 37 % 131;
    vec![
        ("ascending", [inserts(&mut (0..count)), removes(&mut (0..count))].concat()),
        ("descending", [inserts(&mut (0..count).rev()), removes(&mut (0..count).rev())].concat()),
        (
            "scattered",
            [inserts(&mut (0..count).map(scattered)), removes(&mut (0..count).map(scattered))].concat(),
        ),
    ]
}

/// Changes of structure in `ops`, the first of each kind: its index, and what changed.
fn edges(solution: &Solution, config: Config, is_text: bool, ops: &[Op]) -> Vec<(usize, String)> {
    let region = Region::simulated(&vec![0; REGION_BYTES as usize], REGION_BYTES, None).unwrap();
    let mut tree = create(solution, region, config, is_text).unwrap();
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    let shape = |tree: &dyn Index| (tree.check().unwrap().nodes.len() as i64, tree.levels() as i64);
    let mut before = shape(&*tree);
    for (i, op) in ops.iter().enumerate() {
        op.perform(&mut *tree).unwrap();
        let after = shape(&*tree);
        let change = (after.0 - before.0, after.1 - before.1);
        let is_insertion = matches!(op, Op::Insert(..));
        if seen.insert((is_insertion, change)) {
            found.push((i, format!("{op:?}: {:+} nodes, {:+} levels", change.0, change.1)));
        }
        before = after;
    }
    assert!(seen.contains(&(true, (1, 0))) && seen.contains(&(true, (2, 1))), "splits: {seen:?}");
    assert!(seen.iter().any(|(_, (nodes, levels))| *nodes >= 3 && *levels == 1), "inner splits: {seen:?}");
    assert!(seen.contains(&(false, (-1, 0))), "removed leaves: {seen:?}");
    assert!(seen.iter().any(|(_, (nodes, levels))| *nodes < -1 && *levels < 0), "fewer levels: {seen:?}");
    found
}

/// Crashes the first operation of each kind.
fn simulate_edges(solution: &'static Solution, lines: u64, is_text: bool, limit: usize) -> u64 {
    let mut images = 0;
    for (name, ops) in sequences() {
        for (at, what) in edges(solution, config(lines), is_text, &ops) {
            let scenario = Crash {
                name: format!("{name}, {what}"),
                solution,
                config: config(lines),
                is_text,
                start: ops[..at].to_vec(),
                is_reopened: false,
                ops: vec![ops[at]],
                continuation: vec![ops[at], Op::Insert(500, 1), Op::Remove(500)],
            };
            let report = Simulation::new(&scenario).limit(limit).audit(audit(solution)).run();
            images += report.unwrap_or_else(|failure| panic!("{failure}")).images;
        }
    }
    images
}

#[test]
fn every_kind_of_change_survives_crashes() {
    for solution in persistent() {
        let images = simulate_edges(solution, 2, false, 8);
        println!("{}: {images} images", solution.name);
    }
}

#[test]
fn every_kind_of_change_of_byte_strings_survives_crashes() {
    for solution in persistent() {
        let images = simulate_edges(solution, 2, true, 4);
        println!("{}: {images} images", solution.name);
    }
}

/// Operations in one leaf, so that what one crash left there is met by the operations after it.
fn in_one_leaf(solution: &'static Solution, lines: u64, is_text: bool) -> Crash {
    Crash {
        name: format!("in one leaf of {lines} lines"),
        solution,
        config: config(lines),
        is_text,
        start: (0..4).map(|i| Op::Insert(10 * i, i)).collect(),
        is_reopened: false,
        ops: vec![
            Op::Insert(15, 1),
            Op::Remove(0),
            Op::Update(20, 7),
            Op::Insert(5, 2),
            Op::Remove(30),
            Op::Update(30, 7),
        ],
        continuation: vec![Op::Insert(12, 9), Op::Remove(15), Op::Insert(0, 3)],
    }
}

#[test]
fn operations_in_a_leaf_survive_crashes() {
    for solution in persistent() {
        for lines in [2, 8] {
            let scenario = in_one_leaf(solution, lines, lines == 8);
            let report = Simulation::new(&scenario).limit(64).continue_ops(3).audit(audit(solution)).run();
            println!("{}: {}", solution.name, report.unwrap_or_else(|failure| panic!("{failure}")));
        }
    }
}

#[test]
fn creation_survives_crashes() {
    for solution in persistent() {
        let scenario =
            Crash { start: Vec::new(), name: "creation".to_owned(), ..in_one_leaf(solution, 2, false) };
        let simulation = Simulation::new(&scenario).crash_setup(true).limit(64).depth(1);
        simulation.audit(audit(solution)).run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The log's area is used up in the middle of the operations: home locations are flushed and the log is
/// emptied.
#[test]
fn emptying_the_log_survives_crashes() {
    for solution in persistent().filter(|s| s.family != Family::Atomic) {
        let changes = |n: u64| (0..n).map(|i| if i % 2 == 0 { Op::Insert(3, i) } else { Op::Remove(3) });
        let region = || Region::simulated(&vec![0; REGION_BYTES as usize], REGION_BYTES, None).unwrap();
        let mut tree = create(solution, region(), config(2), false).unwrap();
        let epoch = |tree: &dyn Index| tree.mem().region().load_u64(24).unwrap();
        let first = epoch(&*tree);
        let fits = changes(5000).take_while(|op| {
            op.perform(&mut *tree).unwrap();
            epoch(&*tree) == first
        });
        let at = fits.count() as u64;
        assert!(at > 50, "{}: the log is emptied after {at} operations", solution.name);
        let all: Vec<Op> = changes(at + 3).collect();
        let (start, ops) = all.split_at(at as usize - 1);
        let scenario = Crash {
            name: "emptying the log".to_owned(),
            start: start.to_vec(),
            ops: ops.to_vec(),
            ..in_one_leaf(solution, 2, false)
        };
        let simulation =
            Simulation::new(&scenario).limit(32).depth(1).audit(audit(solution).allow_idle_fence(true));
        simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The epoch of the log starts again after its largest value, in the middle of the operations.
#[test]
fn the_end_of_epochs_survives_crashes() {
    for solution in persistent().filter(|s| s.family == Family::Atomic) {
        let scenario = EpochsEnd(Crash {
            name: "the last epoch".to_owned(),
            start: (0..6).map(|i| Op::Insert(10 * i, i)).collect(),
            ops: (0..8).map(|i| Op::Insert(10 * i + 5, i)).collect(),
            ..in_one_leaf(solution, 2, false)
        });
        let simulation =
            Simulation::new(&scenario).limit(32).depth(1).audit(audit(solution).allow_idle_flush(true));
        simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A tree that is opened with the last epoch but one.
struct EpochsEnd(Crash);

impl Scenario for EpochsEnd {
    type State = Box<dyn Index>;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        self.0.name()
    }
    fn region_bytes(&self) -> u64 {
        REGION_BYTES
    }
    fn setup(&self, region: Region) -> Result<Self::State, String> {
        let tree = create(self.0.solution, region, self.0.config, false).map_err(|e| e.to_string())?;
        let region = tree.into_region();
        region.store_u64(24, (1 << 25) - 3).map_err(|e| e.to_string())?;
        region.persist(24, 8).map_err(|e| e.to_string())?;
        let mut tree = open(self.0.solution, region, self.0.config, false).map_err(|e| e.to_string())?;
        self.0.start.iter().try_for_each(|op| op.perform(&mut *tree))?;
        Ok(tree)
    }
    fn recover(&self, region: Region) -> Result<Self::State, String> {
        self.0.recover(region)
    }
    fn region<'s>(&self, state: &'s Self::State) -> &'s Region {
        self.0.region(state)
    }
    fn ops(&self) -> &[Op] {
        &self.0.ops
    }
    fn continuation(&self) -> &[Op] {
        &self.0.continuation
    }
    fn apply(&self, state: &mut Self::State, op: &Op) -> Result<(), String> {
        self.0.apply(state, op)
    }
    fn initial(&self) -> Model {
        self.0.initial()
    }
    fn apply_model(&self, model: &mut Model, op: &Op) {
        self.0.apply_model(model, op);
    }
    fn observe(&self, state: &Self::State) -> Result<Model, String> {
        self.0.observe(state)
    }
    fn check(&self, state: &Self::State) -> Result<(), String> {
        self.0.check(state)
    }
}

impl Crash {
    /// A tree and operations that a seed chooses.
    fn random(seed: u64) -> Crash {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let solutions: Vec<_> = persistent().collect();
        let solution = solutions[seed as usize % solutions.len()];
        let lines = [2, 2, 3, 4, 8][rng.random_range(0..5)];
        let lines = if solution.supports(2) && !solution.supports(3) { 2 } else { lines };
        let range = [12, 40, 150][rng.random_range(0..3)];
        let inclination = rng.random_range(0.2..0.8);
        let mut ops = |count: usize, inclination: f64| -> Vec<Op> {
            let mut op = || {
                let (key, value) = (rng.random_range(0..range), rng.random_range(0..1000));
                match rng.random_range(0..10) {
                    0 => Op::Update(key, value),
                    _ if rng.random_bool(inclination) => Op::Insert(key, value),
                    _ => Op::Remove(key),
                }
            };
            (0..count).map(|_| op()).collect()
        };
        Crash {
            name: format!("random operations, seed {seed}"),
            solution,
            config: Config { node_lines: lines, log_bytes: Some(if lines > 4 { 48 } else { 20 } << 10) },
            is_text: seed % 4 == 3,
            start: ops(range as usize * 2, inclination),
            is_reopened: false,
            ops: ops(8, 0.5),
            continuation: ops(3, 0.5),
        }
    }
}

#[test]
fn campaign_of_random_operations() {
    let report = campaign(40_000, |seed| {
        let tree = Crash::random(seed);
        // An operation that changes nothing fences nothing, and so does not cover what the one before left to
        // it.
        let audit = audit(tree.solution).fenced_within(None).allow_idle_fence(true);
        Simulation::new(&tree).seed(seed).limit(10).nested_limit(6).depth(1).audit(audit).run()
    });
    println!("{}", report.unwrap_or_else(|failure| panic!("{failure}")));
}

/// Tries the mutants of some operations; those of the classes that always hurt must be caught, but for those
/// that `excuse` knows a reason for.
fn assert_mutants_caught(scenario: &Crash, excuse: impl Fn(&MutantOutcome) -> Option<&'static str>) {
    let simulation =
        Simulation::new(scenario).limit(48).depth(0).continue_ops(1).audit(audit(scenario.solution));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let report = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{}: {report}", Scenario::name(scenario));
    // Where no range of several lines is flushed, none can be shortened.
    let has_place = |mutation: &Mutation| report.of(*mutation).next().is_some();
    let classes: Vec<_> = Mutation::ALWAYS_HARMFUL.into_iter().filter(has_place).collect();
    assert!(classes.len() >= Mutation::ALWAYS_HARMFUL.len() - 1, "{report}");
    report.assert_all_caught_but(&classes, excuse);
}

/// The flush or fence of the mutant is not needed, since what it is for shares a line with what comes after:
/// stores of a line reach media in program order.
fn is_of_line(outcome: &MutantOutcome, line: &str) -> bool {
    matches!(outcome.mutation, Mutation::DropFlush | Mutation::DelayFlush) && outcome.what.contains(line)
}

/// Slots of more than 55 entries reach into a second line; with fewer, slots and bitmap share a line, and of
/// the three fences of the paper's algorithm one would do for a deletion and two for an insertion.
#[test]
fn seeded_bugs_of_changes_in_leaves_are_caught() {
    for solution in persistent().filter(|s| s.family == Family::Atomic) {
        let (lines, count) = if solution.supports(16) { (16, 57) } else { (2, 5) };
        let scenario = Crash {
            name: "seeded bugs in a leaf".to_owned(),
            start: (0..count).map(|i| Op::Insert(10 * i + 5, i)).collect(),
            ops: vec![Op::Insert(1, 1), Op::Remove(1), Op::Update(25, 7), Op::Insert(12, 3), Op::Remove(15)],
            continuation: vec![Op::Insert(3, 3), Op::Remove(25)],
            ..in_one_leaf(solution, lines, false)
        };
        assert_mutants_caught(&scenario, |outcome| {
            // The first node is behind the log: line 0x101.
            let is_slots = solution.name == "wbtree" && is_of_line(outcome, "flush of line 0x101 ");
            is_slots.then_some("the slots in the first line become durable with the bitmap behind them")
        });
    }
}

#[test]
fn seeded_bugs_of_changes_of_structure_are_caught() {
    for solution in persistent().filter(|s| s.family == Family::Atomic) {
        for (name, ops) in sequences() {
            for (at, what) in edges(solution, config(2), false, &ops) {
                if what.contains(" +0 nodes") {
                    continue;
                }
                let scenario = Crash {
                    name: format!("seeded bugs, {name}, {what}"),
                    start: ops[..at].to_vec(),
                    ops: vec![ops[at]],
                    continuation: vec![ops[at], Op::Insert(500, 1)],
                    ..in_one_leaf(solution, 2, false)
                };
                assert_mutants_caught(&scenario, |outcome| {
                    if is_of_line(outcome, "flush of line 0x0 ") {
                        return Some(
                            "the root word is in the line of the epoch, which is stored and flushed after it",
                        );
                    }
                    let is_root_alone = outcome.mutation == Mutation::DropFence && what.contains(", -");
                    is_root_alone.then_some(
                        "the root word and the first leaf's, all that changes, are in the epoch's line",
                    )
                });
            }
        }
    }
}

/// Mutants of a class, and how many of them were caught.
type Caught = HashMap<Mutation, (usize, usize)>;

fn count_caught(
    counts: &mut Caught,
    simulation: Simulation<'_, Crash>,
    target: Target,
    classes: &[Mutation],
) {
    let report = simulation.mutants(target, classes).unwrap_or_else(|failure| panic!("{failure}"));
    for outcome in report.outcomes {
        let (all, caught) = counts.entry(outcome.mutation).or_default();
        *all += 1;
        *caught += usize::from(outcome.caught_by.is_some());
    }
}

/// An operation in a leaf, and the first change of structure of each kind, of a tree whose home locations are
/// durable and whose log is empty before: so what reaches media is little enough for all of it to be tried.
fn from_a_clean_start(solution: &'static Solution) -> Vec<Crash> {
    let lines = if solution.supports(4) { 4 } else { 2 };
    let (name, ops) = sequences().swap_remove(2);
    let edges = edges(solution, config(2), false, &ops);
    let changes = edges.into_iter().filter(|(_, what)| !what.contains(" +0 nodes")).map(|(at, what)| Crash {
        name: format!("{name}, {what}"),
        start: ops[..at].to_vec(),
        is_reopened: true,
        ops: vec![ops[at]],
        continuation: vec![ops[at], Op::Insert(500, 1)],
        ..in_one_leaf(solution, 2, false)
    });
    let in_a_leaf = Crash {
        name: "in a leaf".to_owned(),
        start: (0..4).map(|i| Op::Insert(10 * i + 5, i)).collect(),
        is_reopened: true,
        ops: vec![Op::Insert(1, 1), Op::Remove(1), Op::Update(25, 7), Op::Insert(12, 3), Op::Remove(15)],
        continuation: vec![Op::Insert(3, 3), Op::Remove(25)],
        ..in_one_leaf(solution, lines, false)
    };
    std::iter::once(in_a_leaf).chain(changes).collect()
}

/// Without the audit, which sees in the trace what is not flushed or fenced: crashes alone show that
/// something is lost. Trees that log or shadow fence and flush some of what they do in vain, as the paper has
/// it: entries are shifted to places that are not in use yet, and the lines of a log hold several records. So
/// not every instance hurts.
#[test]
fn crashes_alone_show_seeded_bugs_of_every_class_in_every_tree() {
    let mut classes = Mutation::ALWAYS_HARMFUL.to_vec();
    classes.push(Mutation::HoistStore);
    for solution in persistent() {
        let mut counts = Caught::new();
        for scenario in from_a_clean_start(solution) {
            let simulation = Simulation::new(&scenario).limit(200).depth(0).continue_ops(1);
            count_caught(&mut counts, simulation.audit(Audit::off()), Target::Operations, &classes);
        }
        println!("{}: mutants and those caught: {counts:?}", solution.name);
        for class in &classes {
            let (all, caught) = counts.get(class).copied().unwrap_or_default();
            assert!(all > 5 && 3 * caught > all, "{}, {class:?}: {caught} of {all}", solution.name);
        }
    }
}

#[test]
fn seeded_bugs_of_recovery_are_caught_in_every_tree() {
    let classes = [Mutation::DropFlush, Mutation::ShiftFlush, Mutation::DropFence, Mutation::ForeignFence];
    for solution in persistent() {
        let mut counts = Caught::new();
        for scenario in from_a_clean_start(solution) {
            let simulation =
                Simulation::new(&scenario).limit(24).nested_limit(48).nested_percent(400).continue_ops(1);
            count_caught(&mut counts, simulation.audit(Audit::off()), Target::Recovery, &classes);
        }
        println!("{}: mutants of recovery and those caught: {counts:?}", solution.name);
        for class in classes {
            let (all, caught) = counts.get(&class).copied().unwrap_or_default();
            assert!(caught > 0, "{}, {class:?}: {caught} of {all}", solution.name);
        }
    }
}
