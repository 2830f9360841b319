//! Objects whose values have 64 bytes: each has a line for itself, and its head lies elsewhere.

use tembo_heap::collections::PMap;
use tembo_heap::{Error, Handle, Heap, Options, PArr, PRc, PWeak, Persist, Plain, brand, check};
use tembo_pmem::{Durability, snapshot};
use tembo_pool::{Pool, tag_off};

#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Line {
    words: [u64; 8],
}

#[derive(Persist)]
#[repr(C)]
struct Knot {
    name: [u64; 5],
    next: PRc<Knot>,
    back: PWeak<Knot>,
    lines: PArr<Line>,
}

/// A value of 64 bytes.
#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<Knot>,
    look: PWeak<Knot>,
    line: PRc<Line>,
    map: PMap<u8, [u8; 0]>,
    numbers: [u64; 5 - PMAP_WORDS],
}

const PMAP_WORDS: usize = size_of::<PMap<u8, [u8; 0]>>() / 8;
const _: () = assert!(size_of::<Root>() == 64 && size_of::<Knot>() == 64 && size_of::<Line>() == 64);

fn create() -> Options {
    Options::new().durability(Durability::Emulated).create(true)
}

fn prove(path: &std::path::Path) -> tembo_heap::Summary {
    let pool = Pool::open(path, &Options::new()).unwrap();
    let mut marks = pool.marks().unwrap();
    let summary = check(&pool, &mut marks).unwrap();
    marks.finish().unwrap();
    summary
}

fn knot(name: u64) -> Knot {
    Knot { name: [name; 5], next: PRc::null(), back: PWeak::null(), lines: PArr::null() }
}

brand!(Knots);

type KnotHeap = Heap<Knots, Root>;

/// Twenty knots in a list, the last first, each with three lines and a weak pointer to the one before it.
fn make_list(heap: &KnotHeap) -> Result<(), Error> {
    for name in 0..20 {
        heap.write(|tx, root| {
            let new = tx.alloc(knot(name))?;
            let first = tx.load(root.first())?;
            tx.link(new.next(), first)?;
            if let Some(first) = first {
                tx.link_weak(first.back(), new)?;
            }
            let lines = tx.alloc_array(3, |i| Line { words: [name + i as u64; 8] })?;
            tx.link_array(new.lines(), lines)?;
            tx.link(root.first(), new)
        })?;
    }
    Ok(())
}

/// One that is linked and gone in one transaction, one that is never linked, one that only a weak pointer
/// leads to, and one that only a handle keeps, which is returned.
fn make_some_that_die(heap: &KnotHeap) -> Result<Handle<Knots, Knot>, Error> {
    heap.write(|tx, root| {
        let (gone, lost, seen) = (tx.alloc(knot(100))?, tx.alloc(knot(101))?, tx.alloc(knot(102))?);
        tx.link(lost.next(), gone)?;
        tx.link_weak(root.look(), seen)
    })?;
    let held = heap.write(|tx, _| {
        let held = tx.alloc(knot(103))?;
        tx.hold(held)
    })?;
    heap.read(|tx, root| {
        assert_eq!(tx.upgrade(root.look())?, None, "it died with its transaction");
        assert_eq!(tx.get(tx.enter(&held)?.name())?, [103; 5]);
        Ok(())
    })?;
    Ok(held)
}

fn cut_list_in_half(heap: &KnotHeap) -> Result<(), Error> {
    heap.write(|tx, root| {
        let mut at = tx.load(root.first())?.expect("twenty");
        for _ in 0..9 {
            at = tx.load(at.next())?.expect("twenty");
        }
        tx.link_weak(root.look(), tx.load(at.next())?)?;
        tx.link(at.next(), None)
    })
}

/// The names of the list, whose lines and weak pointers are as they were made.
fn names_of_list(heap: &KnotHeap) -> Result<Vec<u64>, Error> {
    heap.read(|tx, root| {
        let (mut names, mut next) = (Vec::new(), tx.load(root.first())?);
        while let Some(knot) = next {
            let lines = tx.array(knot.lines())?.expect("each has some");
            let [name, ..] = tx.get(knot.name())?;
            assert_eq!(tx.get(lines.at(2))?.words, [name + 2; 8]);
            names.push(name);
            next = tx.load(knot.next())?;
            if let Some(next) = next {
                assert_eq!(tx.upgrade(next.back())?, Some(knot));
            }
        }
        assert_eq!(tx.upgrade(root.look())?, None);
        Ok(names)
    })
}

#[test]
fn they_are_as_all_other_objects() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines.heap");
    let heap = KnotHeap::open(&path, create())?;
    make_list(&heap)?;
    let held = make_some_that_die(&heap)?;
    cut_list_in_half(&heap)?;
    heap.collect()?;
    drop(held);
    drop(heap);
    let summary = prove(&path);
    let knots = summary.types.iter().find(|usage| usage.name == "Knot").unwrap();
    assert_eq!(
        (knots.objects, knots.bytes, summary.shells, summary.dying),
        (11 + 1, 11 * 80 + 16, 1, 0),
        "{summary:?}"
    );

    let heap = KnotHeap::open(&path, create())?;
    assert_eq!(names_of_list(&heap)?, (10..20).rev().collect::<Vec<_>>());
    heap.write(|tx, root| tx.link_weak(root.look(), None))?;
    heap.collect()?;
    drop(heap);
    let summary = prove(&path);
    assert_eq!((summary.shells, summary.orphans), (0, 0), "{summary:?}");
    Ok(())
}

/// Some of these nodes have 64 bytes, those above them more.
#[test]
fn maps_may_have_nodes_of_this_size_below_others() -> Result<(), Error> {
    brand!(Small);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.heap");
    let heap = Heap::<Small, Root>::open(&path, create())?;
    for key in (0..=255_u8).map(|i| i.wrapping_mul(37)) {
        heap.write(|tx, root| root.map().insert(tx, &key, []).map(drop))?;
    }
    drop(heap);
    let summary = prove(&path);
    let leaves = summary.types.iter().find(|usage| usage.name.contains("Leaf")).unwrap();
    assert_eq!(leaves.bytes, leaves.objects * 80, "a leaf has 64 bytes: {leaves:?}");
    let heap = Heap::<Small, Root>::open(&path, create())?;
    for key in (0..=255_u8).filter(|key| key % 5 != 0) {
        assert!(heap.write(|tx, root| root.map().remove(tx, &key))?);
    }
    let left = heap.read(|tx, root| (0..=255).map(|key| root.map().contains(tx, &key)).collect());
    let left: Vec<bool> = left?;
    assert!(left.iter().enumerate().all(|(key, is_there)| *is_there == (key % 5 == 0)));
    drop(heap);
    prove(&path);
    Ok(())
}

#[test]
fn a_change_of_one_is_a_change_of_one_line() -> Result<(), Error> {
    brand!(Counted);
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::open(dir.path().join("counted.heap"), &create().count(true))?;
    let heap = Heap::<Counted, Root>::open_pool(pool.clone())?;
    heap.write(|tx, root| {
        let line = tx.alloc(Line { words: [0; 8] })?;
        tx.link(root.line(), line)
    })?;
    let off = heap.read(|tx, root| Ok(format!("{:?}", *tx.load(root.line())?.unwrap())))?;
    let off = u64::from_str_radix(off.rsplit_once("0x").unwrap().1, 16).unwrap();
    assert_eq!(off % 64, 0);
    // One strong pointer leads to it.
    assert_eq!(pool.region().load_u64(tag_off(off) + 8)?, 1);
    let before = snapshot();
    for round in 1..=200 {
        heap.write(|tx, root| {
            let line = tx.load(root.line())?.expect("linked above");
            tx.set(*line, Line { words: [round; 8] })
        })?;
    }
    let spent = snapshot() - before;
    assert_eq!(spent.fences, 200);
    // Two lines of the record (a head, a target, and eight words), and now and then the object's own.
    assert!((400..420).contains(&spent.lines), "{} lines", spent.lines);
    Ok(())
}
