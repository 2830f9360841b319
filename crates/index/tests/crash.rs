//! Crashes at every flush and fence of every operation of the tree, and of what recovers from them.
//!
//! The directed scenarios bring a tree to the edge of a change of structure and do the operation that makes
//! it; how many blocks that gains or loses proves that it was the change meant. The campaign does
//! operations at random:
//! `CRASHSIM_IMAGES=1000000 cargo test -p tembo-index --release --test crash campaign` is the long one.

mod crashes;

use crashes::{InPool, Script, scripted_in_a_pool, survived, text};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use tembo_crashsim::{Audit, Mutation, Scenario, SharedScenario, Simulation, Target, campaign};
use tembo_index::{Counting, WbTree};
use tembo_pmem::{LINE_BYTES, Region};
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

/// One step over the edge: what is there before, and how many blocks the operation gains.
struct Edge {
    name: &'static str,
    start: Vec<Edit>,
    op: Op,
    blocks: i64,
}

fn edge(name: &'static str, start: impl IntoIterator<Item = Edit>, edits: Vec<Edit>, blocks: i64) -> Edge {
    Edge { name, start: start.into_iter().collect(), op: Op::Edits(edits), blocks }
}

/// Even numbers in ascending order fill every leaf with 28, so that leaf `l` holds 56 `l` to 56 `l` + 54.
fn full_leaves(leaves: u32) -> Vec<Edit> {
    (0..leaves * 28).map(|i| put(2 * i)).collect()
}

fn then(mut start: Vec<Edit>, more: impl IntoIterator<Item = Edit>) -> Vec<Edit> {
    start.extend(more);
    start
}

/// 41 leaves under the left inner node, two under the right one, the last with one record: number 2352.
fn two_inner_nodes() -> Vec<Edit> {
    then(full_leaves(42), [put(2352)])
}

fn insertions() -> Vec<Edge> {
    let long = |i: u32| Edit::Put([vec![b'x'; 30], i.to_be_bytes().to_vec()].concat(), vec![7; 3]);
    let both_ends = vec![Edit::Put(vec![], vec![]), Edit::Put(vec![0xFF; 40], vec![])];
    vec![
        edge("the first record: a leaf", [], vec![put(1)], 2),
        edge("a record into a leaf with room", [put(1)], vec![put(2)], 1),
        edge("a record in place of another", [put(1), put(2)], vec![Edit::Put(key(1), vec![9; 70])], 0),
        edge(
            "a record that fills its block, with an empty value",
            [put(1)],
            vec![Edit::Put(vec![b'k'; 568], vec![])],
            1,
        ),
        edge(
            "a value in whose place one fills its block",
            [put(1)],
            vec![Edit::Put(key(1), vec![9; 640 - 16])],
            0,
        ),
        edge("a root leaf is divided in the middle", full_leaves(1), vec![put(27)], 3),
        edge("a root leaf is continued on the right", full_leaves(1), vec![put(99)], 3),
        edge("a root leaf is continued on the left", full_leaves(1).split_off(1), vec![put(56), put(0)], 4),
        edge("a leaf is divided under its parent", full_leaves(3), vec![put(57)], 2),
        edge("a parent is divided: a new root", full_leaves(42), vec![put(2352)], 4),
        edge("a parent is divided in the middle: a new root", full_leaves(42), vec![put(1001)], 4),
        edge("an inner node is divided under the root", two_inner_nodes(), vec![put(57), put(1001)], 5),
        edge("a separator that needs a block", then(both_ends, (0..26).map(long)), vec![long(99)], 4),
    ]
}

fn removals() -> Vec<Edge> {
    let thin = |numbers: std::ops::Range<u32>| numbers.map(|i| remove(2 * i));
    let few_leaves = then(two_inner_nodes(), thin(28 * 5..28 * 21));
    vec![
        edge("a record out of a leaf", [put(1), put(2)], vec![remove(1)], -1),
        edge("the last record", [put(1)], vec![remove(1)], -2),
        edge(
            "an empty leaf: its neighbour becomes the root",
            then(full_leaves(1), [put(56)]),
            vec![remove(56)],
            -3,
        ),
        edge("an empty leaf leaves its parent", then(full_leaves(2), [put(112)]), vec![remove(112)], -2),
        edge(
            "two sparse leaves are joined",
            then(full_leaves(3), thin(30..48).chain(thin(60..81))),
            vec![remove(162)],
            -2,
        ),
        edge("inner nodes share their children", two_inner_nodes(), vec![remove(2352)], -2),
        edge("inner nodes are joined, and the root goes", few_leaves, vec![remove(2352)], -4),
    ]
}

fn conditional_changes() -> Vec<Edge> {
    let (low, high) = (key(1), key(5));
    let few = || (0..8).map(put);
    vec![
        edge(
            "an insertion",
            [put(1)],
            vec![Edit::Insert(key(2), vec![7; 3]), Edit::Insert(key(1), vec![8; 3])],
            1,
        ),
        edge("an insertion that divides a leaf", full_leaves(1), vec![Edit::Insert(key(27), vec![7; 3])], 3),
        edge("a value that is made", [put(1)], vec![Edit::Extend(key(2))], 1),
        edge("a value that grows", [put(1)], vec![Edit::Extend(key(1))], 0),
        edge(
            "a value that is removed",
            [Edit::Put(key(1), vec![5; 50]), put(2)],
            vec![Edit::Extend(key(1))],
            -1,
        ),
        edge("the last record", few(), vec![Edit::PopLast], -1),
        edge("a part of a leaf", few(), vec![Edit::RemoveRange(low, high)], -4),
        edge("all of a leaf", few(), vec![Edit::RemoveRange(key(0), key(9))], -9),
        edge("a range of leaves", full_leaves(4), vec![Edit::RemoveRange(key(20), key(180))], -80 - 2),
        edge(
            "a range over inner nodes",
            two_inner_nodes(),
            vec![Edit::RemoveRange(key(20), key(2340))],
            -1160 - 43,
        ),
    ]
}

const COUNTINGS: [Counting; 3] = [Counting::Nothing, Counting::Records, Counting::Weights];

fn simulate_edges(edges: fn() -> Vec<Edge>) {
    for counting in COUNTINGS {
        simulate_edges_of(counting, edges());
    }
}

fn simulate_edges_of(counting: Counting, edges: Vec<Edge>) {
    for Edge { name, start, op, blocks } in edges {
        let continuation = vec![Op::Edits(vec![put(3), remove(0)]), Op::Edits(vec![put(101)])];
        let script = Script::new(format!("{name}; counts: {counting:?}"), vec![op], continuation);
        let scenario = Trees { counting, ..Trees::new(start, script) };
        let dry = scenario.setup(Region::simulated(&vec![0; 256 << 10], 1 << 24, None).unwrap()).unwrap();
        let before = dry.allocated_blocks();
        dry.perform(&scenario.script.ops[0]).unwrap();
        assert_eq!(dry.allocated_blocks() - before, blocks, "{name}");
        let limit = if counting == Counting::Nothing { 96 } else { 20 };
        survived(Simulation::new(&scenario).limit(limit).audit(audit(true)).run());
    }
}

#[test]
fn every_kind_of_insertion_survives_crashes() {
    simulate_edges(insertions);
}

#[test]
fn every_kind_of_removal_survives_crashes() {
    simulate_edges(removals);
}

#[test]
fn every_kind_of_conditional_change_and_range_survives_crashes() {
    simulate_edges(conditional_changes);
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

/// A tree in which little is left of what was put: whole slabs of records and of leaves.
fn thinned(records: u32) -> Vec<Edit> {
    let mixed = |i: u32| Edit::Put(key(i), vec![i as u8; [10, 40, 90, 300][i as usize / 8 % 4]]);
    let few = |i: &u32| !i.is_multiple_of(9);
    then((0..records).map(mixed).collect(), (0..records).filter(few).map(remove))
}

fn compacted(records: u32, counting: Counting) -> Trees {
    let name = format!("{records} records, of which a ninth is left, are compacted; counts: {counting:?}");
    let ops = vec![Op::Edits(vec![put(3)]), Op::Compact, Op::Edits(vec![put(9), remove(18)])];
    let continuation = vec![Op::Compact, Op::Edits(vec![put(101)])];
    let script = Script { bytes: 1 << 20, ..Script::new(name, ops, continuation) };
    Trees { counting, ..Trees::new(thinned(records), script) }
}

#[test]
fn compaction_survives_crashes() {
    for (records, counting) in
        [(1200, Counting::Nothing), (1500, Counting::Weights), (1300, Counting::Records)]
    {
        let scenario = compacted(records, counting);
        let dry = scenario.setup(Region::simulated(&vec![0; 1 << 20], 1 << 24, None).unwrap()).unwrap();
        let (before, model) = (dry.pool.stats().unused_bytes, scenario.observe(&dry).unwrap());
        assert!(dry.compact().unwrap() > 0);
        let gained = dry.pool.stats().unused_bytes - before;
        assert!(gained >= 16 << 10, "{records}: {gained}");
        assert_eq!(scenario.observe(&dry).unwrap(), model);
        // The next ones move the little that was in slabs from which a lane still allocated. They have an
        // end.
        let is_done = (0..4).any(|_| dry.compact().unwrap() == 0);
        assert!(is_done, "{records}");
        let simulation = Simulation::new(&scenario).limit(6).nested_limit(2).depth(1);
        survived(simulation.audit(audit(true)).run());
    }
}

/// Long separators, and what separators share, lie in blocks of their own, which move with their nodes.
#[test]
fn long_separators_move() {
    let key =
        |i: u32| [&[(i % 5) as u8; 40][..], &(i % 3).to_be_bytes(), &[7; 30], &i.to_be_bytes()].concat();
    let long = |i: u32| Edit::Put(key(i), vec![i as u8; 20]);
    let gone = |i: &u32| !i.is_multiple_of(5) && !i.is_multiple_of(7);
    let start = then((0..4000).map(long).collect(), (0..4000).filter(gone).map(|i| Edit::Remove(key(i))));
    let again = start.iter().filter_map(|edit| match edit {
        Edit::Put(key, _) if key[0] == 2 => Some(Edit::Remove(key.clone())),
        _ => None,
    });
    let start: Vec<Edit> = start.iter().cloned().chain(again).collect();
    let script =
        Script::new("long separators", vec![Op::Compact], vec![Op::Edits(vec![long(9)]), Op::Compact]);
    let scenario = Trees::new(start, Script { bytes: 2 << 20, ..script });
    let dry = scenario.setup(Region::simulated(&vec![0; 2 << 20], 1 << 24, None).unwrap()).unwrap();
    let model = scenario.observe(&dry).unwrap();
    assert!(dry.compact().unwrap() > 0);
    while dry.compact().unwrap() > 0 {}
    assert!(dry.pool.compaction().unwrap().unwrap().is_empty(), "blocks stay in sparse slabs");
    assert_eq!(scenario.observe(&dry).unwrap(), model);
    survived(Simulation::new(&scenario).limit(4).depth(0).audit(audit(true)).run());
}

/// Mutants of a compaction are caught that lose a copy, or the word that leads to it.
#[test]
fn seeded_bugs_of_compaction_are_caught() {
    let long = |i: u32| Edit::Put(key(i), vec![i as u8; 300]);
    let few = |i: &u32| !i.is_multiple_of(9);
    let start = then((0..200).map(long).collect(), (0..200).filter(few).map(remove));
    let script = Script::new("seeded bugs of compaction", vec![Op::Compact], vec![Op::Edits(vec![put(70)])]);
    let scenario = Trees::new(start, Script { bytes: 256 << 10, ..script });
    let simulation = Simulation::new(&scenario).limit(24).depth(0).continue_ops(1).audit(audit(true));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mutants = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&Mutation::ALWAYS_HARMFUL);
}

/// Keys of a family that a seed chooses: short, long, with shared prefixes, some of them long separators.
fn random_key(rng: &mut Xoshiro256PlusPlus, family: u32, range: u32) -> Vec<u8> {
    let number = rng.random_range(0..range);
    match family {
        0 => key(number),
        1 => [vec![b'x'; 40], number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()].concat(),
        2 => {
            [vec![(number % 7) as u8; 30], (number % 3).to_be_bytes().to_vec(), number.to_be_bytes().to_vec()]
                .concat()
        }
        _ => number.to_be_bytes()[3 - (number % 4) as usize..].to_vec(),
    }
}

impl Trees {
    fn new(start: impl IntoIterator<Item = Edit>, script: Script<Op>) -> Trees {
        Trees {
            script,
            start: start.into_iter().collect(),
            clear_after_start: false,
            counting: Counting::Nothing,
        }
    }

    fn random(seed: u64) -> Trees {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let family = rng.random_range(0..4);
        let range = [20, 80, 300, 2000][rng.random_range(0..4)];
        let inclination = rng.random_range(0.2..0.8);
        let mut edits = |most: usize| -> Vec<Edit> {
            (0..rng.random_range(1..=most))
                .map(|_| {
                    let key = random_key(&mut rng, family, range);
                    match rng.random_range(0..60) {
                        0 => return Edit::RemoveRange(key, random_key(&mut rng, family, range)),
                        1 => return Edit::PopLast,
                        2..5 => return Edit::Extend(key),
                        5..8 => return Edit::Insert(key, vec![7; 20]),
                        _ => {}
                    }
                    let bytes = if rng.random_bool(0.05) { 900 } else { rng.random_range(0..60) };
                    if rng.random_bool(inclination) {
                        Edit::Put(key, vec![bytes as u8; bytes])
                    } else {
                        Edit::Remove(key)
                    }
                })
                .collect()
        };
        let start = (0..range).flat_map(|_| edits(1)).collect();
        let ops: Vec<Op> = (0..8)
            .map(|i| match (seed + i * 5) % 23 {
                0 => Op::Clear,
                1 => Op::Reclaim(2),
                2 => Op::ClearBetween(edits(5), edits(5)),
                3 => Op::Abort(edits(30)),
                4 => Op::Partly { undone: edits(30), kept: edits(3) },
                5..8 => Op::Edits(edits(40)),
                8 => Op::Compact,
                _ => Op::Edits(edits(1)),
            })
            .collect();
        let continuation = (0..3).map(|_| Op::Edits(edits(3))).collect();
        let name = format!("random operations, seed {seed}");
        let script = Script { bytes: 384 << 10, ..Script::new(name, ops, continuation) };
        // Half of them count nothing.
        let counting = COUNTINGS[(seed / 23 % 4).saturating_sub(1) as usize];
        Trees { script, start, clear_after_start: seed.is_multiple_of(7), counting }
    }
}

#[test]
fn campaign_of_random_operations() {
    survived(campaign(30_000, |seed| {
        let tree = Trees::random(seed);
        Simulation::new(&tree).seed(seed).limit(10).nested_limit(6).depth(1).audit(audit(true)).run()
    }));
}

#[test]
fn creation_survives_crashes() {
    let (ops, continuation) = (vec![Op::Edits(vec![put(1)])], vec![Op::Edits(vec![put(2)])]);
    let script = Script { bytes: 128 << 10, ..Script::new("creation", ops, continuation) };
    let scenario = Trees::new([], script);
    survived(Simulation::new(&scenario).crash_setup(true).limit(256).audit(audit(false)).run());
}

#[test]
fn seeded_bugs_are_caught() {
    let ops = vec![
        Op::Edits(vec![put(50)]),
        Op::Edits(vec![put(13), Edit::Put(key(2), vec![1; 40])]),
        Op::Edits(vec![put(14), put(60)]),
        Op::Edits(vec![remove(5)]),
        // These fill the halves of the lane until the records above are dead.
        Op::Edits(vec![put(15)]),
        Op::Edits(vec![put(61)]),
        Op::Edits(vec![put(62)]),
        Op::Edits(vec![put(63)]),
        Op::Edits(vec![put(64)]),
    ];
    let script = Script::new("seeded bugs", ops, vec![Op::Edits(vec![put(70)])]);
    let scenario = Trees::new((0..27).map(put), Script { bytes: 128 << 10, ..script });
    let simulation = Simulation::new(&scenario).limit(48).depth(0).continue_ops(1).audit(audit(false));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let classes: Vec<Mutation> = Mutation::ALWAYS_HARMFUL.into_iter().chain([Mutation::HoistStore]).collect();
    let mutants = simulation.mutants(Target::Operations, &classes);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&[Mutation::HoistStore]);
    let region = Region::simulated(&vec![0; 128 << 10], 128 << 10, None).unwrap();
    let header = scenario.setup(region).unwrap().pool.root("tree").unwrap().unwrap().off;
    let length_flush = format!("flush of line {:#x} ", header / LINE_BYTES + 1);
    let geometry = Geometry::tiny();
    let lanes_end = 4096 + 64 * geometry.root_count + geometry.lane_count * geometry.lane_bytes;
    let zone = lanes_end.next_multiple_of(geometry.chunk_bytes);
    let frontier_flush = format!("flush of line {:#x} ", zone / 64);
    report.assert_all_caught_but(&Mutation::ALWAYS_HARMFUL, |survivor| {
        let what = &survivor.what;
        if what.contains(&length_flush) {
            return Some("every insertion stores the map's length, so that the live records have it");
        }
        let before_a_slab = ["operation 1 of 9", "operation 3 of 9"].iter().any(|op| what.contains(op));
        if before_a_slab && what.contains(&frontier_flush) {
            return Some("the second and the third operation make slabs, so that the live records have the frontier");
        }
        // Lines of the header page, the roots and the lanes, records among them, must not be excused.
        if (0..lanes_end / 64).any(|line| what.contains(&format!("flush of line {line:#x} "))) {
            return None;
        }
        if survivor.mutation == Mutation::DelayFlush && what.contains("operation 3 of 9") {
            return Some("the next record's fence still comes before the records of the other half are dead");
        }
        // The records of this one and the next are those that live at the end.
        let into_one_leaf = what.contains("operation 8 of 9");
        (into_one_leaf && what.contains("flush of line"))
            .then_some("every insertion into a leaf stores its state and fingerprints, so that the live records have them")
    });
}

/// A writer puts numbered values; a reader beside it says which of them it saw, and those must be durable.
impl SharedScenario for Trees {
    fn thread_of(&self, op: &Op) -> usize {
        usize::from(matches!(op, Op::Get(_)))
    }

    fn apply_shared(&self, state: &State, op: &Op) -> Result<Vec<usize>, String> {
        let Op::Get(key) = op else {
            return state.perform(op).map(|()| Vec::new());
        };
        let pin = state.pool.pin();
        let seen = state.tree.get(&pin, key).map_err(text)?;
        let walked = state.tree.range::<&[u8]>(key.as_slice()..).next().transpose().map_err(text)?;
        let found = seen.or(walked.as_ref().filter(|e| e.key() == key).map(|e| e.value()));
        // The value is the number of the operation, from 1; the start has 0.
        Ok(found.and_then(|value| usize::from(value[0]).checked_sub(1)).into_iter().collect())
    }
}

#[test]
fn what_a_reader_saw_survives_crashes() {
    let numbered = |i: u32, number: usize| Edit::Put(key(i), vec![number as u8]);
    for seed in 0..12 {
        // The tree has one full leaf, so that the third operation divides it.
        let mut ops = Vec::new();
        for i in [3, 5, 28, 3, 60] {
            ops.push(Op::Edits(vec![numbered(i, ops.len() + 1)]));
            ops.push(Op::Get(key(i)));
            ops.push(Op::Get(key(i)));
        }
        let name = format!("a writer and a reader, seed {seed}");
        let script = Script::new(name, ops, vec![Op::Edits(vec![put(70)])]);
        let start = (0..28).map(|i| numbered(i, 0));
        let scenario = Trees::new(start, Script { bytes: 128 << 10, ..script });
        survived(Simulation::new(&scenario).limit(32).depth(1).audit(audit(true)).seed(seed).run_shared());
    }
}
