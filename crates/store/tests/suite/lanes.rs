//! Threads that commit on several lanes at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};
use tembo_store::{Keyspace, Store};

const THREADS: u64 = 4;

/// Lets other threads run in the middle of each commit, after the lookups and before its words are stored.
#[derive(Debug)]
struct YieldsInFences;

impl Observer for YieldsInFences {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {
        std::thread::yield_now();
    }
}

/// A store that commits through as many lanes as there are threads.
fn store() -> Store {
    let observer = Some(Arc::new(YieldsInFences) as _);
    let region = Region::simulated(&vec![0; 16 << 20], 1 << 30, observer).unwrap();
    let geometry = Geometry { zone_chunks: 1 << 12, ..Geometry::default() };
    let store = Store::open(&Pool::create_in(region, &geometry).unwrap(), "store").unwrap();
    (1..THREADS).for_each(|_| assert!(store.add_lane().unwrap()));
    store
}

fn check(store: &Store) {
    let mut marks = store.pool().marks().unwrap();
    store.check(&mut marks).unwrap();
    marks.finish().unwrap();
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().unwrap())
}

/// A value of 8 bytes, or one that lies in a block.
fn value(key: u64, number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(if key.is_multiple_of(2) { 8 } else { 50 }, 7);
    value
}

#[test]
fn threads_that_count_lose_nothing() {
    const KEYS: u64 = 4;
    const EACH: u64 = 600;
    let store = store();
    let keyspaces = ["a", "b"].map(|name| store.keyspace(name).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, keyspaces) = (&store, &keyspaces);
            scope.spawn(move || {
                for i in 0..EACH {
                    let key = (i + thread) % KEYS;
                    let counted = store.transact(|tx| {
                        for keyspace in keyspaces {
                            let old = tx.get(keyspace, key.to_be_bytes())?;
                            let count = old.map_or(0, |old| number(&old)) + 1;
                            tx.put(keyspace, key.to_be_bytes(), value(key, count))?;
                        }
                        Ok(())
                    });
                    counted.unwrap();
                }
            });
        }
    });
    for keyspace in &keyspaces {
        let counts = store.snapshot().iter(keyspace).unwrap().map(|entry| number(&entry.unwrap().1));
        assert_eq!(counts.sum::<u64>(), THREADS * EACH);
    }
    check(&store);
}

/// Moves one from an account to another, which may be new; returns whether there was one to move.
fn transfer(store: &Store, accounts: &Keyspace, [from, to]: [u64; 2]) -> bool {
    let moved = store.transact(|tx| {
        let old = tx.get(accounts, from.to_be_bytes())?.map_or(0, |old| number(&old));
        if old == 0 || from == to {
            return Ok(false);
        }
        match old - 1 {
            0 => tx.delete(accounts, from.to_be_bytes())?,
            left => tx.put(accounts, from.to_be_bytes(), value(from, left))?,
        }
        let new = tx.get(accounts, to.to_be_bytes())?.map_or(0, |new| number(&new)) + 1;
        tx.put(accounts, to.to_be_bytes(), value(to, new))?;
        Ok(true)
    });
    moved.unwrap().0
}

#[test]
fn every_snapshot_has_the_sum_beside_insertions_deletions_and_collections() {
    const SUM: u64 = 60;
    const ACCOUNTS: u64 = 200;
    let store = store();
    let accounts = store.keyspace("accounts").unwrap();
    store.put(&accounts, 0u64.to_be_bytes(), value(0, SUM)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, accounts) = (&store, &accounts);
                scope.spawn(move || {
                    let mut state = thread + 1;
                    let mut next = || {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (state >> 33) % ACCOUNTS
                    };
                    (0..800).filter(|_| transfer(store, accounts, [next(), next()])).count();
                    (0..100).filter(|_| transfer(store, accounts, [0, next()])).count()
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut last = 0;
            while !is_over.load(Ordering::Relaxed) {
                let snapshot = store.snapshot();
                assert!(snapshot.number() >= last, "snapshots go back");
                last = snapshot.number();
                for _ in 0..2 {
                    let entries = snapshot.iter(&accounts).unwrap();
                    let sum: u64 = entries.map(|entry| number(&entry.unwrap().1)).sum();
                    assert_eq!(sum, SUM, "in snapshot {last}");
                }
                store.collect(20).unwrap();
            }
        });
        movers.into_iter().for_each(|mover| _ = mover.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    check(&store);
}

#[test]
fn a_current_value_is_never_older_than_one_that_was_read_or_put() {
    let store = store();
    let keyspace = store.keyspace("k").unwrap();
    for key in 0..2u64 {
        store.put(&keyspace, key.to_be_bytes(), value(key, 0)).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2u64)
            .map(|key| {
                let (store, keyspace, is_over) = (&store, &keyspace, &is_over);
                scope.spawn(move || {
                    let mut last = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let found =
                            store.get(keyspace, key.to_be_bytes()).unwrap().expect("it is always there");
                        assert_eq!(found, value(key, number(&found)));
                        assert!(number(&found) >= last, "key {key}: {} after {last}", number(&found));
                        last = number(&found);
                    }
                })
            })
            .collect();
        let mut held = None;
        for round in 1..1_500u64 {
            for key in 0..2u64 {
                store.put(&keyspace, key.to_be_bytes(), value(key, round)).unwrap();
                assert_eq!(number(&store.get(&keyspace, key.to_be_bytes()).unwrap().unwrap()), round);
            }
            // Slots are used again while nothing is held, and vectors are made while something is.
            if round.is_multiple_of(64) {
                held = if held.is_none() { Some(store.snapshot()) } else { None };
            }
        }
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    check(&store);
}
