//! Bad input: whatever a program asks for, and whatever the words of a pool are, the store answers with
//! data or with a typed error, loses nothing, and goes on.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use tembo_index::WbTree;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Error, Keyspace, Retention, Snapshot, Store};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn pool_of(bytes: usize) -> Pool {
    let region = Region::simulated(&vec![0; bytes], bytes as u64, None).unwrap();
    Pool::create_in(region, &Geometry::tiny()).unwrap()
}

fn store_of(bytes: usize) -> Store {
    Store::open(&pool_of(bytes), "store").unwrap()
}

fn prove(store: &Store) {
    let mut marks = store.pool().marks().unwrap();
    store.check(&mut marks).unwrap();
    marks.finish().unwrap();
}

fn contents(store: &Store, keyspace: &Keyspace) -> Contents {
    store.snapshot().iter(keyspace).unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_key_over_the_limit_is_refused_where_it_is_given() {
    let store = store_of(4 << 20);
    let k = store.keyspace("k").unwrap();
    let (longest, too_long) = (vec![7; 65_536], vec![7; 65_537]);
    let refused = |e: Error| match e {
        Error::Index(tembo_index::Error::KeyTooLong { bytes: 65_537, max_bytes: 65_536 }) => {}
        other => panic!("{other}"),
    };
    let mut tx = store.begin();
    tx.put(&k, "before", "1").unwrap();
    tx.put(&k, longest.clone(), "2").unwrap();
    refused(tx.put(&k, too_long.clone(), "3").unwrap_err());
    refused(tx.delete(&k, too_long.clone()).unwrap_err());
    refused(tx.insert(&k, too_long.clone(), "3").unwrap_err());
    refused(store.put(&k, &too_long, "3").unwrap_err());
    refused(store.delete(&k, &too_long).unwrap_err());
    tx.commit().unwrap();
    assert_eq!(contents(&store, &k).len(), 2, "the rest of the transaction is as it was");
    assert_eq!(store.get(&k, &longest).unwrap().as_deref(), Some(b"2".as_slice()));
    // A key that no value can have has none.
    assert_eq!(store.get(&k, &too_long).unwrap(), None);
    assert!(store.versions(&k, &too_long).unwrap().is_empty());
    let mut tx = store.begin_serializable();
    assert_eq!(tx.get(&k, &too_long).unwrap(), None);
    assert_eq!(tx.range(&k, too_long.clone()..).unwrap().count(), 1, "what lies behind it");
    tx.put(&k, "after", "4").unwrap();
    tx.commit().unwrap();
    prove(&store);
}

#[test]
fn a_value_over_the_limit_is_refused_where_it_is_given() {
    let store = store_of(1 << 20);
    let k = store.keyspace("k").unwrap();
    let max_bytes = tembo_index::MAX_VALUE_BYTES;
    let mut tx = store.begin();
    tx.put(&k, "before", "1").unwrap();
    // Pages of zeros that nobody touches.
    match tx.put(&k, "large", vec![0; max_bytes as usize + 1]).unwrap_err() {
        Error::Index(tembo_index::Error::ValueTooLong { bytes, .. }) => assert_eq!(bytes, max_bytes + 1),
        other => panic!("{other}"),
    }
    tx.commit().unwrap();
    // One that the pool has no room for is refused by the commit, and whoever is in its group is not.
    store.put(&k, "filler", vec![1; 300 << 10]).unwrap();
    let (mut large, mut small) = (store.begin(), store.begin());
    large.put(&k, "large", vec![1; 900 << 10]).unwrap();
    large.put(&k, "beside it", "2").unwrap();
    small.put(&k, "small", "3").unwrap();
    let (large, small) = (large.commit_async(), small.commit_async());
    small.wait().unwrap();
    let full = large.wait().unwrap_err();
    assert!(full.is_full(), "{full}");
    let keys: Vec<_> = contents(&store, &k).into_keys().collect();
    assert_eq!(keys, ["before", "filler", "small"].map(|key| key.as_bytes().to_vec()));
    prove(&store);
}

#[test]
fn names_over_the_limit_are_refused() {
    let store = store_of(1 << 20);
    for name in [String::new(), "x".repeat(257)] {
        let refused = |e: Error| assert!(matches!(e, Error::Name { max_bytes: 256, .. }), "{e}");
        refused(store.keyspace(&name).unwrap_err());
        refused(store.keep(store.snapshot().number(), &name).unwrap_err());
        assert!(matches!(store.at_name(&name).unwrap_err(), Error::NoSuchSnapshot { .. }));
        assert!(matches!(store.delete_kept(&name).unwrap_err(), Error::NoSuchSnapshot { .. }));
        assert!(!store.drop_keyspace(&name).unwrap());
    }
    store.keyspace(&"x".repeat(256)).unwrap();
    store.keep(store.snapshot().number(), &"x".repeat(256)).unwrap();
    prove(&store);
}

/// Puts the same into both keyspaces until 20 transactions were refused; what was acknowledged,
/// and the number of those.
fn fill(store: &Store, [a, b]: [&Keyspace; 2], thread: u8) -> (Contents, usize) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(thread.into());
    let mut mine = Contents::new();
    let mut failures = 0;
    while failures < 20 {
        let key = vec![thread, rng.random_range(0..120)];
        let value = vec![thread; rng.random_range(0..1200)];
        let mut tx = store.begin();
        tx.put(a, key.clone(), value.clone()).unwrap();
        tx.put(b, key.clone(), value.clone()).unwrap();
        let outcome = if rng.random() { tx.commit() } else { tx.commit_async().wait() };
        match outcome {
            Ok(_) => _ = mine.insert(key, value),
            Err(e) => {
                assert!(e.is_full() || matches!(e, Error::Group { .. }), "{e}");
                failures += 1;
            }
        }
    }
    (mine, failures)
}

/// Threads fill a pool in which a snapshot is kept: what was acknowledged is there, what was refused is not,
/// deleting works, and after the snapshot went there is room again.
#[test]
fn a_pool_that_fills_up_under_several_threads_loses_nothing() {
    let store = store_of(1 << 20);
    let [a, b] = ["a", "b"].map(|name| store.keyspace(name).unwrap());
    store.put(&a, "first", vec![1; 900]).unwrap();
    store.keep(store.snapshot().number(), "kept").unwrap();
    let (mut of_threads, mut refused) = (Contents::new(), 0);
    std::thread::scope(|scope| {
        let (store, a, b) = (&store, &a, &b);
        let threads = [0, 1, 2, 3].map(|thread| scope.spawn(move || fill(store, [a, b], thread)));
        for thread in threads {
            let (mine, failures) = thread.join().unwrap();
            of_threads.extend(mine);
            refused += failures;
        }
    });
    assert_eq!(refused, 80);
    let mut in_a = of_threads.clone();
    in_a.insert(b"first".to_vec(), vec![1; 900]);
    assert!(contents(&store, &a) == in_a && contents(&store, &b) == of_threads);
    prove(&store);
    // Half of it goes. While a reader holds what is deleted, nothing comes back, and nothing is needed.
    let reader = store.snapshot();
    let all: Vec<Vec<u8>> = of_threads.into_keys().collect();
    let delete = |key: &Vec<u8>| {
        let mut tx = store.begin();
        tx.delete(&a, key.clone())?;
        tx.delete(&b, key.clone())?;
        tx.commit().map(drop)
    };
    for (i, key) in all.iter().enumerate().step_by(2) {
        delete(key).unwrap_or_else(|e| panic!("key {i}: {e}"));
    }
    let seen: Contents = reader.iter(&a).unwrap().map(Result::unwrap).collect();
    assert!(seen == in_a, "the reader's snapshot is as it was");
    drop(reader);
    store.delete_kept("kept").unwrap();
    while store.collect(100).unwrap() {}
    prove(&store);
    let fitting = put_back(&store, &a, &in_a, &all);
    assert_eq!(contents(&store, &a).len(), all.len() / 2 + fitting + 1, "and the first");
    prove(&store);
}

/// There is room again, if not for all of it: blocks of other sizes lie scattered between what is left.
fn put_back(store: &Store, keyspace: &Keyspace, old: &Contents, keys: &[Vec<u8>]) -> usize {
    let mut fitting = 0;
    for key in keys.iter().step_by(8) {
        match store.put(keyspace, key, &old[key]) {
            Ok(_) => fitting += 1,
            Err(e) => assert!(e.is_full(), "{e}"),
        }
    }
    assert!(fitting > keys.len() / 8 / 2, "{fitting} of {}", keys.len() / 8);
    fitting
}

#[test]
fn a_snapshot_that_is_gone_is_a_typed_error() {
    let store = store_of(1 << 20);
    let k = store.keyspace("k").unwrap();
    let old = store.put(&k, "a", "1").unwrap();
    let current = store.put(&k, "a", "2").unwrap();
    while store.collect(100).unwrap() {}
    match store.keep(old, "late").unwrap_err() {
        Error::SnapshotGone { number, current: found } => assert_eq!((number, found), (old, current)),
        other => panic!("{other}"),
    }
    assert!(matches!(store.keep_number(old).unwrap_err(), Error::SnapshotGone { .. }));
    for number in [current + 1, u64::MAX] {
        assert!(matches!(store.at(number).unwrap_err(), Error::SnapshotGone { .. }));
        assert!(matches!(store.keep_number(number).unwrap_err(), Error::SnapshotGone { .. }));
    }
    assert!(!store.delete_number(old).unwrap());
    let at = store.at(old).unwrap();
    let gone = |e: Error| match e {
        Error::NotRetained { number, keyspace } => assert_eq!((number, keyspace.as_str()), (old, "k")),
        other => panic!("{other}"),
    };
    gone(at.get(&k, "a").unwrap_err());
    gone(at.iter(&k).unwrap_err());
    let mut tx = store.begin_at(&at).unwrap();
    gone(tx.get(&k, "a").unwrap_err());
    gone(tx.put(&k, "a", "3").unwrap_err());
    gone(tx.delete(&k, "a").unwrap_err());
    gone(tx.range::<&str>(&k, ..).unwrap_err());
    gone(tx.delete_range::<&str>(&k, ..).unwrap_err());
    assert_eq!(tx.commit().unwrap(), old, "it has done nothing");
    // Before the first commit there was nothing, and that is not retained either.
    let first = store.at_time(SystemTime::UNIX_EPOCH).unwrap();
    assert!(matches!(first.get(&k, "a").unwrap_err(), Error::NotRetained { .. }));
    let far = SystemTime::now() + Duration::from_secs(1 << 33);
    assert_eq!(store.at_time(far).unwrap().number(), current);
    assert_eq!(store.get(&k, "a").unwrap().as_deref(), Some(b"2".as_slice()));
}

#[test]
fn a_keyspace_of_another_store_is_refused_by_every_call() {
    let pool = pool_of(2 << 20);
    let (store, other) = (Store::open(&pool, "one").unwrap(), Store::open(&pool, "two").unwrap());
    let k = other.keyspace("k").unwrap();
    store.keyspace("k").unwrap();
    let refused = |e: Error| match e {
        Error::OtherStore { name } => assert_eq!(name, "k"),
        e => panic!("{e}"),
    };
    let mut tx = store.begin();
    refused(tx.get(&k, "a").unwrap_err());
    refused(tx.put(&k, "a", "1").unwrap_err());
    refused(tx.delete(&k, "a").unwrap_err());
    refused(tx.insert(&k, "a", "1").unwrap_err());
    refused(tx.compare_and_swap(&k, "a", None, Some(b"1")).unwrap_err());
    refused(tx.range::<&str>(&k, ..).unwrap_err());
    refused(tx.delete_range::<&str>(&k, ..).unwrap_err());
    refused(store.snapshot().get(&k, "a").unwrap_err());
    refused(store.snapshot().iter(&k).unwrap_err());
    refused(store.versions(&k, "a").unwrap_err());
    refused(store.set_retention(&k, Retention::All).unwrap_err());
    refused(store.put(&k, "a", "1").unwrap_err());
    // The handle of a store that was closed is no handle of the one that is opened after it.
    drop((tx, other));
    let again = Store::open(&pool, "two").unwrap();
    refused(again.get(&k, "a").unwrap_err());
    assert!(again.find_keyspace("k").unwrap().is_some());
}

#[test]
fn a_root_of_another_kind_is_named_and_left_alone() {
    let pool = pool_of(1 << 20);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    WbTree::create(&mut tx, "map").unwrap();
    tx.commit().unwrap();
    let error = Store::open(&pool, "map").unwrap_err();
    assert!(matches!(&error, Error::Pool(e) if matches!(e.kind(), tembo_pool::ErrorKind::RootKind { .. })));
    assert!(error.to_string().contains("map"), "{error}");
    let store = Store::open(&pool, "store").unwrap();
    assert!(matches!(Store::open(&pool, "store").unwrap_err(), Error::InUse { .. }));
    // Whoever holds a snapshot, a transaction or a commit has the store open.
    let k = store.keyspace("k").unwrap();
    let mut tx = store.begin();
    tx.put(&k, "a", "1").unwrap();
    drop((store, k));
    assert!(matches!(Store::open(&pool, "store").unwrap_err(), Error::InUse { .. }));
    let commit = tx.commit_async();
    assert!(matches!(Store::open(&pool, "store").unwrap_err(), Error::InUse { .. }));
    drop(commit);
    let store = Store::open(&pool, "store").unwrap();
    let k = store.keyspace("k").unwrap();
    assert!(store.get(&k, "a").unwrap().is_some(), "it was committed when the store was closed");
    assert!(WbTree::open(&pool, "store").is_err(), "a store is no map");
}

/// A pool with all that a store has: inline values and blocks, vectors, tombstones, collected versions, kept
/// snapshots, retained keyspaces, and one that is being freed.
fn image() -> Vec<u8> {
    const BYTES: usize = 384 << 10;
    let region = Region::simulated(&vec![0; BYTES], BYTES as u64, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let store = Store::open(&pool, "store").unwrap();
    let plain = store.keyspace("plain").unwrap();
    let all = store.keyspace_with("all", Retention::All).unwrap();
    let few = store.keyspace_with("few", Retention::Versions(3)).unwrap();
    let gone = store.keyspace("gone").unwrap();
    for i in 0..240u64 {
        let mut tx = store.begin();
        tx.put(&plain, key(i * 7 % 90), vec![i as u8; (i as usize * 5) % 70]).unwrap();
        tx.put(&all, key(i % 12), vec![i as u8; i as usize % 24]).unwrap();
        tx.put(&few, key(i % 20), i.to_be_bytes()).unwrap();
        if i % 3 == 0 {
            tx.put(&gone, key(i), "gone").unwrap();
            tx.delete(&all, key((i + 5) % 12)).unwrap();
        }
        let number = tx.commit().unwrap();
        match i {
            60 => store.keep(number, "sixty").unwrap(),
            120 => assert!(store.keep_number(number).unwrap()),
            _ => {}
        }
    }
    store.put(&plain, "large", vec![9; 5000]).unwrap();
    (0..30).for_each(|i| _ = store.delete(&plain, key(i)).unwrap());
    store.drop_keyspace("gone").unwrap();
    let _ = store.collect(10).unwrap();
    prove(&store);
    drop((plain, all, few, gone, store));
    let mut image = vec![0; BYTES];
    let words = pool.region().words(0, BYTES as u64 / 8).unwrap();
    for (bytes, word) in image.chunks_exact_mut(8).zip(words.iter()) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    image
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:04}").into_bytes()
}

/// Does everything that a store does; returns how many calls failed.
fn use_store(image: &[u8]) -> Result<usize, Error> {
    let pool = Pool::open_in(Region::simulated(image, image.len() as u64, None).unwrap())?;
    let store = Store::open(&pool, "store")?;
    let mut failures = 0;
    let mut note = |outcome: Result<(), Error>| failures += usize::from(outcome.is_err());
    let check = |store: &Store| {
        let mut marks = pool.marks()?;
        store.check(&mut marks)?;
        Ok(marks.finish().map(drop)?)
    };
    note(check(&store));
    let kept = store.kept().unwrap_or_default();
    let mut snapshots = vec![store.snapshot()];
    snapshots.extend(kept.iter().filter_map(|kept| store.at(kept.number).ok()));
    snapshots.extend(store.at_name("sixty").ok());
    for name in ["plain", "all", "few", "gone"] {
        match store.find_keyspace(name) {
            Ok(Some(keyspace)) => use_keyspace(&store, &keyspace, &snapshots, &mut note),
            Ok(None) => {}
            Err(e) => note(Err(e)),
        }
    }
    for snapshot in &snapshots[1..] {
        if let (Ok(mut tx), Ok(Some(keyspace))) = (store.begin_at(snapshot), store.find_keyspace("plain")) {
            note(tx.put(&keyspace, key(2), "old").and_then(|()| match tx.commit() {
                Err(e) if !e.is_conflict() => Err(e),
                _ => Ok(()),
            }));
        }
    }
    snapshots.clear();
    note(store.keep(store.snapshot().number(), "new"));
    note(store.delete_kept("sixty"));
    (0..50).for_each(|_| note(store.collect(20).map(drop)));
    note(store.drop_keyspace("plain").map(drop));
    (0..20).for_each(|_| note(store.collect(20).map(drop)));
    note(store.keyspace("plain").map(drop));
    note(check(&store));
    Ok(failures)
}

/// Reads a keyspace in each snapshot, changes it, and shortens its history.
fn use_keyspace(
    store: &Store,
    keyspace: &Keyspace,
    snapshots: &[Snapshot],
    note: &mut impl FnMut(Result<(), Error>),
) {
    for snapshot in snapshots {
        // A range of leaves ends somewhere even if its nodes are shared in wrong ways.
        let walk = |back: bool| -> Result<(), Error> {
            let entries = snapshot.iter(keyspace)?;
            match back {
                false => entries.take(2000).try_for_each(|entry| entry.map(drop)),
                true => entries.rev().take(2000).try_for_each(|entry| entry.map(drop)),
            }
        };
        note(walk(false));
        note(walk(true));
        (0..20).for_each(|i| note(snapshot.get(keyspace, key(i * 4)).map(drop)));
    }
    (0..20).for_each(|i| note(store.versions(keyspace, key(i)).map(drop)));
    for i in 0..12u64 {
        let value = vec![7; [3, 30, 300][i as usize % 3]];
        let mut tx = if i % 4 == 0 { store.begin_serializable() } else { store.begin() };
        let steps = tx.get(keyspace, key(i)).map(drop).and_then(|()| {
            tx.put(keyspace, key(i * 3), value)?;
            tx.delete(keyspace, key(i * 5))?;
            tx.delete_range(keyspace, key(60)..key(62)).map(drop)
        });
        note(steps.and_then(|()| tx.commit().map(drop)));
    }
    note(store.set_retention(keyspace, Retention::Versions(1)));
}

#[test]
fn a_damaged_store_gives_errors_and_nothing_worse() {
    let image = image();
    assert_eq!(use_store(&image).unwrap(), 0);
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (rounds, first_seed) = (number("DAMAGES").unwrap_or(2000), number("SEED").unwrap_or(0));
    // The pool's own structures are for its own tests.
    let first = 32 << 10;
    let used: Vec<usize> =
        (first..image.len()).step_by(8).filter(|off| image[*off..off + 8] != [0; 8]).collect();
    let (mut refused, mut failing) = (0, 0);
    for seed in first_seed..first_seed + rounds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut damaged = image.clone();
        for _ in 0..[1, 1, 2, 5, 20][rng.random_range(0..5)] {
            let off = used[rng.random_range(0..used.len())];
            let old = u64::from_ne_bytes(*damaged[off..].first_chunk().unwrap());
            let other = used[rng.random_range(0..used.len())];
            let new = match rng.random_range(0..7) {
                0 => old ^ 1 << rng.random_range(0..64),
                1 => u64::MAX - rng.random_range(0..3),
                2 => u64::from_ne_bytes(*image[other..].first_chunk().unwrap()),
                3 => rng.random_range(0..200),
                4 => rng.random_range(0..image.len() as u64) & !15,
                5 => old & !(0xFF << (8 * rng.random_range(0..8))),
                _ => rng.random(),
            };
            damaged[off..off + 8].copy_from_slice(&new.to_ne_bytes());
        }
        let outcome = std::panic::catch_unwind(|| use_store(&damaged));
        match outcome.unwrap_or_else(|_| panic!("repeat it by DAMAGES=1 SEED={seed}")) {
            Ok(failures) => failing += usize::from(failures > 0),
            Err(_) => refused += 1,
        }
    }
    println!("{rounds} damaged images: {refused} refused, {failing} with errors");
    assert!(
        rounds < 100 || failing + refused > rounds as usize / 4,
        "{refused} refused, {failing} with errors"
    );
}

/// A record's key is another than the one that its leaf has been told of.
#[test]
fn the_check_of_a_snapshot_finds_a_key_that_no_look_up_finds() {
    let store = store_of(4 << 20);
    let k = store.keyspace("k").unwrap();
    (0..100).for_each(|i| _ = store.put(&k, format!("key{i:05}"), "value").unwrap());
    let held = store.snapshot();
    store.delete(&k, "key00007").unwrap();
    let report = held.check().unwrap();
    assert_eq!((report.number, report.keyspaces, report.keys), (held.number(), 1, 100));
    assert_eq!((report.bytes, store.snapshot().check().unwrap().keys), (100 * 13, 99));
    let region = store.pool().region();
    let word = |text: &[u8; 8]| u64::from_ne_bytes(*text);
    let is_record = |off: &u64| {
        let head = region.load_u64(*off - 8).unwrap();
        region.load_u64(*off).unwrap() == word(b"key00050") && head & 0xFFFF_FFFF == 8
    };
    let off = (8..region.len()).step_by(8).find(is_record).unwrap();
    region.store_u64(off, word(b"key0005x")).unwrap();
    let damage = held.check().unwrap_err();
    assert!(matches!(&damage, Error::Pool(e) if e.is_damage()), "{damage}");
    assert!(damage.to_string().contains("look-up"), "{damage}");
}

/// Values of tens of MiB are read, kept and deleted as others are, and their space comes back.
#[test]
fn a_value_of_32_mib_is_kept_and_its_space_comes_back() {
    const BYTES: usize = 32 << 20;
    let directory = tempfile::tempdir().unwrap();
    let mut options = tembo_pool::Options::new();
    options.create = true;
    let pool = Pool::open(directory.path().join("a.pool"), &options).unwrap();
    let store = Store::open(&pool, "store").unwrap();
    let k = store.keyspace("k").unwrap();
    let allocated = || {
        let mut marks = pool.marks().unwrap();
        store.check(&mut marks).unwrap();
        marks.finish().unwrap().allocated_bytes
    };
    store.put(&k, "small", "value").unwrap();
    let before = allocated();
    let value = |seed: usize| (0..BYTES).map(|i| (i / 7 + seed) as u8).collect::<Vec<u8>>();
    store.put(&k, "large", value(1)).unwrap();
    store.keep(store.snapshot().number(), "one").unwrap();
    store.put(&k, "large", value(2)).unwrap();
    assert!(store.get(&k, "large").unwrap().unwrap() == value(2));
    assert!(store.at_name("one").unwrap().get(&k, "large").unwrap().unwrap() == value(1));
    assert!(allocated() >= before + 2 * BYTES as u64);
    store.delete(&k, "large").unwrap();
    store.delete_kept("one").unwrap();
    while store.collect(100).unwrap() {}
    assert!(allocated() < before + 1000, "{} after {before}", allocated());
    assert_eq!(store.get(&k, "large").unwrap(), None);
}
