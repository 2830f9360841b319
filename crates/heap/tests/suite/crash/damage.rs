//! Damage of each kind, done to single words of a heap, is found by `check`.

use super::{Tested, turn};
use crate::support::ops::{self, NewShape};
use crate::support::{Base, Look, Model, NodeFields, Op, Place, RootFields, Store};
use tembo_heap::NamedBrand;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool, tag_off};

/// A heap of this many lists in their slots.
fn create<B: NamedBrand>(start: &[Op]) -> Store<B> {
    let region = Region::simulated(&vec![0; 4 << 20], 64 << 20, None).unwrap();
    let mut store = Store::open(Pool::create_in(region, &Geometry::small()).unwrap()).unwrap();
    let mut model = Model::default();
    for op in start {
        store.apply(op).unwrap();
        model.apply(op);
    }
    assert_eq!(store.observe().unwrap(), model);
    store.check().unwrap();
    store
}

fn slot(slot: usize) -> Place {
    Place::Slot(slot)
}

fn chain(to: usize, id: u64, count: u64) -> Op {
    Op::Chain { at: slot(to), id, count }
}

/// Where the slot lies, as it prints itself.
fn slot_off<B: NamedBrand>(store: &Store<B>, slot: usize) -> u64 {
    let text = store.heap().read(|_, root| Ok(format!("{:?}", root.slots().at(slot))));
    off_of(&text.unwrap())
}

fn off_of(text: &str) -> u64 {
    let (_, off) = text.rsplit_once("0x").unwrap();
    u64::from_str_radix(off, 16).unwrap()
}

/// Where the place's object lies.
fn object<B: NamedBrand>(store: &Store<B>, at: Place) -> u64 {
    let text = store
        .heap()
        .read(|tx, root| Ok(format!("{:?}", ops::target(tx, root, at)?.expect("an object is there"))));
    off_of(&text.unwrap()) - HEAD
}

/// From a node, as pointers to it have it, to its value.
const HEAD: u64 = 8;

/// Where the first word of a node's head lies, and behind it its counts.
fn head(node: u64) -> u64 {
    tag_off(node + HEAD)
}

fn load<B: NamedBrand>(store: &Store<B>, off: u64) -> u64 {
    store.pool.region().load_u64(off).unwrap()
}

/// Stores a word, and expects that `check` finds that, in words like these.
fn is_found<B: NamedBrand>(store: &Store<B>, off: u64, word: u64, expected: &str) {
    let old = load(store, off);
    assert_ne!(old, word);
    store.pool.region().store_u64(off, word).unwrap();
    let found = store.check().expect_err(&format!("{word:#x} at {off:#x} instead of {old:#x}"));
    assert!(found.contains(expected), "{found}");
    store.pool.region().store_u64(off, old).unwrap();
    store.check().unwrap();
}

/// Words of the `PmHeap`: the heads of the lists of dying objects, the blocks of orphan slots.
fn heap_word<B: NamedBrand>(store: &Store<B>, off: u64) -> u64 {
    load(store, store.pool.root("heap").unwrap().unwrap().off + off)
}

#[test]
fn counts_that_are_off_by_one() {
    let _turn = turn();
    let store = create::<Tested>(&[chain(0, 1, 3)]);
    let middle = object(&store, Place::Next(Base::Nth { slot: 0, depth: 0 }));
    let counts_off = head(middle) + 8;
    let counts = load(&store, counts_off);
    for wrong in [counts + 1, counts - 1, counts + (1 << 32), counts - (1 << 32)] {
        is_found(&store, counts_off, wrong, "an object's counts");
    }
}

#[test]
fn pointers_that_lead_nowhere() {
    let _turn = turn();
    let mut store = create::<Tested>(&[chain(0, 1, 3), chain(1, 10, 1)]);
    let (first, gone) = (object(&store, slot(0)), object(&store, slot(1)));
    store.apply(&Op::Unlink { at: slot(1) }).unwrap();
    // The other pointer of a node: to a freed block, to the middle of an object, past the pool, and to no
    // object at all.
    let other = first + HEAD + 16;
    assert_eq!(load(&store, other), 0);
    is_found(&store, other, gone, "damaged");
    is_found(&store, other, first + HEAD, "damaged");
    is_found(&store, other, first + 16, "a pointer");
    is_found(&store, other, first & !8, "damaged");
    is_found(&store, other, 1 << 40, "damaged");
    is_found(&store, other, first + 4, "damaged");
    is_found(&store, other, store.pool.root("heap").unwrap().unwrap().off, "damaged");
}

#[test]
fn type_numbers_of_other_types() {
    let _turn = turn();
    let store = create::<Tested>(&[chain(0, 1, 3)]);
    let first = head(object(&store, slot(0)));
    let kind = load(&store, first);
    for other in (0..4).filter(|other| *other != kind & 0xFFFF) {
        is_found(&store, first, kind & !0xFFFF | other, "an object of its type");
    }
    is_found(&store, first, kind | 0xFFFF, "a type of the heap");
    is_found(&store, first, kind | 1 << 16, "an object of its type");
    is_found(&store, first, kind | 1 << 19, "first word");
    is_found(&store, first, kind | 1 << 17, "a dying object that is in no list");
    is_found(&store, first, kind | 1 << 18, "a shell");
}

#[test]
fn blocks_and_objects_that_nothing_leads_to() {
    let _turn = turn();
    let store = create::<Tested>(&[chain(0, 1, 3)]);
    is_found(&store, slot_off(&store, 0), 0, "Node that nothing leads to, a leak");
    let mut lane = store.pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(64).unwrap();
    tx.write_fresh(block, &[0; 64]).unwrap();
    tx.commit().unwrap();
    drop(lane);
    let found = store.check().expect_err("a block that no object is in");
    assert!(found.contains("a leak"), "{found}");
}

#[test]
fn objects_in_two_lists_or_in_one_twice() {
    let _turn = turn();
    let start: Vec<Op> = (0..16).map(|i| chain(0, 1 + 300 * i, 300)).collect();
    let mut store = create::<Tested>(&start);
    store.apply(&Op::Unlink { at: slot(0) }).unwrap();
    let summary = store.check().unwrap();
    assert!(summary.dying > 0, "a commit releases a bounded number: {summary:?}");
    let lists = heap_word(&store, 32);
    let dying = load(&store, lists);
    assert_ne!(dying, 0);
    is_found(&store, lists + 64, dying, "to be in one list, once");
    let kind = load(&store, head(dying));
    is_found(&store, head(dying), kind & ((1 << 20) - 1) | dying >> 3 << 20, "to be in one list, once");
    is_found(&store, head(dying), kind & !(1 << 17), "not dying");
    is_found(&store, lists, 0, "damaged");
    store.apply(&Op::Collect).unwrap();
    store.apply(&chain(0, 9000, 1)).unwrap();
    let alive = object(&store, slot(0));
    is_found(&store, lists, alive, "not dying");
}

#[test]
fn orphan_slots_that_name_what_is_alive_or_nothing() {
    let _turn = turn();
    let store = create::<Tested>(&[chain(0, 1, 3), chain(1, 10, 1), Op::Keep { at: slot(1) }]);
    let alive = object(&store, slot(0));
    let block = heap_word(&store, 48);
    let slots: Vec<u64> = (1..64).map(|slot| block + 8 * slot).collect();
    let used = *slots.iter().find(|slot| load(&store, **slot) != 0).expect("an orphan");
    let free = *slots.iter().find(|slot| load(&store, **slot) == 0).expect("a free slot");
    is_found(&store, free, alive, "an orphan with strong pointers");
    is_found(&store, free, load(&store, used), "one slot");
    is_found(&store, free, alive + 16, "damaged");
    is_found(&store, used, 0, "a leak");
    is_found(&store, block, block, "damaged");
}

#[test]
fn tags_that_hide_or_make_pointers() {
    let _turn = turn();
    let link = Op::Shape { base: Base::Nth { slot: 0, depth: 0 }, shape: NewShape::Link, to: slot(1) };
    let look = Op::Look { at: Look::Root(0), to: slot(1) };
    let store = create::<Tested>(&[chain(0, 1, 1), chain(1, 10, 1), link, look]);
    let first = object(&store, slot(0));
    let tag = first + HEAD + 40;
    assert_eq!(load(&store, tag) as u32, 1);
    is_found(&store, tag, 0, "an object's counts");
    is_found(&store, tag, 2, "an object's counts");
    is_found(&store, tag, 3, "damaged");
}

#[test]
fn a_reserved_word_that_is_not_zero_is_found() {
    let _turn = turn();
    let store = create::<Tested>(&[chain(0, 1, 2)]);
    let heap = store.pool.root("heap").unwrap().unwrap().off;
    is_found(&store, heap + 56, 1, "a reserved word");
    is_found(&store, load(&store, heap + 32) + 8, 1, "a reserved word");
}

/// The offset of a field of such an object may be past the highest number there is, and then a small one,
/// where bytes can be read.
#[test]
fn pointers_that_lead_nowhere_are_errors_and_no_panics() {
    let _turn = turn();
    let store = create::<Tested>(&[chain(0, 1, 2)]);
    let at = slot_off(&store, 0);
    for nowhere in [u64::MAX, !7, !15, 1 << 47] {
        is_found(&store, at, nowhere, "");
        let old = load(&store, at);
        store.pool.region().store_u64(at, nowhere).unwrap();
        let read = store.heap().read(|tx, root| {
            let Some(node) = tx.load(root.slots().at(0))? else { return Ok(0) };
            tx.get(node.id())
        });
        assert!(read.is_err() || nowhere > u64::MAX - 24, "{nowhere:#x}");
        let unlinked = store.heap().write(|tx, root| tx.link(root.slots().at(0), None));
        assert!(unlinked.is_err(), "{nowhere:#x}");
        store.pool.region().store_u64(at, old).unwrap();
    }
    store.check().unwrap();
}
