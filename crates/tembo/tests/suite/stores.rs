//! Stores in a pool of the facade: opened by name, listed, checked, read from a pool that is open for reading
//! only.

use std::path::Path;
use tembo::store::Error as StoreError;
use tembo::{Error, Kind, Options, Pool};

fn made(path: &Path) -> Pool {
    Options::new().create(true).initial_bytes(4 << 20).open(path).unwrap()
}

fn pool_in(directory: &tempfile::TempDir) -> Pool {
    made(&directory.path().join("a.pool"))
}

#[test]
fn a_store_is_opened_once_and_shared() {
    let directory = tempfile::tempdir().unwrap();
    let pool = pool_in(&directory);
    assert!(pool.find_store("bank").unwrap().is_none());
    let bank = pool.open_store("bank").unwrap();
    let accounts = bank.keyspace("accounts").unwrap();
    bank.put(&accounts, "ann", "1").unwrap();
    let again = pool.open_store("bank").unwrap();
    // A keyspace of one handle is one of the other: they are the same store.
    assert_eq!(again.get(&accounts, "ann").unwrap().unwrap(), b"1");
    let snapshot = again.snapshot();
    drop((bank, again, accounts));
    // A snapshot keeps the store open, without a handle of it.
    let reopened = pool.find_store("bank").unwrap().unwrap();
    let accounts = reopened.find_keyspace("accounts").unwrap().unwrap();
    assert_eq!(snapshot.get(&accounts, "ann").unwrap().unwrap(), b"1");
    drop((snapshot, reopened, accounts));
    assert!(pool.open_store("bank").unwrap().find_keyspace("accounts").unwrap().is_some());
}

#[test]
fn threads_that_open_and_close_a_store_find_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let pool = pool_in(&directory);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let pool = &pool;
            scope.spawn(move || {
                for i in 0..50_u8 {
                    let store = pool.open_store("bank").unwrap();
                    let keyspace = store.keyspace("k").unwrap();
                    let mut tx = store.begin();
                    tx.put(&keyspace, [thread, i], "v").unwrap();
                    // Nobody waits: it is committed when the store is closed, if not before.
                    drop(tx.commit_async());
                }
            });
        }
    });
    let store = pool.open_store("bank").unwrap();
    let keyspace = store.keyspace("k").unwrap();
    assert_eq!(store.snapshot().iter(&keyspace).unwrap().count(), 200);
}

#[test]
fn stores_are_listed_checked_and_told_from_maps() {
    let directory = tempfile::tempdir().unwrap();
    let pool = pool_in(&directory);
    pool.open_map("stock").unwrap().put("a", "b").unwrap();
    let bank = pool.open_store("bank").unwrap();
    let accounts = bank.keyspace("accounts").unwrap();
    bank.put(&accounts, "ann", "1").unwrap();
    pool.open_store("other").unwrap();
    let kinds: Vec<(String, Kind)> =
        pool.list().unwrap().into_iter().map(|listed| (listed.name, listed.kind)).collect();
    let expected = [("bank", Kind::Store), ("other", Kind::Store), ("stock", Kind::Map)];
    assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind)));
    assert_eq!(pool.store_names().unwrap(), ["bank", "other"]);
    assert_eq!(pool.map_names().unwrap(), ["stock"]);
    // One is open, the other is not.
    let report = pool.check().unwrap();
    let counts: Vec<(&str, u64)> = report.stores.iter().map(|(name, of)| (&**name, of.keys)).collect();
    assert_eq!(counts, [("bank", 1), ("other", 0)]);
    assert!(report.unknown.is_empty());
    let text = pool.open_map("bank").unwrap_err().to_string();
    assert!(text.contains("a store, not a map"), "{text}");
    assert!(matches!(pool.open_store("stock"), Err(Error::OtherKind { .. })));
    let error = pool.drop_map("bank").unwrap_err();
    assert!(matches!(error, Error::NotAMap { .. }) && error.to_string().contains("a store"), "{error}");
}

#[test]
fn errors_of_a_store_become_errors_of_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let pool = pool_in(&directory);
    let bank = pool.open_store("bank").unwrap();
    let accounts = bank.keyspace("accounts").unwrap();
    let conflict = || -> Result<(), Error> {
        let (mut a, mut b) = (bank.begin(), bank.begin());
        a.put(&accounts, "ann", "1")?;
        b.put(&accounts, "ann", "2")?;
        a.commit()?;
        b.commit()?;
        Ok(())
    };
    let error = conflict().unwrap_err();
    assert!(error.is_conflict() && error.to_string().contains("\"accounts\""), "{error}");
    let too_long = || -> Result<u64, Error> { Ok(bank.put(&accounts, vec![0; 70_000], "")?) };
    assert!(matches!(too_long(), Err(Error::KeyTooLong { bytes: 70_000, .. })));
    let gone = || -> Result<(), Error> { Ok(bank.keep(u64::MAX, "never")?) };
    assert!(matches!(gone(), Err(Error::Store(StoreError::SnapshotGone { .. }))));
}

#[test]
fn a_pool_that_is_open_for_reading_only_has_its_stores() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pool");
    let pool = made(&path);
    let bank = pool.open_store("bank").unwrap();
    let accounts = bank.keyspace("accounts").unwrap();
    bank.put(&accounts, "ann", "1").unwrap();
    bank.keep(bank.snapshot().number(), "yesterday").unwrap();
    bank.put(&accounts, "ann", "2").unwrap();
    drop((bank, accounts, pool));

    let reader = || Options::new().read_only(true).open(&path).unwrap();
    let readers = [reader(), reader()];
    for pool in &readers {
        let bank = pool.open_store("bank").unwrap();
        assert!(bank.is_read_only());
        let accounts = bank.keyspace("accounts").unwrap();
        assert_eq!(bank.get(&accounts, "ann").unwrap().unwrap(), b"2");
        assert_eq!(bank.at_name("yesterday").unwrap().get(&accounts, "ann").unwrap().unwrap(), b"1");
        assert_eq!(bank.snapshot().iter(&accounts).unwrap().count(), 1);
        assert_eq!(bank.versions(&accounts, "ann").unwrap().len(), 2);
        assert_eq!(bank.begin().commit().unwrap(), bank.snapshot().number(), "it wrote nothing");
        let refused = [
            bank.put(&accounts, "ann", "3").map(drop),
            bank.delete(&accounts, "ann").map(drop),
            bank.begin().put(&accounts, "bob", "3"),
            bank.begin_serializable().delete_range::<&str>(&accounts, ..).map(drop),
            bank.keyspace("new").map(drop),
            bank.drop_keyspace("accounts").map(drop),
            bank.set_retention(&accounts, tembo::store::Retention::All),
            bank.keep(bank.snapshot().number(), "today"),
            bank.keep_number(bank.snapshot().number()).map(drop),
            bank.delete_kept("yesterday"),
            bank.delete_number(7).map(drop),
            bank.collect(10).map(drop),
        ];
        for (i, outcome) in refused.into_iter().enumerate() {
            let error = outcome.map_err(Error::from).expect_err("a change");
            assert!(matches!(error, Error::ReadOnly), "{i}: {error}");
        }
        assert!(matches!(pool.open_store("new"), Err(Error::ReadOnly)));
        assert_eq!(pool.check().unwrap().stores[0].1.keys, 1);
    }
}

#[test]
fn a_store_of_another_format_is_unknown_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pool");
    let raw = tembo_pool::Pool::open(&path, Options::new().create(true).initial_bytes(4 << 20).as_ref());
    let raw = raw.unwrap();
    let mut lane = raw.lane().unwrap();
    let mut tx = lane.begin();
    let off = tx.alloc_zeroed(64).unwrap();
    tx.store(off, u64::from_le_bytes(*b"TmStore\xC8")).unwrap();
    tx.set_root("future", tembo::store::Store::ROOT_KIND, off).unwrap();
    tx.commit().unwrap();
    drop(lane);
    let pool = Pool::from_pool(raw);
    let unknown = pool.unknown().unwrap();
    let text = unknown[0].to_string();
    assert!(text.contains("a store of format 200") && text.contains("use a newer Tembo"), "{text}");
    assert!(matches!(pool.open_store("future"), Err(Error::Unknown(_))));
    assert!(matches!(pool.check(), Err(Error::Unproved { .. })));
}

#[test]
fn a_store_is_dropped_unless_it_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pool");
    let pool = made(&path);
    pool.open_map("stock").unwrap();
    let before = pool.check().unwrap().usage.allocated_blocks;
    let bank = pool.open_store("bank").unwrap();
    let accounts = bank.keyspace("accounts").unwrap();
    for i in 0..300_u64 {
        bank.put(&accounts, i.to_be_bytes(), vec![7; 100]).unwrap();
    }
    assert!(matches!(pool.drop_store("stock"), Err(Error::OtherKind { .. })));
    assert!(!pool.drop_store("none").unwrap());
    let in_use = |what: &str| {
        let outcome = pool.drop_store("bank");
        assert!(matches!(outcome, Err(Error::Store(StoreError::InUse { .. }))), "{what}: {outcome:?}");
    };
    in_use("a handle");
    let snapshot = bank.snapshot();
    drop((bank, accounts));
    in_use("a snapshot");
    drop(snapshot);
    assert!(pool.drop_store("bank").unwrap());
    assert!(!pool.drop_store("bank").unwrap());
    // Its name is free; what is left of it is no structure of its own.
    let names: Vec<String> = pool.list().unwrap().into_iter().map(|listed| listed.name).collect();
    assert_eq!((names, pool.has_dropped_stores().unwrap()), (vec!["stock".to_owned()], true));
    let report = pool.check().unwrap();
    assert_eq!((report.dropped_stores, report.stores.len(), report.unknown.len()), (1, 0, 0));
    drop(pool);
    // Another process goes on with it, and one that only reads does not.
    let reader = Options::new().read_only(true).open(&path).unwrap();
    assert!(matches!(reader.reclaim_dropped(1), Err(Error::ReadOnly)));
    assert!(matches!(reader.drop_store("stock"), Err(Error::ReadOnly)));
    drop(reader);
    let pool = made(&path);
    let again = pool.open_store("bank").unwrap();
    assert_eq!(again.keyspaces().unwrap(), Vec::<String>::new());
    drop(again);
    assert!(pool.drop_store("bank").unwrap());
    let mut calls = 0;
    while pool.reclaim_dropped(20).unwrap() {
        calls += 1;
        pool.check().unwrap();
    }
    assert!(calls >= 15, "{calls}");
    let report = pool.check().unwrap();
    assert_eq!((report.dropped_stores, report.usage.allocated_blocks), (0, before));
}

/// A pool that is full of a dropped store takes a map's records: what the store had comes back.
#[test]
fn a_full_pool_feeds_on_dropped_stores() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().create(true).initial_bytes(4 << 20).max_bytes(4 << 20);
    let pool = options.open(directory.path().join("a.pool")).unwrap();
    let map = pool.open_map("stock").unwrap();
    let bank = pool.open_store("bank").unwrap();
    let accounts = bank.keyspace("accounts").unwrap();
    let full = (0..100_000_u64).find_map(|i| bank.put(&accounts, i.to_be_bytes(), vec![7; 300]).err());
    assert!(full.unwrap().is_full());
    while bank.put(&accounts, "small", "").is_ok() && map.put(map.len().unwrap().to_be_bytes(), "x").is_ok() {
    }
    drop((bank, accounts));
    assert!(pool.drop_store("bank").unwrap());
    for i in 0..1000_u64 {
        map.put((1 << 40 | i).to_be_bytes(), vec![7; 300]).unwrap();
    }
    while pool.reclaim_dropped(100).unwrap() {}
    assert_eq!(pool.check().unwrap().dropped_stores, 0);
}
