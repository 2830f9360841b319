//! Golden counts of the CDDS tree: what versions cost in fences and lines. They do not depend on the machine.
//!
//! Cost follows fences first, lines second, words third, so these numbers are pinned; a change that moves one of them has to say
//! why.

use tembo_index::CddsTree;
use tembo_pmem::{Counts, Region, snapshot};
use tembo_pool::{Geometry, Pool};

fn new_tree() -> CddsTree {
    let region = Region::simulated(&vec![0; 8 << 20], 1 << 30, None).unwrap();
    let pool = Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap();
    CddsTree::create(&pool, "tree").unwrap()
}

fn cost(work: impl FnOnce()) -> Counts {
    let before = snapshot();
    work();
    snapshot() - before
}

/// Keys whose order has nothing to do with their number.
fn key(i: u64) -> [u8; 20] {
    let mut key = [0; 20];
    let mixed = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..16].copy_from_slice(&mixed.rotate_left(17).to_be_bytes());
    key
}

/// Eight bytes of it, so that key and value lie in the entry.
fn small(i: u64) -> [u8; 8] {
    *key(i).first_chunk().unwrap()
}

/// A tree of one leaf with room, in a pool that has made its first slabs and in which the first records have died.
fn with_room() -> CddsTree {
    let tree = new_tree();
    (0..8).for_each(|i| _ = tree.put(&key(i), &[1; 20]).unwrap());
    (0..4).for_each(|i| _ = tree.put(&key(i), &[2; 20]).unwrap());
    tree
}

/// Asserts one fence each, and the lines of those that do not also flush the home lines of all since the last such one.
fn assert_costs(costs: &[Counts], own: std::ops::RangeInclusive<u64>, with_homes: u64) {
    let lines: Vec<u64> = costs.iter().map(|cost| cost.lines).collect();
    assert!(costs.iter().all(|cost| cost.fences == 1), "{costs:?}");
    let switches = lines.iter().filter(|lines| !own.contains(lines)).count();
    assert!(switches <= lines.len() / 10 + 1, "{lines:?}");
    assert!(lines.iter().all(|lines| *own.start() <= *lines && *lines <= with_homes), "{lines:?}");
}

#[test]
fn reading_costs_nothing() {
    let tree = with_room();
    let old = tree.snapshot();
    tree.put(&key(3), b"new").unwrap();
    let reads = cost(|| {
        (0..20).for_each(|i| _ = tree.get(&key(i)).unwrap());
        assert_eq!(tree.reader().iter().count(), 8);
        assert_eq!(old.iter().rev().count(), 8);
        assert_eq!(tree.diff(old.version(), tree.version()).unwrap().len(), 1);
        assert!(!tree.remove(b"absent").unwrap());
        tree.batch(|batch| batch.remove(b"absent").map(drop)).unwrap();
    });
    assert_eq!(reads, Counts::default());
}

#[test]
fn a_version_costs_one_fence() {
    let tree = with_room();
    let new: Vec<_> = (8..16).map(|i| cost(|| assert!(!tree.put(&key(i), &[3; 20]).unwrap()))).collect();
    let replaced: Vec<_> =
        (0..80).map(|i| cost(|| assert!(tree.put(&key(i % 8), &[4; 20]).unwrap()))).collect();
    let removed: Vec<_> = (0..8).map(|i| cost(|| assert!(tree.remove(&key(i)).unwrap()))).collect();
    let small: Vec<_> = (0..60).map(|i| cost(|| _ = tree.put(&small(i % 6), &[5; 8]).unwrap())).collect();
    assert_costs(&new, 4..=5, 30);
    assert_costs(&replaced, 5..=6, 30);
    assert_costs(&removed, 3..=3, 30);
    assert_costs(&small, 3..=3, 30);
}

#[test]
fn snapshots_cost_nothing_and_names_one_fence() {
    let tree = with_room();
    let snapshot = cost(|| drop((tree.snapshot(), tree.reader())));
    assert_eq!(snapshot, Counts::default());
    let held = tree.snapshot();
    assert_eq!(cost(|| tree.keep(&held, "name").unwrap()).fences, 1);
    assert_eq!(cost(|| assert!(tree.drop_kept("name").unwrap())).fences, 1);
    tree.put(&key(0), &[9; 20]).unwrap();
    assert_eq!(cost(|| _ = tree.rollback_to(held.version()).unwrap()).fences, 1);
}

struct Average {
    fences: f64,
    lines: f64,
}

fn average(what: &str, operations: u64, work: impl FnOnce()) -> Average {
    let total = cost(work);
    let per_operation = |n: u64| n as f64 / operations as f64;
    let average = Average { fences: per_operation(total.fences), lines: per_operation(total.lines) };
    println!(
        "{what}: {:.4} fences, {:.2} lines, {:.1} words",
        average.fences,
        average.lines,
        per_operation(total.words)
    );
    average
}

#[test]
fn divisions_included_a_put_costs_little_more_than_one_fence() {
    let tree = new_tree();
    let count = 40_000;
    let put = |i: u64, value: u8| _ = tree.put(&key(i), &[value; 20]).unwrap();
    let new = average("new keys", count, || (0..count).for_each(|i| put(i, 1)));
    let replaced = average("new values", count, || (0..count).for_each(|i| put(i * 7 % count, 2)));
    let held = tree.snapshot();
    let beside =
        average("new values beside a snapshot", count, || (0..count).for_each(|i| put(i * 11 % count, 3)));
    drop(held);
    let removed = average("removals", count, || {
        (0..count).for_each(|i| _ = tree.remove(&key(i * 13 % count)).unwrap())
    });
    for (average, lines) in [(&new, 12.0), (&replaced, 12.0), (&beside, 16.0), (&removed, 11.5)] {
        assert!(average.fences < 1.01, "{}", average.fences);
        assert!(average.lines < lines, "{}", average.lines);
    }
}

#[test]
fn a_batch_shares_its_fence() {
    let tree = new_tree();
    let (batches, size) = (1000, 32);
    let batch_of = |from: u64, value: u8| {
        tree.batch(|batch| (from..from + size).try_for_each(|i| batch.put(&key(i), &[value; 20]).map(drop)))
            .unwrap();
    };
    let new = average("new keys in batches of 32", batches * size, || {
        (0..batches).for_each(|i| batch_of(i * size, 1));
    });
    let replaced = average("new values in batches of 32", batches * size, || {
        (0..batches).for_each(|i| batch_of(i * size, 2));
    });
    // An eighth of what puts cost by themselves is 0.125.
    for average in [new, replaced] {
        assert!(average.fences <= 2.0 / 32.0 + 0.001, "{}", average.fences);
        assert!(average.lines < 9.0, "{}", average.lines);
    }
}
