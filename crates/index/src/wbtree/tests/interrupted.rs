//! Readers that a writer interrupts between any two of their loads.
//!
//! Threads would hit these moments once in millions of tries, so a view that counts its loads lets the writer work
//! at a chosen one.

use super::Bench;
use crate::wbtree::get::find_settled;
use crate::wbtree::layout::LeafState;
use crate::wbtree::node::{Leaf, Media, Record, View};
use crate::wbtree::scan::snapshot;
use crate::wbtree::search::Probe;
use crate::{Result, WbTree};
use std::cell::{Cell, RefCell};
use tembo_pmem::Region;
use tembo_pool::Lane;

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

/// A leaf of a few records, whose reader is interrupted after a number of loads. Returns whether it was: the
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
    let items = snapshot(view, leaf).unwrap();
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
                find_settled(view, leaf, Probe::new(b"c")).unwrap().map(|found| found.value.to_vec())
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
    let slot_of = |key: &[u8]| find_settled(media, &leaf, Probe::new(key)).unwrap().unwrap().slot;
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
                // As if the last home store of that commit were still to come.
                region.store_u64(leaf.off, before.0).unwrap();
            },
            |view, leaf| find_settled(view, leaf, Probe::new(b"new")).unwrap().map(|found| found.slot),
        );
        assert_eq!(found, None);
        interrupted
    });
}
