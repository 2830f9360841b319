//! Both CDDS structures with threads beside each other: readers of old versions and of the newest, and
//! several writers.

use crate::structures::{Model, Structure, check, contents, equal_hash_key, for_each_structure, new_map};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

for_each_structure!(
    an_old_snapshot_stays_while_updates_run_beside_it,
    readers_of_the_newest_version_see_one_version,
    writers_beside_each_other_lose_nothing,
);

fn updates(default: u64) -> u64 {
    std::env::var("TEMBO_UPDATES").ok().and_then(|updates| updates.parse().ok()).unwrap_or(default)
}

const KEYS: u64 = 500;

fn key(i: u64) -> Vec<u8> {
    let mixed = (i % KEYS).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    if i.is_multiple_of(16) {
        return equal_hash_key((i % KEYS) as u32);
    }
    if i.is_multiple_of(2) { mixed.to_be_bytes().to_vec() } else { format!("key {mixed:020}").into_bytes() }
}

fn value(i: u64) -> Vec<u8> {
    if i.is_multiple_of(3) { i.to_be_bytes().to_vec() } else { format!("the value of {i}").into_bytes() }
}

/// The contents of the map after the first `count` changes.
fn change(model: &mut Model, i: u64) {
    if i % 7 == 6 {
        model.remove(&key(i * 5));
    } else {
        model.insert(key(i * 11), value(i));
    }
}

/// `TEMBO_UPDATES=1000000 cargo test --release -p tembo-index --test suite versioned_concurrent` is the long
/// form.
fn an_old_snapshot_stays_while_updates_run_beside_it<S: Structure>() {
    let map = new_map::<S>();
    let mut model = Model::new();
    let start = 2000;
    let make = |i: u64| {
        if i % 7 == 6 { map.remove(&key(i * 5)).unwrap() } else { map.put(&key(i * 11), &value(i)).unwrap() }
    };
    for i in 0..start {
        make(i);
        change(&mut model, i);
    }
    let old = map.snapshot();
    let is_done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Acquire) {
                    let found = contents(&old);
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
    let newest = map.snapshot();
    let found = contents(&newest);
    assert!(found == model);
    drop((old, newest));
    while map.collect(1000).unwrap() {}
    assert_eq!(map.stats().unwrap().old_blocks, 0);
    check(&map);
}

/// Each batch writes its number to every key, so that whoever reads two numbers in one version has met a mix.
fn readers_of_the_newest_version_see_one_version<S: Structure>() {
    let map = new_map::<S>();
    let put_all = |number: u64| {
        let value = if number.is_multiple_of(2) { number.to_be_bytes().to_vec() } else { vec![0; 3] };
        let value = [value, number.to_be_bytes().to_vec()].concat();
        map.batch(|batch| (0..60).try_for_each(|i| batch.put(&key(i), &value).map(drop))).unwrap();
    };
    put_all(1);
    let batches = updates(1500).min(20_000);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (map, is_done) = (&map, &is_done);
            scope.spawn(move || {
                let mut last = 0;
                while !is_done.load(Ordering::Acquire) {
                    let mut numbers: Vec<u64> = Vec::new();
                    let mut note =
                        |value: &[u8]| numbers.push(u64::from_be_bytes(*value.last_chunk().unwrap()));
                    if thread == 0 {
                        let reader = map.reader();
                        reader.iter().for_each(|entry| note(entry.unwrap().value()));
                    } else if thread == 1 {
                        let snapshot = map.snapshot();
                        (0..60).for_each(|i| note(&snapshot.get(&key(i)).unwrap().unwrap()));
                    } else {
                        let reader = map.reader();
                        (0..60).rev().for_each(|i| note(&reader.get(&key(i)).unwrap().unwrap()));
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
    check(&map);
}

fn writers_beside_each_other_lose_nothing<S: Structure>() {
    let map = new_map::<S>();
    let (threads, each) = (4, updates(3000).min(50_000));
    let start = map.version();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let map = &map;
            scope.spawn(move || {
                let own = |i: u64| (thread * each + i).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                for i in 0..each {
                    assert!(!map.put(&own(i), &value(i)).unwrap());
                    assert_eq!(map.get(&own(i)).unwrap(), Some(value(i)));
                    if i % 3 == 2 {
                        assert!(map.remove(&own(i - 1)).unwrap());
                        assert!(!map.remove(&own(i - 1)).unwrap());
                    }
                    if i % 50 == 0 {
                        map.collect(20).unwrap();
                    }
                }
            });
        }
        scope.spawn(|| {
            while map.len() < threads * each / 2 {
                let snapshot = map.snapshot();
                assert_eq!(snapshot.iter().count() as u64, snapshot.len());
            }
        });
    });
    assert_eq!(map.len(), threads * (each - each / 3));
    let changes = threads * (each + each / 3);
    println!("{changes} changes in {} versions", map.version() - start);
    assert!(map.version() - start <= changes);
    check(&map);
}
