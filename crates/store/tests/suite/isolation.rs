//! Transactions of several threads, and what their isolation promises.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Options, Pool};
use tembo_store::{Error, Keyspace, Snapshot, Store, Transaction};

fn store() -> Store {
    let region = Region::simulated(&vec![0; 64 << 20], 64 << 20, None).unwrap();
    Store::open(&Pool::create_in(region, &Geometry::default()).unwrap(), "store").unwrap()
}

fn number(tx: &mut Transaction, keyspace: &Keyspace, key: &str) -> i64 {
    let value = tx.get(keyspace, key).unwrap().unwrap();
    i64::from_le_bytes(value.try_into().unwrap())
}

fn set(tx: &mut Transaction, keyspace: &Keyspace, key: &str, value: i64) -> Result<(), Error> {
    tx.put(keyspace, key, value.to_le_bytes())
}

fn prove(store: &Store) {
    let mut marks = store.pool().marks().unwrap();
    store.check(&mut marks).unwrap();
    marks.finish().unwrap();
}

/// Two keys of 10 and 20, as in Hermitage's cases.
fn two() -> (Store, Keyspace) {
    let store = store();
    let test = store.keyspace("test").unwrap();
    let mut tx = store.begin();
    set(&mut tx, &test, "1", 10).unwrap();
    set(&mut tx, &test, "2", 20).unwrap();
    tx.commit().unwrap();
    (store, test)
}

fn all(store: &Store, keyspace: &Keyspace) -> [i64; 2] {
    let mut tx = store.begin();
    ["1", "2"].map(|key| number(&mut tx, keyspace, key))
}

#[test]
fn a_deletion_and_an_insertion_conflict_like_other_writes() {
    let (store, test) = two();
    let (mut deletes, mut writes, mut inserts, mut inserts_too) =
        (store.begin(), store.begin(), store.begin(), store.begin());
    deletes.delete(&test, "1").unwrap();
    set(&mut writes, &test, "1", 11).unwrap();
    set(&mut inserts, &test, "new", 1).unwrap();
    set(&mut inserts_too, &test, "new", 2).unwrap();
    deletes.commit().unwrap();
    assert!(writes.commit().unwrap_err().is_conflict());
    inserts.commit().unwrap();
    assert!(inserts_too.commit().unwrap_err().is_conflict());
    // The tombstone of a key that is gone is there as long as somebody is older.
    let mut older = store.begin();
    older.get(&test, "2").unwrap();
    store.transact(|tx| tx.delete(&test, "new")).unwrap();
    while store.collect(100).unwrap() {}
    set(&mut older, &test, "new", 3).unwrap();
    assert!(older.commit().unwrap_err().is_conflict());
    while store.collect(100).unwrap() {}
    prove(&store);
    let mut marks = store.pool().marks().unwrap();
    assert_eq!(store.check(&mut marks).unwrap().keys, 1, "both deleted keys are gone");
}

#[test]
fn a_transaction_at_an_old_snapshot_conflicts_with_all_that_came_since() {
    let (store, test) = two();
    let old = store.snapshot();
    store.keep(old.number(), "old").unwrap();
    store.transact(|tx| set(tx, &test, "1", 11)).unwrap();
    store.transact(|tx| tx.delete(&test, "2")).unwrap();
    // One that came and went since, and of which only the tombstone is left.
    store.put(&test, "4", "").unwrap();
    store.delete(&test, "4").unwrap();
    store.put(&test, "5", "").unwrap();
    while store.collect(100).unwrap() {}
    for key in ["1", "2", "4", "5"] {
        let mut tx = store.begin_at(&store.at_name("old").unwrap()).unwrap();
        assert_eq!(tx.get(&test, key).unwrap().is_some(), key < "4");
        set(&mut tx, &test, key, 5).unwrap();
        assert!(tx.commit().unwrap_err().is_conflict(), "{key}");
    }
    drop(old);
    while store.collect(100).unwrap() {}
    let mut tx = store.begin_at(&store.at_name("old").unwrap()).unwrap();
    set(&mut tx, &test, "4", 5).unwrap();
    assert!(tx.commit().unwrap_err().is_conflict(), "the snapshot is kept, though nobody has it open");
    let mut tx = store.begin_at(&store.at_name("old").unwrap()).unwrap();
    set(&mut tx, &test, "3", 5).unwrap();
    tx.commit().unwrap();
}

const ACCOUNTS: u64 = 20;

/// Transfers money between random accounts, and logs each transfer.
fn transfer(store: &Store, [accounts, log]: [&Keyspace; 2], thread: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(thread);
    let mut last = 0;
    for i in 0..500u64 {
        let (from, to) = (random.random_range(0..ACCOUNTS), random.random_range(0..ACCOUNTS));
        let amount = random.random_range(0..10);
        let ((), number) = store
            .transact(|tx| {
                let left = number_of(tx, accounts, from) - amount;
                set(tx, accounts, &from.to_string(), left)?;
                let more = number_of(tx, accounts, to) + amount;
                set(tx, accounts, &to.to_string(), more)?;
                tx.put(log, [thread.to_be_bytes(), i.to_be_bytes()].concat(), "done")
            })
            .unwrap();
        assert!(number > last, "numbers rise");
        last = number;
        assert!(store.snapshot().number() >= number, "what was committed is seen");
    }
}

fn sum(store: &Store, accounts: &Keyspace) -> i64 {
    let entries = store.snapshot().iter(accounts).unwrap();
    entries.map(|entry| i64::from_le_bytes(entry.unwrap().1.try_into().unwrap())).sum()
}

#[test]
fn transfers_of_many_threads_keep_the_sum_and_every_snapshot_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bank.pool");
    let mut options = Options::new();
    options.create = true;
    let pool = Pool::open(&path, &options).unwrap();
    let store = Store::open(&pool, "bank").unwrap();
    let accounts = store.keyspace("accounts").unwrap();
    let log = store.keyspace("log").unwrap();
    let fill = |tx: &mut Transaction| (0..ACCOUNTS).try_for_each(|i| set(tx, &accounts, &i.to_string(), 100));
    store.transact(fill).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, accounts, log) = (&store, &accounts, &log);
        let writers: Vec<_> =
            (0..4).map(|thread| scope.spawn(move || transfer(store, [accounts, log], thread))).collect();
        let reader = scope.spawn(|| {
            // On a busy machine the writers may be done before this thread runs at all.
            loop {
                let is_last = done.load(Ordering::Relaxed);
                assert_eq!(sum(store, accounts), 100 * ACCOUNTS as i64);
                if is_last {
                    break;
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(store.snapshot().iter(&log).unwrap().count(), 2000);
    assert_eq!(store.snapshot().iter(&log).unwrap().rev().count(), 2000);
    while store.collect(1000).unwrap() {}
    prove(&store);
    let mut marks = pool.marks().unwrap();
    let report = store.check(&mut marks).unwrap();
    assert_eq!(report.versions, 2000 + ACCOUNTS, "nothing old is left");
    let last = store.snapshot().number();
    drop((accounts, log, store));
    let store = Store::open(&pool, "bank").unwrap();
    assert_eq!(store.snapshot().number(), last);
}

fn number_of(tx: &mut Transaction, keyspace: &Keyspace, i: u64) -> i64 {
    number(tx, keyspace, &i.to_string())
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A transaction of random changes, which sees each of its own.
fn change(
    store: &Store,
    keyspace: &Keyspace,
    current: &mut Contents,
    round: u32,
    random: &mut Xoshiro256PlusPlus,
) {
    let mut tx = store.begin();
    for _ in 0..random.random_range(1..6) {
        let key = vec![random.random_range(0..30u8); random.random_range(1..4)];
        if random.random_bool(0.3) {
            tx.delete(keyspace, key.clone()).unwrap();
            current.remove(&key);
        } else {
            let value = vec![round as u8; random.random_range(0..40)];
            tx.put(keyspace, key.clone(), value.clone()).unwrap();
            current.insert(key, value);
        }
        let seen: Contents = tx.range::<Vec<u8>>(keyspace, ..).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(seen, *current, "its own writes are among what it reads");
    }
    tx.commit().unwrap();
}

/// A snapshot has the contents in both directions.
fn compare(snapshot: &Snapshot, keyspace: &Keyspace, expected: &Contents, when: &str) {
    let mut found: Vec<_> = snapshot.iter(keyspace).unwrap().map(Result::unwrap).collect();
    assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>(), "{when}");
    found.reverse();
    let back: Vec<_> = snapshot.iter(keyspace).unwrap().rev().map(Result::unwrap).collect();
    assert_eq!(back, found);
}

/// Random transactions, kept snapshots and readers, beside a model that keeps every state.
#[test]
fn every_snapshot_that_is_held_stays_as_it_was() {
    for seed in 0..20 {
        let store = store();
        let keyspace = store.keyspace("k").unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut current = Contents::new();
        let mut held = Vec::new();
        let mut kept: Vec<(String, Contents)> = Vec::new();
        for round in 0..200 {
            change(&store, &keyspace, &mut current, round, &mut random);
            match random.random_range(0..8) {
                0 => held.push((store.snapshot(), current.clone())),
                1 if !held.is_empty() => _ = held.swap_remove(random.random_range(0..held.len())),
                2 => {
                    store.keep(store.snapshot().number(), &round.to_string()).unwrap();
                    kept.push((round.to_string(), current.clone()));
                }
                3 if !kept.is_empty() => {
                    let (name, _) = kept.swap_remove(random.random_range(0..kept.len()));
                    store.delete_kept(&name).unwrap();
                }
                4 => _ = store.collect(random.random_range(1..20)).unwrap(),
                _ => {}
            }
            let when = format!("seed {seed}, round {round}");
            held.iter().for_each(|(snapshot, contents)| compare(snapshot, &keyspace, contents, &when));
            for (name, contents) in &kept {
                compare(&store.at_name(name).unwrap(), &keyspace, contents, &when);
            }
            if round % 20 == 0 {
                prove(&store);
            }
        }
        held.clear();
        kept.iter().for_each(|(name, _)| store.delete_kept(name).unwrap());
        while store.collect(1000).unwrap() {}
        let mut marks = store.pool().marks().unwrap();
        let report = store.check(&mut marks).unwrap();
        let keys = current.len() as u64;
        assert_eq!((report.keys, report.versions), (keys, keys), "seed {seed}");
    }
}

#[test]
fn serializable_transactions_have_no_write_skew() {
    let (store, test) = two();
    let (mut a, mut b) = (store.begin_serializable(), store.begin_serializable());
    for tx in [&mut a, &mut b] {
        assert_eq!((number(tx, &test, "1"), number(tx, &test, "2")), (10, 20));
    }
    set(&mut a, &test, "1", 11).unwrap();
    set(&mut b, &test, "2", 21).unwrap();
    // In one group, too.
    let (a, b) = (a.commit_async(), b.commit_async());
    assert!(b.wait().unwrap_err().is_conflict());
    a.wait().unwrap();
    assert_eq!(all(&store, &test), [11, 20]);
    // A key that is not there is read as well.
    let (mut a, mut b) = (store.begin_serializable(), store.begin_serializable());
    assert!(a.get(&test, "x").unwrap().is_none() && b.get(&test, "y").unwrap().is_none());
    set(&mut a, &test, "y", 1).unwrap();
    set(&mut b, &test, "x", 1).unwrap();
    a.commit().unwrap();
    assert!(b.commit().unwrap_err().is_conflict());
    // One that reads only is at its snapshot.
    let mut reader = store.begin_serializable();
    number(&mut reader, &test, "1");
    store.transact(|tx| set(tx, &test, "1", 12)).unwrap();
    reader.commit().unwrap();
}

#[test]
fn serializable_transactions_see_phantoms() {
    type Change = fn(&Store, &Keyspace);
    let changes: [(Change, bool); 5] = [
        (|store, test| _ = store.put(test, "15", 1i64.to_le_bytes()).unwrap(), true),
        (|store, test| _ = store.delete(test, "1").unwrap(), true),
        (
            |store, test| {
                store.put(test, "17", "").unwrap();
                store.delete(test, "17").unwrap();
                while store.collect(10).unwrap() {}
            },
            true,
        ),
        (|store, test| _ = store.put(test, "3", "").unwrap(), false),
        (|store, test| _ = store.delete(test, "16").unwrap(), false),
    ];
    for (i, (change, conflicts)) in changes.into_iter().enumerate() {
        for is_async in [false, true] {
            let (store, test) = two();
            let mut tx = store.begin_serializable();
            let count = tx.range(&test, "1".."2").unwrap().count();
            set(&mut tx, &test, "count", count as i64).unwrap();
            let outcome = if is_async {
                change(&store, &test);
                let commit = tx.commit_async();
                while store.collect(10).unwrap() {}
                commit.wait()
            } else {
                change(&store, &test);
                tx.commit()
            };
            assert_eq!(outcome.is_err_and(|e| e.is_conflict()), conflicts, "change {i}");
            prove(&store);
        }
    }
    // The phantom is in the same group, before.
    let (store, test) = two();
    let mut tx = store.begin_serializable();
    let count = tx.range(&test, "1".."2").unwrap().count();
    set(&mut tx, &test, "count", count as i64).unwrap();
    let mut other = store.begin();
    set(&mut other, &test, "15", 1).unwrap();
    let (first, second) = (other.commit_async(), tx.commit_async());
    assert!(second.wait().unwrap_err().is_conflict());
    first.wait().unwrap();
}

/// A commit that was asked for is older than the tombstones that it conflicts with, until it has been
/// decided.
#[test]
fn a_commit_that_waits_keeps_what_it_conflicts_with() {
    let (store, test) = two();
    let mut tx = store.begin();
    set(&mut tx, &test, "1", 11).unwrap();
    store.delete(&test, "1").unwrap();
    let commit = tx.commit_async();
    while store.collect(10).unwrap() {}
    assert!(commit.wait().unwrap_err().is_conflict());
    while store.collect(10).unwrap() {}
    let mut marks = store.pool().marks().unwrap();
    assert_eq!(store.check(&mut marks).unwrap().keys, 1);
}
