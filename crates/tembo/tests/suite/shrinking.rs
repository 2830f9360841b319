//! The file follows its contents: blocks at its end move down, and it is cut there. Large values find a run.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tembo::{Compacted, Durability, Error, Map, MapOptions, Options, Pool};

const MIB: u64 = 1 << 20;

fn options() -> Options {
    // A journal would be most of so small a file.
    Options::new().create(true).initial_bytes(MIB).min_bytes(0).durability(Durability::PageCache)
}

fn length(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

fn put(map: &Map, numbers: impl Iterator<Item = u64>, bytes: usize) {
    numbers.for_each(|number| _ = map.put(number.to_be_bytes(), vec![number as u8; bytes]).unwrap());
}

fn remove(map: &Map, numbers: impl Iterator<Item = u64>) {
    numbers.for_each(|number| assert!(map.remove(number.to_be_bytes()).unwrap()));
}

fn assert_has(map: &Map, numbers: impl Iterator<Item = u64>, bytes: usize) {
    for number in numbers {
        assert!(*map.get(number.to_be_bytes()).unwrap().unwrap() == vec![number as u8; bytes], "{number}");
    }
}

/// A map of each kind, with small values first, large ones in the middle, and others behind those.
#[test]
fn the_end_moves_down_where_the_middle_became_free() {
    for versioned in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pool");
        let pool = options().open(&path).unwrap();
        let map = pool.open_map_with("map", MapOptions::new().versioned(versioned)).unwrap();
        put(&map, 0..2000, 100);
        put(&map, 10_000..10_060, 500_000);
        put(&map, 20_000..24_000, 300);
        put(&map, 30_000..30_010, 100_000);
        remove(&map, 10_000..10_060);
        let grown = length(&path);
        let compacted = pool.compact().unwrap();
        assert!(
            compacted.cut_bytes > 20 * MIB && grown - compacted.cut_bytes == length(&path),
            "{compacted:?}"
        );
        assert!(length(&path) < 8 * MIB, "{versioned}: {} of {grown}, {compacted:?}", length(&path));
        assert!(compacted.moved_bytes < 6 * MIB, "{compacted:?}");
        assert_eq!(pool.compact().unwrap(), Compacted::default());
        let check = |pool: &Pool, map: &Map| {
            assert_has(map, 0..2000, 100);
            assert_has(map, 20_000..24_000, 300);
            assert_has(map, 30_000..30_010, 100_000);
            pool.check().unwrap();
        };
        check(&pool, &map);
        put(&map, 10_000..10_010, 500_000);
        drop((pool, map));
        let pool = options().open(&path).unwrap();
        check(&pool, &pool.find_map("map").unwrap().unwrap());
    }
}

/// Blocks that a snapshot holds stay, and so does the file's length.
#[test]
fn a_snapshot_holds_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = options().open(&path).unwrap();
    let map = pool.open_map_with("map", MapOptions::new().versioned(true)).unwrap();
    put(&map, 0..40, 500_000);
    let snapshot = map.snapshot().unwrap();
    remove(&map, 0..40);
    pool.compact().unwrap();
    assert!(length(&path) > 20_000_000);
    assert_eq!(snapshot.get(39u64.to_be_bytes()).unwrap().unwrap().len(), 500_000);
    drop(snapshot);
    put(&map, 0..500, 10);
    while pool.compact().unwrap() != Compacted::default() {}
    // A block of the map's queue stays where it is, and may lie at the end.
    let stats = pool.stats();
    assert!(stats.pool_bytes - stats.unused_bytes < 4 * MIB, "{stats:?}");
}

/// A pool full of small records, of which few were removed here and there: a value of 2 MiB finds a run, and
/// little is moved for it.
#[test]
fn a_large_value_finds_a_run_among_small_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = options().max_bytes(64 * MIB).open(&path).unwrap();
    let map = pool.open_map("map").unwrap();
    let mut count = 0u64;
    while count < 1_000_000 {
        match map.put(count.to_be_bytes(), [7; 1000]) {
            Ok(_) => count += 1,
            Err(Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    // Every eighth: no slab is empty, and each is fuller than what a compaction would empty.
    remove(&map, (0..count).filter(|number| number % 8 == 0));
    let before = pool.spare_bytes();
    map.put(b"large", vec![9; 2 << 20]).unwrap();
    let spent = before - pool.spare_bytes();
    assert!(spent < 8 * MIB, "{spent} of {before}: more than the run was moved");
    assert_eq!(*map.get(b"large").unwrap().unwrap(), vec![9; 2 << 20]);
    (0..count).filter(|number| number % 8 > 0).for_each(|number| {
        assert_eq!(*map.get(number.to_be_bytes()).unwrap().unwrap(), [7; 1000]);
    });
    pool.check().unwrap();
}

struct AtTheEnd<'d>(&'d AtomicBool);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Readers walk, and writers change the map, while its end moves and the file is cut.
#[test]
fn readers_and_writers_go_on_while_the_file_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = options().open(&path).unwrap();
    let map = pool.open_map("map").unwrap();
    put(&map, 0..3000, 200);
    let done = AtomicBool::new(false);
    let is_done = || done.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        // Also if this thread fails.
        let at_the_end = AtTheEnd(&done);
        let walker = scope.spawn(|| {
            while !is_done() {
                let keys =
                    map.iter().filter(|entry| entry.as_ref().unwrap().key() < &3000u64.to_be_bytes()[..]);
                assert_eq!(keys.count(), 3000);
            }
        });
        let writer = scope.spawn(|| {
            for round in (0u64..).take_while(|_| !is_done()) {
                put(&map, 10_000..10_020, 200_000 + 1000 * (round % 7) as usize);
                put(&map, 20_000..20_200, 50 + 40 * (round % 9) as usize);
                remove(&map, 10_000..10_020);
            }
        });
        let mut cut_bytes = 0;
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_secs(2) || cut_bytes == 0 {
            cut_bytes += pool.compact_for(Some(Duration::from_millis(50))).unwrap().cut_bytes;
            assert!(started.elapsed() < Duration::from_secs(60), "the file was never cut");
        }
        drop(at_the_end);
        walker.join().unwrap();
        writer.join().unwrap();
    });
    assert_has(&map, 0..3000, 200);
    pool.check().unwrap();
}
