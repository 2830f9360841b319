//! Bulk loads, backups and restoring.

use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{BackupSummary, Error, Restoring, Retention, Snapshot, Store};

fn pool_of(bytes: usize) -> Pool {
    let region = Region::simulated(&vec![0; bytes], bytes as u64, None).unwrap();
    Pool::create_in(region, &Geometry::tiny()).unwrap()
}

fn store_of(bytes: usize) -> Store {
    Store::open(&pool_of(bytes), "store").unwrap()
}

/// Proves the pool whole; it may have this store and no other.
fn prove(pool: &Pool, store: Option<&Store>) {
    let mut marks = pool.marks().unwrap();
    if let Some(store) = store {
        store.check(&mut marks).unwrap();
    }
    marks.finish().unwrap();
    let names: Vec<String> = pool.roots().unwrap().into_iter().map(|root| root.name).collect();
    assert_eq!(names, store.map(|store| store.name().to_owned()).as_slice());
}

type Contents = BTreeMap<String, (Retention, BTreeMap<Vec<u8>, Vec<u8>>)>;

fn contents(store: &Store, snapshot: &Snapshot) -> Contents {
    let mut all = Contents::new();
    for name in store.keyspaces().unwrap() {
        let keyspace = store.find_keyspace(&name).unwrap().unwrap();
        let pairs = snapshot.iter(&keyspace).unwrap().map(Result::unwrap).collect();
        all.insert(name, (keyspace.retention(), pairs));
    }
    all
}

fn backup(snapshot: &Snapshot) -> Vec<u8> {
    let mut stream = Vec::new();
    snapshot.backup(&mut stream).unwrap();
    stream
}

fn backup_since(snapshot: &Snapshot, base: &Snapshot) -> Vec<u8> {
    let mut stream = Vec::new();
    snapshot.backup_since(base, &mut stream).unwrap();
    stream
}

#[test]
fn sorted_pairs_are_loaded_with_few_commits() {
    let store = store_of(8 << 20);
    let keyspace = store.keyspace("k").unwrap();
    store.put(&keyspace, 7_u32.to_be_bytes(), "before").unwrap();
    let pairs = (0..1000_u32).map(|i| (i.to_be_bytes(), i.to_string()));
    assert_eq!(store.bulk_load(&keyspace, pairs).unwrap(), 1000);
    let snapshot = store.snapshot();
    assert_eq!(snapshot.iter(&keyspace).unwrap().count(), 1000);
    assert_eq!(snapshot.get(&keyspace, 7_u32.to_be_bytes()).unwrap().unwrap(), b"7");
    // Four parts, each of them one version of its keys.
    let mut numbers: Vec<u64> =
        (0..1000_u32).map(|i| store.versions(&keyspace, i.to_be_bytes()).unwrap()[0].number).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
    // A part ends by its bytes, too.
    let mut load = store.begin_bulk_load(&store.keyspace("long").unwrap()).unwrap();
    for i in 0..3_u8 {
        load.put([i], vec![i; 300 << 10]).unwrap();
    }
    assert_eq!(load.loaded(), 2);
    drop(load);
    assert_eq!(store.snapshot().iter(&store.keyspace("long").unwrap()).unwrap().count(), 2);
    prove(store.pool(), Some(&store));
}

#[test]
fn a_bulk_load_refuses_what_is_not_sorted_and_what_others_wrote() {
    let store = store_of(8 << 20);
    let keyspace = store.keyspace("k").unwrap();
    for wrong in [["b", "a"], ["a", "a"]] {
        let error = store.bulk_load(&keyspace, wrong.map(|key| (key, "v"))).unwrap_err();
        assert!(matches!(&error, Error::NotSorted { key, loaded: 0 } if key == b"a"), "{error}");
    }
    assert_eq!(store.snapshot().iter(&keyspace).unwrap().count(), 0);
    let mut load = store.begin_bulk_load(&keyspace).unwrap();
    // After the load began, and before the part that has the key.
    store.put(&keyspace, 299_u32.to_be_bytes(), "mine").unwrap();
    for i in 0..300_u32 {
        load.put(i.to_be_bytes(), "loaded").unwrap();
    }
    let error = load.finish().unwrap_err();
    assert!(error.is_conflict() && load.loaded() == 256, "{error}");
    assert_eq!(store.get(&keyspace, 299_u32.to_be_bytes()).unwrap().unwrap(), b"mine");
    assert_eq!(store.get(&keyspace, 298_u32.to_be_bytes()).unwrap(), None);
}

/// Makes some changes of every kind.
fn change(store: &Store, rng: &mut impl Rng) {
    let names = ["a", "b", "c", "d"];
    for _ in 0..rng.random_range(1..6) {
        let name = names[rng.random_range(0..names.len())];
        match rng.random_range(0..10) {
            0 => _ = store.drop_keyspace(name).unwrap(),
            1 => {
                let keyspace = store.keyspace(name).unwrap();
                store.set_retention(&keyspace, Retention::Versions(rng.random_range(1..4))).unwrap();
            }
            _ => {
                let keyspace = store.keyspace(name).unwrap();
                let (first, count) = (rng.random_range(0..200_u32), rng.random_range(1..40));
                let bytes = if rng.random_ratio(1, 20) { 100_000 } else { rng.random_range(0..30) };
                store
                    .transact(|tx| {
                        for i in first..first + count {
                            if i % 3 == 0 {
                                tx.delete(&keyspace, i.to_be_bytes())?;
                            } else {
                                tx.put(&keyspace, i.to_be_bytes(), vec![i as u8; bytes])?;
                            }
                        }
                        Ok(())
                    })
                    .unwrap();
            }
        }
    }
}

#[test]
fn a_chain_of_differences_restores_each_snapshot() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let store = store_of(16 << 20);
        change(&store, &mut rng);
        let mut last = store.snapshot();
        let mut chain = vec![backup(&last)];
        for _ in 0..4 {
            change(&store, &mut rng);
            let next = store.snapshot();
            chain.push(backup_since(&next, &last));
            last = next;
            let expected = contents(&store, &last);
            let pool = pool_of(16 << 20);
            let restored = Store::restore(&pool, "copy", chain.iter().map(|stream| &stream[..])).unwrap();
            assert_eq!(restored.name(), "copy");
            assert_eq!(contents(&restored, &restored.snapshot()), expected);
            // It is a store as any other.
            change(&restored, &mut rng);
            prove(&pool, Some(&restored));
        }
    }
}

#[test]
fn a_backup_of_an_older_snapshot_has_its_values_and_a_difference_only_what_changed() {
    let store = store_of(8 << 20);
    let keyspace = store.keyspace("k").unwrap();
    store.bulk_load(&keyspace, (0..500_u32).map(|i| (i.to_be_bytes(), "old value"))).unwrap();
    let old = store.snapshot();
    store.put(&keyspace, 7_u32.to_be_bytes(), "new").unwrap();
    store.delete(&keyspace, 8_u32.to_be_bytes()).unwrap();
    store.put(&keyspace, 9_u32.to_be_bytes(), "old value").unwrap();
    let new = store.snapshot();
    let whole = backup(&old);
    let mut difference = Vec::new();
    let summary = new.backup_since(&old, &mut difference).unwrap();
    let BackupSummary { keyspaces, changes, .. } = summary;
    assert_eq!((keyspaces, changes), (1, 2));
    assert!(difference.len() < 200 && whole.len() > 500 * 21, "{} and {}", difference.len(), whole.len());
    let pool = pool_of(8 << 20);
    let restored = Store::restore(&pool, "old", [&whole[..]]).unwrap();
    assert_eq!(contents(&restored, &restored.snapshot()), contents(&store, &old));
    assert!(matches!(old.backup_since(&new, &mut Vec::new()), Err(Error::BackupOrder { .. })));
    let other = store_of(1 << 20);
    assert!(matches!(new.backup_since(&other.snapshot(), &mut Vec::new()), Err(Error::OtherStore { .. })));
}

#[test]
fn a_backup_is_one_snapshot_whatever_is_written_meanwhile() {
    let store = store_of(16 << 20);
    let accounts = store.keyspace("accounts").unwrap();
    store.bulk_load(&accounts, (0..100_u32).map(|i| (i.to_be_bytes(), 10_u64.to_be_bytes()))).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, accounts, is_over) = (&store, &accounts, &is_over);
        scope.spawn(move || {
            let number = |value: Option<Vec<u8>>| u64::from_be_bytes(value.unwrap().try_into().unwrap());
            for i in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (from, to) = ((i * 7 % 100_u32).to_be_bytes(), ((i * 13 + 1) % 100).to_be_bytes());
                store
                    .transact(|tx| {
                        let left = number(tx.get(accounts, from)?);
                        if left > 0 && from != to {
                            tx.put(accounts, from, (left - 1).to_be_bytes())?;
                            let there = number(tx.get(accounts, to)?);
                            tx.put(accounts, to, (there + 1).to_be_bytes())?;
                        }
                        Ok(())
                    })
                    .unwrap();
            }
        });
        let mut streams = Vec::new();
        let mut last: Option<Snapshot> = None;
        for _ in 0..10 {
            let next = store.snapshot();
            let mut stream = Vec::new();
            // As slowly as a network.
            match &last {
                None => next.backup(Slow(&mut stream)).unwrap(),
                Some(last) => next.backup_since(last, Slow(&mut stream)).unwrap(),
            };
            streams.push(stream);
            last = Some(next);
            let pool = pool_of(4 << 20);
            let copy = Store::restore(&pool, "copy", streams.iter().map(|stream| &stream[..])).unwrap();
            let total: u64 = copy
                .snapshot()
                .iter(&copy.keyspace("accounts").unwrap())
                .unwrap()
                .map(|pair| u64::from_be_bytes(pair.unwrap().1.try_into().unwrap()))
                .sum();
            assert_eq!(total, 1000);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

struct Slow<'v>(&'v mut Vec<u8>);

impl Write for Slow<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        std::thread::sleep(Duration::from_micros(200));
        let part = &bytes[..bytes.len().min(4096)];
        self.0.write(part)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A whole backup, and a difference that has a deletion, a dropped keyspace and a new one.
fn small_chain() -> (Vec<u8>, Vec<u8>) {
    let store = store_of(1 << 20);
    let (a, b) = (store.keyspace("a").unwrap(), store.keyspace("b").unwrap());
    store.put(&a, "k1", "v1").unwrap();
    store.put(&a, "k2", vec![9; 40]).unwrap();
    store.put(&b, "x", "").unwrap();
    let old = store.snapshot();
    let whole = backup(&old);
    store.delete(&a, "k1").unwrap();
    store.drop_keyspace("b").unwrap();
    store.put(&store.keyspace("c").unwrap(), "y", "z").unwrap();
    let difference = backup_since(&store.snapshot(), &old);
    (whole, difference)
}

#[test]
fn what_is_cut_off_anywhere_is_refused_and_leaves_nothing() {
    let (whole, difference) = small_chain();
    let pool = pool_of(1 << 20);
    let restore = |streams: [&[u8]; 2]| Store::restore(&pool, "copy", streams);
    for end in 0..whole.len() {
        let error = Store::restore(&pool, "copy", [&whole[..end]]).expect_err("cut off");
        assert!(matches!(error, Error::DamagedBackup { .. }), "{end}: {error}");
        prove(&pool, None);
    }
    for end in 0..difference.len() {
        let error = restore([&whole, &difference[..end]]).expect_err("cut off");
        assert!(matches!(error, Error::DamagedBackup { .. }), "{end}: {error}");
        prove(&pool, None);
    }
    let longer = [&difference[..], b"x"].concat();
    assert!(matches!(restore([&whole, &longer]), Err(Error::DamagedBackup { .. })));
    prove(&pool, None);
    let store = restore([&whole, &difference]).unwrap();
    assert_eq!(store.keyspaces().unwrap(), ["a", "c"]);
    prove(&pool, Some(&store));
}

#[test]
fn every_damaged_byte_is_seen() {
    let (whole, _) = small_chain();
    let pool = pool_of(1 << 20);
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            let error = Store::restore(&pool, "copy", [&damaged[..]]).expect_err("damaged");
            let is_said = matches!(error, Error::DamagedBackup { .. } | Error::BackupVersion { .. });
            assert!(is_said, "{at}: {error}");
        }
        prove(&pool, None);
    }
}

#[test]
fn backups_are_taken_in_their_order_only() {
    let (whole, difference) = small_chain();
    let (other, other_difference) = small_chain();
    let pool = pool_of(1 << 20);
    let refused: [&[&[u8]]; 6] = [
        &[],
        &[&difference],
        &[&whole, &whole],
        &[&whole, &difference, &difference],
        &[&other, &difference],
        &[&whole, &other_difference],
    ];
    for (i, streams) in refused.into_iter().enumerate() {
        let error = Store::restore(&pool, "copy", streams.iter().copied()).expect_err("an order");
        assert!(matches!(error, Error::BackupOrder { .. }), "{i}: {error}");
        if !streams.is_empty() {
            prove(&pool, None);
        }
    }
    let store = Store::restore(&pool, "copy", [&whole[..], &difference]).unwrap();
    assert!(matches!(Store::restore(&pool, "copy", [&whole[..]]), Err(Error::StoreExists { .. })));
    prove(&pool, Some(&store));
}

#[test]
fn a_restore_that_was_left_behind_is_taken_over_by_the_next() {
    let (whole, difference) = small_chain();
    let pool = pool_of(1 << 20);
    let mut restoring = Restoring::begin(&pool, "copy").unwrap();
    restoring.read(&whole[..]).unwrap();
    assert!(matches!(Restoring::begin(&pool, "copy"), Err(Error::InUse { .. })));
    drop(restoring);
    assert!(pool.root("copy").unwrap().is_none());
    let store = Store::restore(&pool, "copy", [&whole[..], &difference]).unwrap();
    assert_eq!(store.keyspaces().unwrap(), ["a", "c"]);
    prove(&pool, Some(&store));
}

/// A log of commits was forgotten when the store that has it was cleared.
#[test]
fn nothing_of_a_store_with_a_log_is_left_by_the_next_restore() {
    let (whole, _) = small_chain();
    let pool = pool_of(1 << 20);
    let mut restoring = Restoring::begin(&pool, "copy").unwrap();
    restoring.read(&whole[..]).unwrap();
    drop(restoring);
    let hidden = pool.roots().unwrap().remove(0).name;
    let store = Store::open(&pool, &hidden).unwrap();
    store.set_audit(tembo_store::Audit::Commits(1000)).unwrap();
    let keyspace = store.keyspace("a").unwrap();
    (0..200_u8).for_each(|i| _ = store.put(&keyspace, [i], [i; 30]).unwrap());
    store.keep(store.snapshot().number(), "kept").unwrap();
    drop((store, keyspace));
    let mut restoring = Restoring::begin(&pool, "copy").unwrap();
    restoring.read(&whole[..]).unwrap();
    restoring.abort().unwrap();
    prove(&pool, None);
    assert_eq!(pool.roots().unwrap(), []);
    prove(&pool, Some(&Store::restore(&pool, "copy", [&whole[..]]).unwrap()));
}

#[test]
fn errors_of_readers_and_writers_and_a_full_pool_change_nothing() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the line is down"))
        }
    }
    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let store = store_of(8 << 20);
    assert!(matches!(store.snapshot().backup(Failing), Err(Error::Io { doing: "writing the backup", .. })));
    let keyspace = store.keyspace("k").unwrap();
    store.bulk_load(&keyspace, (0..5000_u32).map(|i| (i.to_be_bytes(), vec![1; 100]))).unwrap();
    let whole = backup(&store.snapshot());
    let pool = pool_of(256 << 10);
    let error = Store::restore(&pool, "copy", [&whole[..]]);
    assert!(error.is_err_and(|e| e.is_full()));
    prove(&pool, None);
    let pool = pool_of(8 << 20);
    let cut = whole[..whole.len() / 2].chain(Failing);
    let error = Store::restore(&pool, "copy", [cut]).unwrap_err();
    assert!(matches!(error, Error::Io { doing: "reading the backup", .. }), "{error}");
    prove(&pool, None);
}
