//! Maps of byte strings behind the pool: conditional changes, ranges and cursors, by themselves and in
//! batches.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tembo::{Counting, Durability, Error, Map, MapOptions, Options, Pool};

fn open(path: &Path) -> Pool {
    Options::new().create(true).initial_bytes(4 << 20).open(path).unwrap()
}

/// Has a test for each kind of map of what these functions do.
macro_rules! of_both_kinds {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn without_versions() {
                super::$name(tembo::MapOptions::new().versioned(false));
            }

            #[test]
            fn with_versions() {
                super::$name(tembo::MapOptions::new().versioned(true));
            }
        }
    )*};
}

of_both_kinds! {
    every_operation_does_what_it_says_and_is_there_after_reopening
    a_batch_sees_its_own_changes_and_is_all_or_nothing
    a_change_that_panics_leaves_the_map_usable
    threads_that_count_lose_nothing
    what_changes_nothing_costs_nothing
    single_changes_beside_groups_of_changes_lose_nothing
    a_range_goes_in_order_beside_readers_and_a_writer
    a_cursor_moves_both_ways_and_keeps_what_is_removed
}

fn is_versioned(options: MapOptions) -> bool {
    options == MapOptions::new().versioned(true)
}

fn key(i: u32) -> String {
    format!("key {i:06}")
}

fn contents(map: &Map) -> Vec<(Vec<u8>, Vec<u8>)> {
    map.iter().map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())).unwrap()).collect()
}

fn every_operation_does_what_it_says_and_is_there_after_reopening(options: MapOptions) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = open(&path);
    let map = pool.open_map_with("m", options).unwrap();
    assert_eq!((map.pop_first().unwrap(), map.pop_last().unwrap()), (None, None));
    for key in ["", "k", "last"] {
        assert!(!map.update(key, "1").unwrap());
        assert!(map.insert(key, "").unwrap());
        assert!(!map.insert(key, "2").unwrap());
        assert!(!map.compare_and_swap(key, None, Some(b"3")).unwrap());
        assert!(map.compare_and_swap(key, Some(b""), Some(b"3")).unwrap());
        assert!(map.update(key, "4").unwrap());
        assert!(map.modify(key, |old| Some([old.unwrap(), b"5"].concat())).unwrap());
    }
    assert!(!map.modify("absent", |old| old.map(<[u8]>::to_vec)).unwrap());
    assert!(map.compare_and_swap("k", Some(b"45"), None).unwrap());
    drop((map, pool));
    let pool = open(&path);
    let map = pool.open_map_with("m", options).unwrap();
    assert_eq!(map.pop_last().unwrap(), Some((b"last".to_vec(), b"45".to_vec())));
    assert_eq!(map.pop_first().unwrap(), Some((b"".to_vec(), b"45".to_vec())));
    assert!(map.is_empty().unwrap());
    (0..3000).for_each(|i| assert!(map.insert(key(i), i.to_le_bytes()).unwrap()));
    assert_eq!(map.remove_range(key(10)..=key(2989)).unwrap(), 2980);
    assert_eq!(map.remove_range(key(20)..key(10)).unwrap(), 0);
    assert_eq!(map.remove_range(..key(2)).unwrap(), 2);
    drop((map, pool));
    let pool = open(&path);
    let map = pool.open_map_with("m", options).unwrap();
    let keys: Vec<Vec<u8>> = (2..10).chain(2990..3000).map(|i| key(i).into_bytes()).collect();
    assert_eq!(contents(&map).into_iter().map(|(key, _)| key).collect::<Vec<_>>(), keys);
    pool.check().unwrap();
    drop((map, pool));
    let pool = Options::new().read_only(true).open(&path).unwrap();
    let map = pool.find_map("m").unwrap().unwrap();
    assert!(matches!(map.insert("x", "y"), Err(Error::ReadOnly)));
    assert!(matches!(map.remove_range::<&str>(..), Err(Error::ReadOnly)));
    assert!(map.cursor().seek_last().unwrap());
}

fn a_batch_sees_its_own_changes_and_is_all_or_nothing(options: MapOptions) {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    let map = pool.open_map_with("m", options).unwrap();
    (0..500).for_each(|i| assert!(map.insert(key(i), "before").unwrap()));
    let before = contents(&map);
    for commits in [false, true] {
        let mut batch = pool.batch().unwrap();
        assert!(batch.insert(&map, b"new", b"1").unwrap());
        assert!(!batch.insert(&map, b"new", b"2").unwrap());
        assert!(batch.update(&map, b"new", b"2").unwrap());
        assert!(batch.compare_and_swap(&map, b"new", Some(b"2"), Some(b"3")).unwrap());
        assert!(batch.modify(&map, b"new", |old| Some([old.unwrap(), b"4"].concat())).unwrap());
        assert_eq!(batch.pop_last(&map).unwrap(), Some((b"new".to_vec(), b"34".to_vec())));
        assert_eq!(batch.pop_first(&map).unwrap(), Some((key(0).into_bytes(), b"before".to_vec())));
        assert_eq!(batch.remove_range(&map, key(0)..key(450)).unwrap(), 449);
        let panicking = AssertUnwindSafe(|| {
            batch.modify(&map, b"k", |_| -> Option<&[u8]> { resume_unwind(Box::new(())) })
        });
        assert!(catch_unwind(panicking).is_err());
        assert_eq!(batch.len(&map).unwrap(), 50);
        assert_eq!(contents(&map), before, "others see nothing yet");
        if commits {
            batch.commit().unwrap();
        }
    }
    assert_eq!(contents(&map), before[450..]);
    pool.check().unwrap();
}

fn a_change_that_panics_leaves_the_map_usable(options: MapOptions) {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    let map = pool.open_map_with("m", options).unwrap();
    map.put("k", "v").unwrap();
    for key in ["k", "absent"] {
        let panicking =
            AssertUnwindSafe(|| map.modify(key, |_| -> Option<&[u8]> { resume_unwind(Box::new(())) }));
        assert!(catch_unwind(panicking).is_err());
        assert_eq!(contents(&map), [(b"k".to_vec(), b"v".to_vec())]);
    }
    assert!(map.modify("k", |old| Some([b"still ", old.unwrap()].concat())).unwrap());
    // The map may be read in a change.
    map.modify("copy", |_| map.get("k").unwrap().map(|value| value.to_vec())).unwrap();
    assert_eq!(map.get("copy").unwrap().as_deref(), Some(&b"still v"[..]));
    pool.check().unwrap();
}

fn threads_that_count_lose_nothing(options: MapOptions) {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    let map = pool.open_map_with("m", options).unwrap();
    let count = |bytes: Option<&[u8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    let inserted: usize = std::thread::scope(|scope| {
        let work = || {
            for _ in 0..1000 {
                map.modify("modified", |old| Some((count(old) + 1).to_le_bytes())).unwrap();
                loop {
                    let old = map.get("swapped").unwrap();
                    let new = (count(old.as_deref()) + 1).to_le_bytes();
                    if map.compare_and_swap("swapped", old.as_deref(), Some(&new)).unwrap() {
                        break;
                    }
                }
            }
            (0..500).filter(|i| map.insert(key(*i), "once").unwrap()).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(inserted, 500);
    assert_eq!(count(map.get("modified").unwrap().as_deref()), 4000);
    assert_eq!(count(map.get("swapped").unwrap().as_deref()), 4000);
}

fn what_changes_nothing_costs_nothing(options: MapOptions) {
    let dir = tempfile::tempdir().unwrap();
    let pool_options = Options::new().create(true).durability(Durability::Emulated).count(true);
    let map = pool_options.open(dir.path().join("a.pool")).unwrap().open_map_with("m", options).unwrap();
    map.put("k", "v").unwrap();
    let before = tembo::snapshot();
    assert!(!map.insert("k", "new").unwrap());
    assert!(!map.update("absent", "new").unwrap());
    assert!(!map.compare_and_swap("k", None, Some(b"new")).unwrap());
    assert!(map.modify("k", |old| old.map(<[u8]>::to_vec)).unwrap());
    assert_eq!(map.remove_range("l"..).unwrap(), 0);
    assert_eq!(tembo::snapshot() - before, tembo::Counts::default());
    assert!(map.insert("l", "new").unwrap());
    assert_eq!((tembo::snapshot() - before).fences, 1);
}

/// Threads that meet get lanes of their own; groups of changes wait for all of them, and they for groups.
fn single_changes_beside_groups_of_changes_lose_nothing(options: MapOptions) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = open(&path);
    let map = pool.open_map_with("m", options).unwrap();
    let other = pool.open_map_with("other", MapOptions::new().versioned(!is_versioned(options))).unwrap();
    let cleared = pool.open_map_with("cleared", options).unwrap();
    let count = |map: &Map, key: &str| {
        let count = |old: Option<&[u8]>| old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
        map.modify(key, |old| Some((count(old) + 1).to_le_bytes())).unwrap();
    };
    let number =
        |map: &Map, key: &str| u64::from_le_bytes(map.get(key).unwrap().unwrap()[..].try_into().unwrap());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (map, cleared) = (&map, &cleared);
            scope.spawn(move || {
                for i in 0..4000 {
                    let own = key(3 * (i % 1500) + thread);
                    if i % 7 < 5 {
                        _ = map.put(&own, own.as_bytes()).unwrap()
                    } else {
                        _ = map.remove(&own).unwrap()
                    }
                    count(map, "all");
                    cleared.put(&own, "soon gone").unwrap();
                }
            });
        }
        for _ in 0..150 {
            let mut batch = pool.batch().unwrap();
            let before = batch.get(&map, b"all").unwrap().map(<[u8]>::to_vec);
            batch.put(&map, b"copy", before.as_deref().unwrap_or_default()).unwrap();
            batch.put(&other, b"copy", before.as_deref().unwrap_or_default()).unwrap();
            batch.clear(&cleared).unwrap();
            assert_eq!(batch.len(&cleared).unwrap(), 0, "alone");
            std::thread::yield_now();
            assert_eq!(batch.get(&map, b"all").unwrap().map(<[u8]>::to_vec), before, "alone");
            batch.commit().unwrap();
            assert_eq!(map.remove_range("key 9".."key:").unwrap(), 0);
        }
    });
    assert_eq!(number(&map, "all"), 12_000);
    assert_eq!(map.get("copy").unwrap().as_deref(), other.get("copy").unwrap().as_deref());
    for map in [&map, &cleared] {
        assert_eq!(map.len().unwrap(), map.iter().count() as u64);
    }
    let keys = map.prefix("key ").map(|entry| entry.map(|e| assert_eq!(e.key(), e.value())).unwrap()).count();
    assert!(keys > 2000, "{keys}");
    pool.check().unwrap();
    let before = contents(&map);
    drop((map, other, cleared, pool));
    let pool = open(&path);
    assert_eq!(contents(&pool.find_map("m").unwrap().unwrap()), before);
    pool.check().unwrap();
}

/// A range is removed beside readers, and beside a writer whose records lie around it.
fn a_range_goes_in_order_beside_readers_and_a_writer(options: MapOptions) {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    let map = pool.open_map_with("m", options).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0;
            while !done.load(Ordering::Relaxed) {
                map.put(format!("a {i}"), "below").unwrap();
                map.put(format!("z {i}"), "above").unwrap();
                i = (i + 1) % 500;
            }
        });
        scope.spawn(|| {
            let mut cursor = map.cursor();
            while !done.load(Ordering::Relaxed) {
                let mut last: Option<Vec<u8>> = None;
                let mut found = cursor.seek("key ").unwrap();
                while found {
                    let key = cursor.key().unwrap();
                    assert!(last.as_deref().is_none_or(|last| last < key));
                    last = Some(key.to_vec());
                    found = cursor.next().unwrap();
                }
            }
        });
        for _ in 0..5 {
            (0..3000).for_each(|i| _ = map.put(key(i), [7; 40]).unwrap());
            assert_eq!(map.remove_range(key(0)..key(2999)).unwrap(), 2999);
            assert_eq!(map.range("key "..="key x").count(), 1);
        }
        done.store(true, Ordering::Relaxed);
    });
    pool.check().unwrap();
}

fn a_cursor_moves_both_ways_and_keeps_what_is_removed(options: MapOptions) {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    let map = pool.open_map_with("m", options).unwrap();
    let mut cursor = map.cursor();
    assert!(!cursor.next().unwrap() && cursor.key().is_none() && cursor.value().is_none());
    (0..1000).for_each(|i| _ = map.put(key(2 * i), i.to_le_bytes()).unwrap());
    assert!(cursor.seek(key(501)).unwrap());
    assert_eq!((cursor.key(), cursor.value()), (Some(key(502).as_bytes()), Some(&251u32.to_le_bytes()[..])));
    assert!(cursor.seek_back(key(501)).unwrap());
    assert_eq!(cursor.key(), Some(key(500).as_bytes()));
    assert_eq!(map.remove_range(key(100)..key(1900)).unwrap(), 900);
    assert_eq!(cursor.key(), Some(key(500).as_bytes()), "as long as the cursor is there");
    while cursor.key().unwrap() > key(100).as_bytes() {
        assert!(cursor.prev().unwrap());
    }
    assert!(cursor.seek_last().unwrap() && !cursor.next().unwrap() && cursor.prev().unwrap());
    assert_eq!(cursor.key(), Some(key(1998).as_bytes()));
    assert!(cursor.seek_first().unwrap() && !cursor.prev().unwrap() && cursor.next().unwrap());
    assert_eq!(cursor.key(), Some(key(0).as_bytes()));
}

/// A cursor holds back the memory that was freed since it came to its leaf, and none when it is at no record.
#[test]
fn a_cursor_pins_no_longer_than_its_leaf() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    let map = pool.open_map("m").unwrap();
    (0..2000).for_each(|i| _ = map.put(key(i), [1; 1000]).unwrap());
    let mut cursor = map.cursor();
    let replace_all = || (0..2000).for_each(|i| _ = map.put(key(i), [2; 1000]).unwrap());
    let held_bytes = || {
        pool.trim().unwrap();
        pool.limbo_bytes()
    };
    for stop in 0..3 {
        assert!(cursor.next().unwrap());
        replace_all();
        assert!(held_bytes() > 1 << 20, "stop {stop}");
        (0..60).for_each(|_| assert!(cursor.next().unwrap()));
        assert!(held_bytes() < 1 << 16, "stop {stop}: {} bytes", held_bytes());
    }
    assert!(!cursor.seek("z").unwrap());
    replace_all();
    assert!(held_bytes() < 1 << 16, "at the end: {} bytes", held_bytes());
}

#[test]
fn a_map_that_counts_has_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Options::new().create(true).open(folder.path().join("a.pool")).unwrap();
    let words = pool.open_map_with("words", MapOptions::new().counting(Counting::Records)).unwrap();
    for word in ["ant", "bee", "bear", "cat", "dog"] {
        words.put(word, "").unwrap();
    }
    let mut batch = pool.batch().unwrap();
    batch.put(&words, b"beech", b"").unwrap();
    assert_eq!(batch.rank(&words, b"bee").unwrap(), 2);
    assert_eq!(batch.nth(&words, 3).unwrap().map(|found| found.key), Some(&b"beech"[..]));
    assert_eq!(batch.nth(&words, 6).unwrap(), None);
    assert_eq!(batch.count(&words, "b".."c").unwrap(), 3);
    assert_eq!(batch.count(&words, "bear"..="bee").unwrap(), 2);
    assert_eq!(batch.count::<&str>(&words, ..).unwrap(), 6);
    assert_eq!(batch.count(&words, "d".."b").unwrap(), 0);
    batch.commit().unwrap();

    let again = pool.open_map("words").unwrap();
    assert_eq!(again.counting(), Counting::Records);
    let other = pool.open_map_with("words", MapOptions::new().counting(Counting::Weights)).unwrap_err();
    assert!(matches!(&other, Error::MapCounting { found: Counting::Records, .. }), "{other}");
    let plain = pool.open_map("plain").unwrap();
    let batch = pool.batch().unwrap();
    assert!(batch.rank(&plain, b"a").is_err());
}

#[test]
fn a_walk_of_a_batch_sees_the_changes_of_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo::Options::new().create(true).open(dir.path().join("walk.pool")).unwrap();
    let map = pool.open_map("m").unwrap();
    let key = |number: u64| format!("{:05}", number.wrapping_mul(7919) % 3000).into_bytes();
    let mut model = std::collections::BTreeMap::new();
    for round in 0..40_u64 {
        let mut batch = pool.batch().unwrap();
        for number in round * 100..round * 100 + 100 {
            let (key, value) = (key(number), number.to_string().into_bytes());
            if number % 3 == 0 {
                assert_eq!(batch.remove(&map, &key).unwrap(), model.remove(&key).is_some());
            } else {
                batch.put(&map, &key, &value).unwrap();
                model.insert(key, value);
            }
        }
        let (low, high) = (key(round), b"02500".to_vec());
        let bounds = (std::ops::Bound::Excluded(low.clone()), std::ops::Bound::Included(high.clone()));
        let mut found = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            if found.len() == 1500 {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        };
        batch.walk(&map, bounds, visit).unwrap();
        let expected = model.iter().filter(|(key, _)| **key > low && **key <= high);
        let expected: Vec<_> = expected.take(1500).map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_eq!(found, expected, "round {round}");
        let bounds = (std::ops::Bound::Excluded(low.clone()), std::ops::Bound::Included(high.clone()));
        let mut found = Vec::new();
        let visit = |key: &[u8], _: &[u8]| {
            found.push(key.to_vec());
            if found.len() == 1500 {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        };
        batch.walk_back(&map, bounds, visit).unwrap();
        let expected = model.keys().rev().filter(|key| **key > low && **key <= high);
        assert_eq!(found, expected.take(1500).cloned().collect::<Vec<_>>(), "round {round}, backwards");
        batch.commit().unwrap();
    }
    let versioned = tembo::MapOptions::new().versioned(true);
    let versioned = pool.open_map_with("versioned", versioned).unwrap();
    let batch = pool.batch().unwrap();
    let refused = batch.walk::<&[u8]>(&versioned, .., |_, _| std::ops::ControlFlow::Continue(()));
    assert!(matches!(refused, Err(tembo::Error::KeepsVersions)));
}

/// Choices reach every record of a leaf, and what the batch itself has written.
#[test]
fn neighbours_are_all_records_near_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Options::new().create(true).open(dir.path().join("near.pool")).unwrap();
    let map = pool.open_map("near").unwrap();
    let mut batch = pool.batch().unwrap();
    assert!(batch.neighbour(&map, b"x", 7).unwrap().is_none());
    for number in 0..500_u32 {
        batch.put(&map, &number.to_be_bytes(), &number.to_le_bytes()).unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..500_u32 {
        for choice in 0..64 {
            let near = batch.neighbour(&map, &number.to_be_bytes(), choice).unwrap().unwrap();
            let found = u32::from_be_bytes(near.key.try_into().unwrap());
            assert!(
                found.abs_diff(number) < 64 && near.value == found.to_le_bytes(),
                "{found} near {number}"
            );
            assert!((1..=64).contains(&near.leaf_count), "{}", near.leaf_count);
            seen.insert(found);
        }
    }
    assert_eq!(seen.len(), 500);
}
