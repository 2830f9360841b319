//! Compaction of the tree of 8-byte keys: crashes at every step of a move, and threads beside it.

use crate::crashes::{InPool, Script, scripted_in_a_pool, survived, text};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tembo_crashsim::{Audit, Mutation, Scenario, Simulation, Target};
use tembo_index::U64Tree;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Marks, Pool};

type Model = BTreeMap<u64, u64>;

/// Records of a leaf that keys in ascending order fill.
const LEAF: u64 = 124;

#[derive(Debug, Clone)]
enum Op {
    Put(std::ops::Range<u64>),
    Remove(std::ops::Range<u64>),
    Compact,
    /// Everything that DRAM knows is forgotten.
    Open,
}

struct State {
    pool: Pool,
    tree: Option<U64Tree>,
}

struct Records {
    script: Script<Op>,
    start: Vec<Op>,
}

impl InPool for State {
    fn open(pool: Pool) -> Result<State, String> {
        let tree = match U64Tree::open(&pool, "tree").map_err(text)? {
            Some(tree) => tree,
            None => U64Tree::create(&pool, "tree").map_err(text)?,
        };
        Ok(State { pool, tree: Some(tree) })
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

    /// Compacts the pool; returns the moved bytes.
    fn compact(&self) -> Result<u64, String> {
        let compaction = self.pool.compaction().map_err(text)?.ok_or("a compaction is under way")?;
        let (mut from, mut moved_bytes) = (Some(0), 0);
        while let Some(at) = from {
            let step = self.tree().compact_at(&compaction, at).map_err(text)?;
            (from, moved_bytes) = (step.next, moved_bytes + step.moved_bytes);
        }
        drop(compaction);
        self.pool.trim().map_err(text)?;
        Ok(moved_bytes)
    }

    fn perform(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Put(keys) => {
                keys.clone().try_for_each(|key| self.tree().put(key, key + 1).map(drop)).map_err(text)
            }
            Op::Remove(keys) => {
                keys.clone().try_for_each(|key| self.tree().remove(key).map(drop)).map_err(text)
            }
            Op::Compact => self.compact().map(drop),
            Op::Open => {
                drop(self.tree.take());
                self.tree = U64Tree::open(&self.pool, "tree").map_err(text)?;
                Ok(())
            }
        }
    }
}

fn edit_model(model: &mut Model, op: &Op) {
    match op {
        Op::Put(keys) => keys.clone().for_each(|key| _ = model.insert(key, key + 1)),
        Op::Remove(keys) => keys.clone().for_each(|key| _ = model.remove(&key)),
        Op::Compact | Op::Open => {}
    }
}

impl Scenario for Records {
    type State = State;
    type Op = Op;
    type Model = Model;

    scripted_in_a_pool!();

    fn setup(&self, region: Region) -> Result<State, String> {
        let mut state = State::create_in(region)?;
        self.start.iter().try_for_each(|op| state.perform(op))?;
        Ok(state)
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        state.perform(op)
    }

    fn initial(&self) -> Model {
        let mut model = Model::new();
        self.start.iter().for_each(|op| edit_model(&mut model, op));
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        edit_model(model, op);
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

/// Every eighth leaf is left, full.
fn sparse(leaves: u64, ops: Vec<Op>) -> Records {
    let gone =
        (0..leaves).filter(|leaf| leaf % 8 != 3).map(|leaf| Op::Remove(leaf * LEAF..(leaf + 1) * LEAF));
    let start = std::iter::once(Op::Put(0..leaves * LEAF)).chain(gone).collect();
    let continuation = vec![Op::Put(7..8), Op::Remove(3 * LEAF..3 * LEAF + 1), Op::Open, Op::Put(900..901)];
    Records { script: Script { bytes: 512 << 10, ..Script::new("sparse leaves", ops, continuation) }, start }
}

/// Late flushes and fences, as divisions leave them.
fn audit() -> Audit {
    Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true).allow_idle_fence(true)
}

#[test]
fn compaction_survives_crashes() {
    let ops = vec![Op::Compact, Op::Put(5..6), Op::Open, Op::Compact];
    let scenario = sparse(64, ops);
    let dry = scenario.setup(Region::simulated(&vec![0; 1 << 20], 1 << 24, None).unwrap()).unwrap();
    let (before, model) = (dry.pool.stats().unused_bytes, scenario.observe(&dry).unwrap());
    let moved_bytes = dry.compact().unwrap();
    let gained = dry.pool.stats().unused_bytes - before;
    println!("{moved_bytes} bytes moved, {gained} gained");
    assert!(moved_bytes >= 3 * 2048 && gained >= 16 << 10, "{moved_bytes} {gained}");
    assert_eq!(scenario.observe(&dry).unwrap(), model);
    dry.compact().unwrap();
    assert_eq!(dry.compact(), Ok(0), "a compacted tree is left alone");
    survived(Simulation::new(&scenario).limit(8).nested_limit(2).depth(1).audit(audit()).run());
}

/// Mutants of a compaction are caught that lose a copy, or the word that leads to it.
#[test]
fn seeded_bugs_of_compaction_are_caught() {
    let scenario = sparse(48, vec![Op::Compact]);
    let simulation = Simulation::new(&scenario).limit(12).depth(0).continue_ops(1).audit(audit());
    let report = simulation.mutant_limit(12).mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&[Mutation::DropFlush, Mutation::DropFence, Mutation::ForeignFence]);
}

/// Leaves and inner nodes of a tree of three levels move, more than once.
#[test]
fn inner_nodes_move_with_their_leaves() {
    let region = Region::simulated(&vec![0; 64 << 20], 1 << 27, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let mut state = State::open(pool).unwrap();
    let (leaves, mut moved) = (LEAF * LEAF + 600, Vec::new());
    state.perform(&Op::Put(0..leaves * LEAF)).unwrap();
    for round in 0..3 {
        (0..leaves).filter(|leaf| leaf % 16 != round).for_each(|leaf| {
            if leaf % 16 < 13 || round == 0 {
                state.perform(&Op::Remove(leaf * LEAF..(leaf + 1) * LEAF)).unwrap();
            }
        });
        moved.push(state.compact().unwrap());
        state.check_all().unwrap();
        (0..leaves).step_by(16).for_each(|leaf| {
            state.perform(&Op::Put(leaf * LEAF..(leaf + 3) * LEAF)).unwrap();
        });
    }
    println!("{moved:?} bytes moved");
    assert!(moved[0] > 600 * 2048 / 2, "{moved:?}");
    let scenario = sparse(1, Vec::new());
    let walked = scenario.observe(&state).unwrap();
    assert!(walked.iter().all(|(key, value)| *value == key + 1));
    state.perform(&Op::Open).unwrap();
    assert_eq!(scenario.observe(&state).unwrap(), walked);
}

/// Threads put, look up, remove and scan while leaves move; each key belongs to one writer. At first the
/// writers have leaves of their own: those of a round are made anew while nobody looks.
#[test]
fn threads_go_on_while_leaves_move() {
    const LEAVES: u64 = 60;
    let region = Region::simulated(&vec![0; 16 << 20], 1 << 26, None).unwrap();
    let mut state = State::open(Pool::create_in(region, &Geometry::tiny()).unwrap()).unwrap();
    state.perform(&Op::Put(0..LEAVES * LEAF)).unwrap();
    (0..LEAVES).filter(|leaf| leaf % 6 > 0).for_each(|leaf| {
        state.perform(&Op::Remove(leaf * LEAF + 2..(leaf + 1) * LEAF)).unwrap();
    });
    let (done, state, base) = (AtomicBool::new(false), &state, &AtomicU64::new(1 << 39));
    let is_done = &|| done.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let writer = move |thread: u64| {
            let mut model: BTreeMap<u64, Option<u64>> = BTreeMap::new();
            for i in (0u64..).take_while(|_| !is_done()) {
                // In the leaves that the compaction under way moves.
                let leaf = base.load(Ordering::Relaxed) + (i % 5 * 8 + 3) * LEAF;
                let key = leaf + i * 7919 % (LEAF / 2) * 2 + thread;
                let known = model.get(&key).copied();
                let (before, after) = match i % 9 {
                    4 => (state.tree().remove(key).unwrap(), None),
                    _ => (state.tree().put(key, i).unwrap(), Some(i)),
                };
                assert!(known.is_none_or(|known| before == known), "{key}: {before:?}, not {known:?}");
                assert_eq!(state.tree().get(key).unwrap(), after);
                model.insert(key, after);
            }
            model
        };
        let writers = [0, 1].map(|thread| scope.spawn(move || writer(thread)));
        scope.spawn(move || {
            while !is_done() {
                let mut records = Vec::new();
                state.tree().scan(0, (LEAVES * LEAF) as usize, &mut records).unwrap();
                let old: Vec<_> = records.iter().filter(|(key, _)| *key < LEAVES * LEAF).collect();
                assert_eq!(old.len() as u64, 10 * LEAF + 100);
                assert!(old.iter().all(|(key, value)| *value == key + 1));
                (0..LEAVES).for_each(|leaf| {
                    assert_eq!(state.tree().get(leaf * LEAF + 1).unwrap(), Some(leaf * LEAF + 2));
                });
            }
        });
        let mut moved_bytes = 0;
        for round in 0..20u64 {
            let first = (1 << 40) + round * 1_000_000;
            (first..first + 40 * LEAF).for_each(|key| _ = state.tree().put(key, 0).unwrap());
            let gone = (0..40 * LEAF).filter(|key| key / LEAF % 8 != 3);
            gone.for_each(|key| assert!(state.tree().remove(first + key).unwrap().is_some()));
            base.store(first, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(2));
            moved_bytes += state.compact().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        for (key, value) in writers.into_iter().flat_map(|writer| writer.join().unwrap()) {
            assert_eq!(state.tree().get(key).unwrap(), value, "{key}");
        }
        println!("{moved_bytes} bytes moved");
        assert!(moved_bytes > 20 * 2048, "{moved_bytes}");
    });
    state.check_all().unwrap();
}
