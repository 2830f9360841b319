//! The heap against the same graph in ordinary memory.

use crate::support::ops::NewShape;
use crate::support::{Base, Look, Model, Op, Place, Random, Store};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tembo_heap::{NamedBrand, brand};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

brand!(Tested);

/// One heap with the brand is open at a time; with a brand for each test there would be as much code of each.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn create<B: NamedBrand>(bytes: usize) -> Store<B> {
    let region = Region::simulated(&vec![0; bytes], 256 << 20, None).unwrap();
    Store::open(Pool::create_in(region, &Geometry::small()).unwrap()).unwrap()
}

/// Performs operations, and compares and checks after each.
fn perform<B: NamedBrand>(ops: &[Op]) {
    let mut store = create::<B>(1 << 20);
    let mut model = Model::default();
    for op in ops {
        store.apply(op).unwrap();
        model.apply(op);
        assert_eq!(store.observe().unwrap(), model, "after {op:?}");
        if let Err(e) = store.check() {
            panic!("after {op:?}: {e}");
        }
    }
}

fn slot(slot: usize) -> Place {
    Place::Slot(slot)
}

fn at(slot: usize, depth: usize) -> Base {
    Base::Nth { slot, depth }
}

/// Parents died before their children, so that the heads of those with weak pointers from their children were
/// never freed.
#[test]
fn parents_that_die_with_their_children_are_freed() {
    let _turn = turn();
    perform::<Tested>(&[
        Op::Chain { at: slot(0), id: 1, count: 3 },
        Op::Unlink { at: slot(0) },
        Op::Chain { at: slot(0), id: 10, count: 200 },
        Op::Unlink { at: slot(0) },
        Op::Collect,
    ]);
}

/// The same with objects of the transaction itself.
#[test]
fn new_parents_that_die_with_their_children_are_freed() {
    let _turn = turn();
    let both = vec![Op::Chain { at: slot(0), id: 1, count: 3 }, Op::Unlink { at: slot(0) }];
    perform::<Tested>(&[Op::Together(both), Op::Collect, Op::Compact]);
}

/// The second block of slots took the place of the first, which was lost with all orphans in it.
#[test]
fn a_transaction_may_make_orphans_for_several_blocks_of_slots() {
    let _turn = turn();
    perform::<Tested>(&[Op::Orphans { id: 1, count: 200 }, Op::DropHandles, Op::Collect]);
}

/// The orphan lost its slot to the pointer, and did not get it back when that died.
#[test]
fn an_orphan_that_is_linked_by_what_dies_stays_one() {
    let _turn = turn();
    perform::<Tested>(&[Op::Bounce { id: 1 }, Op::DropHandles, Op::Collect]);
}

#[test]
fn shapes_lists_and_weak_pointers_follow_the_model() {
    let _turn = turn();
    perform::<Tested>(&[
        Op::Chain { at: slot(0), id: 1, count: 4 },
        Op::Shape { base: at(0, 0), shape: NewShape::Link, to: slot(0) },
        Op::Shape { base: at(0, 0), shape: NewShape::Both(3, 100), to: Place::Next(at(0, 1)) },
        Op::Look { at: Look::Root(0), to: Place::Next(at(0, 1)) },
        Op::ShareList { base: Base::Root, from: at(0, 0) },
        Op::Shape { base: at(0, 0), shape: NewShape::Look(7), to: Place::Next(at(0, 2)) },
        Op::List { base: at(0, 1), id: 200, len: 300, fill: true },
        Op::ShareList { base: Base::Root, from: at(0, 1) },
        Op::Look { at: Look::Root(1), to: Place::Element(Base::Root, 17) },
        Op::Unlink { at: slot(0) },
        Op::Follow { at: slot(2), look: Look::Root(1) },
        Op::DropList { base: Base::Root },
        Op::Collect,
        Op::Second(Box::new(Op::Unlink { at: slot(2) })),
        Op::Collect,
    ]);
}

/// Random operations, compared after each, and checked after some.
fn random<B: NamedBrand>(seed: u64, count: usize, circles: bool) {
    let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut random =
        Random { rng, model: Model::default(), next_id: 1, circles, handles: true, longest: 150 };
    let mut store = create::<B>(1 << 20);
    for number in 0..count {
        let op = random.op();
        let what = || format!("seed {seed}, operation {number}, {op:?}");
        store.apply(&op).unwrap_or_else(|e| panic!("{}: {e}", what()));
        let observed = store.observe().unwrap_or_else(|e| panic!("{}: {e}", what()));
        assert_eq!(observed, random.model, "{}", what());
        if number % 4 == 0 || matches!(op, Op::Reopen) {
            store.check().unwrap_or_else(|e| panic!("{}: {e}", what()));
        }
    }
    store.apply(&Op::Reopen).and_then(|()| store.apply(&Op::Collect)).unwrap();
}

/// How many runs of random operations.
fn rounds(usual: u64) -> u64 {
    std::env::var("HEAP_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn random_operations_follow_the_model() {
    let _turn = turn();
    (0..rounds(60)).for_each(|seed| random::<Tested>(seed, 120, false));
}

/// Circles of strong pointers never die: `check` names them, and finds nothing else to complain about.
#[test]
fn random_operations_with_circles_follow_the_model() {
    let _turn = turn();
    (0..rounds(40)).for_each(|seed| random::<Tested>(1000 + seed, 120, true));
}

#[test]
fn circles_are_named() {
    let _turn = turn();
    let mut store = create::<Tested>(1 << 20);
    let ops = [
        chain(0, 1, 5),
        // The first leads to itself, and the last of the list back to the second.
        Op::Link { at: Place::Other(at(0, 0)), to: slot(0) },
        Op::Link { at: Place::Next(at(0, 4)), to: Place::Next(at(0, 0)) },
        Op::List { base: at(0, 2), id: 50, len: 2, fill: true },
    ];
    ops.iter().for_each(|op| store.apply(op).unwrap());
    assert_eq!(store.check().unwrap().circles, [], "as long as the root leads there");
    store.apply(&Op::Unlink { at: slot(0) }).unwrap();
    store.apply(&Op::Collect).unwrap();
    let mut circles = store.check().unwrap().circles;
    circles.sort_by_key(|circle| circle.objects);
    let texts: Vec<String> = circles.iter().map(ToString::to_string).collect();
    println!("{texts:#?}");
    let objects: u64 = circles.iter().map(|circle| circle.objects).sum();
    assert_eq!((circles.len(), objects), (2, 8), "five nodes, and an array with two more");
    assert_eq!(circles.iter().filter(|circle| circle.path.ends_with("Node -> the first")).count(), 2);
    assert!(texts.iter().all(|text| text.contains("make one of these pointers weak")));
}

/// Nodes that point to themselves, weakly, and to each other in circles of which one pointer is weak.
#[test]
fn weak_pointers_break_circles() {
    let _turn = turn();
    perform::<Tested>(&[
        Op::New { at: slot(0), id: 1, push: false },
        Op::Look { at: Look::Back(at(0, 0)), to: slot(0) },
        Op::Unlink { at: slot(0) },
        chain(0, 10, 60),
        Op::Look { at: Look::Back(at(0, 0)), to: Place::Next(at(0, 3)) },
        Op::Look { at: Look::Back(at(0, 59)), to: slot(0) },
        Op::Unlink { at: slot(0) },
        Op::List { base: Base::Root, id: 200, len: 200, fill: true },
        Op::Look { at: Look::Back(at(0, 0)), to: slot(0) },
        Op::DropList { base: Base::Root },
        Op::Collect,
    ]);
}

fn chain(to: usize, id: u64, count: u64) -> Op {
    Op::Chain { at: slot(to), id, count }
}

/// A list of this many nodes dies in part, then in another process, without room of its own: neither its
/// commits' records nor anything else makes the pool longer.
fn long<B: NamedBrand>(count: u64) {
    let region = Region::simulated(&vec![0; 4 << 20], (64 << 20) + 200 * count, None).unwrap();
    let mut store = Store::<B>::open(Pool::create_in(region, &Geometry::default()).unwrap()).unwrap();
    let mut id = 1;
    while id <= count {
        let more = 1000.min(count + 1 - id);
        store.apply(&chain(0, id, more)).unwrap();
        id += more;
    }
    let mut marks = store.pool.marks().unwrap();
    let full = tembo_heap::check(&store.pool, &mut marks).unwrap();
    let before = marks.finish().unwrap();
    assert_eq!(full.types.iter().map(|usage| usage.objects).sum::<u64>(), count + 1);
    let bytes = before.pool_bytes;
    store.apply(&Op::Unlink { at: slot(0) }).unwrap();
    let some = store.check().unwrap();
    assert!(some.dying > 0, "a commit goes on with a bounded number of deaths");
    // The rest dies here and there, and after the heap was opened again.
    store.apply(&Op::Value { base: Base::Root, value: 1 }).unwrap();
    store.apply(&Op::Reopen).unwrap();
    store.apply(&Op::Collect).unwrap();
    let mut marks = store.pool.marks().unwrap();
    let empty = tembo_heap::check(&store.pool, &mut marks).unwrap();
    let after = marks.finish().unwrap();
    assert_eq!(empty.types.iter().map(|usage| usage.objects).sum::<u64>(), 1);
    assert_eq!(after.pool_bytes, bytes, "dying took no space");
}

/// `HEAP_LIST=10000000` for ten million.
#[test]
fn long_lists_die_in_bounded_steps() {
    let _turn = turn();
    let count = std::env::var("HEAP_LIST").ok().and_then(|text| text.parse().ok()).unwrap_or(200_000);
    long::<Tested>(count);
}

#[test]
fn wide_arrays_and_trees_die_in_bounded_steps() {
    let _turn = turn();
    let mut store = create::<Tested>(16 << 20);
    let mut model = Model::default();
    let mut ops = vec![Op::List { base: Base::Root, id: 1, len: 3000, fill: true }];
    // A node in every eighth element gets a list of its own, and each of these shares the first's shape.
    for i in 0..40 {
        ops.push(Op::Link { at: slot(0), to: Place::Element(Base::Root, i * 8) });
        ops.push(Op::List { base: at(0, 0), id: 10_000 + 200 * i as u64, len: 150, fill: true });
        ops.push(Op::Shape {
            base: at(0, 0),
            shape: NewShape::Link,
            to: Place::Element(Base::Root, i * 8 + 1),
        });
    }
    ops.extend([Op::Unlink { at: slot(0) }, Op::DropList { base: Base::Root }, Op::Reopen, Op::Collect]);
    for op in &ops {
        store.apply(op).unwrap();
        model.apply(op);
    }
    assert_eq!(store.observe().unwrap(), model);
    let summary = store.check().unwrap();
    assert_eq!(summary.types.iter().map(|usage| usage.objects + usage.arrays).sum::<u64>(), 1, "the root");
}
