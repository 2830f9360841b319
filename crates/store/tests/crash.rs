//! Crashes in the middle of commits, of keeping and deleting snapshots, of choosing what is retained, and of
//! collecting; and crashes in the recovery from these.
//!
//! The directed scenarios go through every kind of change; the campaign does operations at random:
//! `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-store --test crash campaign` is the long one.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tembo_crashsim::{Audit, Failure, Mutation, Report, Scenario, Simulation, Target, campaign};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};
use tembo_store::{Keyspace, Retention, Snapshot, Store, StorePlace, Transaction};

/// The last one retains every version, from the beginning.
const KEYSPACES: [&str; 3] = ["accounts", "journal", "audit"];
const AUDIT: usize = 2;
/// Keys are numbers below this.
const KEYS: u64 = 100;

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn text(e: impl ToString) -> String {
    e.to_string()
}

/// A write: keyspace, key, and the length of the value, or none.
type Write = (usize, u64, Option<usize>);

#[derive(Debug, Clone)]
enum Op {
    Commit(Vec<Write>),
    /// A transaction that is begun before, and conflicts with, the one that is committed in it.
    Conflict(Write),
    /// Commits that are asked for together.
    Group(Vec<Vec<Write>>),
    /// A transaction that deletes a range of keys, and writes beside it.
    DeleteRange(usize, Range<u64>, Vec<Write>),
    /// Chooses what a keyspace retains; the last one stays as it is.
    Retain(usize, Retention),
    /// Keeps the current snapshot by its number, unless one is kept so.
    KeepNumber,
    DeleteNumber,
    Keep(&'static str),
    DeleteKept(&'static str),
    Collect(usize),
    /// Compacts the pool, all of it.
    Compact,
    /// Drops a keyspace and makes an empty one of its name.
    Renew(usize),
    /// A reader opens a snapshot, or closes the one that it has.
    Read(bool),
}

/// The current contents, and those of the kept snapshots.
#[derive(Debug, Clone, PartialEq, Default)]
struct Model {
    current: Contents,
    kept: BTreeMap<String, Contents>,
    /// The snapshot that is kept by its number.
    numbered: Option<Contents>,
    /// The versions of the keys of the keyspace that retains all, from the oldest on.
    audit: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
}

struct State {
    pool: Pool,
    store: Store,
    reader: Option<Snapshot>,
}

struct Script {
    name: String,
    /// The operations of the setup.
    start: Vec<Op>,
    ops: Vec<Op>,
    continuation: Vec<Op>,
    bytes: u64,
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:03}").into_bytes()
}

fn value((keyspace, i, len): Write) -> Option<Vec<u8>> {
    len.map(|len| vec![(keyspace as u8) << 6 | (i + len as u64) as u8; len])
}

fn read(snapshot: &Snapshot, store: &Store) -> Result<Contents, String> {
    let mut all = Contents::new();
    for name in store.keyspaces().map_err(text)? {
        let keyspace = store.find_keyspace(&name).map_err(text)?.ok_or("no keyspace")?;
        let entries = snapshot.iter(&keyspace).map_err(text)?;
        let entries: BTreeMap<_, _> = entries.collect::<Result<_, _>>().map_err(text)?;
        for (key, value) in &entries {
            if snapshot.get(&keyspace, key).map_err(text)?.as_ref() != Some(value) {
                return Err(format!("{name}: a walk and a lookup differ"));
            }
        }
        all.insert(name, entries);
    }
    Ok(all)
}

impl State {
    fn new(pool: Pool) -> Result<State, String> {
        let state = State { store: Store::open(&pool, "store").map_err(text)?, pool, reader: None };
        (0..KEYSPACES.len()).try_for_each(|i| state.keyspace(i).map(drop))?;
        Ok(state)
    }

    fn keyspace(&self, i: usize) -> Result<Keyspace, String> {
        let retention = if i == AUDIT { Retention::All } else { Retention::None };
        self.store.keyspace_with(KEYSPACES[i], retention).map_err(text)
    }

    fn write(&self, tx: &mut Transaction, writes: &[Write]) -> Result<(), String> {
        for write in writes {
            let keyspace = self.keyspace(write.0)?;
            match value(*write) {
                Some(value) => tx.put(&keyspace, key(write.1), value).map_err(text)?,
                None => tx.delete(&keyspace, key(write.1)).map_err(text)?,
            }
        }
        Ok(())
    }

    fn commit(&self, writes: &[Write]) -> Result<(), String> {
        let mut tx = self.store.begin();
        self.write(&mut tx, writes)?;
        tx.commit().map(drop).map_err(text)
    }

    fn commit_together(&self, group: &[Vec<Write>]) -> Result<(), String> {
        let mut commits = Vec::new();
        for writes in group {
            let mut tx = self.store.begin();
            self.write(&mut tx, writes)?;
            commits.push(tx.commit_async());
        }
        commits.into_iter().try_for_each(|commit| commit.wait().map(drop).map_err(text))
    }

    fn delete_range(&self, i: usize, keys: &Range<u64>, writes: &[Write]) -> Result<(), String> {
        let mut tx = self.store.begin();
        tx.delete_range(&self.keyspace(i)?, key(keys.start)..key(keys.end)).map_err(text)?;
        self.write(&mut tx, writes)?;
        tx.commit().map(drop).map_err(text)
    }

    /// Compacts the pool; returns the moved bytes.
    fn compact(&self) -> Result<u64, String> {
        let compaction = self.pool.compaction().map_err(text)?.ok_or("a compaction is under way")?;
        let (mut place, mut moved_bytes) = (Some(StorePlace::default()), 0);
        while let Some(at) = place {
            let step = self.store.compact_at(&compaction, &at).map_err(text)?;
            (place, moved_bytes) = (step.next, moved_bytes + step.moved_bytes);
        }
        drop(compaction);
        self.pool.trim().map_err(text)?;
        Ok(moved_bytes)
    }

    /// The number of the snapshot that is kept by its number.
    fn numbered(&self) -> Result<Option<u64>, String> {
        let kept = self.store.kept().map_err(text)?;
        Ok(kept.into_iter().find(|kept| kept.name.is_none()).map(|kept| kept.number))
    }

    /// The versions of all keys of a keyspace.
    fn versions(&self, i: usize) -> Result<BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>, String> {
        let keyspace = self.keyspace(i)?;
        let mut all = BTreeMap::new();
        for key in (0..KEYS).map(key) {
            let versions = self.store.versions(&keyspace, &key).map_err(text)?;
            if !versions.is_empty() {
                all.insert(key, versions.into_iter().rev().map(|version| version.value).collect());
            }
        }
        Ok(all)
    }
}

impl Model {
    fn write(&mut self, write: Write) {
        let (key, value) = (key(write.1), value(write));
        let keyspace = self.current.get_mut(KEYSPACES[write.0]).unwrap();
        let is_change = value.is_some() || keyspace.contains_key(&key);
        match value.clone() {
            Some(value) => _ = keyspace.insert(key.clone(), value),
            None => _ = keyspace.remove(&key),
        }
        if is_change && write.0 == AUDIT {
            self.audit.entry(key).or_default().push(value);
        }
    }

    fn writes(&mut self, writes: &[Write]) {
        // A transaction has one version of each key, the last one.
        let last = |i: usize| writes[i + 1..].iter().all(|w| (w.0, w.1) != (writes[i].0, writes[i].1));
        (0..writes.len()).filter(|i| last(*i)).for_each(|i| self.write(writes[i]));
    }
}

impl Scenario for Script {
    type State = State;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn region_bytes(&self) -> u64 {
        self.bytes
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn setup(&self, region: Region) -> Result<State, String> {
        let mut state = State::new(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)?;
        self.start.iter().try_for_each(|op| self.apply(&mut state, op))?;
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

    fn continuation(&self) -> &[Op] {
        &self.continuation
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        let store = &state.store;
        match op {
            Op::Commit(writes) => state.commit(writes),
            Op::Group(group) => state.commit_together(group),
            Op::DeleteRange(i, keys, writes) => state.delete_range(*i, keys, writes),
            Op::Retain(i, retention) => {
                let keyspace = state.keyspace(*i)?;
                store.set_retention(&keyspace, *retention).map_err(text)
            }
            Op::KeepNumber => match state.numbered()? {
                None => store.keep_number(store.snapshot().number()).map(drop).map_err(text),
                Some(_) => Ok(()),
            },
            Op::DeleteNumber => match state.numbered()? {
                Some(number) => store.delete_number(number).map(drop).map_err(text),
                None => Ok(()),
            },
            Op::Conflict(write) => {
                let keyspace = state.keyspace(write.0)?;
                let mut late = store.begin();
                late.put(&keyspace, key(write.1), "late").map_err(text)?;
                late.put(&keyspace, "beside it", "late").map_err(text)?;
                state.commit(&[*write])?;
                match late.commit() {
                    Err(e) if e.is_conflict() => Ok(()),
                    other => Err(format!("no conflict, but {other:?}")),
                }
            }
            Op::Keep(name) => match store.keep(store.snapshot().number(), name) {
                Err(tembo_store::Error::SnapshotExists { .. }) => Ok(()),
                outcome => outcome.map_err(text),
            },
            Op::DeleteKept(name) => match store.delete_kept(name) {
                Err(tembo_store::Error::NoSuchSnapshot { .. }) => Ok(()),
                outcome => outcome.map_err(text),
            },
            Op::Renew(keyspace) => {
                store.drop_keyspace(KEYSPACES[*keyspace]).map_err(text)?;
                state.keyspace(*keyspace).map(drop)
            }
            Op::Collect(tables) => store.collect(*tables).map(drop).map_err(text),
            Op::Compact => state.compact().map(drop),
            Op::Read(open) => {
                state.reader = open.then(|| store.snapshot());
                Ok(())
            }
        }
    }

    fn initial(&self) -> Model {
        let current = KEYSPACES.map(|name| (name.to_owned(), BTreeMap::new())).into();
        let mut model = Model { current, ..Model::default() };
        self.start.iter().for_each(|op| self.apply_model(&mut model, op));
        model
    }

    /// The first ones of commits that are asked for together may be durable before the others.
    fn between(&self, before: &Model, op: &Op) -> Vec<Model> {
        let Op::Group(group) = op else { return Vec::new() };
        let mut model = before.clone();
        let mut states = Vec::new();
        for writes in &group[..group.len() - 1] {
            model.writes(writes);
            states.push(model.clone());
        }
        states
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Commit(writes) => model.writes(writes),
            Op::Group(group) => group.iter().for_each(|writes| model.writes(writes)),
            Op::Conflict(write) => model.write(*write),
            Op::DeleteRange(i, keys, writes) => {
                let deleted =
                    keys.clone().filter(|number| !writes.iter().any(|w| (w.0, w.1) == (*i, *number)));
                deleted.for_each(|number| model.write((*i, number, None)));
                model.writes(writes);
            }
            Op::KeepNumber => _ = model.numbered.get_or_insert_with(|| model.current.clone()),
            Op::DeleteNumber => model.numbered = None,
            Op::Keep(name) => _ = model.kept.entry((*name).to_owned()).or_insert(model.current.clone()),
            Op::DeleteKept(name) => _ = model.kept.remove(*name),
            Op::Renew(keyspace) => {
                let name = KEYSPACES[*keyspace];
                let others = model.kept.values_mut().chain(&mut model.numbered);
                if *keyspace == AUDIT {
                    model.audit.clear();
                }
                std::iter::once(&mut model.current)
                    .chain(others)
                    .for_each(|contents| _ = contents.insert(name.to_owned(), BTreeMap::new()));
            }
            Op::Collect(_) | Op::Compact | Op::Read(_) | Op::Retain(..) => {}
        }
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        let mut kept = BTreeMap::new();
        for one in state.store.kept().map_err(text)? {
            let Some(name) = one.name else { continue };
            kept.insert(name.clone(), read(&state.store.at_name(&name).map_err(text)?, &state.store)?);
        }
        let numbered = match state.numbered()? {
            Some(number) => Some(read(&state.store.at(number).map_err(text)?, &state.store)?),
            None => None,
        };
        let current = read(&state.store.snapshot(), &state.store)?;
        Ok(Model { current, kept, numbered, audit: state.versions(AUDIT)? })
    }

    fn check(&self, state: &State) -> Result<(), String> {
        let mut marks = state.pool.marks().map_err(text)?;
        state.store.check(&mut marks).map_err(text)?;
        marks.finish().map(drop).map_err(text)
    }
}

fn audit() -> Audit {
    Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true).allow_idle_fence(true)
}

/// Versions until vectors are made and made again, of short and of long values, with all that keeps and
/// collects them.
fn histories() -> Script {
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let mut ops = vec![
        commit(&[(0, 1, Some(3)), (1, 1, Some(100)), (0, 2, Some(8))]),
        Op::Keep("first"),
        commit(&[(0, 1, Some(40)), (0, 3, Some(0))]),
        Op::Conflict((0, 2, Some(9))),
        Op::Read(true),
        commit(&[(0, 1, None), (1, 2, Some(5))]),
        commit(&[(0, 1, Some(7))]),
        Op::Keep("second"),
        commit(&[(0, 1, Some(50))]),
        commit(&[(0, 1, Some(51)), (0, 2, None)]),
        Op::Read(false),
        Op::Collect(3),
    ];
    ops.extend((0..6).map(|i| commit(&[(0, 1, Some(20 + i)), (1, 2, Some(60 + i))])));
    ops.extend([
        Op::DeleteKept("first"),
        Op::Collect(2),
        Op::Collect(100),
        commit(&[(0, 2, Some(3000))]),
        Op::DeleteKept("second"),
        commit(&[(0, 1, None), (0, 3, None), (1, 1, None)]),
        Op::Collect(100),
        Op::Collect(100),
    ]);
    let continuation = vec![
        commit(&[(0, 9, Some(30)), (0, 1, Some(6))]),
        Op::Keep("after"),
        commit(&[(0, 9, None)]),
        Op::Collect(100),
        Op::DeleteKept("after"),
        Op::Collect(100),
    ];
    Script { name: "histories".to_owned(), start: Vec::new(), ops, continuation, bytes: 256 << 10 }
}

fn survived(outcome: Result<Report, Box<Failure>>) {
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn histories_survive_every_crash() {
    survived(Simulation::new(&histories()).limit(24).audit(audit()).run());
}

/// Indexes with several nodes, and transactions of many keys.
fn many_keys() -> Script {
    let all = |range: std::ops::Range<u64>, len: usize| {
        Op::Commit(range.map(|i| (i as usize % 2, i, Some(len + i as usize % 9))).collect())
    };
    let ops = vec![
        all(0..40, 5),
        Op::Keep("forty"),
        all(30..75, 12),
        Op::Commit((10..60).map(|i| (i as usize % 2, i, None)).collect()),
        Op::DeleteKept("forty"),
        Op::Keep("before the drop"),
        Op::Renew(1),
        Op::Collect(7),
        Op::Collect(30),
        Op::Collect(1000),
    ];
    Script {
        name: "many keys".to_owned(),
        start: Vec::new(),
        ops,
        continuation: vec![all(0..5, 1), Op::Collect(1000)],
        bytes: 384 << 10,
    }
}

#[test]
fn transactions_of_many_keys_survive_every_crash() {
    survived(Simulation::new(&many_keys()).limit(12).nested_limit(4).audit(audit()).run());
}

/// Every kind of retention, ranges that are deleted, groups, large values, and snapshots that are kept by
/// their numbers.
fn retained() -> Script {
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let mut ops = vec![
        Op::Retain(0, Retention::Versions(2)),
        commit(&[(0, 1, Some(9)), (1, 1, Some(20_000)), (2, 1, Some(9))]),
        Op::Group(vec![
            vec![(0, 1, Some(10)), (1, 2, Some(3))],
            vec![(1, 4, None), (0, 5, Some(2))],
            vec![(1, 3, Some(11))],
        ]),
        commit(&[(0, 1, Some(11)), (2, 1, None)]),
        Op::KeepNumber,
        Op::Retain(1, Retention::For(Duration::ZERO)),
        commit(&[(0, 1, Some(12)), (1, 1, Some(3000)), (2, 1, Some(4))]),
        Op::DeleteRange(0, 0..5, vec![(0, 3, Some(30))]),
        Op::DeleteRange(1, 1..9, vec![(2, 2, Some(8))]),
        Op::Collect(50),
        Op::Retain(0, Retention::All),
    ];
    ops.extend((0..5).map(|i| commit(&[(0, 3, Some(20 + i)), (2, 1, Some(i))])));
    ops.extend([
        Op::Retain(0, Retention::None),
        Op::Collect(1),
        Op::DeleteNumber,
        Op::Collect(50),
        Op::Renew(AUDIT),
        commit(&[(2, 1, Some(5))]),
        Op::Collect(50),
    ]);
    let continuation = vec![
        Op::KeepNumber,
        commit(&[(0, 3, None), (1, 1, Some(4000)), (2, 1, Some(6))]),
        Op::Retain(0, Retention::Versions(3)),
        Op::DeleteNumber,
        Op::Collect(100),
    ];
    Script { name: "retained".to_owned(), start: Vec::new(), ops, continuation, bytes: 384 << 10 }
}

#[test]
fn retention_ranges_and_groups_survive_every_crash() {
    survived(Simulation::new(&retained()).limit(16).audit(audit()).run());
}

/// Tombstones beside the slots of a table, of a vector, and of one in order; versions after them; and tables
/// that come apart with them.
fn deletions() -> Script {
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let put = |len: usize| commit(&[(AUDIT, 1, Some(len)), (0, 1, Some(len))]);
    let delete = || commit(&[(AUDIT, 1, None), (0, 1, None)]);
    // The retained keyspace: two versions and the tombstone, then a vector of eight.
    let mut ops = vec![put(3), Op::Read(true), put(30), Op::Keep("two"), delete(), Op::Collect(10), put(4)];
    ops.extend((0..4).map(|i| put(31 + i)));
    // The vector is full, then one in order is.
    ops.extend([delete(), Op::Keep("nine"), put(5)]);
    ops.extend((0..10).map(|i| put(40 + i % 2)));
    ops.extend([delete(), Op::DeleteKept("two"), Op::Collect(10), put(6), delete()]);
    ops.extend([Op::Read(false), Op::DeleteKept("nine"), Op::Collect(10), Op::Renew(AUDIT), Op::Collect(10)]);
    let continuation =
        vec![put(7), Op::Keep("after"), put(50), Op::Read(true), delete(), put(8), Op::Collect(10)];
    Script { name: "deletions".to_owned(), start: Vec::new(), ops, continuation, bytes: 256 << 10 }
}

#[test]
fn deletions_survive_every_crash() {
    survived(Simulation::new(&deletions()).limit(16).audit(audit()).run());
}

/// A store with holes: keys of one keyspace, with vectors and values, between those of another one that was
/// dropped.
fn sparse(keys: u64) -> Script {
    let write = |i: u64, len: usize| (usize::from(i.is_multiple_of(7)), i, Some(len + i as usize % 5));
    let all = |len: usize| -> Vec<Op> {
        let keys: Vec<u64> = (0..keys).collect();
        keys.chunks(40).map(|part| Op::Commit(part.iter().map(|i| write(*i, len)).collect())).collect()
    };
    let mut start = all(30);
    start.push(Op::Keep("thirty"));
    start.extend(all(50));
    start.push(Op::Keep("fifty"));
    start.extend(all(70));
    start.extend([Op::Renew(0), Op::Collect(2000), Op::Collect(2000)]);
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let ops = vec![Op::Compact, commit(&[(1, 14, Some(60)), (1, 7, None), (0, 200, Some(9))]), Op::Compact];
    let continuation =
        vec![commit(&[(0, 0, Some(5)), (1, 21, Some(70))]), Op::DeleteKept("fifty"), Op::Collect(2000)];
    Script { name: "a sparse store".to_owned(), start, ops, continuation, bytes: 1 << 20 }
}

#[test]
fn compaction_survives_every_crash() {
    let script = sparse(400);
    let dry = script.setup(Region::simulated(&vec![0; 1 << 20], 1 << 24, None).unwrap()).unwrap();
    let (before, model) = (dry.pool.stats().unused_bytes, script.observe(&dry).unwrap());
    let moved_bytes = dry.compact().unwrap();
    let gained = dry.pool.stats().unused_bytes as i64 - before as i64;
    println!("{moved_bytes} bytes moved, {gained} gained");
    assert!(moved_bytes > 2000 && gained >= 8 << 10, "{moved_bytes} {gained}");
    assert_eq!(script.observe(&dry).unwrap(), model);
    let calls = (1..4).find(|_| dry.compact() == Ok(0));
    println!("left alone after {calls:?} more");
    assert!(calls.is_some() && dry.compact() == Ok(0));
    survived(Simulation::new(&script).limit(8).nested_limit(2).depth(1).audit(audit()).run());
}

/// Mutants of a compaction are caught that lose a copy, or the word that leads to it.
#[test]
fn seeded_bugs_of_compaction_are_caught() {
    let script = Script { ops: vec![Op::Compact], ..sparse(150) };
    let simulation =
        Simulation::new(&script).limit(16).depth(0).continue_ops(1).audit(audit()).mutant_limit(16);
    let report = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&Mutation::ALWAYS_HARMFUL);
}

/// Operations at random, as a seed chooses.
fn random(seed: u64) -> Script {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let keys = [4, 20, KEYS][rng.random_range(0..3)];
    let inclination = rng.random_range(0.3..0.9);
    let write = |rng: &mut Xoshiro256PlusPlus| -> Write {
        let len = match rng.random_range(0..40) {
            0 => rng.random_range(1000..5000),
            1 => 20_000,
            2..15 => rng.random_range(0..8),
            _ => rng.random_range(8..60),
        };
        let len = rng.random_bool(inclination).then_some(len);
        (rng.random_range(0..3), rng.random_range(0..keys), len)
    };
    let writes = |rng: &mut Xoshiro256PlusPlus, most: usize| -> Vec<Write> {
        (0..rng.random_range(1..=most)).map(|_| write(rng)).collect()
    };
    let op = |rng: &mut Xoshiro256PlusPlus, most: usize| match rng.random_range(0..40) {
        0 | 1 => Op::Keep(NAMES[rng.random_range(0..3)]),
        2 | 3 => Op::DeleteKept(NAMES[rng.random_range(0..3)]),
        4 => Op::KeepNumber,
        5 => Op::DeleteNumber,
        6..9 => Op::Collect(rng.random_range(1..60)),
        9 => Op::Compact,
        10 => Op::Read(rng.random()),
        11 => Op::Renew(rng.random_range(0..3)),
        12..14 => {
            let count = rng.random_range(1..4);
            let kinds = [
                Retention::None,
                Retention::Versions(count),
                Retention::For(Duration::from_millis(u64::from(count) - 1)),
                Retention::All,
            ];
            Op::Retain(rng.random_range(0..2), kinds[rng.random_range(0..4)])
        }
        14..17 => {
            let low = rng.random_range(0..keys);
            Op::DeleteRange(rng.random_range(0..3), low..low + rng.random_range(0..12), writes(rng, 2))
        }
        17..20 => {
            let mut group: Vec<Vec<Write>> = (0..rng.random_range(2..4)).map(|_| writes(rng, 4)).collect();
            // Two members do not write one key, and what is done a second time makes no version more.
            let mut seen = BTreeSet::new();
            for (member, writes) in group.iter_mut().enumerate() {
                writes.retain(|w| w.0 != AUDIT && seen.insert((w.0, w.1)));
                writes.push((0, KEYS + member as u64, Some(8)));
            }
            Op::Group(group)
        }
        20 => Op::Conflict((rng.random_range(0..2), rng.random_range(0..keys), Some(9))),
        _ => Op::Commit(writes(rng, most)),
    };
    let start = (0..rng.random_range(0..40)).map(|_| op(&mut rng, 10)).collect();
    let ops = (0..4).map(|_| op(&mut rng, 16)).collect();
    let continuation = (0..3).map(|_| op(&mut rng, 3)).collect();
    Script { name: format!("random operations, seed {seed}"), start, ops, continuation, bytes: 1 << 20 }
}

#[test]
fn campaign_of_random_operations() {
    survived(campaign(6_000, |seed| {
        let script = random(seed);
        Simulation::new(&script).seed(seed).limit(6).nested_limit(3).depth(1).audit(audit()).run()
    }));
}

#[test]
fn seeded_bugs_are_caught() {
    let simulation_of = histories();
    // Every third operation here flushes home lines, as half of the lane's records are to be written over.
    // The last one does, so that an earlier flush is either needed or done again.
    let short = Script { ops: simulation_of.ops[..9].to_vec(), ..simulation_of };
    let simulation = Simulation::new(&short).limit(48).depth(0).continue_ops(1).audit(audit());
    let report = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    let lines = flushed_lines(&short);
    report.assert_all_caught_but(&Mutation::ALWAYS_HARMFUL, |survivor| {
        let line = survivor.what.split_once("flush of line 0x")?.1.split(' ').next()?;
        let line = u64::from_str_radix(line, 16).ok()?;
        let operation = survivor.what.split_once(" of operation ")?.1.split(' ').next()?;
        let operation: usize = operation.parse().ok()?;
        if operation == short.ops.len() {
            return Some("the history ends before the records of this line are written over");
        }
        let later = lines[operation..].iter().any(|lines| lines.contains(&line));
        later.then_some("it is flushed again before the records of it are written over")
    });
    assert!(report.survivors().count() <= HARMLESS_BUGS, "{report}");
}

/// Lines are flushed at home when half of a lane's records are to be written over; in so short a history
/// this many such flushes may be missing.
const HARMLESS_BUGS: usize = 25;

/// Notes lines that are flushed.
#[derive(Default)]
struct Flushes(Mutex<BTreeSet<u64>>);

impl Observer for Flushes {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, line: u64) {
        self.0.lock().unwrap().insert(line);
    }
    fn fence(&self, _: ThreadTag) {}
}

/// The lines that each operation flushes.
fn flushed_lines(script: &Script) -> Vec<BTreeSet<u64>> {
    let flushes = Arc::new(Flushes::default());
    let bytes = vec![0; script.bytes as usize];
    let region = Region::simulated(&bytes, 1 << 24, Some(flushes.clone())).unwrap();
    let mut state = script.setup(region).unwrap();
    let lines = |op: &Op| {
        flushes.0.lock().unwrap().clear();
        script.apply(&mut state, op).unwrap();
        flushes.0.lock().unwrap().clone()
    };
    script.ops.iter().map(lines).collect()
}
