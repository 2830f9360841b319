//! Compaction: the space of removed records serves records of other lengths again.
#![forbid(unsafe_code)]

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tembo::{Compacted, Durability, Error, Map, Options, Pool};

const POOL_BYTES: u64 = 32 << 20;

fn new_pool(dir: &tempfile::TempDir) -> Pool {
    let options = Options::new()
        .durability(Durability::PageCache)
        .create(true)
        .initial_bytes(1 << 20)
        .max_bytes(POOL_BYTES)
        .count(true);
    options.open(dir.path().join("compact.pool")).unwrap()
}

/// Puts records with values of this length until the pool is full; returns how many.
fn fill(map: &Map, first: u64, value_bytes: usize) -> u64 {
    for number in first.. {
        match map.put(number.to_be_bytes(), vec![number as u8; value_bytes]) {
            Ok(_) => {}
            Err(Error::Full { .. }) => return number - first,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

/// Removes nine tenths of the records at random.
fn thin(map: &Map, count: u64) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let is_kept = |number: &u64| {
        let is_kept = random.random_bool(0.1);
        assert!(is_kept || map.remove(number.to_be_bytes()).unwrap());
        is_kept
    };
    (0..count).filter(is_kept).collect()
}

fn assert_are_there(map: &Map, kept: &[u64], value_bytes: usize) {
    for number in kept {
        let value = map.get(number.to_be_bytes()).unwrap().unwrap();
        assert!(*value == vec![*number as u8; value_bytes], "{number}");
    }
}

/// Removed short records leave holes all over a pool, in which longer ones find no room.
#[test]
fn a_pool_full_of_short_records_becomes_one_full_of_long_ones() {
    let dir = tempfile::tempdir().unwrap();
    let pool = new_pool(&dir);
    let map = pool.open_map("map").unwrap();
    let count = fill(&map, 0, 100);
    let kept = thin(&map, count);
    let before = fill(&map, 1 << 32, 1000);
    (0..before).for_each(|i| assert!(map.remove(((1 << 32) + i).to_be_bytes()).unwrap()));
    let compacted = pool.compact().unwrap();
    assert!(compacted.freed_bytes > POOL_BYTES / 2, "{compacted:?}");
    assert_are_there(&map, &kept, 100);
    pool.check().unwrap();
    let after = fill(&map, 1 << 32, 1000);
    let payload = after * 1008 + kept.len() as u64 * 108;
    println!("{before} records of 1000 bytes fit before, {after} after; {payload} bytes are alive");
    assert!(payload >= POOL_BYTES / 100 * 75, "{payload}");
    assert_are_there(&map, &kept, 100);
    pool.check().unwrap();
    // A full pool is compacted, too.
    pool.compact().unwrap();
    assert_are_there(&map, &kept, 100);
}

/// Nothing moves where there is nothing to gain: no word is stored.
#[test]
fn a_compacted_pool_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pool = new_pool(&dir);
    let map = pool.open_map("map").unwrap();
    (0..20_000u64).for_each(|i| assert!(!map.put(i.to_be_bytes(), [7; 100]).unwrap()));
    let first = pool.compact().unwrap();
    assert!(first.moved_bytes < 100_000, "{first:?}");
    let before = tembo::snapshot();
    assert_eq!(pool.compact().unwrap(), Compacted::default());
    assert_eq!(tembo::snapshot() - before, tembo::Counts::default());
}

/// Readers walk through the map, and writers change it, while its records move.
#[test]
fn readers_and_writers_go_on_while_records_move() {
    let dir = tempfile::tempdir().unwrap();
    let pool = new_pool(&dir);
    let map = pool.open_map("map").unwrap();
    let count = 60_000;
    (0..count).for_each(|i: u64| assert!(!map.put(i.to_be_bytes(), [i as u8; 100]).unwrap()));
    let kept = thin(&map, count);
    let done = AtomicBool::new(false);
    let is_done = || done.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let walker = scope.spawn(|| {
            while !is_done() {
                let walked = map.iter().map(|entry| entry.map(|entry| entry.key().to_vec()));
                let keys: Vec<Vec<u8>> = walked.collect::<Result<_, _>>().unwrap();
                let own = keys.iter().filter(|key| key.len() == 8).count();
                assert_eq!(own, kept.len());
            }
        });
        let writer = scope.spawn(|| {
            for i in (0u32..).take_while(|_| !is_done()) {
                map.put((i % 100).to_be_bytes(), [1; 300]).unwrap();
                map.remove((i % 90).to_be_bytes()).unwrap();
            }
        });
        let mut moved_bytes = 0;
        while let Some(mut compaction) = pool.compaction().unwrap() {
            assert!(pool.compaction().unwrap().is_none(), "two at once");
            while compaction.step(Duration::from_micros(200)).unwrap() {}
            moved_bytes += compaction.moved_bytes();
            let before = pool.stats().unused_bytes;
            compaction.finish().unwrap();
            if pool.stats().unused_bytes <= before {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(moved_bytes > 200_000, "{moved_bytes}");
        walker.join().unwrap();
        writer.join().unwrap();
    });
    assert_are_there(&map, &kept, 100);
    pool.check().unwrap();
}
