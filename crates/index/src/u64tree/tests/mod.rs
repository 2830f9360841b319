//! Tests of the tree of 8-byte keys that use its internals; `tests/u64tree.rs` has the others.

mod interleavings;

use super::U64Tree;
use super::get::SearchEnd;
use super::layout::{
    NODE_BYTES, RESERVED_OF_HEADER, RESERVED_OF_INNER, RESERVED_OF_LEAF, SLOTS, floor_off, key_off, root_off,
};
use super::lock::Locked;
use super::node::Child;
use super::scan::Records;
use crate::direction::Direction;
use crate::error::{Error, Result};
use std::sync::atomic::Ordering;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

fn pool() -> Pool {
    let bytes = 8 << 20;
    let region = Region::simulated(&vec![0; bytes], bytes as u64, None).unwrap();
    Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap()
}

fn filled(pool: &Pool, keys: impl IntoIterator<Item = u64>) -> U64Tree {
    let tree = U64Tree::create(pool, "tree").unwrap();
    keys.into_iter().for_each(|key| assert_eq!(tree.put(key, key + 1).unwrap(), None));
    tree
}

/// The first leaf of the tree, locked as by a writer that never goes on.
fn with_stopped_writer(tree: &U64Tree, key: u64, body: impl FnOnce(&mut Locked<'_>)) {
    let pin = tree.tree.pool.pin_briefly();
    let super::get::SearchEnd::Leaf(leaf) = tree.tree.find_place(key, &pin) else {
        panic!("a leaf that is known")
    };
    body(&mut Locked::new(leaf, &tree.tree.bias).unwrap());
}

#[test]
fn readers_do_not_wait_for_a_writer_that_was_stopped() {
    let pool = pool();
    let tree = filled(&pool, (0..500).map(|i| 2 * i));
    with_stopped_writer(&tree, 10, |locked| {
        let slot = tree.tree.search(locked.leaf, 10).unwrap().unwrap().0;
        locked.change(slot);
        tree.tree.region().store_u64(super::layout::value_off(locked.leaf.off, slot), 99).unwrap();
        let before = tembo_pmem::snapshot();
        assert_eq!(tree.get(12).unwrap(), Some(13), "another record of the leaf");
        assert_eq!((tembo_pmem::snapshot() - before).fences, 0, "which does not depend on the change");
        assert_eq!(tree.get(10).unwrap(), Some(99), "the new value, which is visible already");
        assert_eq!((tembo_pmem::snapshot() - before).fences, 1, "hence is made durable by the reader");
        assert_eq!(tree.get(11).unwrap(), None, "absent, also if the change were its removal");
        assert_eq!((tembo_pmem::snapshot() - before).fences, 2);
        let mut records = Vec::new();
        tree.scan(8, 3, &mut records).unwrap();
        assert_eq!(records, [(8, 9), (10, 99), (12, 13)]);
    });
}

#[test]
fn a_new_record_is_not_visible_before_it_is_durable() {
    let pool = pool();
    let tree = filled(&pool, 0..50);
    with_stopped_writer(&tree, 60, |locked| {
        let slot = locked.leaf.fingerprints.used().trailing_ones() as usize;
        locked.change(slot);
        tree.tree.region().store_u64(key_off(locked.leaf.off, slot), !60).unwrap();
        assert_eq!(tree.get(60).unwrap(), None);
        assert_eq!(tree.range(49..).count(), 1);
    });
}

#[test]
fn readers_do_not_wait_for_a_change_of_the_structure_and_read_cold_nodes_beside_it() {
    let pool = pool();
    let keys = || (0..3000u64).map(|i| i * i);
    drop(filled(&pool, keys()));
    let tree = U64Tree::open(&pool, "tree").unwrap().unwrap();
    let stopped = tree.tree.lock_structure();
    assert!(keys().all(|key| tree.get(key).unwrap() == Some(key + 1)));
    assert_eq!(tree.get(2).unwrap(), None);
    assert_eq!(tree.get(u64::MAX - 1).unwrap(), None);
    let records: Vec<(u64, u64)> = keys().map(|key| (key, key + 1)).collect();
    let scanned = |from, limit, up| {
        let mut found = Vec::new();
        let scan = if up { U64Tree::scan } else { U64Tree::scan_back };
        scan(&tree, from, limit, &mut found).unwrap();
        found
    };
    for from in [0, 7, 500, 2999] {
        let (key, limit) = (from as u64 * from as u64, 700);
        assert_eq!(scanned(key, limit, true), records[from..3000.min(from + limit)]);
        let below = records[(from + 1).saturating_sub(limit)..=from].iter().rev().copied();
        assert!(below.eq(scanned(key, limit, false)));
    }
    assert!(tree.range(10..5000).map(Result::unwrap).eq(records[4..71].iter().copied()));
    assert_eq!(tree.first().unwrap().zip(tree.last().unwrap()), Some((records[0], records[2999])));
    assert_eq!(tree.count().unwrap(), 3000);
    assert!(matches!(tree.tree.root.follow(&stopped), Child::Cold(_)), "nothing could be made known");
}

/// A known leaf was compared with the node above it; a cold one can be compared with its neighbour only.
#[test]
fn a_scan_does_not_trust_a_damaged_bound_of_a_cold_leaf() {
    let pool = pool();
    let tree = filled(&pool, 0..600);
    let first = match tree.tree.find_place(0, &pool.pin_briefly()) {
        SearchEnd::Leaf(leaf) => leaf.off,
        SearchEnd::Cold(_) => panic!("the leaf was stored to"),
    };
    drop(tree);
    pool.region().store_u64(floor_off(first), !400).unwrap();
    let tree = U64Tree::open(&pool, "tree").unwrap().unwrap();
    let pin = pool.pin_briefly();
    let lock = tree.tree.lock_structure();
    for direction in [Direction::Up, Direction::Down] {
        let mut records = Vec::new();
        let ended = tree.tree.try_scan((0, 700), 1000, direction, &mut records, &pin, None);
        assert!(!ended.unwrap(), "who has the lock is to look");
    }
    drop(lock);
    assert!(tree.scan(0, 1000, &mut Vec::new()).is_err());
}

#[test]
fn a_scan_that_locks_out_writers_sees_the_same_and_leaves_no_lock_behind() {
    let pool = pool();
    let tree = filled(&pool, (0..2000).map(|i| 3 * i));
    tree.put(u64::MAX, 7).unwrap();
    let inner = &tree.tree;
    let pin = pool.pin_briefly();
    for up in [true, false] {
        for (keys, limit) in [((0, u64::MAX), 5000), ((0, u64::MAX), 700), ((301, 4000), 5000), ((5, 5), 5)] {
            let direction = if up { Direction::Up } else { Direction::Down };
            let (mut free, mut alone) = (Vec::new(), Vec::new());
            assert!(inner.try_scan(keys, limit, direction, &mut free, &pin, None).unwrap());
            let structure = inner.lock_structure();
            assert!(inner.try_scan(keys, limit, direction, &mut alone, &pin, Some(&structure)).unwrap());
            assert_eq!(free, alone);
            assert_eq!(
                free.len(),
                limit.min(if keys.1 == u64::MAX { 2001 } else { (keys.1 - keys.0) as usize / 3 })
            );
        }
    }
    (0..2000).for_each(|i| assert_eq!(tree.put(3 * i, 1).unwrap(), Some(3 * i + 1)));
}

/// Room for some records, and no memory for more.
struct Narrow {
    records: Vec<(u64, u64)>,
    most: usize,
}

impl Records for Narrow {
    fn count(&self) -> usize {
        self.records.len()
    }

    fn truncate(&mut self, count: usize) {
        self.records.truncate(count);
    }

    fn reserve(&mut self, more: usize) -> Result<()> {
        if self.records.len() + more > self.most {
            return Err(Error::OutOfMemory { bytes: 16 * (self.records.len() + more) as u64 });
        }
        Ok(())
    }

    fn push(&mut self, key: u64, value: u64) {
        self.records.push((key, value));
    }
}

/// A scan that lacked memory aborted the process.
#[test]
fn a_scan_without_memory_fails_and_appends_nothing() {
    let pool = pool();
    let tree = filled(&pool, 0..1000);
    for back in [false, true] {
        for most in [1, 50, 700] {
            let mut narrow = Narrow { records: vec![(7, 7)], most };
            let outcome = match back {
                true => tree.scan_back(500, 10_000, &mut narrow),
                false => tree.scan(500, 10_000, &mut narrow),
            };
            let error = outcome.err();
            let fits = most > 501;
            assert_eq!(matches!(error, Some(Error::OutOfMemory { .. })), !fits, "{most}: {error:?}");
            let expected = if !fits {
                1
            } else if back {
                502
            } else {
                501
            };
            assert_eq!((narrow.records.len(), narrow.records[0]), (expected, (7, 7)));
        }
    }
    assert_eq!(tree.put(500, 1).unwrap().map(drop), Some(()));
}

#[test]
fn joining_makes_the_tree_as_small_as_it_was() {
    let pool = pool();
    let tree = filled(&pool, []);
    let empty = pool.marks().unwrap().usage();
    for order in [|i: u64| i, |i: u64| 99_999 - i, |i: u64| i * 7919 % 100_000] {
        (0..100_000).for_each(|i| assert!(tree.insert(i * 7919 % 100_000, i).unwrap()));
        let mut marks = pool.marks().unwrap();
        assert_eq!(tree.check(&mut marks).unwrap(), 100_000);
        marks.finish().unwrap();
        (0..100_000).for_each(|i| assert!(tree.remove(order(i)).unwrap().is_some()));
        let mut marks = pool.marks().unwrap();
        assert_eq!(tree.check(&mut marks).unwrap(), 0);
        let usage = marks.finish().unwrap();
        let nodes = (usage.allocated_bytes - empty.allocated_bytes) / NODE_BYTES;
        assert!(nodes <= 1, "{nodes} nodes are left for no record");
    }
}

#[test]
fn keys_in_one_direction_fill_leaves_at_the_ends_and_a_part_of_them_elsewhere() {
    let count = 100 * SLOTS as u64;
    let (low, high) = (1 << 20, 1 << 40);
    type Keys<'k> = (&'k str, &'k [u64], &'k dyn Fn(u64) -> u64, u64);
    let orders: [Keys<'_>; 4] = [
        ("ascending", &[], &|i| low + i, 102),
        ("descending", &[], &|i| low + count - i, 102),
        ("ascending between others", &[1, high], &|i| low + i, 157),
        ("descending between others", &[1, high], &|i| low + count - i, 345),
    ];
    for (what, others, key, most) in orders {
        let pool = pool();
        let tree = filled(&pool, others.iter().flat_map(|from| (0..200).map(move |i| from + i)));
        let before = pool.marks().unwrap().usage().allocated_bytes;
        (0..count).for_each(|i| assert_eq!(tree.put(key(i), 0).unwrap(), None));
        let nodes = (pool.marks().unwrap().usage().allocated_bytes - before) / NODE_BYTES;
        assert!(nodes <= most, "{what}: {nodes} nodes for 100 leaves of records");
    }
}

/// Every kind of damage that `check` looks for, seeded.
#[test]
fn check_finds_seeded_damage() {
    let pool = pool();
    let tree = filled(&pool, (0..2000).map(|i| 3 * i));
    let region = pool.region();
    let check = || {
        let mut marks = pool.marks().unwrap();
        tree.check(&mut marks).and_then(|_| Ok(marks.finish()?)).map(drop)
    };
    check().unwrap();
    let root = region.load_u64(root_off(tree.tree.header)).unwrap();
    let pin = pool.pin_briefly();
    let super::get::SearchEnd::Leaf(leaf) = tree.tree.find_place(1500, &pin) else { panic!() };
    let used = leaf.fingerprints.used().trailing_zeros() as usize;
    let other = (leaf.fingerprints.used() & !(1 << used)).trailing_zeros() as usize;
    let key = region.load_u64(key_off(leaf.off, used)).unwrap();
    let damage = [
        ("a key twice", key_off(leaf.off, other), key),
        ("a key below the leaf's least", key_off(leaf.off, used), !(leaf.low - 1)),
        ("the least key", super::layout::low_off(leaf.off), leaf.low + 1),
        ("the bound", floor_off(leaf.off), leaf.floor.load(Ordering::Relaxed) + 1),
        ("the link", super::layout::next_off(leaf.off), leaf.off),
        ("the kind of a leaf", leaf.off, 0),
        ("the kind of the root", root, 7),
        ("the level of the root", super::layout::level_off(root), 2),
        ("a separator", super::layout::separator_off(root, 1), 5),
        ("a child", super::layout::child_off(root, 1), leaf.off),
        ("no child", super::layout::child_off(root, 1), 0),
        ("the last record", super::layout::last_present_off(tree.tree.header), 2),
    ];
    let reserved = [
        ("a reserved word of the header", tree.tree.header, &RESERVED_OF_HEADER[..]),
        ("a reserved word of a leaf", leaf.off, &RESERVED_OF_LEAF),
        ("a reserved word of an inner node", root, &RESERVED_OF_INNER),
    ]
    .into_iter()
    .flat_map(|(what, object, runs)| runs.iter().map(move |run| (what, object, *run)))
    .flat_map(|(what, object, (start, words))| {
        (0..words).map(move |word| (what, object + start + 8 * word, 1 << (7 * word)))
    });
    for (what, off, value) in damage.into_iter().chain(reserved) {
        let old = region.load_u64(off).unwrap();
        region.store_u64(off, value).unwrap();
        assert!(check().is_err(), "{what}");
        region.store_u64(off, old).unwrap();
    }
    check().unwrap();
}

/// The second thread that writes comes while the first is writing, again and again.
#[test]
fn no_update_is_lost_when_a_second_thread_begins_to_write() {
    let pool = pool();
    for round in 0..if cfg!(miri) { 2 } else { 100 } {
        let tree = U64Tree::create(&pool, &format!("tree {round}")).unwrap();
        tree.put(1, 0).unwrap();
        let add_one = |key| {
            let mut old = tree.get(key).unwrap().unwrap();
            while let Some(found) = tree.compare_and_swap(key, old, old + 1).unwrap()
                && found != old
            {
                old = found;
            }
        };
        let are_ready = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for number in 0..2 {
                let (are_ready, add_one) = (&are_ready, &add_one);
                scope.spawn(move || {
                    are_ready.wait();
                    // The delay makes the second thread come while the first is in the middle of its changes.
                    (0..number * (round % 60) * 20).for_each(|_| std::hint::spin_loop());
                    (0..200).for_each(|_| add_one(1));
                });
            }
        });
        assert_eq!(tree.get(1).unwrap(), Some(400), "round {round}");
    }
}

/// If the upper half of a vector register is in use, an instruction that writes the lower half waits for the
/// register's earlier contents. The caller's instructions would wait for the loads of a search.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn operations_leave_the_upper_halves_of_registers_clear() {
    use super::node::upper_halves;
    if !upper_halves::are_known() {
        return println!("skipped: the processor does not tell");
    }
    let pool = pool();
    let tree = filled(&pool, 0..1000);
    let operations: [(&str, &dyn Fn()); 6] = [
        ("get", &|| _ = tree.get(500).unwrap()),
        ("get of what is absent", &|| _ = tree.get(5000).unwrap()),
        ("put", &|| _ = tree.put(500, 1).unwrap()),
        ("insert", &|| _ = tree.insert(7000, 1).unwrap()),
        ("remove", &|| _ = tree.remove(7000).unwrap()),
        ("scan", &|| tree.scan(10, 50, &mut Vec::new()).unwrap()),
    ];
    for (name, operation) in operations {
        upper_halves::make_used();
        assert!(upper_halves::are_used(), "this would be noticed");
        upper_halves::clear();
        operation();
        assert!(!upper_halves::are_used(), "after {name}");
    }
}
