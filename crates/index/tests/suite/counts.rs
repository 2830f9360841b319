//! Golden counts: what operations cost in words, lines and fences. They do not depend on the machine.
//!
//! Cost follows fences first, lines second, words third, so these numbers are pinned; a change that moves
//! one of them has to say why.

use tembo_index::WbTree;
use tembo_pmem::{Counts, Region, snapshot};
use tembo_pool::{Geometry, Lane, Pool, Tx};

/// An operation in a transaction, with its name.
type Operation<'a> = (&'a str, &'a dyn Fn(&WbTree, &mut Tx<'_>));

struct Bench {
    lane: Lane,
    tree: WbTree,
}

impl Bench {
    fn new() -> Bench {
        let region = Region::simulated(&vec![0; 8 << 20], 1 << 30, None).unwrap();
        let pool =
            Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap();
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let tree = WbTree::create(&mut tx, "tree").unwrap();
        tx.commit().unwrap();
        Bench { lane, tree }
    }

    /// The cost of one transaction.
    fn cost(&mut self, work: impl FnOnce(&WbTree, &mut Tx<'_>)) -> Counts {
        let before = snapshot();
        let mut tx = self.lane.begin();
        work(&self.tree, &mut tx);
        tx.commit().unwrap();
        snapshot() - before
    }

    fn put(&mut self, key: &[u8; 20], value: u64) -> Counts {
        self.cost(|tree, tx| _ = tree.put(tx, key, &[&value.to_le_bytes()]).unwrap())
    }

    fn remove(&mut self, key: &[u8; 20]) -> Counts {
        self.cost(|tree, tx| assert!(tree.remove(tx, key).unwrap()))
    }
}

/// Keys whose order has nothing to do with their number.
fn key(i: u64) -> [u8; 20] {
    let mut key = [0; 20];
    let mixed = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..16].copy_from_slice(&mixed.rotate_left(17).to_be_bytes());
    key
}

/// A tree of one leaf with room, in a pool that has made its first slabs.
fn with_room() -> Bench {
    let mut bench = Bench::new();
    (0..8).for_each(|i| _ = bench.put(&key(i), 0));
    bench
}

/// Asserts what commits cost in lines by themselves, and what those cost that flush the home lines of all
/// since the last such one.
fn assert_lines(lines: &[u64], own: std::ops::RangeInclusive<u64>, with_homes: u64) {
    let switches = lines.iter().filter(|lines| !own.contains(lines)).count();
    assert!(switches <= lines.len() / 20 + 1, "{lines:?}");
    assert!(lines.iter().all(|lines| *own.start() <= *lines && *lines <= with_homes), "{lines:?}");
}

#[test]
fn reading_and_doing_nothing_cost_nothing() {
    let mut bench = with_room();
    let before = snapshot();
    for i in 0..20 {
        bench.tree.get_pinned(&key(i)).unwrap();
    }
    assert_eq!(bench.tree.iter().rev().count(), 8);
    assert_eq!(snapshot() - before, Counts::default());
    assert_eq!(bench.cost(|tree, tx| assert!(!tree.remove(tx, b"absent").unwrap())), Counts::default());
    let undone = bench.cost(|tree, tx| {
        let before = tx.savepoint();
        tree.put(tx, b"undone", &[]).unwrap();
        tx.rollback_to(before);
    });
    assert_eq!((undone.lines, undone.fences), (0, 0));
}

#[test]
fn a_new_record_costs_one_fence() {
    let (mut bench, mut lines) = (with_room(), Vec::new());
    for i in 8..28 {
        let cost = bench.put(&key(i), 1);
        // The record of 36 bytes is 5 words, the redo record 16: its head, and prefix with offset,
        // fingerprint with state, length, the allocator's bit, and the cover with its sum. The same six are
        // then stored at home.
        assert_eq!((cost.fences, cost.words), (1, 5 + 16 + 6), "record {i}");
        lines.push(cost.lines);
    }
    // Two for the redo record, one or two for the record. Now and then a half of the lane is full, and the
    // lines that many insertions changed are flushed once.
    assert_lines(&lines, 3..=4, 12);
}

#[test]
fn replacing_a_value_costs_one_fence() {
    let (mut bench, mut lines) = (with_room(), Vec::new());
    for i in 0..80 {
        let cost = bench.put(&key(i % 8), i);
        // The entry's word, and two bits of the allocator.
        assert_eq!((cost.fences, cost.words), (1, 5 + 12 + 3), "record {i}");
        lines.push(cost.lines);
    }
    // The first that flushes home lines also finds those of the tree's creation.
    assert_lines(&lines, 3..=4, 14);
}

#[test]
fn removing_costs_one_fence() {
    let (mut bench, mut lines) = (with_room(), Vec::new());
    for i in 0..7 {
        let cost = bench.remove(&key(i));
        // State, length, and the allocator's bit.
        assert_eq!((cost.fences, cost.words), (1, 10 + 3), "record {i}");
        lines.push(cost.lines);
    }
    assert_lines(&lines, 2..=2, 8);
}

#[test]
fn what_changes_nothing_costs_nothing() {
    let mut bench = with_room();
    // Something that was cleared waits to be freed; that is for those who write.
    bench.cost(|tree, tx| tree.clear(tx).unwrap());
    (0..4).for_each(|i| _ = bench.cost(|tree, tx| _ = tree.insert(tx, &key(i), b"8 bytes.").unwrap()));
    (0..3000).for_each(|i| _ = bench.put(&key(i), 0));
    bench.cost(|tree, tx| tree.clear(tx).unwrap());
    bench.put(&key(0), 7);
    let (there, absent, seven) = (&key(0)[..], &key(1)[..], 7u64.to_le_bytes());
    let nothing: [Operation<'_>; 8] = [
        ("insert, present", &|tree, tx| assert!(!tree.insert(tx, there, b"new").unwrap())),
        ("update, absent", &|tree, tx| assert!(!tree.update(tx, absent, b"new").unwrap())),
        ("swap, another value", &|tree, tx| {
            assert!(!tree.compare_and_swap(tx, there, Some(b"other"), Some(b"new")).unwrap());
        }),
        ("swap, absent", &|tree, tx| assert!(!tree.compare_and_swap(tx, absent, Some(b""), None).unwrap())),
        ("swap, for the same", &|tree, tx| {
            assert!(tree.compare_and_swap(tx, there, Some(&seven), Some(&seven)).unwrap());
        }),
        ("modify, to the same", &|tree, tx| {
            assert!(tree.modify(tx, there, |old| old.map(<[u8]>::to_vec)).unwrap());
        }),
        ("modify, absent", &|tree, tx| assert!(!tree.modify(tx, absent, |_| None::<&[u8]>).unwrap())),
        ("a cursor", &|tree, _| {
            let mut cursor = tree.cursor();
            assert!(cursor.seek(there).unwrap() && !cursor.next().unwrap() && cursor.prev().unwrap());
        }),
    ];
    for (what, operation) in nothing {
        assert_eq!(bench.cost(operation), Counts::default(), "{what}");
    }
}

#[test]
fn conditional_changes_cost_what_the_others_do() {
    let mut bench = with_room();
    let value = |i: u64| i.to_le_bytes();
    for i in 8..20 {
        let cost = bench.cost(|tree, tx| assert!(tree.insert(tx, &key(i), &value(1)).unwrap()));
        assert_eq!((cost.fences, cost.words), (1, 5 + 16 + 6), "insert {i}");
    }
    for i in 2..10 {
        let changes: [Operation<'_>; 3] = [
            ("update", &|tree, tx| assert!(tree.update(tx, &key(i), &value(2)).unwrap())),
            ("swap", &|tree, tx| {
                let (old, new) = (value(2), value(3));
                assert!(tree.compare_and_swap(tx, &key(i), Some(&old), Some(&new)).unwrap());
            }),
            ("modify", &|tree, tx| assert!(tree.modify(tx, &key(i), |_| Some(value(4))).unwrap())),
        ];
        for (what, change) in changes {
            let cost = bench.cost(change);
            assert_eq!((cost.fences, cost.words), (1, 5 + 12 + 3), "{what} {i}");
        }
    }
    for i in 0..6 {
        let cost = bench.cost(|tree, tx| match i % 3 {
            0 => assert!(
                tree.compare_and_swap(tx, &key(i), Some(&value(if i < 2 { 0 } else { 4 })), None).unwrap()
            ),
            1 => assert!(tree.modify(tx, &key(i), |_| None::<&[u8]>).unwrap()),
            _ => assert!(tree.remove(tx, &key(i)).unwrap()),
        });
        assert_eq!((cost.fences, cost.words), (1, 10 + 3), "removal {i}");
    }
}

#[test]
fn a_range_shares_its_fences() {
    let mut bench = Bench::new();
    let records = 50_000;
    (0..records).for_each(|i| _ = bench.put(&key(i), i));
    let Bench { lane, tree } = bench;
    let writer = tembo_pool::Writer::new(lane);
    let before = snapshot();
    let removed = tree.remove_range_in_groups::<&[u8]>(.., || writer.begin()).unwrap();
    let total = snapshot() - before;
    assert_eq!(removed, records);
    let per_record = |n: u64| n as f64 / records as f64;
    println!(
        "{} fences, {} lines, {} words",
        per_record(total.fences),
        per_record(total.lines),
        per_record(total.words)
    );
    assert!(per_record(total.fences) < 1.5 / 122.0);
    assert!(per_record(total.lines) < 1.5);
    assert!(per_record(total.words) < 12.0);
}

#[test]
fn clearing_costs_the_same_whatever_the_size() {
    for size in [1, 20, 3000] {
        let mut bench = Bench::new();
        (0..size).for_each(|i| _ = bench.put(&key(i), 0));
        // Two commits later nothing of the puts is left to be flushed.
        bench.put(&key(0), 1);
        bench.put(&key(0), 2);
        let cost = bench.cost(|tree, tx| tree.clear(tx).unwrap());
        assert_eq!((cost.fences, cost.words), (1, 12 + 4), "{size} records");
        assert!(cost.lines <= 7, "{size} records: {cost:?}");
    }
}

#[test]
fn divisions_included_an_insertion_costs_hardly_more_than_one_fence() {
    let mut bench = Bench::new();
    let mut total = Counts::default();
    let records = 100_000;
    for i in 0..records {
        let cost = bench.put(&key(i), i);
        assert!(cost.fences <= 2, "record {i}: {cost:?}");
        total.fences += cost.fences;
        total.lines += cost.lines;
        total.words += cost.words;
    }
    let per_record = |n: u64| n as f64 / records as f64;
    println!(
        "{} fences, {} lines, {} words",
        per_record(total.fences),
        per_record(total.lines),
        per_record(total.words)
    );
    assert!(per_record(total.fences) < 1.01);
    assert!(per_record(total.lines) < 8.0);
    assert!(per_record(total.words) < 45.0);
}

#[test]
fn a_batch_shares_its_fence() {
    let mut bench = Bench::new();
    let mut total = Counts::default();
    let (batches, size) = (2000, 32);
    for batch in 0..batches {
        let cost = bench.cost(|tree, tx| {
            (0..size).for_each(|i| _ = tree.put(tx, &key(batch * size + i), &[&[0; 8]]).unwrap());
        });
        // New data of more than 2 KiB, as with a division, is fenced before the record.
        assert!(cost.fences <= 2, "batch {batch}: {cost:?}");
        total.fences += cost.fences;
        total.lines += cost.lines;
    }
    let per_record = |n: u64| n as f64 / (batches * size) as f64;
    println!("{} fences, {} lines", per_record(total.fences), per_record(total.lines));
    assert!(per_record(total.fences) < 2.0 / 32.0 + 0.001);
    assert!(per_record(total.lines) < 5.5);
}
