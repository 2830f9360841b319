//! Crashes at every flush and fence of every operation of both CDDS structures, with named snapshots read
//! after each recovery; and of transactions that change a CDDS tree and a wB+-Tree together.
//!
//! The directed scenarios bring a map to the edge of a change of structure and do the operation that makes
//! it; how many blocks that gains or loses proves that it was the change meant. The campaign does
//! operations at random. The long one, whose filters are for the hash table and for the tree:
//!
//!     CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-index --test suite -- \
//!         versioned_crash::hash::campaign versioned_crash::tree::campaign

mod edges;

use crate::crashes::{InPool, Script, scripted_in_a_pool, survived, text};
use crate::structures::{Structure, equal_hash_key, for_each_structure, near_hash_key};
use edges::{Edge, hash_edges, key, put, puts, remove, removes, tree_edges};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tembo_crashsim::{Audit, Mutation, Scenario, Simulation, Target, campaign};
use tembo_index::{
    HashStructure, TreeStructure, VersionedChange, VersionedMap, VersionedPart, VersionedSnapshot,
    VersionedStructure, WbTree,
};
use tembo_pmem::{LINE_BYTES, Observer, Region, ThreadTag};
use tembo_pool::{Lane, Marks, Pool, Tx};

for_each_structure!(
    every_change_of_structure_survives_crashes,
    snapshots_rollback_and_collection_survive_crashes,
    cleared_maps_come_apart_through_crashes,
    creation_survives_crashes,
    campaign_of_random_operations,
    seeded_bugs_are_caught,
);

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// The contents of a map and of its named snapshots.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    newest: Contents,
    kept: BTreeMap<String, Contents>,
    /// The contents of the tree without versions.
    flat: Contents,
}

#[derive(Debug, Clone)]
enum Edit {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
}

#[derive(Debug, Clone)]
enum Op {
    One(Edit),
    Batch(Vec<Edit>),
    /// A batch that fails after its edits.
    Abort(Vec<Edit>),
    /// Names the newest version, unless there is that name.
    Keep(&'static str),
    /// Names the newest version when the next one is there already, in which some keys were put again with
    /// the values that they have.
    KeepLate(&'static str),
    DropKept(&'static str),
    /// To a named snapshot, if there is that name.
    Rollback(&'static str),
    /// Holds the newest version in memory; a crash forgets that.
    Hold,
    /// Gives up everything that is held in memory.
    Release,
    Collect(usize),
    Clear,
    PopFirst,
    /// One transaction that changes both trees; the edits from the number on are made twice, and taken back
    /// the first time. Clears the tree with versions first if that is said.
    Both {
        edits: Vec<Edit>,
        from: usize,
        clears: bool,
    },
}

struct Maps<S> {
    script: Script<Op>,
    /// The operations of the setup.
    start: Vec<Op>,
    structure: PhantomData<S>,
}

impl<S> Maps<S> {
    fn new(script: Script<Op>, start: Vec<Op>) -> Maps<S> {
        Maps { script, start, structure: PhantomData }
    }
}

struct State<S: VersionedStructure> {
    pool: Pool,
    map: VersionedMap<S>,
    flat: WbTree,
    /// The lane of transactions that change both trees.
    lane: Lane,
    held: Vec<VersionedSnapshot<S>>,
}

impl<S: Kind> InPool for State<S> {
    fn open(pool: Pool) -> Result<State<S>, String> {
        let map = match VersionedMap::open(&pool, "map").map_err(text)? {
            Some(map) => map,
            None => S::create(&pool, "map"),
        };
        let mut lane = pool.lane().map_err(text)?;
        let flat = match WbTree::open(&pool, "flat").map_err(text)? {
            Some(flat) => flat,
            None => {
                let mut tx = lane.begin();
                let flat = WbTree::create(&mut tx, "flat").map_err(text)?;
                tx.commit().map_err(text)?;
                flat
            }
        };
        Ok(State { pool, map, flat, lane, held: Vec::new() })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn check(&self, marks: &mut Marks) -> Result<(), String> {
        self.flat.check(marks).map_err(text)?;
        self.map.check(marks).map(drop).map_err(text)
    }
}

impl<S: Kind> State<S> {
    fn batch(&self, edits: &[Edit], fails: bool) -> Result<(), String> {
        let outcome = self.map.batch(|batch| {
            for edit in edits {
                match edit {
                    Edit::Put(key, value) => batch.put(key, value)?,
                    Edit::Remove(key) => batch.remove(key)?,
                };
            }
            if fails { Err(tembo_index::Error::Abandoned) } else { Ok(()) }
        });
        if fails {
            outcome.err().map(drop).ok_or_else(|| "an aborted batch".to_owned())
        } else {
            outcome.map_err(text)
        }
    }

    fn perform(&mut self, op: &Op) -> Result<(), String> {
        if let Op::Both { edits, from, clears } = op {
            return S::both(self, edits, *from, *clears).map_err(text);
        }
        let map = &self.map;
        match op {
            Op::One(Edit::Put(key, value)) => map.put(key, value).map(drop).map_err(text),
            Op::One(Edit::Remove(key)) => map.remove(key).map(drop).map_err(text),
            Op::Batch(edits) => self.batch(edits, false),
            Op::Abort(edits) => self.batch(edits, true),
            Op::Keep(name) if map.kept_snapshot(name).is_none() => {
                map.keep(&map.snapshot(), name).map_err(text)
            }
            Op::KeepLate(name) if map.kept_snapshot(name).is_none() => {
                let (mut late, now) = (None, contents(&map.snapshot())?);
                let outcome = map.batch(|batch| {
                    late = Some(map.snapshot());
                    now.iter().step_by(3).try_for_each(|(key, value)| batch.put(key, value).map(drop))
                });
                outcome.map_err(text)?;
                late.map_or(Ok(()), |late| map.keep(&late, name).map_err(text))
            }
            Op::Keep(_) | Op::KeepLate(_) => Ok(()),
            Op::DropKept(name) => map.drop_kept(name).map(drop).map_err(text),
            Op::Rollback(name) => match map.kept_snapshot(name) {
                Some(to) => map.rollback_to(to.version()).map(drop).map_err(text),
                None => Ok(()),
            },
            Op::Hold => {
                self.held.push(map.snapshot());
                Ok(())
            }
            Op::Release => {
                self.held.clear();
                Ok(())
            }
            Op::Collect(budget) => map.collect(*budget).map(drop).map_err(text),
            Op::Clear => map.clear().map_err(text),
            Op::PopFirst => S::pop_first(map).map_err(text),
            Op::Both { .. } => unreachable!("done above"),
        }
    }

    fn allocated_blocks(&self) -> i64 {
        self.pool.marks().unwrap().usage().allocated_blocks as i64
    }
}

fn edit_model(model: &mut Contents, edit: &Edit) {
    match edit {
        Edit::Put(key, value) => _ = model.insert(key.clone(), value.clone()),
        Edit::Remove(key) => _ = model.remove(key),
    }
}

impl Model {
    fn perform(&mut self, op: &Op) {
        match op {
            Op::One(edit) => edit_model(&mut self.newest, edit),
            Op::Batch(edits) => edits.iter().for_each(|edit| edit_model(&mut self.newest, edit)),
            Op::Keep(name) | Op::KeepLate(name) => {
                _ = self.kept.entry(name.to_string()).or_insert(self.newest.clone())
            }
            Op::DropKept(name) => _ = self.kept.remove(*name),
            Op::Rollback(name) => {
                if let Some(contents) = self.kept.get(*name) {
                    self.newest = contents.clone();
                }
            }
            Op::Clear => self.newest.clear(),
            Op::PopFirst => _ = self.newest.pop_first(),
            Op::Both { edits, clears, .. } => {
                if *clears {
                    self.newest.clear();
                }
                edits.iter().for_each(|edit| edit_model(&mut self.newest, edit));
                edits.iter().for_each(|edit| edit_model(&mut self.flat, edit));
            }
            Op::Abort(_) | Op::Hold | Op::Release | Op::Collect(_) => {}
        }
    }
}

fn contents<S: Structure>(snapshot: &VersionedSnapshot<S>) -> Result<Contents, String> {
    let entries = snapshot.iter();
    entries.map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())).map_err(text)).collect()
}

/// Whether these are the keys that differ.
fn compare_difference(changes: &[VersionedChange], from: &Contents, to: &Contents) -> Result<(), String> {
    let keys = from.keys().chain(to.keys().filter(|key| !from.contains_key(*key)));
    let differ = keys.filter(|key| from.get(*key) != to.get(*key)).count();
    let is_right = |change: &VersionedChange| {
        change.before != change.after
            && (change.before.as_ref(), change.after.as_ref()) == (from.get(&change.key), to.get(&change.key))
    };
    if changes.len() == differ && changes.iter().all(is_right) {
        return Ok(());
    }
    Err(format!("{} differences were found of {differ}", changes.len()))
}

impl<S: Kind> Scenario for Maps<S> {
    type State = State<S>;
    type Op = Op;
    type Model = Model;

    scripted_in_a_pool!();

    fn setup(&self, region: Region) -> Result<State<S>, String> {
        let mut state = State::create_in(region)?;
        self.start.iter().try_for_each(|op| state.perform(op))?;
        Ok(state)
    }

    fn apply(&self, state: &mut State<S>, op: &Op) -> Result<(), String> {
        state.perform(op)
    }

    fn initial(&self) -> Model {
        let mut model = Model::default();
        self.start.iter().for_each(|op| model.perform(op));
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        model.perform(op);
    }

    fn observe(&self, state: &State<S>) -> Result<Model, String> {
        let now = state.map.snapshot();
        let newest = contents(&now)?;
        let mut kept = BTreeMap::new();
        for named in state.map.kept() {
            let snapshot = state.map.kept_snapshot(&named.name).ok_or("a name without a snapshot")?;
            let contents = contents(&snapshot)?;
            let changes = state.map.diff(named.version, now.version()).map_err(text)?;
            compare_difference(&changes, &contents, &newest)?;
            kept.insert(named.name, contents);
        }
        let flat = state.flat.iter();
        let flat = flat.map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())).map_err(text));
        Ok(Model { newest, kept, flat: flat.collect::<Result<_, _>>()? })
    }
}

/// Home stores are flushed and fenced when the lane's half is full. Words of a block that the same
/// operation gave up again are never flushed.
fn audit() -> Audit {
    Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true)
}

/// The operations that differ between the structures.
trait Kind: Structure {
    /// The number of seeded bugs that are harmless, as [`harmless_lines`] explains.
    const HARMLESS_BUGS: usize;

    fn edges() -> Vec<Edge>;

    /// [`Op::Both`].
    fn both(
        state: &mut State<Self>,
        edits: &[Edit],
        from: usize,
        clears: bool,
    ) -> Result<(), tembo_index::Error>;

    /// [`Op::PopFirst`].
    fn pop_first(map: &VersionedMap<Self>) -> Result<(), tembo_index::Error>;
}

impl Kind for TreeStructure {
    const HARMLESS_BUGS: usize = 8;

    fn edges() -> Vec<Edge> {
        tree_edges()
    }

    fn both(
        state: &mut State<TreeStructure>,
        edits: &[Edit],
        from: usize,
        clears: bool,
    ) -> Result<(), tembo_index::Error> {
        let mut tx = state.lane.begin();
        let mut part = state.map.part()?;
        if clears {
            part.clear(&mut tx, 0)?;
        }
        let flat = &state.flat;
        let make = |part: &mut VersionedPart, tx: &mut Tx<'_>, edits: &[Edit], savepoint| {
            for edit in edits {
                match edit {
                    Edit::Put(key, value) => {
                        part.put(tx, savepoint, key, &[value])?;
                        flat.put(tx, key, &[value])?;
                    }
                    Edit::Remove(key) => {
                        part.remove(tx, savepoint, key)?;
                        flat.remove(tx, key)?;
                    }
                }
            }
            Ok::<_, tembo_index::Error>(())
        };
        let (stay, again) = edits.split_at(from.min(edits.len()));
        make(&mut part, &mut tx, stay, 0)?;
        if !again.is_empty() {
            let savepoint = tx.savepoint();
            make(&mut part, &mut tx, again, 1)?;
            part.clear(&mut tx, 1)?;
            make(&mut part, &mut tx, again, 1)?;
            part.roll_back_to(1);
            tx.rollback_to(savepoint);
            make(&mut part, &mut tx, again, 2)?;
        }
        part.finish(&mut tx)?;
        tx.commit()?;
        part.show();
        Ok(())
    }

    fn pop_first(map: &VersionedMap<TreeStructure>) -> Result<(), tembo_index::Error> {
        map.pop_first().map(drop)
    }
}

impl Kind for HashStructure {
    const HARMLESS_BUGS: usize = 12;

    fn edges() -> Vec<Edge> {
        hash_edges()
    }

    fn both(_: &mut State<HashStructure>, _: &[Edit], _: usize, _: bool) -> Result<(), tembo_index::Error> {
        unreachable!("tables are not parts of transactions")
    }

    fn pop_first(_: &VersionedMap<HashStructure>) -> Result<(), tembo_index::Error> {
        unreachable!("tables have no first key")
    }
}

fn simulate<S: Kind>(scenario: &Maps<S>, limit: usize) {
    survived(Simulation::new(scenario).limit(limit).audit(audit()).run());
}

fn every_change_of_structure_survives_crashes<S: Kind>() {
    for Edge { name, start, op, blocks } in S::edges() {
        for is_kept in [false, true] {
            let mut start = start.clone();
            if is_kept {
                start.push(Op::Keep("start"));
            }
            start.push(Op::Collect(10_000));
            let continuation =
                vec![puts([3, 50]), Op::Rollback("start"), Op::DropKept("start"), Op::Collect(100)];
            let script = Script { bytes: 512 << 10, ..Script::new(name, vec![op.clone()], continuation) };
            let scenario = Maps::<S>::new(script, start);
            let region = Region::simulated(&vec![0; 512 << 10], 1 << 24, None).unwrap();
            let mut dry = scenario.setup(region).unwrap();
            let before = dry.allocated_blocks();
            dry.perform(&op).unwrap();
            let gained = dry.allocated_blocks() - before;
            println!("{name}, kept {is_kept}: {gained} blocks");
            assert!(gained == blocks || blocks == 0 && gained > 0, "{name}: {gained} blocks");
            if gained > 30 {
                if !is_kept {
                    continue;
                }
                let simulation = Simulation::new(&scenario).limit(2).depth(0).continue_ops(1);
                survived(simulation.audit(audit()).run());
            } else if gained > 10 {
                survived(Simulation::new(&scenario).limit(6).depth(0).continue_ops(2).audit(audit()).run());
            } else {
                simulate(&scenario, 16);
            }
        }
    }
}

fn snapshots_rollback_and_collection_survive_crashes<S: Kind>() {
    let ops = vec![
        Op::Keep("a"),
        puts([3, 100, 101]),
        Op::Keep("b"),
        removes(0..30),
        Op::Keep("c"),
        Op::Rollback("a"),
        Op::Hold,
        puts(0..5),
        Op::DropKept("b"),
        Op::Release,
        Op::Collect(10),
        Op::Collect(1000),
        Op::KeepLate("b"),
        puts([8]),
        Op::Rollback("c"),
        Op::Rollback("b"),
        Op::DropKept("a"),
        Op::DropKept("c"),
        Op::Collect(1000),
    ];
    let continuation = vec![puts([5, 200]), Op::Collect(1000), Op::Keep("z"), Op::Rollback("a")];
    let sizes: &[u32] = if S::IS_ORDERED { &[3, 40, 90] } else { &[3, 40] };
    for size in sizes {
        let name = format!("snapshots of {size} records");
        let script = Script { bytes: 512 << 10, ..Script::new(name, ops.clone(), continuation.clone()) };
        simulate(&Maps::<S>::new(script, vec![puts(0..*size)]), 16);
    }
}

fn cleared_maps_come_apart_through_crashes<S: Kind>() {
    let again = |numbers: std::ops::Range<u32>, clears| {
        let edits = numbers.clone().map(put).chain(numbers.step_by(3).map(remove)).collect();
        if S::IS_ORDERED { Op::Both { edits, from: 3, clears } } else { Op::Batch(edits) }
    };
    let pop = || if S::IS_ORDERED { Op::PopFirst } else { Op::One(remove(1)) };
    let ops = vec![
        Op::Keep("a"),
        puts([3, 100, 101]),
        Op::Clear,
        puts([1, 2]),
        Op::Keep("b"),
        again(40..50, true),
        Op::Rollback("a"),
        Op::Hold,
        Op::Clear,
        Op::DropKept("a"),
        Op::Collect(5),
        again(1..9, false),
        Op::Release,
        Op::Collect(40),
        Op::DropKept("b"),
        pop(),
        Op::Collect(1000),
    ];
    let continuation = vec![puts([5, 200]), Op::Clear, again(3..9, false), Op::Collect(1000)];
    for size in &[3, 90] {
        let name = format!("clearing of {size} records");
        let script = Script { bytes: 512 << 10, ..Script::new(name, ops.clone(), continuation.clone()) };
        simulate(&Maps::<S>::new(script, vec![puts(0..*size)]), 16);
    }
}

fn creation_survives_crashes<S: Kind>() {
    let script = Script { bytes: 128 << 10, ..Script::new("creation", vec![puts([1])], vec![puts([2])]) };
    let scenario = Maps::<S>::new(script, Vec::new());
    survived(Simulation::new(&scenario).crash_setup(true).limit(256).audit(audit()).run());
}

/// Keys of a family that a seed chooses.
fn random_key(rng: &mut Xoshiro256PlusPlus, family: u32, range: u32) -> Vec<u8> {
    let number = rng.random_range(0..range);
    match family {
        0 => key(number),
        1 => [vec![b'x'; 40], number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()].concat(),
        2 => u64::from(number).to_be_bytes().to_vec(),
        3 => equal_hash_key(number % 30),
        4 if number.is_multiple_of(3) => equal_hash_key(number % 9),
        4 => near_hash_key(number),
        _ => number.to_be_bytes()[3 - (number % 4) as usize..].to_vec(),
    }
}

impl<S: Kind> Maps<S> {
    fn random(seed: u64) -> Maps<S> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let family = rng.random_range(0..6);
        let range = [12, 40, 150, 400][rng.random_range(0..4)];
        let inclination = rng.random_range(0.2..0.8);
        let names = ["a", "b", "c"];
        let op = |rng: &mut Xoshiro256PlusPlus, most: usize| {
            let edits = |rng: &mut Xoshiro256PlusPlus, most: usize| -> Vec<Edit> {
                let count = rng.random_range(1..=most);
                let mut edit = || {
                    let key = random_key(rng, family, range);
                    let bytes = if rng.random_bool(0.05) { 900 } else { rng.random_range(0..24) };
                    if rng.random_bool(inclination) {
                        Edit::Put(key, vec![bytes as u8; bytes])
                    } else {
                        Edit::Remove(key)
                    }
                };
                (0..count).map(|_| edit()).collect()
            };
            match rng.random_range(0..if S::IS_ORDERED { 29 } else { 25 }) {
                0 => Op::Keep(names[rng.random_range(0..3)]),
                1 => Op::KeepLate(names[rng.random_range(0..3)]),
                2 => Op::DropKept(names[rng.random_range(0..3)]),
                3 => Op::Rollback(names[rng.random_range(0..3)]),
                4 => Op::Hold,
                5 => Op::Release,
                6 | 7 => Op::Collect(rng.random_range(1..50)),
                8 => Op::Abort(edits(rng, most)),
                9..14 => Op::Batch(edits(rng, most)),
                24 => Op::Clear,
                25 => Op::PopFirst,
                26..29 => Op::Both {
                    edits: edits(rng, most),
                    from: rng.random_range(0..2 * most),
                    clears: rng.random_bool(0.2),
                },
                _ => Op::One(edits(rng, 1).remove(0)),
            }
        };
        let start = (0..range / 2).map(|_| op(&mut rng, 6)).collect();
        let ops = (0..8).map(|_| op(&mut rng, 40)).collect();
        let continuation = (0..3).map(|_| op(&mut rng, 3)).collect();
        let script = Script {
            bytes: 768 << 10,
            ..Script::new(format!("random operations, seed {seed}"), ops, continuation)
        };
        Maps::new(script, start)
    }
}

fn campaign_of_random_operations<S: Kind>() {
    survived(campaign(8_000, |seed| {
        let maps = Maps::<S>::random(seed);
        Simulation::new(&maps).seed(seed).limit(10).nested_limit(6).depth(1).audit(audit()).run()
    }));
}

fn seeded_bugs_are_caught<S: Kind>() {
    let ops = vec![
        puts([50]),
        puts([13, 2]),
        puts([14, 60]),
        Op::One(remove(5)),
        Op::Keep("a"),
        puts([15]),
        // In the other leaf, so that they store nothing again of what may have been lost.
        puts([3]),
        puts([61]),
        puts([4]),
        puts([6]),
    ];
    let script = Script::new("seeded bugs", ops, vec![puts([70])]);
    let scenario = Maps::<S>::new(script, vec![puts(0..27)]);
    let simulation =
        Simulation::new(&scenario).limit(96).depth(0).continue_ops(1).mutant_limit(12).audit(audit());
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mutants = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    let (harmless, fences) = harmless_lines(&scenario);
    let first_slab = harmless.iter().find(|(_, why)| **why == OF_SLAB).map_or(0, |(line, _)| *line);
    let shortened = std::cell::Cell::new(0);
    report.assert_all_caught_but(&Mutation::ALWAYS_HARMFUL, |survivor| {
        let line = survivor.what.split_once("flush of line 0x")?.1.split(' ').next()?;
        let line = u64::from_str_radix(line, 16).ok()?;
        if survivor.mutation == Mutation::ShortenFlush && shortened.replace(1) == 0 {
            return Some("what this flush leaves out had not changed");
        }
        let operation = survivor.what.split_once(" of operation ")?.1.split(' ').next()?;
        let operation: usize = operation.parse().ok()?;
        // The pool's own lines lie before all slabs. They have to be durable before a record is written
        // over one that stores to them, and the fence between new data and its record comes before that
        // one, too.
        let is_fenced_soon = survivor.mutation == Mutation::DelayFlush
            && line < first_slab
            && fences.iter().skip(operation - 1).take(2).any(|fences| *fences > 1);
        let soon = "there is a fence more before the next record: that of new data";
        harmless.get(&line).copied().or(is_fenced_soon.then_some(soon))
    });
    assert!(report.survivors().count() <= S::HARMLESS_BUGS, "{report}");
}

/// Counts fences.
#[derive(Default)]
struct Fences(AtomicUsize);

impl Observer for Fences {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

const OF_SLAB: &str = "the records of its bits are not written over in this history";
const OF_HEAD: &str = "every version stores its number again, and records of what else changed are not written over in this history";

/// Lines of which a flush may be missing in so short a history, and why; and how many fences each operation
/// makes. Lines of nodes and records are not among them.
fn harmless_lines<S: Kind>(scenario: &Maps<S>) -> (BTreeMap<u64, &'static str>, Vec<usize>) {
    const QUEUE_WORDS: [u64; 2] = [8, 16];
    let counter = Arc::new(Fences::default());
    let bytes = vec![0; scenario.script.bytes as usize];
    let region = Region::simulated(&bytes, 1 << 24, Some(counter.clone())).unwrap();
    let mut state = scenario.setup(region).unwrap();
    let (mut lines, mut fences) = (BTreeMap::new(), Vec::new());
    for op in &scenario.script.ops {
        counter.0.store(0, Ordering::Relaxed);
        scenario.apply(&mut state, op).unwrap();
        fences.push(counter.0.load(Ordering::Relaxed));
        let region = state.pool.region();
        let head = state.pool.root("map").unwrap().unwrap().off;
        lines.insert(head / LINE_BYTES, OF_HEAD);
        for queue in QUEUE_WORDS.map(|word| head + 8 * word) {
            lines.insert(queue / LINE_BYTES, "the next version stores the words of the queue's head again");
            let mut chunk = region.load_u64(queue).unwrap();
            while chunk != 0 {
                for line in 0..1024 / LINE_BYTES {
                    lines.insert(
                        chunk / LINE_BYTES + line,
                        "the items of this line were taken off before they were lost",
                    );
                }
                chunk = region.load_u64(chunk).unwrap();
            }
        }
        for slab in (0..region.len() / LINE_BYTES).filter(|line| is_slab(region, *line)) {
            lines.insert(slab, OF_SLAB);
        }
    }
    (lines, fences)
}

/// Whether a line is the first of a slab, with its bitmap.
fn is_slab(region: &Region, line: u64) -> bool {
    region.load_u64(line * LINE_BYTES).is_ok_and(|word| word >> 48 == 0x51AB)
}
