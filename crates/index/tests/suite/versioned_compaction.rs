//! Compaction of maps with versions: crashes at every step of a move, and readers beside it.

use crate::crashes::{InPool, Script, scripted_in_a_pool, survived, text};
use crate::structures::{Structure, for_each_structure};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tembo_crashsim::{Audit, Mutation, Scenario, Simulation, Target};
use tembo_index::{VersionedMap, VersionedSnapshot};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Marks, Pool};

for_each_structure!(
    compaction_survives_crashes,
    seeded_bugs_of_compaction_are_caught,
    a_snapshot_keeps_its_blocks_where_they_are,
    a_borrowed_value_stays_while_its_record_moves,
    readers_and_writers_go_on_while_blocks_move,
);

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone)]
enum Op {
    /// These keys, with values of a length.
    Put(std::ops::Range<u32>, usize),
    /// Removes all keys of a range that are no multiple of this.
    Thin(std::ops::Range<u32>, u32),
    Compact,
    Keep(&'static str),
    DropKept(&'static str),
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    newest: Contents,
    kept: BTreeMap<String, Contents>,
}

struct State<S: Structure> {
    pool: Pool,
    map: VersionedMap<S>,
}

struct Maps<S> {
    script: Script<Op>,
    start: Vec<Op>,
    structure: PhantomData<S>,
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn value(number: u32, len: usize) -> Vec<u8> {
    vec![number as u8; len + number as usize % 3]
}

fn contents<S: Structure>(snapshot: &VersionedSnapshot<S>) -> Result<Contents, String> {
    let entries = snapshot.iter();
    entries.map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())).map_err(text)).collect()
}

impl<S: Structure> InPool for State<S> {
    fn open(pool: Pool) -> Result<State<S>, String> {
        let map = match VersionedMap::open(&pool, "map").map_err(text)? {
            Some(map) => map,
            None => S::create(&pool, "map"),
        };
        Ok(State { pool, map })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn check(&self, marks: &mut Marks) -> Result<(), String> {
        self.map.check(marks).map(drop).map_err(text)
    }
}

impl<S: Structure> State<S> {
    /// Compacts the pool; returns the moved bytes.
    fn compact(&self) -> Result<u64, String> {
        let compaction = self.pool.compaction().map_err(text)?.ok_or("a compaction is under way")?;
        let (mut from, mut moved_bytes) = (Some(Vec::new()), 0);
        while let Some(at) = from {
            let step = self.map.compact_at(&compaction, &at).map_err(text)?;
            (from, moved_bytes) = (step.next, moved_bytes + step.moved_bytes);
        }
        while self.map.collect_moved().map_err(text)? {}
        drop(compaction);
        self.pool.trim().map_err(text)?;
        Ok(moved_bytes)
    }

    /// Keys by forty in a version.
    fn by_forty(&self, keys: impl Iterator<Item = u32>, len: Option<usize>) -> Result<(), String> {
        let keys: Vec<u32> = keys.collect();
        keys.chunks(40).try_for_each(|part| {
            let change = |batch: &mut tembo_index::VersionedBatch<'_, '_, S>| {
                part.iter().try_for_each(|i| match len {
                    Some(len) => batch.put(&key(*i), &value(*i, len)).map(drop),
                    None => batch.remove(&key(*i)).map(drop),
                })
            };
            self.map.batch(change).map_err(text)
        })
    }

    fn perform(&self, op: &Op) -> Result<(), String> {
        match op {
            Op::Put(keys, len) => self.by_forty(keys.clone(), Some(*len)),
            Op::Thin(keys, kept) => {
                self.by_forty(keys.clone().filter(|i| !i.is_multiple_of(*kept)), None)?;
                self.map.collect(100_000).map(drop).map_err(text)
            }
            Op::Compact => self.compact().map(drop),
            Op::Keep(name) if self.map.kept_snapshot(name).is_none() => {
                self.map.keep(&self.map.snapshot(), name).map_err(text)
            }
            Op::Keep(_) => Ok(()),
            Op::DropKept(name) => self.map.drop_kept(name).map(drop).map_err(text),
        }
    }
}

impl Model {
    fn perform(&mut self, op: &Op) {
        match op {
            Op::Put(keys, len) => keys.clone().for_each(|i| _ = self.newest.insert(key(i), value(i, *len))),
            Op::Thin(keys, kept) => {
                keys.clone()
                    .filter(|i| !i.is_multiple_of(*kept))
                    .for_each(|i| _ = self.newest.remove(&key(i)));
            }
            Op::Compact => {}
            Op::Keep(name) => _ = self.kept.entry((*name).to_owned()).or_insert(self.newest.clone()),
            Op::DropKept(name) => _ = self.kept.remove(*name),
        }
    }
}

impl<S: Structure> Scenario for Maps<S> {
    type State = State<S>;
    type Op = Op;
    type Model = Model;

    scripted_in_a_pool!();

    fn setup(&self, region: Region) -> Result<State<S>, String> {
        let state = State::create_in(region)?;
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
        for (key, value) in &newest {
            if now.get(key).map_err(text)?.as_deref() != Some(value) {
                return Err(format!("{key:?} is met by a walk and not by a lookup"));
            }
        }
        let mut kept = BTreeMap::new();
        for named in state.map.kept() {
            let snapshot = state.map.kept_snapshot(&named.name).ok_or("a name without a snapshot")?;
            let contents = contents(&snapshot)?;
            let differ = contents.iter().filter(|(key, value)| newest.get(*key) != Some(value)).count()
                + newest.keys().filter(|key| !contents.contains_key(*key)).count();
            if state.map.diff(named.version, now.version()).map_err(text)?.len() != differ {
                return Err("moves are reported as differences".to_owned());
            }
            kept.insert(named.name, contents);
        }
        Ok(Model { newest, kept })
    }
}

/// A map with holes: of its keys, one in nine is left.
fn sparse<S>(keys: u32, ops: Vec<Op>) -> Maps<S> {
    let start = vec![Op::Put(0..keys, 30), Op::Put(keys..keys * 5 / 4, 200), Op::Thin(0..keys * 5 / 4, 9)];
    let continuation = vec![Op::Put(5..12, 40), Op::Thin(0..60, 18), Op::DropKept("between")];
    let script = Script { bytes: 1 << 20, ..Script::new("a sparse map", ops, continuation) };
    Maps { script, start, structure: PhantomData }
}

/// Late flushes and fences, as the trees leave them.
fn audit() -> Audit {
    Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true).allow_idle_fence(true)
}

fn compaction_survives_crashes<S: Structure>() {
    let ops = vec![Op::Compact, Op::Keep("between"), Op::Put(0..9, 30), Op::Compact];
    let scenario = sparse::<S>(900, ops);
    let dry = scenario.setup(Region::simulated(&vec![0; 1 << 20], 1 << 24, None).unwrap()).unwrap();
    let (before, model) = (dry.pool.stats().unused_bytes, scenario.observe(&dry).unwrap());
    let moved_bytes = dry.compact().unwrap();
    let gained = dry.pool.stats().unused_bytes - before;
    println!("{moved_bytes} bytes moved, {gained} gained");
    assert!(moved_bytes > 1000 && gained >= 16 << 10, "{moved_bytes} {gained}");
    assert_eq!(scenario.observe(&dry).unwrap(), model);
    // The next ones move the little that the first has made room for; readers of other tests delay that. Then
    // the map is left alone.
    let is_left_alone = |_: &i32| {
        let version = dry.map.version();
        dry.compact().unwrap() == 0 && dry.map.version() == version
    };
    let rounds = (1..10).find(is_left_alone);
    println!("{rounds:?} more rounds");
    assert!(rounds.is_some());
    survived(Simulation::new(&scenario).limit(6).nested_limit(2).depth(1).audit(audit()).run());
}

/// Mutants of a compaction are caught that lose a copy, or the word that leads to it.
fn seeded_bugs_of_compaction_are_caught<S: Structure>() {
    let scenario = sparse::<S>(500, vec![Op::Compact]);
    let simulation = Simulation::new(&scenario).limit(16).depth(0).continue_ops(1).audit(audit());
    let report = simulation.mutant_limit(16).mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&[Mutation::DropFlush, Mutation::DropFence, Mutation::ForeignFence]);
}

/// A copy of what a snapshot holds would take space and free none.
fn a_snapshot_keeps_its_blocks_where_they_are<S: Structure>() {
    let scenario = sparse::<S>(900, Vec::new());
    let state = scenario.setup(Region::simulated(&vec![0; 1 << 20], 1 << 24, None).unwrap()).unwrap();
    let held = state.map.snapshot();
    assert_eq!(state.compact(), Ok(0));
    let before = contents(&held).unwrap();
    drop(held);
    assert!(state.compact().unwrap() > 1000);
    assert_eq!(contents(&state.map.snapshot()).unwrap(), before);
    state.check_all().unwrap();
}

/// A reader that is no snapshot does not stop a move; the old block is not used again before it has ended.
fn a_borrowed_value_stays_while_its_record_moves<S: Structure>() {
    let scenario = sparse::<S>(900, Vec::new());
    let state = scenario.setup(Region::simulated(&vec![0; 1 << 20], 1 << 24, None).unwrap()).unwrap();
    let borrow = |i: u32| (i, state.map.get_pinned(&key(i)).unwrap().unwrap());
    let borrowed: Vec<_> = (0..900).step_by(9).map(borrow).collect();
    assert!(state.compact().unwrap() > 1000);
    (0..4).for_each(|round| state.perform(&Op::Put(2000 + 900 * round..2900 + 900 * round, 30)).unwrap());
    assert!(borrowed.iter().all(|(i, found)| **found == value(*i, 30)));
    drop(borrowed);
    state.check_all().unwrap();
}

/// Snapshots, walks and lookups meet everything, and a writer loses nothing, while blocks move.
fn readers_and_writers_go_on_while_blocks_move<S: Structure>() {
    let region = Region::simulated(&vec![0; 4 << 20], 1 << 24, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let state = State::<S>::open(pool).unwrap();
    state.perform(&Op::Put(0..3000, 30)).unwrap();
    state.perform(&Op::Thin(0..3000, 10)).unwrap();
    let (done, expected) = (AtomicBool::new(false), contents(&state.map.snapshot()).unwrap());
    let is_done = || done.load(Ordering::Relaxed);
    let count = |i: u32| format!("count {i}").into_bytes();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done() {
                let snapshot = state.map.snapshot();
                let mut met = contents(&snapshot).unwrap();
                met.retain(|met, _| *met >= key(0) && *met < key(3000));
                assert!(met == expected, "{} of {}", met.len(), expected.len());
                for i in (0..3000).step_by(90) {
                    assert_eq!(state.map.get_pinned(&key(i)).unwrap().as_deref(), Some(&value(i, 30)[..]));
                }
                drop(snapshot);
                // Between two snapshots blocks move.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let writer = scope.spawn(|| {
            let mut last = [0u32; 50];
            for i in (0..).take_while(|_| !is_done()) {
                let number: u32 = i % 50;
                last[number as usize] = i;
                state.map.put(&count(number), &[&i.to_be_bytes()[..], &[7; 40]].concat()).unwrap();
            }
            last
        });
        let mut moved_bytes = 0;
        // A snapshot of the reader keeps its blocks where they are, so that a round may move few.
        let mut round = 0;
        while round < 8 || moved_bytes <= 2000 && round < 400 {
            round += 1;
            moved_bytes += state.compact().unwrap();
            let first = 5000 + 400 * (round % 10);
            state.perform(&Op::Put(first..first + 400, 60)).unwrap();
            state.perform(&Op::Thin(5000..9000, 10_000)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(moved_bytes > 2000, "{moved_bytes}");
        for (number, last) in writer.join().unwrap().into_iter().enumerate() {
            let value = state.map.get_pinned(&count(number as u32)).unwrap();
            assert!(last == 0 || value.is_some_and(|value| value[..4] == last.to_be_bytes()), "{number}");
        }
    });
    state.check_all().unwrap();
}
