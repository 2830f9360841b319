//! Histories: what keyspaces retain, and reading it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Error, Retention, Store};

fn store() -> Store {
    let region = Region::simulated(&vec![0; 8 << 20], 8 << 20, None).unwrap();
    Store::open(&Pool::create_in(region, &Geometry::tiny()).unwrap(), "store").unwrap()
}

fn collect_all(store: &Store) {
    while store.collect(50).unwrap() {}
}

fn prove(store: &Store) -> tembo_store::Report {
    let mut marks = store.pool().marks().unwrap();
    let report = store.check(&mut marks).unwrap();
    marks.finish().unwrap();
    report
}

#[test]
fn a_keyspace_that_retains_all_is_read_as_of_every_commit_and_time() {
    let store = store();
    let [all, none] = [("all", Retention::All), ("none", Retention::None)]
        .map(|(name, r)| store.keyspace_with(name, r).unwrap());
    let mut history: BTreeMap<u64, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
    let mut now = BTreeMap::new();
    let start = SystemTime::now();
    for i in 0..300u64 {
        let key = vec![(i * 7 % 13) as u8];
        let mut tx = store.begin();
        if i % 5 == 4 {
            tx.delete(&all, key.clone()).unwrap();
            now.remove(&key);
        } else {
            tx.put(&all, key.clone(), i.to_be_bytes()).unwrap();
            now.insert(key, i.to_be_bytes().to_vec());
        }
        tx.put(&none, "counter", i.to_be_bytes()).unwrap();
        history.insert(tx.commit().unwrap(), now.clone());
    }
    collect_all(&store);
    prove(&store);
    for (number, expected) in &history {
        for at in [store.at(*number).unwrap(), store.at(number + 1).unwrap_or_else(|_| store.snapshot())] {
            let found: BTreeMap<_, _> = at.iter(&all).unwrap().map(Result::unwrap).collect();
            if at.number() == *number || !history.contains_key(&(number + 1)) {
                assert_eq!(&found, expected, "as of {number}");
            }
        }
    }
    let (first, _) = history.first_key_value().unwrap();
    let early = store.at(*first).unwrap();
    assert!(matches!(early.get(&none, "counter").unwrap_err(), Error::NotRetained { .. }));
    assert!(matches!(early.iter(&none).unwrap_err(), Error::NotRetained { .. }));
    let mut tx = store.begin_at(&early).unwrap();
    assert!(matches!(tx.get(&none, "counter").unwrap_err(), Error::NotRetained { .. }));
    assert!(matches!(tx.put(&none, "counter", "").unwrap_err(), Error::NotRetained { .. }));
    assert!(matches!(tx.range::<&str>(&none, ..).unwrap_err(), Error::NotRetained { .. }));
    drop(tx);
    assert!(matches!(store.at(u64::MAX).unwrap_err(), Error::SnapshotGone { .. }));
    assert_eq!(store.at_time(start).unwrap().iter(&all).unwrap().count(), 0);
    let future = SystemTime::now() + Duration::from_secs(60);
    assert!(store.at_time(future).unwrap().get(&none, "counter").unwrap().is_some());
    // Not retained any more: all of it goes.
    store.set_retention(&all, Retention::None).unwrap();
    assert!(matches!(early.get(&all, [0]).unwrap_err(), Error::NotRetained { .. }));
    drop(early);
    collect_all(&store);
    let report = prove(&store);
    assert_eq!(report.versions, now.len() as u64 + 1);
}

#[test]
fn a_keyspace_retains_the_newest_versions_of_each_key() {
    let store = store();
    let k = store.keyspace_with("k", Retention::Versions(5)).unwrap();
    for i in 0..40u64 {
        store.put(&k, "a", i.to_be_bytes()).unwrap();
        if i < 3 {
            store.put(&k, "b", i.to_be_bytes()).unwrap();
        }
    }
    collect_all(&store);
    let values = |key: &str| -> Vec<u64> {
        let versions = store.versions(&k, key).unwrap().into_iter();
        versions.map(|v| u64::from_be_bytes(v.value.unwrap().try_into().unwrap())).collect()
    };
    assert_eq!((values("a"), values("b")), (vec![39, 38, 37, 36, 35], vec![2, 1, 0]));
    prove(&store);
    let pool = store.pool().clone();
    drop((k, store));
    let store = Store::open(&pool, "store").unwrap();
    assert_eq!(store.keyspace("k").unwrap().retention(), Retention::Versions(5), "it is noted in the pool");
}

#[test]
fn a_keyspace_retains_what_was_current_within_a_time() {
    let store = store();
    let k = store.keyspace_with("k", Retention::For(Duration::from_millis(300))).unwrap();
    store.put(&k, "a", "old").unwrap();
    let old = store.put(&k, "gone", "old").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    store.put(&k, "a", "new").unwrap();
    store.delete(&k, "gone").unwrap();
    collect_all(&store);
    let at = store.at(old).unwrap();
    assert_eq!(at.get(&k, "a").unwrap().as_deref(), Some(b"old".as_slice()));
    drop(at);
    std::thread::sleep(Duration::from_millis(450));
    collect_all(&store);
    assert_eq!(store.versions(&k, "a").unwrap().len(), 1);
    assert!(matches!(store.at(old).unwrap().get(&k, "a").unwrap_err(), Error::NotRetained { .. }));
    assert_eq!(prove(&store).keys, 1, "the deleted key is gone, too");
}

/// A snapshot that is only retained was taken for a whole one as soon as somebody had it open. It could then
/// be kept, and was read as a whole one in keyspaces that do not retain it: with missing and with wrong
/// values.
/// Echo keeps any snapshot that is still there.
#[test]
fn a_snapshot_that_all_keyspaces_retain_can_be_kept() {
    let store = store();
    let hour = Retention::For(Duration::from_secs(3600));
    let [all, window] = [("all", Retention::All), ("window", hour)]
        .map(|(name, retention)| store.keyspace_with(name, retention).unwrap());
    let before = store.put(&all, "before", "").unwrap();
    let mut numbers = Vec::new();
    for i in 0..20u8 {
        let mut tx = store.begin();
        for keyspace in [&all, &window] {
            // A deletion now and then, and values in blocks.
            if i % 5 == 4 { tx.delete(keyspace, "key") } else { tx.put(keyspace, "key", [i; 50]) }.unwrap();
        }
        numbers.push(tx.commit().unwrap());
    }
    let later = store.keyspace_with("later", Retention::All).unwrap();
    assert!(matches!(store.keep(numbers[7], "seven").unwrap_err(), Error::SnapshotGone { .. }));
    store.drop_keyspace("later").unwrap();
    drop(later);
    store.keep(numbers[7], "seven").unwrap();
    assert!(store.keep_number(numbers[9]).unwrap());
    store.keep(before, "before").unwrap();
    let future = numbers[19] + 1;
    assert!(matches!(store.keep(future, "future").unwrap_err(), Error::SnapshotGone { .. }));
    // From here on it is the keeping that holds them.
    for keyspace in [&all, &window] {
        store.set_retention(keyspace, Retention::None).unwrap();
    }
    collect_all(&store);
    assert!(matches!(store.keep(numbers[8], "eight").unwrap_err(), Error::SnapshotGone { .. }));
    for keyspace in [&all, &window] {
        let get = |name: &str| store.at_name(name).unwrap().get(keyspace, "key").unwrap();
        assert_eq!((get("seven"), get("before")), (Some(vec![7; 50]), None));
        assert_eq!(store.at(numbers[9]).unwrap().get(keyspace, "key").unwrap(), None);
        assert_eq!(store.versions(keyspace, "key").unwrap().len(), 3, "7, 9 and the last one");
    }
    store.check(&mut store.pool().marks().unwrap()).unwrap();
}

#[test]
fn a_snapshot_that_is_only_retained_is_not_kept_and_not_taken_for_a_whole_one() {
    let store = store();
    let [all, none] = [("all", Retention::All), ("none", Retention::None)]
        .map(|(name, retention)| store.keyspace_with(name, retention).unwrap());
    let mut numbers = Vec::new();
    for i in 0..20u64 {
        let mut tx = store.begin();
        for key in 0..4u8 {
            tx.put(&all, [key], i.to_be_bytes()).unwrap();
            // Values in blocks, which are freed, and short ones, which are overwritten.
            tx.put(&none, [key], vec![i as u8; 8 + usize::from(key % 2) * 50]).unwrap();
        }
        numbers.push(tx.commit().unwrap());
    }
    let whole = store.at(numbers[19]).unwrap();
    assert!(whole.get(&none, [0]).unwrap().is_some(), "the current one is whole");
    collect_all(&store);
    let old = numbers[7];
    let opened = store.at(old).unwrap();
    let clone = opened.clone();
    for at in [&opened, &clone, &store.at(old).unwrap(), &store.at(old).unwrap()] {
        assert!(
            matches!(store.keep(old, "old").unwrap_err(), Error::SnapshotGone { number, .. } if number == old)
        );
        assert!(matches!(store.keep_number(old).unwrap_err(), Error::SnapshotGone { .. }));
        for key in 0..4u8 {
            assert_eq!(at.get(&all, [key]).unwrap().unwrap(), 7u64.to_be_bytes());
            match at.get(&none, [key]) {
                Err(Error::NotRetained { number, keyspace }) if number == old && keyspace == "none" => {}
                other => panic!("a snapshot that lacks versions gave {other:?}"),
            }
        }
        assert!(matches!(at.iter(&none).unwrap_err(), Error::NotRetained { .. }));
        assert_eq!(at.iter(&all).unwrap().count(), 4);
        assert!(matches!(store.changes(at, &whole, &none).unwrap_err(), Error::NotRetained { .. }));
        assert_eq!(store.changes(at, &whole, &all).unwrap().count(), 4);
        let mut tx = store.begin_at(at).unwrap();
        assert!(matches!(tx.get(&none, [0]).unwrap_err(), Error::NotRetained { .. }));
    }
    // One that somebody has held since it was current is whole, also when it is opened once more.
    store.put(&none, [0], "next").unwrap();
    let again = store.at(numbers[19]).unwrap();
    store.keep(numbers[19], "nineteen").unwrap();
    drop((whole, opened, clone));
    collect_all(&store);
    assert_eq!(again.get(&none, [1]).unwrap().unwrap(), vec![19; 58]);
    drop(again);
    assert_eq!(store.at_name("nineteen").unwrap().get(&none, [0]).unwrap().unwrap(), vec![19; 8]);
    assert!(matches!(store.at(old).unwrap().get(&none, [0]).unwrap_err(), Error::NotRetained { .. }));
    prove(&store);
}

/// A snapshot that somebody has open may lack versions, if nobody needed it before: it is not whole for the
/// next one who asks.
#[test]
fn a_snapshot_that_is_open_in_part_is_not_taken_for_a_whole_one() {
    let store = store();
    let all = store.keyspace_with("all", Retention::All).unwrap();
    let none = store.keyspace("none").unwrap();
    let old = store
        .transact(|tx| {
            tx.put(&all, "key", "old")?;
            tx.put(&none, "key", "old")
        })
        .unwrap()
        .1;
    (0..5).for_each(|_| _ = store.put(&none, "key", "new").unwrap());
    let open = store.at(old).unwrap();
    for part in [&open, &store.at(old).unwrap()] {
        assert_eq!(part.get(&all, "key").unwrap().as_deref(), Some(&b"old"[..]));
        assert!(matches!(part.get(&none, "key"), Err(Error::NotRetained { number, .. }) if number == old));
    }
    assert!(matches!(store.keep(old, "old"), Err(Error::SnapshotGone { number, .. }) if number == old));
    assert!(matches!(store.keep_number(old), Err(Error::SnapshotGone { .. })));
}
