//! Readers that a writer interrupts between any two of their loads.
//!
//! Threads would hit these moments once in millions of tries, so a view that counts its loads lets the
//! writer work at a chosen one.

use super::Bench;
use crate::direction::Direction;
use crate::wbtree::get::find_stable;
use crate::wbtree::layout::LeafState;
use crate::wbtree::node::{Leaf, Media, Record, View};
use crate::wbtree::scan::{End, snapshot};
use crate::wbtree::search::Probe;
use crate::{Result, WbTree};
use std::cell::{Cell, RefCell};
use std::ops::Bound;
use tembo_pmem::Region;
use tembo_pool::{Lane, Tx};

/// Sees what readers see, and calls the writer before one of its loads.
#[derive(Clone, Copy)]
struct Interrupted<'m, 't> {
    region: &'m Region,
    loads_before: &'t Cell<Option<usize>>,
    writer: &'t RefCell<dyn FnMut() + 't>,
}

impl<'m> View<'m> for Interrupted<'m, '_> {
    fn region(self) -> &'m Region {
        self.region
    }

    fn load(self, off: u64) -> Result<u64> {
        let left = self.loads_before.get();
        self.loads_before.set(left.and_then(|loads| loads.checked_sub(1)));
        if left == Some(0) {
            (self.writer.borrow_mut())();
        }
        Media(self.region).load(off)
    }
}

/// Interrupts a reader of a leaf with a few records after a number of loads. Returns whether it did: the
/// reader may have needed fewer loads.
fn interrupt<T>(
    loads_before: usize,
    mut writer: impl FnMut(&WbTree, &mut Lane, &Leaf),
    reader: impl FnOnce(Interrupted<'_, '_>, &Leaf) -> T,
) -> (T, bool) {
    let mut bench = Bench::new();
    ["a", "b", "c", "d", "e"].iter().for_each(|key| bench.put(key.as_bytes()));
    let Bench { pool, mut lane, tree } = bench;
    let _pin = pool.pin();
    let media = Media(pool.region());
    let leaf = Leaf::open(media.0, tree.root(media).unwrap().node()).unwrap();
    let loads_before = Cell::new(Some(loads_before));
    let writer = RefCell::new(|| writer(&tree, &mut lane, &leaf));
    let view = Interrupted { region: pool.region(), loads_before: &loads_before, writer: &writer };
    let outcome = reader(view, &leaf);
    (outcome, loads_before.get().is_none())
}

/// Interrupts a reader at each of its loads in turn.
fn at_every_load(mut once: impl FnMut(usize) -> bool) {
    let loads = (0..1000).take_while(|loads| once(*loads)).count();
    assert!((6..200).contains(&loads), "{loads}");
}

/// The keys of a copy of the leaf, one after the other.
fn keys_of_snapshot(view: Interrupted<'_, '_>, leaf: &Leaf) -> Vec<u8> {
    let (_, items) = snapshot(view, leaf).unwrap();
    items
        .as_slice()
        .iter()
        .flat_map(|item| Record::read(view.region, item.record).unwrap().key.to_vec())
        .collect()
}

/// Moves the record of `c` to another slot by one transaction, then fills its old slot with `new`.
fn move_and_refill(tree: &WbTree, lane: &mut Lane) {
    let mut tx = lane.begin();
    assert!(tree.remove(&mut tx, b"c").unwrap());
    tree.put(&mut tx, b"c", &[b"moved"]).unwrap();
    tx.commit().unwrap();
    let mut tx = lane.begin();
    tree.put(&mut tx, b"new", &[b"in the old slot"]).unwrap();
    tx.commit().unwrap();
}

#[test]
fn a_record_that_moves_within_its_leaf_is_always_found() {
    at_every_load(|loads| {
        let (found, interrupted) = interrupt(
            loads,
            |tree, lane, _| move_and_refill(tree, lane),
            |view, leaf| {
                find_stable(view, leaf, Probe::new(b"c")).unwrap().map(|found| found.entry.value().to_vec())
            },
        );
        let found = found.expect("the record was there all the time");
        assert!(found == b"value of c" || found == b"moved");
        interrupted
    });
}

#[test]
fn a_walk_meets_a_record_that_moves_once() {
    at_every_load(|loads| {
        let (keys, interrupted) =
            interrupt(loads, |tree, lane, _| move_and_refill(tree, lane), keys_of_snapshot);
        assert!(keys == b"abcde" || keys == b"abcdenew", "{}", keys.escape_ascii());
        interrupted
    });
}

#[test]
fn a_walk_never_mixes_two_entries_of_one_slot() {
    at_every_load(|loads| {
        let (keys, interrupted) = interrupt(
            loads,
            |tree, lane, leaf| {
                let before = leaf.state(Media(tree.region())).unwrap();
                let mut tx = lane.begin();
                tree.remove(&mut tx, b"c").unwrap();
                tx.commit().unwrap();
                let mut tx = lane.begin();
                tree.put(&mut tx, b"z", &[]).unwrap();
                tx.commit().unwrap();
                let after = leaf.state(Media(tree.region())).unwrap();
                assert!(before.bitmap() == after.bitmap() && before != after, "only the version tells");
            },
            keys_of_snapshot,
        );
        assert!(keys == b"abcde" || keys == b"abdez", "{}", keys.escape_ascii());
        interrupted
    });
}

#[test]
fn a_slot_that_a_transaction_empties_is_not_filled_in_it() {
    let mut bench = Bench::new();
    ["a", "b", "c"].iter().for_each(|key| bench.put(key.as_bytes()));
    let media = Media(bench.pool.region());
    let leaf = Leaf::open(media.0, bench.tree.root(media).unwrap().node()).unwrap();
    let slot_of = |key: &[u8]| find_stable(media, &leaf, Probe::new(key)).unwrap().unwrap().slot;
    let old = slot_of(b"b");
    let mut tx = bench.lane.begin();
    bench.tree.remove(&mut tx, b"b").unwrap();
    bench.tree.put(&mut tx, b"new", &[]).unwrap();
    tx.commit().unwrap();
    assert_ne!(slot_of(b"new"), old);
    let mut tx = bench.lane.begin();
    bench.tree.put(&mut tx, b"newer", &[]).unwrap();
    tx.commit().unwrap();
    assert_eq!(slot_of(b"newer"), old, "from the next transaction on it is free");
}

#[test]
fn a_record_is_not_found_before_its_state_says_so() {
    at_every_load(|loads| {
        let (found, interrupted) = interrupt(
            loads,
            |tree, lane, leaf| {
                let mut tx = lane.begin();
                assert!(tree.remove(&mut tx, b"c").unwrap());
                tx.commit().unwrap();
                let region = tree.region();
                let before = LeafState(region.load_u64(leaf.off).unwrap());
                let mut tx = lane.begin();
                tree.put(&mut tx, b"new", &[b"value"]).unwrap();
                tx.commit().unwrap();
                // Undoes the last home store of that commit, as if it were still to come.
                region.store_u64(leaf.off, before.0).unwrap();
            },
            |view, leaf| find_stable(view, leaf, Probe::new(b"new")).unwrap().map(|found| found.slot),
        );
        assert_eq!(found, None);
        interrupted
    });
}

/// There are two leaves. A writer interrupts the reader, empties one leaf, so that the other takes over its
/// range, and puts records there. The other leaf stays at its place, but has new fences.
fn while_a_leaf_grows<T>(
    loads_before: usize,
    emptied: std::ops::Range<u32>,
    reader: impl FnOnce(Interrupted<'_, '_>, &WbTree) -> T,
) -> (T, bool) {
    let mut bench = Bench::new();
    (0..56).for_each(|i| bench.put(&numbered(10 * i)));
    let staying = (0..56).filter(|i| !emptied.contains(i));
    staying.filter(|i| !stays(*i)).for_each(|i| bench.remove(&numbered(10 * i)));
    let Bench { pool, mut lane, tree } = bench;
    let _pin = pool.pin();
    let mut commit = |change: &dyn Fn(&mut Tx<'_>) -> Result<bool>| {
        let mut tx = lane.begin();
        change(&mut tx).unwrap();
        tx.commit().unwrap();
    };
    let loads_before = Cell::new(Some(loads_before));
    let writer = RefCell::new(|| {
        let before = leaves(&tree);
        emptied.clone().for_each(|i| commit(&|tx| tree.remove(tx, &numbered(10 * i))));
        let after = leaves(&tree);
        assert!(before.len() == 2 && after.len() == 1 && before.contains(&after[0]));
        emptied.clone().skip(5).take(4).for_each(|i| commit(&|tx| tree.put(tx, &numbered(10 * i + 5), &[])));
        assert_eq!(leaves(&tree), after);
    });
    let view = Interrupted { region: pool.region(), loads_before: &loads_before, writer: &writer };
    let outcome = reader(view, &tree);
    (outcome, loads_before.get().is_none())
}

fn numbered(i: u32) -> Vec<u8> {
    format!("{i:04}").into_bytes()
}

/// Whether a record stays in the leaf that grows. So many do that the other leaf is joined with it only when
/// empty.
fn stays(i: u32) -> bool {
    i % 5 != 4
}

fn leaves(tree: &WbTree) -> Vec<u64> {
    let mut nodes = super::Nodes::default();
    nodes.collect(tree, tree.root(Media(tree.region())).unwrap());
    nodes.leaves.iter().map(|(leaf, _)| leaf.off).collect()
}

/// A walk that had descended to a leaf before it grew yielded the new keys twice: they lay behind the fence
/// from which the walk then went on.
#[test]
fn a_walk_meets_nothing_twice_in_a_leaf_that_grows() {
    for (emptied, direction) in
        [0..28, 28..56].into_iter().flat_map(|e| [(e.clone(), Direction::Up), (e, Direction::Down)])
    {
        at_every_load(|loads| {
            let (met, interrupted) = while_a_leaf_grows(loads, emptied.clone(), |view, tree| {
                let (mut end, mut met) = (End::new(), Vec::new());
                while !end.is_last() {
                    end.load_leaf(tree, view, direction, &Bound::Unbounded).unwrap();
                    let key = |record| Record::read(view.region, record).unwrap().key.to_vec();
                    let keys = end.records.drain(..).map(key).collect::<Vec<_>>();
                    met = if direction == Direction::Up { [met, keys] } else { [keys, met] }.concat();
                }
                met
            });
            assert!(met.windows(2).all(|two| two[0] < two[1]), "twice, or out of order: {met:?}");
            let staying = (0..56).filter(|i| !emptied.contains(i) && stays(*i));
            staying.for_each(|i| assert!(met.contains(&numbered(10 * i)), "{i} was missed"));
            interrupted
        });
    }
}

/// The same for a cursor, which copies the leaf.
#[test]
fn a_cursor_copies_what_lies_between_the_fences_of_its_way() {
    for (emptied, from) in [(0..28, 300), (28..56, 200)] {
        at_every_load(|loads| {
            let ((), interrupted) = while_a_leaf_grows(loads, emptied.clone(), |view, tree| {
                let from = Bound::Included(numbered(from));
                let spot = tree.nearest(view, Direction::Up, from).unwrap().unwrap();
                for record in &spot.records {
                    let key = Record::read(view.region, *record).unwrap().key;
                    assert!(spot.low.as_deref().is_none_or(|low| low <= key), "{}", key.escape_ascii());
                    assert!(spot.high.as_deref().is_none_or(|high| key < high), "{}", key.escape_ascii());
                }
            });
            interrupted
        });
    }
}
