//! Golden counts: what operations cost in fences and lines.

use super::tiny_pool;
use crate::{Geometry, Lane, Pool, Tx};
use tembo_pmem::{Counts, Region, snapshot};

fn cost(tx: Tx, body: impl FnOnce(&mut Tx)) -> Counts {
    let before = snapshot();
    let mut tx = tx;
    body(&mut tx);
    tx.commit().unwrap();
    snapshot() - before
}

/// The cost of a transaction, home lines included, which the record that switches halves flushes. The
/// transaction runs between others that change one word, and their lines are subtracted. It is the second
/// record of its half, after one that switched.
fn full_cost(lane: &mut Lane, word: u64, body: impl FnOnce(&mut Tx)) -> Counts {
    let other = |lane: &mut Lane, value| cost(lane.begin(), |tx| tx.store(word, value).unwrap()).lines;
    while other(lane, 1) != 2 {}
    let mut spent = cost(lane.begin(), body);
    let mut others = 0;
    spent.lines += loop {
        others += 1;
        let lines = other(lane, 2);
        if lines > 1 {
            // One of these lines is the record of this transaction, one the word that the others changed.
            break lines - 2;
        }
    };
    assert!(others < 16, "a half has 7 lines");
    spent
}

/// The first use of a part of the pool costs a fence, once for every 16 MiB (I7).
fn use_new_space(lane: &mut Lane) {
    let first = cost(lane.begin(), |tx| _ = tx.alloc(64).unwrap());
    assert_eq!(first.fences, 2);
}

#[test]
fn an_empty_transaction_costs_nothing() {
    let pool = tiny_pool(512 << 10);
    let mut lane = pool.lane().unwrap();
    assert_eq!(cost(lane.begin(), |_| {}), Counts::default());
    use_new_space(&mut lane);
    let cancelled = cost(lane.begin(), |tx| {
        let block = tx.alloc(64).unwrap();
        tx.free(block).unwrap();
    });
    assert_eq!(cancelled.fences, 0);
}

#[test]
fn a_transaction_costs_one_fence_and_an_allocation_one_line_more() {
    let pool = tiny_pool(512 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let table = tx.alloc(512).unwrap();
    tx.write_fresh(table, &[0; 512]).unwrap();
    tx.set_root("table", 1, table).unwrap();
    tx.commit().unwrap();
    let mut warm = lane.begin();
    let block = warm.alloc(64).unwrap();
    warm.write_fresh(block, &[1; 64]).unwrap();
    warm.store(table, block).unwrap();
    warm.commit().unwrap();

    let word = table + 448;
    let store = full_cost(&mut lane, word, |tx| tx.store(table + 64, 5).unwrap());
    assert_eq!((store.fences, store.lines), (1, 2), "the record and the word's line");
    let four = full_cost(&mut lane, word, |tx| (0..4).for_each(|i| tx.store(table + 64 * i + 8, 5).unwrap()));
    assert_eq!((four.fences, four.lines), (1, 6), "two lines of record, four of words");
    let link = full_cost(&mut lane, word, |tx| {
        let block = tx.alloc(64).unwrap();
        tx.write_fresh(block, &[2; 64]).unwrap();
        tx.store(table + 128, block).unwrap();
    });
    assert_eq!(
        (link.fences, link.lines),
        (1, 5),
        "record (two lines), block, word, and one line for the bit"
    );
    let free = full_cost(&mut lane, word, |tx| {
        tx.store(table, 0).unwrap();
        tx.free(block).unwrap();
    });
    assert_eq!((free.fences, free.lines), (1, 3), "as a store, and one line for the bit");
}

#[test]
fn a_group_shares_its_fence_and_slabs_cost_no_fence() {
    let pool = tiny_pool(4 << 20);
    let mut lane = pool.lane().unwrap();
    use_new_space(&mut lane);
    let mut total = Counts::default();
    let rounds = 2000;
    for round in 0..rounds {
        let spent = cost(lane.begin(), |tx| {
            let block = tx.alloc(100).unwrap();
            tx.write_fresh(block, &[round as u8; 100]).unwrap();
        });
        total.fences += spent.fences;
    }
    assert_eq!(total.fences, rounds, "new slabs included");
    let group = cost(lane.begin(), |tx| {
        for _ in 0..32 {
            let block = tx.alloc(40).unwrap();
            tx.write_fresh(block, &[3; 40]).unwrap();
        }
    });
    assert_eq!(group.fences, 1);
    let much = cost(lane.begin(), |tx| {
        let block = tx.alloc(100_000).unwrap();
        tx.write_fresh(block, &vec![4; 100_000]).unwrap();
    });
    assert_eq!(much.fences, 2, "more new data than a checksum is worth");
}

#[test]
fn a_line_that_many_transactions_change_is_flushed_once_per_half() {
    let region = Region::simulated(&vec![0; 512 << 10], 512 << 10, None).unwrap();
    let pool = Pool::create_in(region, &Geometry { lane_bytes: 16 << 10, ..Geometry::tiny() }).unwrap();
    let mut lane = pool.lane().unwrap();
    let pair = |lane: &mut Lane| {
        let mut block = 0;
        let alloc = cost(lane.begin(), |tx| block = tx.alloc(64).unwrap());
        let free = cost(lane.begin(), |tx| tx.free(block).unwrap());
        (alloc.lines + free.lines, alloc.fences + free.fences)
    };
    pair(&mut lane);
    let (lines, fences) = (0..1000).map(|_| pair(&mut lane)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert_eq!(fences, 2000);
    // Each transaction has a line of record. For every 127 records there are also the bitmap lines of the two
    // or three slabs that take turns.
    assert!(lines <= 2000 + 3 * (2000 / 127 + 1), "{lines} lines");
}
