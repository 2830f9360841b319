//! Maps of every kind that are dropped: the name goes at once, the blocks step by step, through crashes and
//! in a full pool.
//!
//! A pool had room for 128 maps, and none could be dropped.

use crate::crashes::{InPool, Script, scripted_in_a_pool, survived, text};
use std::collections::BTreeMap;
use tembo_crashsim::{Audit, Mutation, Scenario, Simulation, Target};
use tembo_index::{
    Error, MapKind, U64Tree, VersionedHash, VersionedTree, WbTree, check_dropped, drop_map, has_dropped,
    reclaim_dropped,
};
use tembo_pmem::Region;
use tembo_pool::{Feature, Geometry, Marks, Options, Pool, Writer};

const KINDS: [(MapKind, &str); 4] = [
    (MapKind::Plain, "plain"),
    (MapKind::Versioned, "versioned"),
    (MapKind::Hash, "hash"),
    (MapKind::Fixed, "fixed"),
];

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn value(i: u64) -> Vec<u8> {
    vec![i as u8; 20 + i as usize % 30]
}

/// Fills a map with versions, which then has more than one, some of them named, and more that died.
macro_rules! fill_versions {
    ($map:expr, $count:expr) => {{
        let map = $map;
        let failed = |e: Error| text(e);
        for i in 0..$count {
            map.put(&key(i), &value(i)).map_err(failed)?;
        }
        map.keep(&map.snapshot(), "first").map_err(failed)?;
        map.clear().map_err(failed)?;
        for i in 0..$count / 2 {
            map.put(&key(i), &value(i + 1)).map_err(failed)?;
        }
        map.keep(&map.snapshot(), "second").map_err(failed)?;
        for i in 0..$count / 4 {
            map.remove(&key(i)).map_err(failed)?;
        }
        Ok(())
    }};
}

/// Makes a map of this many keys, and all that its kind can have.
fn make(pool: &Pool, kind: MapKind, name: &str, count: u64) -> Result<(), String> {
    match kind {
        MapKind::Plain => {
            let mut lane = pool.lane().map_err(text)?;
            for group in (0..count.max(1)).collect::<Vec<_>>().chunks(20) {
                let mut tx = lane.begin();
                let tree = match WbTree::open(pool, name).map_err(text)? {
                    Some(tree) => tree,
                    None => WbTree::create(&mut tx, name).map_err(text)?,
                };
                // Some of it was cleared before.
                if group[0] == 20 {
                    tree.clear(&mut tx).map_err(text)?;
                }
                for i in group {
                    tree.put(&mut tx, &key(*i), &[&value(*i)]).map_err(text)?;
                }
                tx.commit().map_err(text)?;
            }
            Ok(())
        }
        MapKind::Versioned => fill_versions!(VersionedTree::create(pool, name).map_err(text)?, count),
        MapKind::Hash => fill_versions!(VersionedHash::create_with_seed(pool, name, 7).map_err(text)?, count),
        MapKind::Fixed => {
            let tree = U64Tree::create(pool, name).map_err(text)?;
            (0..count).try_for_each(|i| tree.put(i, i * i).map(drop)).map_err(text)
        }
    }
}

fn read(pool: &Pool, kind: MapKind, name: &str) -> Result<Contents, String> {
    let none = || format!("no {name}");
    let mut contents = Contents::new();
    match kind {
        MapKind::Plain => {
            let tree = WbTree::open(pool, name).map_err(text)?.ok_or_else(none)?;
            let mut walk = tree.iter();
            while let Some((key, value)) = walk.advance().map_err(text)? {
                contents.insert(key.to_vec(), value.to_vec());
            }
        }
        MapKind::Versioned => {
            let tree = VersionedTree::open(pool, name).map_err(text)?.ok_or_else(none)?;
            for entry in tree.snapshot().iter() {
                let entry = entry.map_err(text)?;
                contents.insert(entry.key().to_vec(), entry.value().to_vec());
            }
        }
        MapKind::Hash => {
            let table = VersionedHash::open(pool, name).map_err(text)?.ok_or_else(none)?;
            for entry in table.snapshot().iter() {
                let entry = entry.map_err(text)?;
                contents.insert(entry.key().to_vec(), entry.value().to_vec());
            }
        }
        MapKind::Fixed => {
            let tree = U64Tree::open(pool, name).map_err(text)?.ok_or_else(none)?;
            for record in tree.iter() {
                let (key, value) = record.map_err(text)?;
                contents.insert(key.to_be_bytes().to_vec(), value.to_be_bytes().to_vec());
            }
        }
    }
    Ok(contents)
}

fn check_maps(pool: &Pool, marks: &mut Marks) -> Result<u64, String> {
    for root in pool.roots().map_err(text)? {
        match MapKind::of_root(root.kind).ok_or("an unknown kind")? {
            MapKind::Plain => {
                WbTree::open(pool, &root.name).map_err(text)?.ok_or("none")?.check(marks).map_err(text)?
            }
            MapKind::Versioned => _ = VersionedTree::check_at(pool, root.off, marks).map_err(text)?,
            MapKind::Hash => _ = VersionedHash::check_at(pool, root.off, marks).map_err(text)?,
            MapKind::Fixed => _ = U64Tree::check_at(pool, root.off, marks).map_err(text)?,
        }
    }
    check_dropped(pool, marks).map_err(text)
}

/// Proves everything; returns how many blocks are allocated.
fn check_all(pool: &Pool) -> u64 {
    let mut marks = pool.marks().unwrap();
    check_maps(pool, &mut marks).unwrap();
    marks.finish().unwrap().allocated_blocks
}

/// Drops a map by a transaction of its own.
fn drop_by(writer: &Writer, name: &str) -> Result<bool, String> {
    let mut tx = writer.begin();
    tx.pool().enable(Feature::Dropped).map_err(text)?;
    let was_there = drop_map(&mut tx, name).map_err(text)?;
    tx.commit().map_err(text)?;
    Ok(was_there)
}

fn reclaim_by(writer: &Writer, steps: usize) -> Result<bool, String> {
    let mut tx = writer.begin();
    let is_left = reclaim_dropped(&mut tx, steps).map_err(text)?;
    tx.commit().map_err(text)?;
    Ok(is_left)
}

#[derive(Debug, Clone)]
enum Op {
    Drop(&'static str),
    Reclaim(usize),
    /// Makes an empty map without versions.
    Make(&'static str),
    Put(&'static str, u64),
}

struct Maps {
    script: Script<Op>,
    kinds: Vec<(MapKind, &'static str)>,
    keys: u64,
}

struct State {
    pool: Pool,
    writer: Writer,
}

impl InPool for State {
    fn open(pool: Pool) -> Result<State, String> {
        Ok(State { writer: Writer::new(pool.lane().map_err(text)?), pool })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn check(&self, marks: &mut Marks) -> Result<(), String> {
        check_maps(&self.pool, marks).map(drop)
    }
}

impl Scenario for Maps {
    type State = State;
    type Op = Op;
    /// Every map by its name.
    type Model = BTreeMap<String, Contents>;

    scripted_in_a_pool!();

    fn setup(&self, region: Region) -> Result<State, String> {
        let state = State::create_in(region)?;
        self.kinds.iter().try_for_each(|(kind, name)| make(&state.pool, *kind, name, self.keys))?;
        Ok(state)
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        match op {
            Op::Drop(name) => drop_by(&state.writer, name).map(drop),
            Op::Reclaim(steps) => reclaim_by(&state.writer, *steps).map(drop),
            Op::Make(name) => {
                let mut tx = state.writer.begin();
                WbTree::create(&mut tx, name).map_err(text)?;
                tx.commit().map_err(text)
            }
            Op::Put(name, i) => {
                let tree = WbTree::open(&state.pool, name).map_err(text)?.ok_or("no such map")?;
                let mut tx = state.writer.begin();
                tree.put(&mut tx, &key(*i), &[&value(*i)]).map_err(text)?;
                tx.commit().map_err(text)
            }
        }
    }

    fn initial(&self) -> Self::Model {
        let region =
            Region::simulated(&vec![0; self.script.bytes as usize], self.script.bytes, None).unwrap();
        self.observe(&self.setup(region).unwrap()).unwrap()
    }

    fn apply_model(&self, model: &mut Self::Model, op: &Op) {
        match op {
            Op::Drop(name) => _ = model.remove(*name),
            Op::Reclaim(_) => {}
            Op::Make(name) => _ = model.insert((*name).to_owned(), Contents::new()),
            Op::Put(name, i) => _ = model.get_mut(*name).unwrap().insert(key(*i), value(*i)),
        }
    }

    fn observe(&self, state: &State) -> Result<Self::Model, String> {
        let roots = state.pool.roots().map_err(text)?.into_iter();
        let maps = roots.map(|root| {
            let kind = MapKind::of_root(root.kind).ok_or("an unknown kind")?;
            Ok((root.name.clone(), read(&state.pool, kind, &root.name)?))
        });
        maps.collect()
    }
}

fn audit() -> Audit {
    Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true).allow_idle_fence(true)
}

fn dropping(kind: MapKind, name: &'static str, keys: u64) -> Maps {
    let mut ops = vec![Op::Drop(name), Op::Reclaim(1), Op::Make(name), Op::Put(name, 3)];
    ops.extend([1, 1, 2, 3, 1, 1, 5, 1, 1, 8, 1, 1, 40].map(Op::Reclaim));
    ops.extend([Op::Drop(name), Op::Reclaim(1000), Op::Make(name)]);
    let continuation = vec![Op::Reclaim(1000), Op::Make("other"), Op::Put("other", 1), Op::Drop("other")];
    let script = Script { bytes: 320 << 10, ..Script::new(format!("dropping {name}"), ops, continuation) };
    Maps { script, kinds: vec![(kind, name)], keys }
}

#[test]
fn dropped_maps_of_every_kind_come_apart_through_crashes() {
    for (kind, name) in KINDS {
        let keys = if kind == MapKind::Fixed { 300 } else { 90 };
        let scenario = dropping(kind, name, keys);
        survived(Simulation::new(&scenario).limit(16).audit(audit()).run());
    }
}

#[test]
fn several_dropped_maps_wait_for_each_other_through_crashes() {
    let drops = KINDS.map(|(_, name)| Op::Drop(name));
    let mut ops = drops.to_vec();
    ops.extend([3, 1, 2, 5, 1, 9, 1, 100].map(Op::Reclaim));
    let continuation = vec![Op::Make("other"), Op::Reclaim(2), Op::Put("other", 1), Op::Reclaim(500)];
    let script = Script { bytes: 512 << 10, ..Script::new("dropping all", ops, continuation) };
    let scenario = Maps { script, kinds: KINDS.to_vec(), keys: 40 };
    survived(Simulation::new(&scenario).limit(16).audit(audit()).run());
}

/// Every seeded bug of a harmful kind in the operations of a drop is caught by some image.
#[test]
fn seeded_bugs_in_dropping_are_caught() {
    let ops = vec![Op::Drop("versioned"), Op::Reclaim(2), Op::Reclaim(3), Op::Reclaim(1)];
    let script = Script { bytes: 256 << 10, ..Script::new("seeded bugs", ops, vec![Op::Reclaim(1000)]) };
    let scenario = Maps { script, kinds: vec![(MapKind::Versioned, "versioned")], keys: 40 };
    let simulation = Simulation::new(&scenario).limit(48).depth(0).continue_ops(1).audit(audit());
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mutants = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&Mutation::ALWAYS_HARMFUL);
}

#[test]
fn all_space_comes_back_and_the_name_is_free_at_once() {
    for (kind, name) in KINDS {
        let region = Region::simulated(&vec![0; 1 << 20], 1 << 20, None).unwrap();
        let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
        let writer = Writer::new(pool.lane().unwrap());
        let before = check_all(&pool);
        assert!(!drop_by(&writer, name).unwrap(), "there is none");
        make(&pool, kind, name, 400).unwrap();
        let filled = check_all(&pool);
        assert!(drop_by(&writer, name).unwrap() && has_dropped(&pool).unwrap(), "{name}");
        assert_eq!(check_all(&pool), filled, "{name}: nothing is freed by the drop itself");
        make(&pool, kind, name, 10).unwrap();
        assert!(!read(&pool, kind, name).unwrap().is_empty());
        let mut steps = 0;
        while reclaim_by(&writer, 1).unwrap() {
            steps += 1;
            if steps % 7 == 0 {
                check_all(&pool);
            }
        }
        assert!(steps > 3, "{name} went in {steps} steps");
        drop_by(&writer, name).unwrap();
        while reclaim_by(&writer, 100).unwrap() {}
        assert_eq!(check_all(&pool), before, "{name}: all blocks came back");
    }
}

/// The second time, the list of dropped maps became a circle.
#[test]
fn a_map_is_dropped_once_in_a_transaction() {
    let region = Region::simulated(&vec![0; 1 << 20], 1 << 20, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let writer = Writer::new(pool.lane().unwrap());
    for (kind, name) in KINDS {
        let before = check_all(&pool);
        make(&pool, kind, name, 20).unwrap();
        pool.enable(Feature::Dropped).unwrap();
        let mut tx = writer.begin();
        assert!(drop_map(&mut tx, name).unwrap());
        assert!(!drop_map(&mut tx, name).unwrap(), "{name} is gone");
        tx.commit().unwrap();
        while reclaim_by(&writer, 100).unwrap() {}
        assert_eq!(check_all(&pool), before, "{name}");
    }
}

#[test]
fn a_map_that_is_open_is_not_dropped() {
    let region = Region::simulated(&vec![0; 1 << 20], 1 << 20, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let writer = Writer::new(pool.lane().unwrap());
    make(&pool, MapKind::Fixed, "fixed", 10).unwrap();
    pool.enable(Feature::Dropped).unwrap();
    let open = U64Tree::open(&pool, "fixed").unwrap();
    let mut tx = writer.begin();
    assert!(matches!(drop_map(&mut tx, "fixed"), Err(Error::InUse)));
    drop(open);
    assert!(drop_map(&mut tx, "fixed").unwrap());
}

/// In a pool without a byte to spare dropping works, and so does every step, in each kind.
#[test]
fn a_map_is_dropped_in_a_full_pool() {
    for (kind, name) in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            create: true,
            initial_bytes: 1 << 20,
            max_bytes: Some(1 << 20),
            geometry: Some(Geometry::tiny()),
            ..Options::default()
        };
        let pool = Pool::open(dir.path().join("full.pool"), &options).unwrap();
        let writer = Writer::new(pool.lane().unwrap());
        make(&pool, kind, name, 300).unwrap();
        let mut tx = writer.begin();
        let filler = WbTree::create(&mut tx, "filler").unwrap();
        tx.commit().unwrap();
        for bytes in [4000, 1000, 200, 40, 8, 0] {
            for i in 0_u32.. {
                let mut tx = writer.begin();
                let key = [bytes as u8, i as u8, (i >> 8) as u8];
                match filler.put(&mut tx, &key, &[&vec![1; bytes]]).map(|_| tx.commit()) {
                    Ok(Ok(())) => {}
                    Ok(Err(e)) => panic!("{e}"),
                    Err(_) => break,
                }
            }
        }
        check_all(&pool);
        assert!(drop_by(&writer, name).unwrap(), "{name}");
        while reclaim_by(&writer, 1).unwrap() {}
        check_all(&pool);
        make(&pool, kind, name, 5).unwrap();
        check_all(&pool);
    }
}
