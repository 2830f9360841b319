//! Hash tables: against a `HashMap` for each version, and beside the pool's maps.
#![forbid(unsafe_code)]

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::HashMap;
use tembo::{Error, HashTable, IndexError, MapOptions, Options, Pool, TableSnapshot};

type Model = HashMap<Vec<u8>, Vec<u8>>;

fn key(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    match rng.random_range(0..120) {
        i @ 0..60 => format!("key {i:03}").into_bytes(),
        i => vec![i as u8; i % 5],
    }
}

fn value(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    vec![rng.random(); [0, 2, 8, 30, 400, 5000][rng.random_range(0..6)]]
}

fn compare(snapshot: &TableSnapshot, model: &Model) {
    assert_eq!((snapshot.len(), snapshot.is_empty()), (model.len() as u64, model.is_empty()));
    let found: Model = snapshot
        .iter()
        .map(|entry| entry.map(|entry| (entry.key().to_vec(), entry.value().to_vec())).unwrap())
        .collect();
    assert_eq!(&found, model);
    assert_eq!(snapshot.iter().count(), model.len());
    for (key, value) in model {
        assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    assert!(!snapshot.contains_key("never").unwrap());
}

/// A random change, and what it says of the state before.
fn change(table: &HashTable, model: &mut Model, rng: &mut Xoshiro256PlusPlus) {
    let (key, value) = (key(rng), value(rng));
    let old = model.get(&key).cloned();
    assert_eq!(table.get(&key).unwrap().as_deref(), old.as_deref());
    match rng.random_range(0..20) {
        0..8 => {
            assert_eq!(table.put(&key, &value).unwrap(), old.is_some());
            model.insert(key, value);
        }
        8..12 => {
            assert_eq!(table.remove(&key).unwrap(), old.is_some());
            model.remove(&key);
        }
        12..14 => {
            assert_eq!(table.insert(&key, &value).unwrap(), old.is_none());
            model.entry(key).or_insert(value);
        }
        14 => {
            assert_eq!(table.update(&key, &value).unwrap(), old.is_some());
            model.entry(key).and_modify(|old| *old = value);
        }
        15 => {
            let longer = |old: Option<&[u8]>| old.map(|old| [old, b"!"].concat());
            assert_eq!(table.modify(&key, longer).unwrap(), old.is_some());
            model.entry(key).and_modify(|old| old.push(b'!'));
        }
        16 => {
            assert!(!table.compare_and_swap(&key, Some(b"never"), None).unwrap());
            assert!(table.compare_and_swap(&key, old.as_deref(), Some(&value)).unwrap());
            model.insert(key, value);
        }
        17 if rng.random_ratio(1, 20) => {
            table.clear().unwrap();
            model.clear();
        }
        _ => {
            let keeps = rng.random_bool(0.7);
            let mut changed = model.clone();
            let outcome = table.batch(|batch| {
                for _ in 0..10 {
                    let key = self::key(rng);
                    assert_eq!(batch.get(&key)?, changed.get(&key).cloned());
                    if rng.random() {
                        let value = self::value(rng);
                        assert_eq!(batch.put(&key, &value)?, changed.insert(key, value).is_some());
                    } else {
                        assert_eq!(batch.remove(&key)?, changed.remove(&key).is_some());
                    }
                    assert_eq!((batch.len(), batch.is_empty()), (changed.len() as u64, changed.is_empty()));
                }
                if keeps { Ok(()) } else { Err(Error::NotVersioned) }
            });
            match outcome {
                Ok(()) => *model = changed,
                Err(error) => assert!(!keeps && matches!(error, Error::NotVersioned), "{error}"),
            }
        }
    }
}

#[test]
fn a_hash_table_is_a_map_in_each_of_its_versions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let open = || Options::new().create(true).initial_bytes(4 << 20).open(&path).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let (mut model, mut named) = (Model::new(), HashMap::<String, Model>::new());
    for session in 0..3 {
        let pool = open();
        let table = pool.open_hash_table("t").unwrap();
        for (name, model) in &named {
            compare(&table.open_snapshot(name).unwrap(), model);
        }
        let mut held = Vec::new();
        for i in 0..400 {
            change(&table, &mut model, &mut rng);
            match rng.random_range(0..20) {
                0 => held.push((table.snapshot(), model.clone())),
                1 if !held.is_empty() => drop(held.swap_remove(rng.random_range(0..held.len()))),
                2 if i % 5 == 0 => {
                    let name = format!("{session} {i}");
                    table.snapshot().keep(&name).unwrap();
                    named.insert(name, model.clone());
                }
                3 => _ = table.collect(100).unwrap(),
                4 if !held.is_empty() => {
                    let (snapshot, then) = &held[rng.random_range(0..held.len())];
                    let changes = snapshot.diff(&table.snapshot()).unwrap();
                    let mut keys: Vec<_> = changes.iter().map(|change| change.key.clone()).collect();
                    keys.sort();
                    keys.dedup();
                    assert_eq!(keys.len(), changes.len());
                    assert!(keys.iter().all(|key| then.get(key) != model.get(key)));
                    let all = then.keys().chain(model.keys().filter(|key| !then.contains_key(*key)));
                    assert_eq!(all.filter(|key| then.get(*key) != model.get(*key)).count(), changes.len());
                    if rng.random_ratio(1, 4) {
                        table.rollback_to(snapshot).unwrap();
                        model = then.clone();
                    }
                }
                _ => {}
            }
        }
        compare(&table.snapshot(), &model);
        held.iter().for_each(|(snapshot, model)| compare(snapshot, model));
        assert_eq!(table.len(), model.len() as u64);
        if let Some(name) = named.keys().next().cloned() {
            assert!(table.drop_snapshot(&name).unwrap() && !table.drop_snapshot(&name).unwrap());
            named.remove(&name);
        }
        assert_eq!(table.snapshots().len(), named.len());
        drop(held);
        while table.collect(1000).unwrap() {}
        assert_eq!(table.version_stats().unwrap().kept, named.len());
        pool.check().unwrap();
    }
}

#[test]
fn handles_are_one_table_and_names_belong_to_one_kind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = Options::new().create(true).open(&path).unwrap();
    let open = |pool: &Pool| pool.open_hash_table("t").unwrap();
    let (one, other) = (open(&pool), open(&pool));
    one.put("a", "b").unwrap();
    assert_eq!(other.get("a").unwrap().as_deref(), Some(&b"b"[..]));
    let snapshot = one.snapshot();
    other.rollback_to(&snapshot).unwrap();
    let foreign = pool.open_hash_table("u").unwrap();
    assert!(matches!(foreign.rollback_to(&snapshot), Err(Error::ForeignSnapshot)));
    assert!(matches!(foreign.snapshot().diff(&snapshot), Err(Error::ForeignSnapshot)));
    assert!(matches!(one.open_snapshot("none"), Err(Error::NoSuchSnapshot { .. })));
    assert!(matches!(one.snapshot_at(99), Err(Error::Index(IndexError::NoSuchVersion { version: 99 }))));
    assert!(matches!(one.put(vec![0; 1 << 17], ""), Err(Error::KeyTooLong { .. })));
    pool.open_map("m").unwrap();
    assert!(matches!(pool.open_hash_table("m"), Err(Error::OtherKind { .. })));
    assert!(matches!(pool.open_map("t"), Err(Error::OtherKind { .. })));
    assert!(pool.find_hash_table("nothing").unwrap().is_none());
    // As many as there are lanes, one after the other: a table gives its lane back.
    for i in 0..100 {
        pool.open_hash_table(&format!("{}", i % 3)).unwrap().put("a", "b").unwrap();
    }
    drop((one, other, snapshot, foreign, pool));
    let pool = Options::new().read_only(true).open(&path).unwrap();
    let table = pool.open_hash_table("t").unwrap();
    assert_eq!(table.get("a").unwrap().as_deref(), Some(&b"b"[..]));
    assert!(matches!(table.put("a", "c"), Err(Error::ReadOnly)));
    assert!(matches!(pool.open_hash_table("new"), Err(Error::ReadOnly)));
}

#[test]
fn threads_that_wait_share_versions() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Options::new().create(true).open(dir.path().join("a.pool")).unwrap();
    let table = pool.open_hash_table("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let table = &table;
            scope.spawn(move || {
                for i in 0..200_u32 {
                    let key = (thread * 1000 + i).to_le_bytes();
                    table.put(key, key).unwrap();
                    assert_eq!(table.get(key).unwrap().as_deref(), Some(&key[..]));
                }
            });
        }
    });
    assert_eq!(table.len(), 800);
    assert!(table.version() <= 801);
    pool.check().unwrap();
}

#[test]
fn a_pool_tells_of_its_hash_tables_and_proves_them_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = Options::new().create(true).open(&path).unwrap();
    pool.open_map("map").unwrap().put("a", "b").unwrap();
    pool.open_map_with("log", MapOptions::new().versioned(true)).unwrap().put("a", "b").unwrap();
    let table = pool.open_hash_table("table").unwrap();
    (0..500_u32).for_each(|i| _ = table.put(i.to_be_bytes(), [7; 30]).unwrap());
    table.snapshot().keep("full").unwrap();
    (0..100_u32).for_each(|i| _ = table.remove(i.to_be_bytes()).unwrap());
    // Beside the handle that is open, and after it.
    for _ in 0..2 {
        let tables = pool.hash_tables().unwrap();
        let [(name, versions)] = &tables[..] else { panic!("{tables:?}") };
        assert_eq!((&name[..], versions.length, versions.version), ("table", 400, 601));
        assert_eq!((&versions.kept[0].name[..], versions.kept[0].length), ("full", 500));
        let report = pool.check().unwrap();
        assert_eq!(report.hash_tables, tables);
        assert_eq!((report.maps.len(), report.versioned_maps.len()), (1, 1));
    }
    assert_eq!(pool.map_names().unwrap().len(), 2);
    assert!(pool.open_map("table").is_err());
    drop((table, pool));
    let pool = Options::new().read_only(true).open(&path).unwrap();
    assert_eq!(pool.check().unwrap().hash_tables.len(), 1);
}
