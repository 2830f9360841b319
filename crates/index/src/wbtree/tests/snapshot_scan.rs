//! Scans whose two visits to each leaf fall between chosen changes that they cannot see in the leaves.

use super::Bench;
use crate::wbtree::Writers;
use std::ops::Bound;
use std::sync::Barrier;
use std::time::Duration;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

/// At every moment one of two records is there. Each appears in a leaf of its own behind a full leaf, and
/// disappears with that leaf. The full leaves and their fences are therefore the same whenever the scan
/// looks, but the nodes above them are not.
#[test]
fn leaves_that_came_and_went_between_two_looks_are_noticed() {
    let mut bench = Bench::new();
    (0..28 * 7).for_each(|i| bench.put(&key(16 * i)));
    let (first, second) = (key(16 * (28 * 2 - 1) + 8), key(16 * (28 * 5 - 1) + 8));
    bench.put(&second);
    let tree = bench.tree.clone();
    let _pin = bench.pool.pin();
    // Before the leaf of the second record is looked at, the first comes and the second goes.
    const MIDDLE: usize = 4;
    let (mut records, mut seen, mut from) = (Vec::new(), Vec::new(), Some(Bound::Unbounded));
    while let Some(bound) = from.take() {
        if seen.len() == MIDDLE {
            bench.put(&first);
            bench.remove(&second);
        }
        let found = tree.look(&bound).unwrap().unwrap();
        tree.copy(&found, &bound, &Bound::Unbounded, usize::MAX, &mut records).unwrap();
        from = found.fence.clone().map(Bound::Included);
        seen.push((bound, found));
    }
    assert!(records.iter().all(|(key, _)| *key != first && *key != second));
    bench.put(&second);
    bench.remove(&first);
    let mut is_same = true;
    for (i, (bound, found)) in seen.iter().enumerate() {
        if i == MIDDLE {
            bench.put(&first);
            bench.remove(&second);
        }
        is_same &= tree.look(bound).unwrap().as_ref() == Some(found);
    }
    assert!(!is_same, "a moment at which neither was there");
}

/// The last resort of a long scan. The pause can only hide a change that comes too early, never cause one.
#[test]
fn nobody_begins_to_write_while_writers_are_held_back() {
    let bench = Bench::new();
    let writers = Writers::new(bench.lane);
    assert!(writers.add().unwrap());
    let (tree, begun) = (&bench.tree, Barrier::new(3));
    let count = || tree.scan::<&[u8]>(Some(&writers), .., usize::MAX).unwrap().len();
    std::thread::scope(|scope| {
        let held_back = [writers.hold_back(), writers.hold_back()];
        scope.spawn(|| {
            begun.wait();
            tree.concurrent(&writers).put(&key(1), &[]).unwrap();
        });
        scope.spawn(|| {
            begun.wait();
            let mut tx = writers.begin();
            tree.put(&mut tx, &key(2), &[]).unwrap();
            writers.commit(tx).unwrap();
        });
        begun.wait();
        for one in held_back {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(count(), 0);
            drop(one);
        }
    });
    assert_eq!(count(), 2);
}
