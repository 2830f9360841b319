//! Crashes at every flush and fence of a heap: each kind of change, deaths in parts, orphans, recovery
//! itself, and writing after it.
//!
//! `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-heap --test suite crash::campaign` is the long
//! campaign.

mod damage;
mod power;

use crate::support::ops::{NewShape, perform};
use crate::support::{Base, Look, Model, Node, Op, Place, Random, Store, text};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tembo_crashsim::{
    Audit, Failure, Mutation, Report, Scenario, SharedScenario, Simulation, Target, campaign,
};
use tembo_heap::{HeapCompaction, HeapStep, NamedBrand, brand};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

brand!(pub(crate) Tested);

/// One heap with the brand is open at a time; with a brand for each test there would be as much code of each.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Operations on the graph. Only one heap with the brand is open at a time, so that one worker tries the
/// images.
struct Graph<B> {
    name: String,
    start: Vec<Op>,
    ops: Vec<Op>,
    continuation: Vec<Op>,
    bytes: u64,
    brand: PhantomData<fn() -> B>,
}

impl<B: NamedBrand> Graph<B> {
    fn new(name: impl Into<String>, start: Vec<Op>, ops: Vec<Op>) -> Graph<B> {
        let continuation = vec![
            Op::New { at: Place::Slot(0), id: 900_001, push: true },
            Op::Unlink { at: Place::Slot(1) },
            Op::Collect,
        ];
        Graph { name: name.into(), start, ops, continuation, bytes: 256 << 10, brand: PhantomData }
    }

    fn simulation(&self) -> Simulation<'_, Self> {
        Simulation::new(self).audit(audit()).workers(1).continue_ops(3)
    }

    fn survives(&self, limit: usize) {
        survived(self.simulation().limit(limit).run());
    }
}

/// Home lines are flushed by later commits, and several lanes checkpoint each other's; objects that die in
/// the transaction that made them leave lines that are never flushed.
fn audit() -> Audit {
    let late = Audit::strict().flushed_within(None).fenced_within(None);
    late.allow_idle_flush(true).allow_idle_fence(true)
}

fn survived(outcome: Result<Report, Box<Failure>>) {
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

impl<B: NamedBrand> Scenario for Graph<B> {
    type State = Store<B>;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn region_bytes(&self) -> u64 {
        self.bytes
    }

    fn setup(&self, region: Region) -> Result<Store<B>, String> {
        let mut store = Store::open(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)?;
        self.start.iter().try_for_each(|op| store.apply(op))?;
        Ok(store)
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn recover(&self, region: Region) -> Result<Store<B>, String> {
        Store::open(Pool::open_in(region).map_err(text)?)
    }

    fn region<'s>(&self, state: &'s Store<B>) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn continuation(&self) -> &[Op] {
        &self.continuation
    }

    fn apply(&self, state: &mut Store<B>, op: &Op) -> Result<(), String> {
        state.apply(op)
    }

    fn initial(&self) -> Model {
        let mut model = Model::default();
        self.start.iter().for_each(|op| model.apply(op));
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        model.apply(op);
    }

    fn between(&self, before: &Model, op: &Op) -> Vec<Model> {
        let Op::Detour { at, .. } = op else { return Vec::new() };
        let mut between = before.clone();
        between.apply(&Op::Unlink { at: *at });
        vec![between]
    }

    fn observe(&self, state: &Store<B>) -> Result<Model, String> {
        state.observe()
    }

    fn check(&self, state: &Store<B>) -> Result<(), String> {
        state.check().map(drop)
    }
}

fn slot(slot: usize) -> Place {
    Place::Slot(slot)
}

fn at(slot: usize, depth: usize) -> Base {
    Base::Nth { slot, depth }
}

fn chain(to: usize, id: u64, count: u64) -> Op {
    Op::Chain { at: slot(to), id, count }
}

#[test]
fn pointers_survive_crashes() {
    let _turn = turn();
    let ops = vec![
        Op::New { at: slot(0), id: 1, push: false },
        Op::New { at: slot(0), id: 2, push: true },
        Op::Link { at: slot(1), to: Place::Next(at(0, 0)) },
        Op::Link { at: Place::Other(at(0, 0)), to: slot(1) },
        Op::Value { base: at(1, 0), value: 5 },
        Op::New { at: Place::Next(at(0, 0)), id: 3, push: true },
        Op::Link { at: slot(1), to: slot(0) },
        Op::Unlink { at: slot(0) },
        Op::Second(Box::new(Op::Unlink { at: slot(1) })),
        Op::Collect,
    ];
    Graph::<Tested>::new("pointers", vec![], ops).survives(1024);
}

#[test]
fn weak_pointers_and_shells_survive_crashes() {
    let _turn = turn();
    let ops = vec![
        chain(0, 1, 3),
        Op::Look { at: Look::Root(0), to: slot(0) },
        Op::Look { at: Look::Root(1), to: Place::Next(at(0, 0)) },
        Op::Unlink { at: slot(0) },
        Op::Collect,
        Op::Unlook { at: Look::Root(0) },
        chain(0, 10, 2),
        Op::Look { at: Look::Root(1), to: slot(0) },
        Op::Unlink { at: slot(0) },
        Op::Unlook { at: Look::Root(1) },
        Op::Follow { at: slot(0), look: Look::Root(1) },
    ];
    Graph::<Tested>::new("weak pointers", vec![], ops).survives(512);
}

#[test]
fn long_chains_die_in_parts() {
    let _turn = turn();
    let start = vec![chain(0, 1, 120), Op::Look { at: Look::Root(0), to: Place::Next(at(0, 60)) }];
    // The two sessions each leave a list of dying objects, and go on with it with every commit.
    let ops = vec![
        Op::Unlink { at: slot(0) },
        chain(1, 200, 55),
        Op::Second(Box::new(Op::Unlink { at: slot(1) })),
        Op::Second(Box::new(Op::Value { base: Base::Root, value: 1 })),
        Op::Collect,
    ];
    Graph::<Tested>::new("long chains", start, ops).survives(48);
}

#[test]
fn arrays_die_in_parts() {
    let _turn = turn();
    let start = vec![
        Op::List { base: Base::Root, id: 1, len: 150, fill: true },
        Op::Link { at: slot(0), to: Place::Element(Base::Root, 140) },
        Op::Look { at: Look::Root(0), to: Place::Element(Base::Root, 3) },
    ];
    let ops = vec![
        Op::DropList { base: Base::Root },
        Op::List { base: Base::Root, id: 1000, len: 3, fill: true },
        Op::ShareList { base: at(0, 0), from: Base::Root },
        Op::DropList { base: Base::Root },
        Op::Unlink { at: slot(0) },
        Op::Numbers { len: 100, seed: 3 },
        Op::Numbers { len: 3, seed: 4 },
        Op::Collect,
    ];
    let graph = Graph::<Tested> { bytes: 320 << 10, ..Graph::new("arrays", start, ops) };
    graph.survives(48);
}

#[test]
fn enums_survive_crashes() {
    let _turn = turn();
    let start = vec![chain(0, 1, 3)];
    let ops = vec![
        Op::Shape { base: Base::Root, shape: NewShape::Link, to: slot(0) },
        Op::Shape { base: at(0, 0), shape: NewShape::Both(2, 100), to: Place::Next(at(0, 0)) },
        Op::Shape { base: Base::Root, shape: NewShape::Look(3), to: Place::Next(at(0, 0)) },
        Op::Unlink { at: Place::InShape(at(0, 0)) },
        Op::Shape { base: at(0, 0), shape: NewShape::Dot, to: slot(0) },
        Op::Unlink { at: slot(0) },
        Op::Shape { base: Base::Root, shape: NewShape::Both(3, 200), to: slot(1) },
        Op::Shape { base: Base::Root, shape: NewShape::Dot, to: slot(1) },
    ];
    Graph::<Tested>::new("enums", start, ops).survives(256);
}

#[test]
fn orphans_survive_crashes() {
    let _turn = turn();
    // A block that was in use before holds what is to become slots.
    let start =
        vec![chain(0, 1, 4), Op::Numbers { len: 60, seed: u64::MAX }, Op::Numbers { len: 1, seed: 1 }];
    let ops = vec![
        Op::Keep { at: slot(0) },
        chain(0, 10, 2),
        Op::Detour { at: slot(0), to: slot(1) },
        Op::Bounce { id: 30 },
        Op::Orphans { id: 100, count: 5 },
        Op::DropHandles,
        Op::Value { base: Base::Root, value: 1 },
        Op::Keep { at: slot(1) },
        Op::Reopen,
        Op::Collect,
    ];
    Graph::<Tested>::new("orphans", start, ops).survives(256);
}

/// Slots that are free are zero, also in a block that held something else before.
#[test]
fn blocks_of_orphan_slots_survive_crashes() {
    let _turn = turn();
    // Blocks of the same size that were full of other things, freed so long ago that they are used again.
    let mut start = vec![Op::Together((0..4).map(|_| Op::Numbers { len: 60, seed: u64::MAX }).collect())];
    start.extend((0..8).map(|_| Op::Numbers { len: 60, seed: u64::MAX }));
    start.push(Op::Numbers { len: 1, seed: 1 });
    start.extend((0..40).map(|value| Op::Value { base: Base::Root, value }));
    start.push(Op::Reopen);
    let ops = vec![
        Op::Orphans { id: 100, count: 1 },
        Op::Orphans { id: 200, count: 70 },
        Op::DropHandles,
        Op::Collect,
        Op::Orphans { id: 500, count: 65 },
    ];
    Graph::<Tested>::new("blocks of orphan slots", start, ops).survives(48);
}

/// Lists of which each slab has one in three nodes, with arrays and shared nodes among them; the last three
/// operations remove the others.
fn thinned() -> (Vec<Op>, Vec<Op>) {
    let mut start = Vec::new();
    for id in 0..42 {
        for to in 0..3 {
            let number = 3 * id + to as u64;
            start.push(Op::New { at: slot(to), id: 1 + number, push: true });
            start.push(Op::List { base: at(to, 0), id: 2000 + 2 * number, len: 2, fill: false });
        }
    }
    start.push(Op::Numbers { len: 40, seed: 3 });
    start.push(Op::List { base: Base::Root, id: 500, len: 3, fill: true });
    start.push(Op::List { base: at(0, 2), id: 600, len: 5, fill: false });
    start.push(Op::Shape { base: at(0, 5), shape: NewShape::Both(2, 700), to: Place::Next(at(0, 8)) });
    start.push(Op::Look { at: Look::Root(0), to: Place::Next(at(0, 20)) });
    let removed = vec![Op::Unlink { at: slot(1) }, Op::Unlink { at: slot(2) }, Op::Collect];
    (start, removed)
}

/// Compactions move nodes and arrays, beside nodes that are shared, looked at and held.
#[test]
fn moves_of_a_compaction_survive_crashes() {
    let _turn = turn();
    let (mut start, removed) = thinned();
    start.extend(removed);
    let ops = vec![
        Op::Compact,
        Op::Value { base: at(0, 3), value: 7 },
        Op::New { at: slot(1), id: 900, push: false },
        Op::Keep { at: slot(1) },
        Op::Unlink { at: Place::Next(at(0, 9)) },
        Op::Compact,
        Op::Second(Box::new(Op::New { at: slot(2), id: 910, push: false })),
        Op::Compact,
    ];
    let graph = Graph::<Tested> { bytes: 448 << 10, ..Graph::new("moves", start, ops) };
    graph.survives(16);
}

/// That test moves something, and most of what is left where it is sparse.
#[test]
fn the_lists_of_that_test_move() {
    let _turn = turn();
    let (mut start, removed) = thinned();
    start.extend(removed);
    let region = Region::simulated(&[0; 64 << 10], 448 << 10, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let mut store = Store::<Tested>::open(pool.clone()).unwrap();
    start.iter().for_each(|op| store.apply(op).unwrap());
    pool.recall_slabs();
    store.apply(&Op::Value { base: Base::Root, value: 1 }).unwrap();
    let before = store.observe().unwrap();
    let chosen = pool.compaction().unwrap().unwrap();
    let (mut walk, mut moved) = (HeapCompaction::new(&pool), 0);
    while let HeapStep::Moved(bytes) = walk.step(&chosen).unwrap() {
        moved += bytes;
    }
    drop(walk);
    chosen.complete().unwrap();
    assert!((2000..16_000).contains(&moved), "{moved}");
    assert_eq!(store.observe().unwrap(), before);
    let unused = pool.stats().unused_bytes;
    pool.trim().unwrap();
    assert!(pool.stats().unused_bytes >= unused + 4096, "a slab is free");
    store.check().unwrap();
}

#[test]
fn aborted_transactions_leave_nothing() {
    let _turn = turn();
    let parts = || {
        vec![
            Op::Unlink { at: slot(0) },
            chain(1, 50, 3),
            Op::List { base: Base::Root, id: 60, len: 3, fill: true },
            Op::Shape { base: Base::Root, shape: NewShape::Link, to: slot(1) },
        ]
    };
    let start = vec![chain(0, 1, 3)];
    let ops = vec![
        Op::Aborted(parts(), false),
        Op::New { at: slot(2), id: 20, push: false },
        Op::Aborted(parts(), true),
        Op::Unlink { at: slot(0) },
        Op::Together(parts()),
        Op::Collect,
    ];
    Graph::<Tested>::new("aborted transactions", start, ops).survives(256);
}

#[test]
fn creation_and_opening_survive_crashes() {
    let _turn = turn();
    let ops = vec![Op::Reopen, Op::New { at: slot(0), id: 1, push: false }, Op::Reopen, Op::Reopen];
    let graph = Graph::<Tested>::new("creation and opening", vec![], ops);
    survived(graph.simulation().crash_setup(true).limit(1024).run());
}

/// Random operations: `started` of them at the start, and `count` after it. Every third one releases all dead
/// objects.
fn random<B: NamedBrand>(seed: u64, [started, count]: [usize; 2]) -> Graph<B> {
    let mut random = Random {
        rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        model: Model::default(),
        next_id: 1,
        circles: false,
        handles: false,
        longest: if seed.is_multiple_of(4) { 70 } else { 8 },
    };
    let mut ops = |count: usize, collects: bool| -> Vec<Op> {
        let op = |i: usize| if collects && i % 3 == 2 { Op::Collect } else { random.op() };
        (0..count).map(op).collect()
    };
    let (start, ops, continuation) = (ops(started, false), ops(count, true), ops(3, true));
    let bytes = if seed.is_multiple_of(4) { 512 << 10 } else { 256 << 10 };
    let name = format!("random operations, seed {seed}");
    Graph { name, start, ops, continuation, bytes, brand: PhantomData }
}

#[test]
fn campaign_of_random_operations() {
    let _turn = turn();
    survived(campaign(6_000, |seed| {
        let graph = random::<Tested>(seed, [12, 9]);
        graph.simulation().seed(seed).limit(32).nested_limit(6).depth(2).run()
    }));
}

/// Threads that each have two slots of the one root.
impl<B: NamedBrand> SharedScenario for Graph<B> {
    fn thread_of(&self, op: &Op) -> usize {
        match op {
            Op::New { at: Place::Slot(slot), .. }
            | Op::Chain { at: Place::Slot(slot), .. }
            | Op::Link { at: Place::Slot(slot), .. }
            | Op::Unlink { at: Place::Slot(slot) } => slot / 2,
            other => unreachable!("{other:?} is no thread's"),
        }
    }

    fn apply_shared(&self, state: &Store<B>, op: &Op) -> Result<Vec<usize>, String> {
        let done = state.heap().write(|tx, root| {
            // Threads take turns at stores: this is one where whoever met another transaction lets it go on.
            tx.alloc(Node::new(0, 0))?;
            perform(tx, root, op)
        });
        done.map(|()| Vec::new()).map_err(text)
    }
}

/// All are in conflict about the root, so that commits of one come between the parts of another's.
#[test]
fn threads_that_write_at_once_survive_crashes() {
    let _turn = turn();
    survived(campaign(4_000, |seed| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let start = vec![chain(0, 1, 3), chain(2, 10, 60)];
        let ops = (0..12).map(|i| {
            let (slot_number, id) = (rng.random_range(0..4), 1000 + 100 * i);
            let at = slot(slot_number);
            match rng.random_range(0..6) {
                0 | 1 => Op::New { at, id, push: rng.random() },
                2 => Op::Chain { at, id, count: rng.random_range(1..5) },
                3 => Op::Link { at, to: slot(slot_number ^ 1) },
                _ => Op::Unlink { at },
            }
        });
        let name = format!("threads, seed {seed}");
        let mut graph = Graph::<Tested>::new(name, start, ops.collect());
        graph.continuation.clear();
        graph.simulation().seed(seed).limit(16).depth(0).audit(Audit::off()).run_shared()
    }));
}

#[test]
fn seeded_bugs_are_caught() {
    let _turn = turn();
    let start = vec![chain(0, 1, 3), Op::Look { at: Look::Root(0), to: slot(0) }];
    let ops = vec![
        Op::New { at: slot(1), id: 10, push: false },
        Op::Link { at: slot(2), to: slot(1) },
        Op::Unlink { at: slot(0) },
        Op::Keep { at: slot(2) },
        Op::Value { base: Base::Root, value: 4 },
        // This one begins a half of the lane. That the homes of the other half are late does harm once a
        // second record follows. Both change another object than the one before: a line that a record of
        // this half has as well may be lost.
        Op::Value { base: at(1, 0), value: 5 },
        Op::Value { base: at(1, 0), value: 6 },
    ];
    let graph = Graph::<Tested>::new("seeded bugs", start, ops);
    let simulation = graph.simulation().limit(48).depth(0).continue_ops(1);
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mutants = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_all_caught_but(&Mutation::ALWAYS_HARMFUL, |survivor| {
        let line = survivor.what.split("flush of line 0x").nth(1).and_then(|rest| rest.split(' ').next());
        let line = u64::from_str_radix(line?, 16).expect("a line's number");
        // The record, which is in a lane, must not be excused. The lanes end before the first zone.
        let is_home = line * 64 >= 0x3000;
        (is_home && survivor.what.contains("Unlink"))
            .then_some("a home line of an object that dies in the same commit")
    });
}
