//! Golden counts of the CDDS structures: what versions cost in fences and lines. They do not depend on the
//! machine.
//!
//! Cost follows fences first, lines second, words third, so these numbers are pinned; a change that moves
//! one of them has to say why.

use crate::structures::{Structure, for_each_structure, new_map};
use tembo_index::{HashStructure, TreeStructure, VersionedMap};
use tembo_pmem::{Counts, snapshot};

for_each_structure!(
    reading_costs_nothing,
    a_version_costs_one_fence,
    snapshots_cost_nothing_and_names_one_fence,
    a_put_costs_little_more_than_one_fence_and_its_lines,
    a_batch_shares_its_fence,
);

/// The counts that are pinned for each structure.
trait Costs: Structure {
    /// Lines of a new key, of a new value, of a removal, and of a change of an entry without a record, in a
    /// small map.
    const LINES: [std::ops::RangeInclusive<u64>; 4];
    /// The most lines of one change, with the home lines of all changes since they were last written.
    const WITH_HOMES: u64;
    /// Lines of the same in a map of 40,000 keys, on average; new values beside a snapshot come third.
    const AVERAGE_LINES: [f64; 4];
    /// Lines of a change in a batch of 32.
    const BATCH_LINES: f64;
}

impl Costs for TreeStructure {
    const LINES: [std::ops::RangeInclusive<u64>; 4] = [4..=5, 4..=6, 2..=2, 2..=3];
    const WITH_HOMES: u64 = 30;
    const AVERAGE_LINES: [f64; 4] = [9.2, 9.0, 11.8, 6.0];
    const BATCH_LINES: f64 = 7.0;
}

/// Every change copies the nodes on its way: one in the small map, four or five in the large one.
impl Costs for HashStructure {
    const LINES: [std::ops::RangeInclusive<u64>; 4] = [7..=10, 9..=11, 7..=7, 6..=9];
    const WITH_HOMES: u64 = 30;
    const AVERAGE_LINES: [f64; 4] = [23.0, 27.5, 29.5, 23.0];
    const BATCH_LINES: f64 = 13.5;
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

/// A small map, in a pool that has made its first slabs and in which the first records have died.
fn with_room<S: Structure>() -> VersionedMap<S> {
    let map = new_map::<S>();
    (0..8).for_each(|i| _ = map.put(&key(i), &[1; 20]).unwrap());
    (0..4).for_each(|i| _ = map.put(&key(i), &[2; 20]).unwrap());
    map
}

/// Asserts one fence each, and the lines of those that do not also flush the home lines of all since the
/// last such one.
fn assert_costs(costs: &[Counts], own: std::ops::RangeInclusive<u64>, with_homes: u64) {
    let lines: Vec<u64> = costs.iter().map(|cost| cost.lines).collect();
    assert!(costs.iter().all(|cost| cost.fences == 1), "{costs:?}");
    let switches = lines.iter().filter(|lines| !own.contains(lines)).count();
    assert!(switches <= lines.len() / 10 + 1, "{lines:?}");
    assert!(lines.iter().all(|lines| *own.start() <= *lines && *lines <= with_homes), "{lines:?}");
}

fn reading_costs_nothing<S: Costs>() {
    let map = with_room::<S>();
    let old = map.snapshot();
    map.put(&key(3), b"new").unwrap();
    let reads = cost(|| {
        (0..20).for_each(|i| _ = map.get(&key(i)).unwrap());
        assert_eq!(map.reader().iter().count(), 8);
        assert_eq!(old.iter().count(), 8);
        assert_eq!(map.diff(old.version(), map.version()).unwrap().len(), 1);
        assert!(!map.remove(b"absent").unwrap());
        map.batch(|batch| batch.remove(b"absent").map(drop)).unwrap();
    });
    assert_eq!(reads, Counts::default());
}

fn a_version_costs_one_fence<S: Costs>() {
    let map = with_room::<S>();
    let new: Vec<_> = (8..16).map(|i| cost(|| assert!(!map.put(&key(i), &[3; 20]).unwrap()))).collect();
    let replaced: Vec<_> =
        (0..80).map(|i| cost(|| assert!(map.put(&key(i % 8), &[4; 20]).unwrap()))).collect();
    let removed: Vec<_> = (0..8).map(|i| cost(|| assert!(map.remove(&key(i)).unwrap()))).collect();
    let small: Vec<_> = (0..60).map(|i| cost(|| _ = map.put(&small(i % 6), &[5; 8]).unwrap())).collect();
    for (costs, own) in [new, replaced, removed, small].iter().zip(S::LINES) {
        println!("{:?}", costs.iter().map(|cost| cost.lines).collect::<Vec<_>>());
        assert_costs(costs, own, S::WITH_HOMES);
    }
}

fn snapshots_cost_nothing_and_names_one_fence<S: Costs>() {
    let map = with_room::<S>();
    let snapshot = cost(|| drop((map.snapshot(), map.reader())));
    assert_eq!(snapshot, Counts::default());
    let held = map.snapshot();
    assert_eq!(cost(|| map.keep(&held, "name").unwrap()).fences, 1);
    assert_eq!(cost(|| assert!(map.drop_kept("name").unwrap())).fences, 1);
    map.put(&key(0), &[9; 20]).unwrap();
    assert_eq!(cost(|| _ = map.rollback_to(held.version()).unwrap()).fences, 1);
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

fn a_put_costs_little_more_than_one_fence_and_its_lines<S: Costs>() {
    let map = new_map::<S>();
    let count = 40_000;
    let put = |i: u64, value: u8| _ = map.put(&key(i), &[value; 20]).unwrap();
    let new = average("new keys", count, || (0..count).for_each(|i| put(i, 1)));
    let replaced = average("new values", count, || (0..count).for_each(|i| put(i * 7 % count, 2)));
    let held = map.snapshot();
    let beside =
        average("new values beside a snapshot", count, || (0..count).for_each(|i| put(i * 11 % count, 3)));
    drop(held);
    let removed =
        average("removals", count, || (0..count).for_each(|i| _ = map.remove(&key(i * 13 % count)).unwrap()));
    for (average, lines) in [&new, &replaced, &beside, &removed].into_iter().zip(S::AVERAGE_LINES) {
        assert!(average.fences < 1.01, "{}", average.fences);
        assert!(average.lines < lines, "{}", average.lines);
    }
}

fn a_batch_shares_its_fence<S: Costs>() {
    let map = new_map::<S>();
    let (batches, size) = (1000, 32);
    let batch_of = |from: u64, value: u8| {
        map.batch(|batch| (from..from + size).try_for_each(|i| batch.put(&key(i), &[value; 20]).map(drop)))
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
        assert!(average.lines < S::BATCH_LINES, "{}", average.lines);
    }
}
