//! Crashes at every flush and fence of every operation of the tree, and of what recovers from them.
//!
//! The directed scenarios bring a tree to the edge of a change of structure and do the operation that makes
//! it; how many blocks that gains or loses proves that it was the change meant. The campaign does
//! operations at random:
//! `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-index --test suite crash::random` is the long one.

mod compaction;
mod edges;
mod mutants;
mod random;
mod readers;

use crate::crashes::{InPool, Script, scripted_in_a_pool, survived, text};
use std::collections::BTreeMap;
use tembo_crashsim::{Audit, Scenario, Simulation};
use tembo_index::{Counting, WbTree};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Marks, Pool, Tx, Writer};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A change of one key, or of some.
#[derive(Debug, Clone)]
enum Edit {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Insert(Vec<u8>, Vec<u8>),
    /// Appends to the value, or makes one; removes it when it is long.
    Extend(Vec<u8>),
    PopLast,
    RemoveRange(Vec<u8>, Vec<u8>),
    /// Many keys, and the value that they all get.
    PutMany(Vec<Vec<u8>>, Vec<u8>),
}

/// The operation of one transaction, or of a reader.
#[derive(Debug, Clone)]
enum Op {
    Edits(Vec<Edit>),
    /// Edits that are taken back by a savepoint, then some that are not.
    Partly {
        undone: Vec<Edit>,
        kept: Vec<Edit>,
    },
    Abort(Vec<Edit>),
    Clear,
    /// Edits, a clear, and edits in one transaction.
    ClearBetween(Vec<Edit>, Vec<Edit>),
    Reclaim(usize),
    /// Removes a range in groups: several transactions.
    RemoveInGroups(Vec<u8>, Vec<u8>),
    /// Moves records and nodes out of sparse slabs, a leaf with each transaction, and frees the slabs.
    Compact,
    /// A reader looks a key up.
    Get(Vec<u8>),
}

struct Trees {
    script: Script<Op>,
    /// The edits before the operations, made by few transactions.
    start: Vec<Edit>,
    clear_after_start: bool,
    counting: Counting,
}

struct State {
    pool: Pool,
    writer: Writer,
    tree: WbTree,
}

impl InPool for State {
    fn open(pool: Pool) -> Result<State, String> {
        let writer = Writer::new(pool.lane().map_err(text)?);
        let tree = match WbTree::open(&pool, "tree").map_err(text)? {
            Some(tree) => tree,
            None => create(&writer, Counting::Nothing)?,
        };
        Ok(State { pool, writer, tree })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn check(&self, marks: &mut Marks) -> Result<(), String> {
        self.tree.check(marks).map_err(text)
    }
}

fn create(writer: &Writer, counting: Counting) -> Result<WbTree, String> {
    let mut tx = writer.begin();
    let tree = WbTree::create_counting(&mut tx, "tree", counting).map_err(text)?;
    tx.commit().map_err(text)?;
    Ok(tree)
}

/// The bytes before the value of an edit, in a tree that counts weights.
fn weight(counting: Counting, value_bytes: usize) -> Vec<u8> {
    match counting {
        Counting::Weights => (value_bytes as u32 + 1).to_le_bytes().to_vec(),
        _ => Vec::new(),
    }
}

impl State {
    fn create(region: Region, counting: Counting) -> Result<State, String> {
        if counting == Counting::Nothing {
            return State::create_in(region);
        }
        let pool = Pool::create_in(region, &Geometry::tiny()).map_err(text)?;
        let writer = Writer::new(pool.lane().map_err(text)?);
        let tree = create(&writer, counting)?;
        Ok(State { pool, writer, tree })
    }

    /// The value without its weight.
    fn own<'v>(&self, value: &'v [u8]) -> &'v [u8] {
        &value[weight(self.tree.counting(), 0).len()..]
    }

    fn modify(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool, String> {
        let counting = self.tree.counting();
        let change = |value: Option<&[u8]>| {
            let new = extended(value.map(|value| self.own(value)))?;
            Some([weight(counting, new.len()), new].concat())
        };
        self.tree.modify(tx, key, change).map_err(text)
    }

    /// The ranks in a tree that counts.
    fn check_ranks(&self, model: &Model) -> Result<(), String> {
        let counting = self.tree.counting();
        if counting == Counting::Nothing {
            return Ok(());
        }
        let tx = self.writer.begin();
        let mut rank = 0;
        for (key, value) in model {
            let found = self.tree.rank_in(&tx, key).map_err(text)?;
            let weight = if counting == Counting::Weights { value.len() as u64 + 1 } else { 1 };
            for nth in [rank, rank + weight - 1] {
                let ranked = self.tree.nth_in(&tx, nth).map_err(text)?;
                if found != rank || ranked.is_none_or(|ranked| ranked.key != key || ranked.rank != rank) {
                    return Err(format!("{key:?} has rank {rank}, not {found}; number {nth} is {ranked:?}"));
                }
            }
            rank += weight;
        }
        let all = self.tree.tally_in(&tx).map_err(text)?;
        (all == rank).then_some(()).ok_or_else(|| format!("the tree's tally is {rank}, not {all}"))
    }

    fn edit(&self, tx: &mut Tx<'_>, edits: &[Edit]) -> Result<(), String> {
        let weight = |value: &[u8]| weight(self.tree.counting(), value.len());
        for edit in edits {
            match edit {
                Edit::Put(key, value) => {
                    _ = self.tree.put(tx, key, &[&weight(value), value]).map_err(text)?;
                }
                Edit::Remove(key) => _ = self.tree.remove(tx, key).map_err(text)?,
                Edit::Insert(key, value) => {
                    let value = [weight(value), value.clone()].concat();
                    _ = self.tree.insert(tx, key, &value).map_err(text)?;
                }
                Edit::Extend(key) => _ = self.modify(tx, key)?,
                Edit::PopLast => _ = self.tree.pop_last(tx).map_err(text)?,
                Edit::RemoveRange(low, high) => {
                    _ = self.tree.remove_range::<Vec<u8>>(tx, low..high).map_err(text)?
                }
                Edit::PutMany(keys, value) => {
                    let (keys, value) =
                        (keys.iter().map(Vec::as_slice), [weight(value), value.clone()].concat());
                    self.tree.put_many_without_undo(tx, keys, |_, _| Some(&value)).map_err(text)?;
                }
            }
        }
        Ok(())
    }

    fn perform(&self, op: &Op) -> Result<(), String> {
        if let Op::RemoveInGroups(low, high) = op {
            let removed = self.tree.remove_range_in_groups::<Vec<u8>>(low..high, || self.writer.begin());
            return removed.map(drop).map_err(text);
        }
        if matches!(op, Op::Compact) {
            return self.compact().map(drop);
        }
        let mut tx = self.writer.begin();
        match op {
            Op::Edits(edits) => self.edit(&mut tx, edits)?,
            Op::Partly { undone, kept } => {
                let before = tx.savepoint();
                self.edit(&mut tx, undone)?;
                tx.rollback_to(before);
                self.edit(&mut tx, kept)?;
            }
            Op::Abort(edits) => return self.edit(&mut tx, edits),
            Op::Clear => self.tree.clear(&mut tx).map_err(text)?,
            Op::ClearBetween(before, after) => {
                self.edit(&mut tx, before)?;
                self.tree.clear(&mut tx).map_err(text)?;
                self.edit(&mut tx, after)?;
            }
            Op::Reclaim(steps) => _ = self.tree.reclaim(&mut tx, *steps).map_err(text)?,
            Op::Get(_) | Op::RemoveInGroups(..) | Op::Compact => return Ok(()),
        }
        tx.commit().map_err(text)
    }

    /// Returns the bytes that were moved.
    fn compact(&self) -> Result<u64, String> {
        let compaction = self.pool.compaction().map_err(text)?.ok_or("a compaction is under way")?;
        let (mut from, mut moved_bytes) = (Some(Vec::new()), 0);
        while let Some(key) = from {
            let mut tx = self.writer.begin();
            let step = self.tree.compact_at(&mut tx, &compaction, &key).map_err(text)?;
            tx.commit().map_err(text)?;
            (from, moved_bytes) = (step.next, moved_bytes + step.moved_bytes);
        }
        drop(compaction);
        self.pool.trim().map_err(text)?;
        Ok(moved_bytes)
    }

    fn allocated_blocks(&self) -> i64 {
        self.pool.marks().unwrap().usage().allocated_blocks as i64
    }
}

fn extended(value: Option<&[u8]>) -> Option<Vec<u8>> {
    let value = [value.unwrap_or_default(), b"0123456789"].concat();
    (value.len() < 60).then_some(value)
}

fn edit_model(model: &mut Model, edits: &[Edit]) {
    for edit in edits {
        match edit {
            Edit::Put(key, value) => _ = model.insert(key.clone(), value.clone()),
            Edit::Remove(key) => _ = model.remove(key),
            Edit::Insert(key, value) => _ = model.entry(key.clone()).or_insert_with(|| value.clone()),
            Edit::Extend(key) => match extended(model.get(key).map(Vec::as_slice)) {
                Some(value) => _ = model.insert(key.clone(), value),
                None => _ = model.remove(key),
            },
            Edit::PopLast => _ = model.pop_last(),
            Edit::RemoveRange(low, high) => model.retain(|key, _| !(low..high).contains(&key)),
            Edit::PutMany(keys, value) => model.extend(keys.iter().map(|key| (key.clone(), value.clone()))),
        }
    }
}

impl Scenario for Trees {
    type State = State;
    type Op = Op;
    type Model = Model;

    scripted_in_a_pool!();

    fn setup(&self, region: Region) -> Result<State, String> {
        let state = State::create(region, self.counting)?;
        for group in self.start.chunks(100) {
            state.perform(&Op::Edits(group.to_vec()))?;
        }
        if self.clear_after_start {
            state.perform(&Op::Clear)?;
        }
        Ok(state)
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        state.perform(op)
    }

    fn initial(&self) -> Model {
        let mut model = Model::new();
        if !self.clear_after_start {
            edit_model(&mut model, &self.start);
        }
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Edits(edits) | Op::Partly { kept: edits, .. } => edit_model(model, edits),
            Op::Clear => model.clear(),
            Op::ClearBetween(_, after) => {
                model.clear();
                edit_model(model, after);
            }
            Op::RemoveInGroups(low, high) => model.retain(|key, _| !(low..high).contains(&key)),
            Op::Abort(_) | Op::Reclaim(_) | Op::Get(_) | Op::Compact => {}
        }
    }

    /// If a range is removed in groups, any first part may be gone.
    fn between(&self, before: &Model, op: &Op) -> Vec<Model> {
        let Op::RemoveInGroups(low, high) = op else { return Vec::new() };
        let mut model = before.clone();
        let gone = before.keys().filter(|key| (low..high).contains(key));
        { gone }
            .map(|key| {
                model.remove(key);
                model.clone()
            })
            .collect()
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        let mut model = Model::new();
        let mut walk = state.tree.iter();
        while let Some((key, value)) = walk.advance().map_err(text)? {
            model.insert(key.to_vec(), state.own(value).to_vec());
        }
        state.check_ranks(&model)?;
        Ok(model)
    }
}

/// Home stores are flushed and fenced when the lane's half is full; until then their records stand for
/// them. Words of a block that the same operation gave up again are never flushed.
fn audit(gives_up_blocks: bool) -> Audit {
    let within = if gives_up_blocks { None } else { Some(RECORDS_OF_A_HALF) };
    Audit::strict().flushed_within(within).fenced_within(within).allow_idle_flush(gives_up_blocks)
}

/// In the small lanes of these tests.
const RECORDS_OF_A_HALF: usize = 7;

fn key(i: u32) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn put(i: u32) -> Edit {
    Edit::Put(key(i), format!("value of {i}").into_bytes())
}

fn remove(i: u32) -> Edit {
    Edit::Remove(key(i))
}

fn then(mut start: Vec<Edit>, more: impl IntoIterator<Item = Edit>) -> Vec<Edit> {
    start.extend(more);
    start
}

const COUNTINGS: [Counting; 3] = [Counting::Nothing, Counting::Records, Counting::Weights];

impl Trees {
    fn new(start: impl IntoIterator<Item = Edit>, script: Script<Op>) -> Trees {
        Trees {
            script,
            start: start.into_iter().collect(),
            clear_after_start: false,
            counting: Counting::Nothing,
        }
    }
}

#[test]
fn a_range_that_is_removed_in_groups_is_gone_up_to_some_key() {
    for (start, low, high) in [(60, 7, 40), (90, 0, 99), (5, 1, 3)] {
        let name = format!("{low} to {high} of {start} records are removed in groups");
        let groups = Op::RemoveInGroups(key(low), key(high));
        let ops = vec![Op::Edits(vec![put(3)]), groups, Op::Edits(vec![put(8)])];
        let continuation = vec![Op::Edits(vec![put(101), remove(8)]), Op::RemoveInGroups(vec![], key(200))];
        let scenario = Trees::new((0..start).map(put), Script::new(name, ops, continuation));
        survived(Simulation::new(&scenario).limit(64).audit(audit(true)).run());
    }
}

#[test]
fn clearing_and_freeing_survive_crashes() {
    for (start, batch) in [(1, 1), (40, 1), (150, 2), (1300, 30)] {
        let name = format!("{start} records are cleared and freed, {batch} nodes at a time");
        let ops = vec![
            Op::Edits(vec![put(3)]),
            Op::Clear,
            Op::Reclaim(batch),
            Op::Edits(vec![put(7), put(8)]),
            Op::ClearBetween(vec![put(1)], vec![put(2)]),
            Op::Reclaim(batch),
            Op::Reclaim(100),
        ];
        let continuation = vec![Op::Reclaim(2), Op::Edits(vec![put(101)]), Op::Reclaim(100)];
        let scenario = Trees {
            clear_after_start: start == 150,
            counting: if start == 1300 { Counting::Weights } else { COUNTINGS[batch % 2] },
            ..Trees::new((0..start).map(put), Script::new(name, ops, continuation))
        };
        survived(Simulation::new(&scenario).limit(64).audit(audit(true)).run());
    }
}

#[test]
fn creation_survives_crashes() {
    let (ops, continuation) = (vec![Op::Edits(vec![put(1)])], vec![Op::Edits(vec![put(2)])]);
    let script = Script { bytes: 128 << 10, ..Script::new("creation", ops, continuation) };
    let scenario = Trees::new([], script);
    survived(Simulation::new(&scenario).crash_setup(true).limit(256).audit(audit(false)).run());
}
