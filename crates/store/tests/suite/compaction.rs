//! Compaction of a store beside its readers and writers: every snapshot shows what it has shown.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_pool::{Options, Pool};
use tembo_store::{Audit, Keyspace, Snapshot, Store, StorePlace};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn new_store(dir: &tempfile::TempDir) -> Store {
    let mut options = Options::new();
    (options.create, options.initial_bytes, options.max_bytes) = (true, 1 << 20, Some(32 << 20));
    Store::open(&Pool::open(dir.path().join("compact.pool"), &options).unwrap(), "store").unwrap()
}

/// Moves everything that can be moved; returns the moved bytes and how many chunks' bytes were gained.
fn compact(store: &Store) -> (u64, u64) {
    let pool = store.pool();
    let Some(compaction) = pool.compaction().unwrap() else { panic!("a compaction is under way") };
    let before = pool.stats().unused_bytes;
    let (mut place, mut moved_bytes) = (Some(StorePlace::default()), 0);
    while let Some(at) = place {
        let step = store.compact_at(&compaction, &at).unwrap();
        (place, moved_bytes) = (step.next, moved_bytes + step.moved_bytes);
    }
    drop(compaction);
    pool.trim().unwrap();
    (moved_bytes, pool.stats().unused_bytes.saturating_sub(before))
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn value(number: u64, version: u64) -> Vec<u8> {
    vec![(number * 31 + version) as u8; 40 + (number % 90) as usize]
}

fn read(snapshot: &Snapshot, keyspace: &Keyspace) -> Contents {
    let entries: Contents = snapshot.iter(keyspace).unwrap().map(Result::unwrap).collect();
    entries.iter().for_each(|(key, value)| {
        assert_eq!(snapshot.get(keyspace, key).unwrap().as_ref(), Some(value));
    });
    entries
}

/// Commits this version of these keys, by a hundred.
fn put_all(store: &Store, keyspace: &Keyspace, keys: impl Iterator<Item = u64>, version: u64) {
    let keys: Vec<u64> = keys.collect();
    for group in keys.chunks(100) {
        let put = |number: u64, tx: &mut tembo_store::Transaction| {
            tx.put(keyspace, key(number), value(number, version))
        };
        store.transact(|tx| group.iter().try_for_each(|number| put(*number, tx))).unwrap();
    }
}

fn delete_all(store: &Store, keyspace: &Keyspace, keys: impl Iterator<Item = u64>) {
    let keys: Vec<u64> = keys.collect();
    for group in keys.chunks(100) {
        store.transact(|tx| group.iter().try_for_each(|number| tx.delete(keyspace, key(*number)))).unwrap();
    }
    while store.collect(1000).unwrap() {}
}

/// Vectors, values, tables and nodes move; a walk that has begun, a snapshot that is open, kept ones, and the
/// log show what they have shown before.
#[test]
fn every_snapshot_shows_what_it_has_shown() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(&dir);
    let keyspace = store.keyspace("keys").unwrap();
    store.set_audit(Audit::Commits(1000)).unwrap();
    put_all(&store, &keyspace, 0..20_000, 1);
    store.keep(store.snapshot().number(), "first").unwrap();
    put_all(&store, &keyspace, (0..20_000).step_by(3), 2);
    let open = store.snapshot();
    put_all(&store, &keyspace, (0..20_000).step_by(9), 3);
    put_all(&store, &keyspace, (0..20_000).step_by(9), 4);
    store.keep(store.snapshot().number(), "second").unwrap();
    delete_all(&store, &keyspace, (0..20_000).filter(|number| number % 10 != 3));
    store.delete_kept("first").unwrap();
    drop(open);
    while store.collect(1000).unwrap() {}
    store.delete_kept("second").unwrap();
    while store.collect(1000).unwrap() {}
    store.keep(store.snapshot().number(), "few").unwrap();
    put_all(&store, &keyspace, (3..20_000).step_by(20), 5);
    store.keep(store.snapshot().number(), "some").unwrap();
    let open = store.snapshot();
    put_all(&store, &keyspace, (3..20_000).step_by(40), 6);
    let all = || {
        let snapshots = [store.at_name("few").unwrap(), store.at_name("some").unwrap(), open.clone()];
        let mut all: Vec<Contents> = snapshots.iter().map(|snapshot| read(snapshot, &keyspace)).collect();
        all.push(read(&store.snapshot(), &keyspace));
        (all, store.log(..).map(Result::unwrap).count())
    };
    let before = all();
    let mut walk = open.iter(&keyspace).unwrap();
    let first: Vec<_> = walk.by_ref().take(100).map(Result::unwrap).collect();
    let (moved_bytes, gained) = compact(&store);
    println!("{moved_bytes} bytes moved, {gained} gained");
    assert!(moved_bytes > 200_000 && gained > 1 << 20, "{moved_bytes} {gained}");
    assert_eq!(all(), before);
    let rest = walk.map(Result::unwrap);
    assert!(first.into_iter().chain(rest).eq(before.0[2].clone()));
    put_all(&store, &keyspace, (3..20_000).step_by(40), 7);
    let mut marks = store.pool().marks().unwrap();
    store.check(&mut marks).unwrap();
    marks.finish().unwrap();
}

/// Threads commit, walk and get while the store is compacted again and again. A counter in each value tells
/// when a commit is lost.
#[test]
fn readers_and_writers_go_on_while_blocks_move() {
    const KEYS: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(&dir);
    let keyspace = store.keyspace("keys").unwrap();
    let long = |count: u64| [&count.to_be_bytes()[..], &[count as u8; 60]].concat();
    let counter = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().unwrap());
    (0..KEYS).for_each(|number| _ = store.put(&keyspace, key(number), long(0)).unwrap());
    let (done, commits, moved) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let is_done = || done.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, keyspace, commits, is_done) = (&store, &keyspace, &commits, &is_done);
            scope.spawn(move || {
                for i in (thread..).step_by(2).take_while(|_| !is_done()) {
                    let number = i * 7 % KEYS;
                    let add = |tx: &mut tembo_store::Transaction| {
                        let count = counter(&tx.get(keyspace, key(number))?.unwrap());
                        tx.put(keyspace, key(number), long(count + 1))
                    };
                    store.transact(add).unwrap();
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !is_done() {
                let snapshot = store.snapshot();
                let sum = |snapshot: &Snapshot| -> u64 {
                    let entries = read(snapshot, &keyspace);
                    entries.range(..key(KEYS).to_vec()).map(|(_, value)| counter(value)).sum()
                };
                assert_eq!(sum(&snapshot), sum(&snapshot));
                let value = store.get(&keyspace, key(5)).unwrap().unwrap();
                assert_eq!(value, long(counter(&value)));
            }
        });
        for round in 0..6 {
            put_all(&store, &keyspace, 1000..6000, round);
            delete_all(&store, &keyspace, (1000..6000).filter(|number| number % 12 > 0));
            moved.fetch_add(compact(&store).0, Ordering::Relaxed);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(moved.load(Ordering::Relaxed) > 100_000, "{moved:?}");
    let counted: u64 = (0..KEYS).map(|i| counter(&store.get(&keyspace, key(i)).unwrap().unwrap())).sum();
    assert_eq!(counted, commits.load(Ordering::Relaxed));
    let mut marks = store.pool().marks().unwrap();
    store.check(&mut marks).unwrap();
    marks.finish().unwrap();
}
