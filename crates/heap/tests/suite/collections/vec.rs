//! `PVec` and `PBox`.

use super::{Place, Tested, compare, objects, prove, turn};
use rand::Rng;
use tembo_heap::collections::{PBox, PVec};
use tembo_heap::{Error, Heap, Obj, PRc, PWeak, Persist, Plain, Ref, Tx};

#[derive(Persist)]
#[repr(C)]
struct Leaf {
    value: u64,
}

/// With pointers, also such that are there in one variant only.
#[derive(Persist)]
#[repr(u32)]
enum Choice {
    Nothing = 1,
    Leaf { leaf: PRc<Leaf>, weak: PWeak<Leaf> },
}

#[derive(Persist)]
#[repr(C)]
struct Item {
    id: u64,
    leaf: PRc<Leaf>,
    choice: Choice,
}

#[derive(Clone, Copy, Debug, PartialEq, Persist, Plain)]
#[repr(C)]
struct Wide {
    words: [u64; 9],
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    numbers: PVec<u64>,
    bytes: PVec<u8>,
    odd: PVec<[u8; 3]>,
    wide: PVec<Wide>,
    items: PVec<Item>,
}

#[derive(Clone, Debug)]
enum Op {
    Push(u64),
    Pop,
    Insert(usize, u64),
    Remove(usize),
    SwapRemove(usize),
    Truncate(usize),
    Clear,
    Shrink,
    Reserve(usize),
    Set(usize, u64),
}

fn odd(value: u64) -> [u8; 3] {
    [value as u8, (value >> 8) as u8, !value as u8]
}

fn model(list: &mut Vec<u64>, op: &Op) -> usize {
    match *op {
        Op::Push(value) => list.push(value),
        Op::Pop => drop(list.pop()),
        Op::Insert(at, value) => list.insert(at, value),
        Op::Remove(at) => drop(list.remove(at)),
        Op::SwapRemove(at) => drop(list.swap_remove(at)),
        Op::Truncate(len) => list.truncate(len),
        Op::Clear => list.clear(),
        Op::Set(at, value) => list[at] = value,
        Op::Shrink | Op::Reserve(_) => {}
    }
    list.len()
}

#[allow(clippy::ptr_arg, reason = "the model is a vector")]
fn random_op(random: &mut rand_xoshiro::Xoshiro256PlusPlus, list: &Vec<u64>) -> Op {
    let value = random.random();
    let at = random.random_range(0..=list.len());
    match random.random_range(0..100) {
        0..45 => Op::Push(value),
        45..60 => Op::Insert(at, value),
        60..62 => Op::Truncate(list.len() - list.len().min(3)),
        62 => Op::Clear,
        63 => Op::Shrink,
        64 => Op::Reserve(at % 40),
        65..75 => Op::Pop,
        _ if at == list.len() => Op::Pop,
        75..85 => Op::Remove(at),
        85..92 => Op::SwapRemove(at),
        _ => Op::Set(at, value),
    }
}

#[test]
fn vectors_of_all_kinds_are_as_vec() {
    let _turn = turn();
    compare::<Tested, Root, _, _, _>("vec", (1500, 12), Vec::new(), random_op, model, change, same);
}

fn blank(id: u64) -> Item {
    let choice = if id.is_multiple_of(3) {
        Choice::Nothing
    } else {
        Choice::Leaf { leaf: PRc::null(), weak: PWeak::null() }
    };
    Item { id, leaf: PRc::null(), choice }
}

fn change<'t>(tx: &mut Tx<'t, Tested>, root: Obj<'t, Tested, Root>, op: &Op) -> Result<usize, Error> {
    macro_rules! all {
        ($method:ident $(, $argument:expr)*) => {{
            root.numbers().$method(tx $(, $argument)*)?;
            root.bytes().$method(tx $(, $argument)*)?;
            root.odd().$method(tx $(, $argument)*)?;
            root.wide().$method(tx $(, $argument)*)?;
            root.items().$method(tx $(, $argument)*)?;
        }};
    }
    match *op {
        Op::Push(value) => {
            root.numbers().push(tx, value)?;
            root.bytes().push(tx, value as u8)?;
            root.odd().push(tx, odd(value))?;
            root.wide().push(tx, Wide { words: [value; 9] })?;
            let item = root.items().push(tx, blank(value))?;
            link_leaf(tx, item, value)?;
        }
        Op::Insert(at, value) => {
            root.numbers().insert(tx, at, value)?;
            root.bytes().insert(tx, at, value as u8)?;
            root.odd().insert(tx, at, odd(value))?;
            root.wide().insert(tx, at, Wide { words: [value; 9] })?;
            let item = root.items().insert(tx, at, blank(value))?;
            link_leaf(tx, item, value)?;
        }
        Op::Set(at, value) => {
            tx.set(root.numbers().at(tx, at)?, value)?;
            tx.set(root.bytes().at(tx, at)?, value as u8)?;
            tx.set(root.odd().at(tx, at)?, odd(value))?;
            tx.set(root.wide().at(tx, at)?, Wide { words: [value; 9] })?;
            let item = root.items().at(tx, at)?;
            tx.put(item, blank(value))?;
            link_leaf(tx, item, value)?;
        }
        Op::Pop => all!(pop),
        Op::Remove(at) => all!(remove, at),
        Op::SwapRemove(at) => all!(swap_remove, at),
        Op::Truncate(len) => all!(truncate, len),
        Op::Clear => all!(clear),
        Op::Shrink => all!(shrink),
        Op::Reserve(more) => all!(reserve, more),
    }
    root.numbers().len(tx)
}

/// Gives an item a leaf, to which all of its pointers lead.
fn link_leaf<'t>(tx: &mut Tx<'t, Tested>, item: Ref<'t, Tested, Item>, value: u64) -> Result<(), Error> {
    let leaf = tx.alloc(Leaf { value })?;
    tx.link(item.leaf(), leaf)?;
    if let ChoiceRef::Leaf { leaf: strong, weak } = item.choice().variant(tx)? {
        tx.link(strong, leaf)?;
        tx.link_weak(weak, leaf)?;
    }
    Ok(())
}

#[allow(clippy::ptr_arg, reason = "the model is a vector")]
fn same(heap: &Heap<Tested, Root>, list: &Vec<u64>) {
    heap.read(|tx, root| {
        assert_eq!(root.numbers().to_vec(tx)?, *list);
        assert_eq!(root.bytes().to_vec(tx)?, list.iter().map(|value| *value as u8).collect::<Vec<_>>());
        assert_eq!(root.odd().to_vec(tx)?, list.iter().map(|value| odd(*value)).collect::<Vec<_>>());
        let wide = root.wide().to_vec(tx)?;
        assert_eq!(wide, list.iter().map(|value| Wide { words: [*value; 9] }).collect::<Vec<_>>());
        assert_eq!(root.items().iter(tx)?.len(), list.len());
        for (item, value) in root.items().iter(tx)?.zip(list) {
            assert_eq!(tx.get(item.id())?, *value);
            let leaf = tx.load(item.leaf())?.unwrap();
            assert_eq!(tx.get(leaf.value())?, *value);
            match item.choice().variant(tx)? {
                ChoiceRef::Nothing => assert_eq!(value % 3, 0),
                ChoiceRef::Leaf { leaf: strong, weak } => {
                    assert_eq!(tx.load(strong)?, Some(leaf));
                    assert_eq!(tx.upgrade(weak)?, Some(leaf));
                }
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_long_vector_of_pointers_grows_in_one_transaction_and_its_objects_die_with_it() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        all: PVec<PRc<Leaf>>,
    }
    let place = Place::new();
    let heap = place.open::<Tested, Root>();
    let before = objects(&heap);
    heap.write(|tx, root| {
        for value in 0..5000 {
            let leaf = tx.alloc(Leaf { value })?;
            root.all().push_link(tx, leaf)?;
        }
        for (slot, expected) in root.all().iter(tx)?.rev().zip((0..5000).rev()) {
            let leaf = tx.load(slot)?.unwrap();
            assert_eq!(tx.get(leaf.value())?, expected);
        }
        Ok(())
    })
    .unwrap();
    prove(&heap);
    let arrays = objects(&heap) - before - 5000;
    assert!((2..16).contains(&arrays), "{arrays}");
    let last = heap
        .write(|tx, root| {
            let last = root.all().pop_link(tx)?.unwrap();
            tx.get(last.value())
        })
        .unwrap();
    assert_eq!(last, 4999);
    prove(&heap);
    assert_eq!(objects(&heap), before + arrays + 4999);
    heap.write(|tx, root| root.all().clear(tx)).unwrap();
    prove(&heap);
    assert_eq!(objects(&heap), before);
}

#[derive(Default, Persist)]
#[repr(C)]
struct Items {
    items: PVec<Item>,
}

#[test]
fn places_stay_good_when_others_are_pushed_and_harm_nothing_when_they_are_kept_for_too_long() {
    let _turn = turn();
    let place = Place::new();
    let heap = place.open::<Tested, Items>();
    let before = objects(&heap);
    let bare = |id| Item { id, leaf: PRc::null(), choice: Choice::Nothing };
    for round in 0..3 {
        heap.write(|tx, root| {
            let items = root.items();
            let mut places = Vec::new();
            for id in 0..300 {
                places.push(items.push(tx, bare(id))?);
            }
            // None of them has moved, however often there was no room.
            for (id, place) in places.iter().enumerate() {
                let leaf = tx.alloc(Leaf { value: id as u64 })?;
                tx.link(place.leaf(), leaf)?;
                assert_eq!(tx.get(items.at(tx, id)?.id())?, id as u64);
                assert_eq!(tx.load(items.at(tx, id)?.leaf())?, Some(leaf));
            }
            // A link in a free place is counted too.
            take_out(tx, items, round)?;
            for place in &places {
                let leaf = tx.alloc(Leaf { value: 0 })?;
                tx.link(place.leaf(), leaf)?;
            }
            Ok(())
        })
        .unwrap();
        prove(&heap);
        // They are written over.
        heap.write(|tx, root| {
            for id in 0..300 {
                let place = root.items().insert(tx, 0, bare(id))?;
                assert_eq!(tx.load(place.leaf())?, None);
            }
            Ok(())
        })
        .unwrap();
        prove(&heap);
        heap.write(|tx, root| root.items().clear(tx)).unwrap();
        prove(&heap);
        assert_eq!(objects(&heap), before);
    }
}

/// Leaves three items or fewer, in one of three ways.
fn take_out<'t>(tx: &mut Tx<'t, Tested>, items: Ref<'t, Tested, PVec<Item>>, way: u32) -> Result<(), Error> {
    match way {
        0 => items.truncate(tx, 3),
        1 => items.clear(tx),
        _ => {
            for _ in 0..200 {
                items.remove(tx, 1)?;
                items.swap_remove(tx, 0)?;
                if items.len(tx)? < 3 {
                    break;
                }
            }
            items.shrink(tx)
        }
    }
}

#[test]
fn boxes_move_their_contents_and_let_them_die() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Tree {
        value: u64,
        left: PBox<Tree>,
        right: PBox<Tree>,
        children: PVec<Tree>,
    }
    let place = Place::new();
    let heap = place.open::<Tested, Tree>();
    heap.write(|tx, root| {
        let left = root.left().fill(tx, Tree { value: 1, ..Tree::default() })?;
        left.right().fill(tx, Tree { value: 2, ..Tree::default() })?;
        let child = left.children().push(tx, Tree { value: 3, ..Tree::default() })?;
        child.left().fill(tx, Tree { value: 4, ..Tree::default() })?;
        Ok(())
    })
    .unwrap();
    assert_eq!(objects(&heap), 5);
    heap.write(|tx, root| root.right().take_from(tx, root.left())).unwrap();
    prove(&heap);
    assert_eq!(objects(&heap), 5);
    heap.read(|tx, root| {
        assert!(root.left().open(tx)?.is_none());
        let right = root.right().open(tx)?.unwrap();
        assert_eq!(tx.get(right.value())?, 1);
        let child = right.children().at(tx, 0)?;
        assert_eq!(tx.get(child.left().open(tx)?.unwrap().value())?, 4);
        Ok(())
    })
    .unwrap();
    heap.write(|tx, root| {
        let inner = root.right().open(tx)?.unwrap().right();
        root.left().take_from(tx, inner)?;
        root.right().empty(tx)
    })
    .unwrap();
    prove(&heap);
    assert_eq!(objects(&heap), 2);
}
