//! The CDDS tree with threads beside each other: readers of old versions and of the newest, and several writers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_index::CddsTree;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

fn new_tree() -> CddsTree {
    let region = Region::simulated(&vec![0; 8 << 20], 1 << 30, None).unwrap();
    let pool = Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap();
    CddsTree::create(&pool, "tree").unwrap()
}

fn check(tree: &CddsTree) {
    let mut marks = tree.pool().marks().unwrap();
    tree.check(&mut marks).unwrap();
    marks.finish().unwrap();
}

fn updates(default: u64) -> u64 {
    std::env::var("TEMBO_UPDATES").ok().and_then(|updates| updates.parse().ok()).unwrap_or(default)
}

const KEYS: u64 = 500;

fn key(i: u64) -> Vec<u8> {
    let mixed = (i % KEYS).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    if i.is_multiple_of(2) { mixed.to_be_bytes().to_vec() } else { format!("key {mixed:020}").into_bytes() }
}

fn value(i: u64) -> Vec<u8> {
    if i.is_multiple_of(3) { i.to_be_bytes().to_vec() } else { format!("the value of {i}").into_bytes() }
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the tree has after the first `count` changes.
fn change(model: &mut Contents, i: u64) {
    if i % 7 == 6 {
        model.remove(&key(i * 5));
    } else {
        model.insert(key(i * 11), value(i));
    }
}

/// `TEMBO_UPDATES=1000000 cargo test --release -p tembo-index --test cdds_beside` is the long form.
#[test]
fn an_old_snapshot_stays_while_updates_run_beside_it() {
    let tree = new_tree();
    let mut model = Contents::new();
    let start = 2000;
    let make = |i: u64| {
        if i % 7 == 6 {
            tree.remove(&key(i * 5)).unwrap()
        } else {
            tree.put(&key(i * 11), &value(i)).unwrap()
        }
    };
    for i in 0..start {
        make(i);
        change(&mut model, i);
    }
    let old = tree.snapshot();
    let is_done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Acquire) {
                    let entries = old.iter().map(|entry| entry.unwrap());
                    let found: Contents = entries.map(|e| (e.key().to_vec(), e.value().to_vec())).collect();
                    assert!(found == model);
                    for i in 0..KEYS {
                        assert_eq!(
                            old.get(&key(i)).unwrap().as_deref(),
                            model.get(&key(i)).map(Vec::as_slice)
                        );
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let end = start + updates(30_000);
            (start..end).for_each(|i| _ = make(i));
            is_done.store(true, Ordering::Release);
        });
    });
    assert!(reads.into_inner() > 0);
    (start..start + updates(30_000)).for_each(|i| change(&mut model, i));
    let newest = tree.snapshot();
    let found: Contents =
        newest.iter().map(|e| e.unwrap()).map(|e| (e.key().to_vec(), e.value().to_vec())).collect();
    assert!(found == model);
    drop((old, newest));
    while tree.collect(1000).unwrap() {}
    assert_eq!(tree.stats().unwrap().old_blocks, 0);
    check(&tree);
}

/// Each batch writes its number to every key, so that whoever reads two numbers in one version has met a mix.
#[test]
fn readers_of_the_newest_version_see_one_version() {
    let tree = new_tree();
    let put_all = |number: u64| {
        let value = if number.is_multiple_of(2) { number.to_be_bytes().to_vec() } else { vec![0; 3] };
        let value = [value, number.to_be_bytes().to_vec()].concat();
        tree.batch(|batch| (0..60).try_for_each(|i| batch.put(&key(i), &value).map(drop))).unwrap();
    };
    put_all(1);
    let batches = updates(1500).min(20_000);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (tree, is_done) = (&tree, &is_done);
            scope.spawn(move || {
                let mut last = 0;
                while !is_done.load(Ordering::Acquire) {
                    let mut numbers: Vec<u64> = Vec::new();
                    let mut note =
                        |value: &[u8]| numbers.push(u64::from_be_bytes(*value.last_chunk().unwrap()));
                    if thread == 0 {
                        let reader = tree.reader();
                        reader.iter().for_each(|entry| note(entry.unwrap().value()));
                    } else if thread == 1 {
                        let snapshot = tree.snapshot();
                        (0..60).for_each(|i| note(&snapshot.get(&key(i)).unwrap().unwrap()));
                    } else {
                        let reader = tree.reader();
                        reader.range::<&[u8]>(..).rev().for_each(|entry| note(entry.unwrap().value()));
                    }
                    assert_eq!(numbers.len(), 60);
                    assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
                    assert!(numbers[0] >= last);
                    last = numbers[0];
                }
            });
        }
        (2..batches).for_each(put_all);
        is_done.store(true, Ordering::Release);
    });
    check(&tree);
}

#[test]
fn writers_beside_each_other_lose_nothing() {
    let tree = new_tree();
    let (threads, each) = (4, updates(3000).min(50_000));
    let start = tree.version();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let tree = &tree;
            scope.spawn(move || {
                let own = |i: u64| (thread * each + i).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                for i in 0..each {
                    assert!(!tree.put(&own(i), &value(i)).unwrap());
                    assert_eq!(tree.get(&own(i)).unwrap(), Some(value(i)));
                    if i % 3 == 2 {
                        assert!(tree.remove(&own(i - 1)).unwrap());
                        assert!(!tree.remove(&own(i - 1)).unwrap());
                    }
                    if i % 50 == 0 {
                        tree.collect(20).unwrap();
                    }
                }
            });
        }
        scope.spawn(|| {
            while tree.len() < threads * each / 2 {
                let snapshot = tree.snapshot();
                assert_eq!(snapshot.iter().count() as u64, snapshot.len());
            }
        });
    });
    assert_eq!(tree.len(), threads * (each - each / 3));
    let changes = threads * (each + each / 3);
    println!("{changes} changes in {} versions", tree.version() - start);
    assert!(tree.version() - start <= changes);
    check(&tree);
}
