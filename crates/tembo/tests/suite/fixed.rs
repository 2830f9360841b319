//! Maps of 8-byte keys and values behind the pool: handles, names, checks, and what is there after reopening.
#![forbid(unsafe_code)]

use std::path::Path;
use tembo::{Error, Options, Pool};

fn open(path: &Path) -> Pool {
    Options::new().create(true).initial_bytes(4 << 20).open(path).unwrap()
}

#[test]
fn every_handle_of_a_name_is_the_same_map() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    let first = pool.open_fixed_map("numbers").unwrap();
    let (second, third) =
        (pool.open_fixed_map("numbers").unwrap(), pool.clone().find_fixed_map("numbers").unwrap());
    first.put(1, 10).unwrap();
    second.put(2, 20).unwrap();
    assert_eq!(third.unwrap().iter().collect::<Result<Vec<_>, _>>().unwrap(), [(1, 10), (2, 20)]);
    drop((first, second));
    assert_eq!(pool.open_fixed_map("numbers").unwrap().count().unwrap(), 2);
}

/// A lane that a closed map kept would be missing after some sixty maps.
#[test]
fn a_map_gives_its_lane_back_with_its_last_handle() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    for round in 0..200 {
        let map = pool.open_fixed_map("m").unwrap();
        map.put(round, round).unwrap();
        let records = map.iter();
        drop(map);
        assert_eq!(
            pool.find_fixed_map("m").unwrap().unwrap().count().unwrap(),
            round + 1,
            "beside an iterator"
        );
        assert_eq!(records.count() as u64, round + 1);
    }
    let path = pool.path().unwrap().to_owned();
    let map = pool.open_fixed_map("m").unwrap();
    drop(pool);
    assert_eq!(map.get(7).unwrap(), Some(7), "the map keeps the pool open");
    assert!(Options::new().open(&path).is_err());
    drop(map);
    assert_eq!(open(&path).find_fixed_map("m").unwrap().unwrap().count().unwrap(), 200);
}

#[test]
fn threads_that_come_and_go_share_one_map() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..500 {
                    assert!(pool.open_fixed_map("m").unwrap().insert(4 * round + thread, round).unwrap());
                }
            });
        }
    });
    assert_eq!(pool.check().unwrap().fixed_maps, [("m".to_owned(), 2000)]);
}

#[test]
fn every_operation_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let map = open(&dir.path().join("a.pool")).open_fixed_map("m").unwrap();
    assert_eq!((map.first().unwrap(), map.last().unwrap(), map.count().unwrap()), (None, None, 0));
    for key in [0, 5, u64::MAX] {
        assert_eq!(map.update(key, 7).unwrap(), None);
        assert!(map.insert(key, 0).unwrap());
        assert!(!map.insert(key, 1).unwrap());
        assert_eq!(map.get(key).unwrap(), Some(0));
        assert_eq!(map.compare_and_swap(key, 1, 2).unwrap(), Some(0));
        assert_eq!(map.compare_and_swap(key, 0, 2).unwrap(), Some(0));
        assert_eq!(map.update(key, 3).unwrap(), Some(2));
        assert_eq!(map.put(key, key).unwrap(), Some(3));
        assert!(map.contains_key(key).unwrap());
    }
    assert_eq!((map.first().unwrap(), map.last().unwrap()), (Some((0, 0)), Some((u64::MAX, u64::MAX))));
    let mut records = Vec::new();
    map.scan(1, 2, &mut records).unwrap();
    map.scan_back(5, 9, &mut records).unwrap();
    assert_eq!(records, [(5, 5), (u64::MAX, u64::MAX), (5, 5), (0, 0)]);
    assert_eq!(map.range(..=5).rev().map(Result::unwrap).collect::<Vec<_>>(), [(5, 5), (0, 0)]);
    assert_eq!(map.remove(5).unwrap(), Some(5));
    assert_eq!(map.remove(5).unwrap(), None);
    assert_eq!(map.remove_range(..).unwrap(), 2);
    assert_eq!(map.count().unwrap(), 0);
    map.pool().check().unwrap();
}

#[test]
fn a_name_belongs_to_one_kind_of_map() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    pool.open_fixed_map("fixed").unwrap();
    pool.open_map("strings").unwrap();
    assert_eq!(pool.fixed_map_names().unwrap(), ["fixed"]);
    assert_eq!(pool.map_names().unwrap(), ["strings"]);
    assert!(matches!(pool.open_fixed_map("strings"), Err(Error::OtherKind { .. })));
    assert!(matches!(pool.open_map("fixed"), Err(Error::OtherKind { .. })));
    assert!(pool.find_fixed_map("none").unwrap().is_none());
    assert!(pool.open_fixed_map("").is_err());
    pool.check().unwrap();
}

#[test]
fn threads_that_open_a_new_name_at_once_get_one_map() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..20 {
                    let name = format!("map {round}");
                    pool.open_fixed_map(&name).unwrap().insert(thread, round).unwrap();
                    pool.open_map(&format!("strings {round}")).unwrap().put([thread as u8], "").unwrap();
                }
            });
        }
    });
    let report = pool.check().unwrap();
    assert_eq!(report.fixed_maps.len(), 20);
    assert!(report.fixed_maps.iter().chain(&report.maps).all(|(_, records)| *records == 8), "{report:?}");
}

#[test]
fn records_are_there_after_reopening_also_for_reading_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = open(&path);
    let map = pool.open_fixed_map("m").unwrap();
    (0..5000).for_each(|key| _ = map.put(key * 3, key).unwrap());
    drop((map, pool));
    let pool = Options::new().read_only(true).open(&path).unwrap();
    assert_eq!(pool.check().unwrap().fixed_maps, [("m".to_owned(), 5000)]);
    let map = pool.find_fixed_map("m").unwrap().unwrap();
    assert!((0..5000).all(|key| map.get(key * 3).unwrap() == Some(key)));
    assert_eq!(map.count().unwrap(), 5000);
    assert!(matches!(map.put(1, 1), Err(Error::ReadOnly)));
    assert!(matches!(pool.open_fixed_map("other"), Err(Error::ReadOnly)));
    assert_eq!(pool.check().unwrap().fixed_maps.len(), 1, "beside an open handle");
}

#[test]
fn check_sees_fixed_maps_beside_open_handles_and_finds_damage_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = tembo_pool::Options::new();
    options.create = true;
    // A journal would have copies of the words that are searched for.
    let options = options.durability(tembo::Durability::PageCache);
    let raw = tembo_pool::Pool::open(dir.path().join("a.pool"), &options).unwrap();
    let pool = Pool::from_pool(raw.clone());
    let map = pool.open_fixed_map("m").unwrap();
    (0..1000).for_each(|key| _ = map.put(key, key).unwrap());
    pool.open_map("s").unwrap().put("k", "v").unwrap();
    let report = pool.check().unwrap();
    assert_eq!(report.fixed_maps, [("m".to_owned(), 1000)]);
    assert_eq!(report.maps, [("s".to_owned(), 1)]);

    // Two slots of a leaf get the same key: the words of two present keys are next to each other in the
    // image, complemented.
    let region = raw.region();
    let word_of =
        |key: u64| (0..region.len()).step_by(8).find(|off| region.load_u64(*off).unwrap() == !key).unwrap();
    let (one, other) = (word_of(700), word_of(701));
    let before = region.load_u64(other).unwrap();
    region.store_u64(other, region.load_u64(one).unwrap()).unwrap();
    let message = pool.check().unwrap_err().to_string();
    assert!(message.contains("damaged") && message.contains("keys of a leaf"), "{message}");
    region.store_u64(other, before).unwrap();
    pool.check().unwrap();
}

#[test]
fn a_change_costs_one_line_and_one_fence() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().create(true).durability(tembo::Durability::Emulated).count(true);
    let map = options.open(dir.path().join("a.pool")).unwrap().open_fixed_map("m").unwrap();
    map.put(1, 1).unwrap();
    let changes: [(&str, &dyn Fn()); 4] = [
        ("insert", &|| assert!(map.insert(2, 2).unwrap())),
        ("update", &|| assert!(map.update(2, 3).unwrap().is_some())),
        ("exchange", &|| assert_eq!(map.compare_and_swap(2, 3, 4).unwrap(), Some(3))),
        ("remove", &|| assert!(map.remove(2).unwrap().is_some())),
    ];
    for (what, change) in changes {
        let before = tembo::snapshot();
        change();
        let counts = tembo::snapshot() - before;
        assert_eq!((counts.lines, counts.fences), (1, 1), "{what}");
    }
    let before = tembo::snapshot();
    assert_eq!(map.get(1).unwrap(), Some(1));
    assert_eq!(map.count().unwrap(), 1);
    let counts = tembo::snapshot() - before;
    assert_eq!((counts.lines, counts.fences), (0, 0), "reading");
}
