//! Maps of every kind are dropped: while nobody has them open, with their space, and across restarts.
//!
//! A pool had names for 128 maps, no page said so, and no map could be dropped.

use std::path::Path;
use tembo::{Error, Kind, MapOptions, Options, Pool, PoolErrorKind};

const NAMES: [&str; 4] = ["plain", "versioned", "hash", "fixed"];

fn make(pool: &Pool, name: &str, entries: u64) {
    match name {
        "versioned" | "plain" => {
            let options = MapOptions::new().versioned(name == "versioned");
            let map = pool.open_map_with(name, options).unwrap();
            for i in 0..entries {
                map.put(i.to_be_bytes(), vec![7; 50]).unwrap();
            }
            if map.is_versioned() {
                map.snapshot().unwrap().keep("kept").unwrap();
                map.put("x", "y").unwrap();
            }
        }
        "hash" => {
            let table = pool.open_hash_table(name).unwrap();
            for i in 0..entries {
                table.put(i.to_be_bytes(), vec![7; 50]).unwrap();
            }
            table.snapshot().keep("kept").unwrap();
            table.put("x", "y").unwrap();
        }
        _ => {
            let map = pool.open_fixed_map(name).unwrap();
            (0..entries).for_each(|i| _ = map.put(i, i).unwrap());
        }
    }
}

fn blocks(pool: &Pool) -> u64 {
    pool.check().unwrap().usage.allocated_blocks
}

fn open(path: &Path) -> Pool {
    Options::new().create(true).open(path).unwrap()
}

#[test]
fn a_map_that_is_open_is_not_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    NAMES.iter().for_each(|name| make(&pool, name, 3));
    let refused = |name: &str, what: &str| {
        let error = pool.drop_map(name).unwrap_err();
        assert!(matches!(&error, Error::MapOpen { name: found } if found == name), "{what}: {error}");
    };
    for name in ["plain", "versioned"] {
        let map = pool.find_map(name).unwrap().unwrap();
        let another = map.clone();
        drop(map);
        refused(name, "a clone");
        let mut walk = another.iter();
        walk.next().unwrap().unwrap();
        refused(name, "a walk");
        drop(walk);
        drop(another);
    }
    let snapshot = pool.find_map("versioned").unwrap().unwrap().snapshot().unwrap();
    refused("versioned", "a snapshot");
    drop(snapshot);
    let snapshot = pool.find_hash_table("hash").unwrap().unwrap().snapshot();
    refused("hash", "a snapshot of a table");
    drop(snapshot);
    let walk = pool.find_fixed_map("fixed").unwrap().unwrap().iter();
    refused("fixed", "a walk over a fixed map");
    drop(walk);
    for name in NAMES {
        assert!(pool.drop_map(name).unwrap(), "{name}");
        assert!(!pool.drop_map(name).unwrap(), "{name} is gone");
    }
    assert_eq!(pool.list().unwrap(), []);
}

#[test]
fn the_name_is_free_at_once_and_the_space_comes_back_after_a_restart() {
    for name in NAMES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pool");
        let pool = open(&path);
        pool.open_map("other").unwrap().put("a", "1").unwrap();
        let before = blocks(&pool);
        make(&pool, name, 2000);
        assert!(pool.drop_map(name).unwrap());
        assert!(pool.find_map(name).unwrap().is_none());
        // A map of another kind, and not empty.
        let again =
            if name == "plain" { pool.open_fixed_map(name).map(drop) } else { pool.open_map(name).map(drop) };
        again.unwrap();
        pool.drop_map(name).unwrap();
        assert_eq!(pool.check().unwrap().dropped_maps, 2);
        for _ in 0..5 {
            pool.reclaim_dropped(2).unwrap();
        }
        drop(pool);
        let pool = open(&path);
        assert!(pool.check().unwrap().dropped_maps > 0, "{name}: not all came back");
        let other = pool.open_map("other").unwrap();
        let mut batches = 0;
        while pool.check().unwrap().dropped_maps > 0 {
            for _ in 0..100 {
                let mut batch = pool.batch().unwrap();
                batch.put(&other, b"a", b"2").unwrap();
                batch.commit().unwrap();
            }
            batches += 100;
            assert!(batches < 10_000, "{name}: batches free nothing");
        }
        assert_eq!(blocks(&pool), before, "{name}");
    }
}

/// The directory is full: dropping one map makes room for the next at once, before its space is back.
#[test]
fn a_full_directory_has_room_again_after_a_drop() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Options::new().create(true).root_count(5).open(dir.path().join("a.pool")).unwrap();
    make(&pool, "plain", 500);
    for name in ["versioned", "hash", "fixed", "b"] {
        make(&pool, name, 2);
    }
    let error = pool.open_map("one more").unwrap_err();
    assert!(
        matches!(&error, Error::Pool(e) if matches!(e.kind(), PoolErrorKind::NoRoot { roots: 5 })),
        "{error}"
    );
    assert!(error.to_string().contains("drop a map"), "{error}");
    pool.drop_map("plain").unwrap();
    pool.open_map("one more").unwrap().put("a", "b").unwrap();
    assert!(pool.reclaim_dropped(1).unwrap());
    assert_eq!(pool.list().unwrap().len(), 5);
    assert_eq!(pool.list().unwrap().iter().filter(|listed| listed.kind == Kind::Map).count(), 1);
    drop(pool);
    let pool = open(&dir.path().join("a.pool"));
    while pool.reclaim_dropped(1000).unwrap() {}
    pool.check().unwrap();
}

/// Dropping beside threads that write to other maps, and to maps that were just made.
#[test]
fn maps_are_dropped_beside_writers() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let pool = pool.clone();
            scope.spawn(move || {
                let map = pool.open_map(&format!("steady {thread}")).unwrap();
                for i in 0..2000_u64 {
                    map.put(i.to_be_bytes(), vec![1; 40]).unwrap();
                }
            });
        }
        for round in 0..10 {
            for name in NAMES {
                make(&pool, name, 40);
                assert!(pool.drop_map(name).unwrap(), "round {round}");
            }
            pool.reclaim_dropped(8).unwrap();
        }
    });
    while pool.reclaim_dropped(100).unwrap() {}
    let report = pool.check().unwrap();
    assert_eq!((report.dropped_maps, report.maps.len()), (0, 2));
    assert_eq!(report.maps[0].1, 2000);
}

#[test]
fn a_pool_for_reading_drops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    make(&open(&path), "plain", 3);
    let pool = Options::new().read_only(true).open(&path).unwrap();
    assert!(matches!(pool.drop_map("plain"), Err(Error::ReadOnly)));
    assert!(!pool.reclaim_dropped(1).unwrap());
}
