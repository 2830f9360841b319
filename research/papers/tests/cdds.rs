//! The CDDS B-Tree as its paper describes it: an ordered map, in both orders of entries; crashes at every
//! flush and fence of it; and what it costs in words, lines and fences beside Tembo's.

mod common;

use common::memory;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, HashSet};
use tembo_bench::cdds::{CddsError, NODE_BYTES, Order, PaperCdds, SLOTS};
use tembo_bench::mem::{Mem, RealMem};
use tembo_crashsim::{Audit, Mutation, Scenario, Simulation, Target, campaign};
use tembo_pmem::{Counts, Region};

type Tree = PaperCdds<RealMem>;
type Model = BTreeMap<u64, u64>;

const ORDERS: [Order; 2] = [Order::Sorted, Order::Unsorted];

/// A key out of `range` different ones, the smallest and the largest possible among them.
fn draw(rng: &mut Xoshiro256PlusPlus, range: u64) -> u64 {
    match rng.random_range(0..range) {
        0 => 0,
        1 => u64::MAX,
        n => n.wrapping_mul(0x9E37_79B9_7F4A_7C15),
    }
}

fn compare(tree: &Tree, model: &Model) {
    tree.check().unwrap();
    assert!(tree.entries().into_iter().eq(model.iter().map(|(key, value)| (*key, *value))));
}

#[test]
fn it_is_an_ordered_map() {
    for (order, range, seed) in
        ORDERS.into_iter().flat_map(|order| [(order, 40, 1), (order, 400, 2), (order, 4000, 3)])
    {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut tree, mut model) = (Tree::create(memory(4 << 20), order).unwrap(), Model::new());
        for step in 0..20_000 {
            // Phases of growth and of decline.
            let inclination = if step / 4000 % 2 == 0 { 0.75 } else { 0.25 };
            let (key, value) = (draw(&mut rng, range), rng.random());
            if rng.random_bool(0.2) {
                assert_eq!(tree.get(key), model.get(&key).copied(), "get {key}");
            } else if rng.random_bool(inclination) {
                assert_eq!(tree.put(key, value).unwrap(), model.insert(key, value).is_some(), "put {key}");
            } else {
                assert_eq!(tree.remove(key).unwrap(), model.remove(&key).is_some(), "remove {key}");
            }
            if step % 1000 == 0 {
                compare(&tree, &model);
                let version = tree.version();
                tree = Tree::open(tree.into_mem(), order).unwrap();
                assert_eq!(tree.version(), version);
                compare(&tree, &model);
            }
        }
        assert!(range < 4000 || tree.levels() >= 2, "{order:?}: {} levels", tree.levels());
        for key in std::mem::take(&mut model).into_keys() {
            assert!(tree.remove(key).unwrap());
        }
        compare(&tree, &model);
        assert_eq!((tree.levels(), tree.check()), (0, Ok(1)));
    }
}

#[test]
fn a_full_memory_is_an_error_and_what_is_there_stays() {
    for order in ORDERS {
        let mut tree = Tree::create(memory(64 + 40 * NODE_BYTES), order).unwrap();
        let full = (0..).find_map(|key| tree.put(key, key).err().map(|error| (key, error)));
        let Some((count, CddsError::Full)) = full else { panic!("{full:?}") };
        compare(&tree, &(0..count).map(|key| (key, key)).collect());
    }
}

#[test]
fn another_tree_is_not_opened() {
    let tree = Tree::create(memory(1 << 16), Order::Sorted).unwrap();
    assert!(matches!(Tree::open(tree.into_mem(), Order::Unsorted), Err(CddsError::NotThisTree { .. })));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Put(u64, u64),
    Remove(u64),
}

impl Op {
    fn perform(self, tree: &mut Tree) -> Result<(), String> {
        let done = match self {
            Op::Put(key, value) => tree.put(key, value),
            Op::Remove(key) => tree.remove(key),
        };
        done.map(drop).map_err(|e| e.to_string())
    }

    fn model(self, model: &mut Model) {
        match self {
            Op::Put(key, value) => _ = model.insert(key, value),
            Op::Remove(key) => _ = model.remove(&key),
        }
    }
}

#[derive(Debug, Clone)]
struct Crash {
    name: String,
    order: Order,
    start: Vec<Op>,
    ops: Vec<Op>,
    continuation: Vec<Op>,
}

impl Scenario for Crash {
    type State = Tree;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        format!("{:?}, {}", self.order, self.name)
    }

    fn region_bytes(&self) -> u64 {
        64 << 10
    }

    fn setup(&self, region: Region) -> Result<Tree, String> {
        let mut tree = Tree::create(RealMem::new(region), self.order).map_err(|e| e.to_string())?;
        self.start.iter().try_for_each(|op| op.perform(&mut tree))?;
        Ok(tree)
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn recover(&self, region: Region) -> Result<Tree, String> {
        Tree::open(RealMem::new(region), self.order).map_err(|e| e.to_string())
    }

    fn region<'s>(&self, state: &'s Tree) -> &'s Region {
        state.mem().region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn continuation(&self) -> &[Op] {
        &self.continuation
    }

    fn apply(&self, state: &mut Tree, op: &Op) -> Result<(), String> {
        op.perform(state)
    }

    fn initial(&self) -> Model {
        let mut model = Model::new();
        self.start.iter().for_each(|op| op.model(&mut model));
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        op.model(model);
    }

    fn observe(&self, state: &Tree) -> Result<Model, String> {
        Ok(state.entries().into_iter().collect())
    }

    fn check(&self, state: &Tree) -> Result<(), String> {
        state.check().map(drop)
    }
}

/// Keys come, are put again, and go, so that every change of structure happens.
fn sequence() -> Vec<Op> {
    let count = 300;
    let scattered = |i: u64| i * 37 % 307;
    let puts = (0..count).map(|i| Op::Put(scattered(i), i));
    let again = (0..40).map(|i| Op::Put(scattered(i * 7), i + 1000));
    let removes = (0..count).map(|i| Op::Remove(scattered(i)));
    puts.chain(again).chain(removes).collect()
}

/// The first operation of each kind: whether it puts, and how many nodes and levels it changes, and by how
/// many words.
fn edges(order: Order, ops: &[Op]) -> Vec<(usize, String)> {
    let mut tree = Tree::create(memory(1 << 20), order).unwrap();
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for (at, op) in ops.iter().enumerate() {
        let (nodes, levels, cost) = (tree.check().unwrap() as i64, tree.levels() as i64, tree.mem().counts());
        op.perform(&mut tree).unwrap();
        let change = (tree.check().unwrap() as i64 - nodes, tree.levels() as i64 - levels);
        let fences = (tree.mem().counts() - cost).fences;
        let is_put = matches!(op, Op::Put(..));
        if seen.insert((is_put, change, fences > 2, fences > 12)) {
            found.push((at, format!("{op:?}: {:+} nodes, {:+} levels, {fences} fences", change.0, change.1)));
        }
    }
    for expected in [(true, (1, 0)), (true, (2, 1)), (false, (-1, 0)), (false, (-2, -1))] {
        assert!(seen.iter().any(|(put, change, ..)| (*put, *change) == expected), "{expected:?}: {seen:?}");
    }
    found
}

#[test]
fn every_kind_of_change_survives_crashes() {
    let ops = sequence();
    for order in ORDERS {
        for (at, what) in edges(order, &ops) {
            let scenario = Crash {
                name: what,
                order,
                start: ops[..at].to_vec(),
                ops: vec![ops[at]],
                continuation: vec![ops[at], Op::Put(500, 1), Op::Remove(500)],
            };
            let report = Simulation::new(&scenario).limit(12).nested_limit(6).depth(1).run();
            println!(
                "{}: {}",
                Scenario::name(&scenario),
                report.unwrap_or_else(|failure| panic!("{failure}"))
            );
        }
    }
}

/// In one leaf, so that what one crash left there is met by the operations after it; the leaf is full of dead
/// entries at last.
fn in_one_leaf(order: Order) -> Crash {
    let fill = (0..SLOTS as u64 - 1).map(|i| Op::Put(i % 9 * 10, i));
    Crash {
        name: "in one leaf".to_owned(),
        order,
        start: fill.collect(),
        ops: vec![
            Op::Put(15, 1),
            Op::Put(70, 3),
            Op::Remove(20),
            Op::Put(1, 4),
            Op::Remove(80),
            Op::Put(85, 1),
        ],
        continuation: vec![Op::Put(12, 9), Op::Remove(15), Op::Put(0, 3)],
    }
}

#[test]
fn changes_in_a_leaf_survive_crashes() {
    for order in ORDERS {
        let scenario = in_one_leaf(order);
        let report = Simulation::new(&scenario).limit(48).continue_ops(3).depth(1).run();
        println!("{order:?}: {}", report.unwrap_or_else(|failure| panic!("{failure}")));
        let creation = Crash { start: Vec::new(), ..scenario };
        let report = Simulation::new(&creation).crash_setup(true).limit(24).depth(1).run();
        report.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A share of them in the ordinary tests; `CRASHSIM_IMAGES` makes it longer.
#[test]
fn campaign_of_random_operations() {
    let report = campaign(10_000, |seed| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let range = [12, 60, 250][rng.random_range(0..3)];
        let inclination = rng.random_range(0.3..0.8);
        let mut ops = |count: u64, inclination: f64| -> Vec<Op> {
            let mut op = || {
                let (key, value) = (draw(&mut rng, range), rng.random_range(0..1000));
                if rng.random_bool(inclination) { Op::Put(key, value) } else { Op::Remove(key) }
            };
            (0..count).map(|_| op()).collect()
        };
        let scenario = Crash {
            name: format!("random operations, seed {seed}"),
            order: ORDERS[(seed % 2) as usize],
            start: ops(range * 2, inclination),
            ops: ops(5, 0.5),
            continuation: ops(2, 0.5),
        };
        // An operation that changes nothing costs nothing.
        Simulation::new(&scenario).seed(seed).limit(8).nested_limit(4).depth(1).audit(Audit::strict()).run()
    });
    println!("{}", report.unwrap_or_else(|failure| panic!("{failure}")));
}

/// Without the audit, so that only crashes tell. Not every flush and fence is needed: dead entries are
/// shifted as carefully as others, and what shares a line becomes durable in order.
#[test]
fn seeded_bugs_are_caught() {
    for order in ORDERS {
        let scenario = in_one_leaf(order);
        let simulation = Simulation::new(&scenario).limit(24).depth(0).continue_ops(1);
        let report = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
        report.unwrap_or_else(|failure| panic!("{failure}")).assert_all_caught(&[
            Mutation::DropFlush,
            Mutation::DelayFlush,
            Mutation::ForeignFence,
        ]);
        let report = simulation.audit(Audit::off()).mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
        let report = report.unwrap_or_else(|failure| panic!("{failure}"));
        println!("{order:?}: {report}");
        report.assert_some_caught(&[Mutation::DropFlush, Mutation::DropFence, Mutation::ForeignFence]);
    }
}

fn cost(tree: &mut Tree, change: impl FnOnce(&mut Tree)) -> (u64, u64, u64) {
    let before = tree.mem().counts();
    change(tree);
    let Counts { words, lines, fences } = tree.mem().counts() - before;
    (words, lines, fences)
}

/// As the paper describes: each entry behind the new one costs a flush and a fence, and so do the new one and
/// the version.
#[test]
fn a_put_into_a_sorted_leaf_costs_a_fence_for_each_entry_behind_it() {
    for (order, m, rank) in ORDERS.into_iter().flat_map(|o| [(o, 20, 0), (o, 20, 7), (o, 20, 20), (o, 27, 3)])
    {
        let mut tree = Tree::create(memory(1 << 20), order).unwrap();
        (0..m).for_each(|i| _ = tree.put(2 * i + 1, i).unwrap());
        let shifts = if order == Order::Sorted { m - rank } else { 0 };
        // Four words of an entry, and one more to make the place empty before; root and version.
        let (words, line) = (4 + 5 * shifts + 2, shifts + 2);
        assert_eq!(
            cost(&mut tree, |tree| _ = tree.put(2 * rank, 9).unwrap()),
            (words, line, line),
            "{order:?}"
        );
        let moved = if order == Order::Sorted { rank } else { 3 };
        let delete =
            cost(&mut tree, |tree| assert!(tree.remove(2 * moved).unwrap() || order == Order::Unsorted));
        assert!(delete == (3, 2, 2) || order == Order::Unsorted && delete == (0, 0, 0), "{delete:?}");
        assert_eq!(cost(&mut tree, |tree| _ = (tree.get(5), tree.remove(1000).unwrap())), (0, 0, 0));
    }
}

/// The averages of the table, on smaller trees: ours beside the paper's.
#[test]
fn tembos_tree_needs_a_fence_where_the_papers_needs_many() {
    let rows = tembo_bench::cdds::counts::count(20_000, 5).unwrap();
    let fences = |name: &str| {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        println!("{row:?}");
        [row.put.fences, row.replace.fences, row.delete.fences]
    };
    assert!(fences("paper, sorted").iter().zip([8.0, 8.0, 2.0]).all(|(fences, least)| *fences >= least));
    assert!(fences("paper, unsorted").iter().all(|fences| (2.0..4.0).contains(fences)));
    assert!(fences("tembo").iter().all(|fences| (1.0..1.01).contains(fences)));
    assert!(fences("tembo, batches of 32").iter().all(|fences| *fences <= 1.0 / 8.0));
}
