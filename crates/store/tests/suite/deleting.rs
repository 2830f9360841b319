//! Deleting allocates nothing, whatever snapshots hold, and the tombstones that find no slot in their tables
//! are read, followed, collected and kept as others are.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Audit, Keyspace, Retention, Snapshot, Store};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn pool_of(bytes: usize) -> Pool {
    let region = Region::simulated(&vec![0; bytes], bytes as u64, None).unwrap();
    Pool::create_in(region, &Geometry::tiny()).unwrap()
}

/// Proves the store, and returns the bytes that are allocated.
fn prove(store: &Store) -> u64 {
    let mut marks = store.pool().marks().unwrap();
    store.check(&mut marks).unwrap();
    marks.finish().unwrap().allocated_bytes
}

fn contents(snapshot: &Snapshot, keyspace: &Keyspace) -> Contents {
    snapshot.iter(keyspace).unwrap().map(Result::unwrap).collect()
}

/// A tombstone needed a vector of some 80 bytes where its table had no free slot, and a full pool refused it.
#[test]
fn every_key_of_a_full_pool_can_be_deleted_while_everything_is_held() {
    for retention in [Retention::None, Retention::All] {
        let store = Store::open(&pool_of(1 << 20), "store").unwrap();
        let k = store.keyspace_with("k", retention).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let (mut expected, mut held, mut refused, mut next) = (Contents::new(), Vec::new(), 0, 0_u32);
        // Values of many lengths, until not even the shortest finds a place.
        while refused < 200 {
            next += u32::from(rng.random_bool(0.3));
            let key = rng.random_range(0..=next).to_be_bytes();
            let value = vec![next as u8; rng.random_range(0..300 >> (refused / 25))];
            match store.put(&k, key, &value) {
                Ok(_) => _ = expected.insert(key.to_vec(), value),
                Err(e) => {
                    assert!(e.is_full(), "{e}");
                    refused += 1;
                }
            }
            if held.len() < 2000 {
                held.push(store.snapshot());
            }
        }
        let (reader, before) = (store.snapshot(), prove(&store));
        for (i, key) in expected.keys().enumerate() {
            store.delete(&k, key).unwrap_or_else(|e| panic!("{retention:?}, key {i}: {e}"));
        }
        assert!(prove(&store) <= before, "{retention:?}: nothing was allocated");
        assert!(expected.len() > 200 && contents(&reader, &k) == expected);
        assert_eq!(contents(&store.snapshot(), &k), Contents::new());
        drop((held, reader));
        store.set_retention(&k, Retention::None).unwrap();
        while store.collect(100).unwrap() {}
        assert!(prove(&store) < before / 10, "{retention:?}: the space came back");
        expected.iter().take(100).for_each(|(key, value)| _ = store.put(&k, key, value).unwrap());
        prove(&store);
    }
}

/// An entry of the log takes space, which the oldest entries give up when there is none.
#[test]
fn every_key_of_a_full_pool_can_be_deleted_while_the_log_is_on() {
    let store = Store::open(&pool_of(1 << 20), "store").unwrap();
    let k = store.keyspace_with("k", Retention::All).unwrap();
    store.set_audit(Audit::Commits(u64::MAX >> 8)).unwrap();
    let mut expected = Contents::new();
    let mut refused = 0;
    for next in 0_u32.. {
        match store.put(&k, next.to_be_bytes(), vec![7; 300 >> (refused / 25)]) {
            Ok(_) => _ = expected.insert(next.to_be_bytes().to_vec(), vec![7; 300 >> (refused / 25)]),
            Err(e) if e.is_full() => refused += 1,
            Err(e) => panic!("{e}"),
        }
        if refused == 225 {
            break;
        }
    }
    let (reader, logged) = (store.snapshot(), store.log(..).count());
    assert!(expected.len() > 500 && logged == expected.len(), "{} {logged}", expected.len());
    for (i, key) in expected.keys().enumerate() {
        let number = store.delete(&k, key).unwrap_or_else(|e| panic!("key {i}: {e}"));
        let last = store.log(..).next_back().unwrap().unwrap();
        assert_eq!((last.number, last.keys.len()), (number, 1), "its own entry is there");
    }
    // The log has every commit after the last one that it gave up.
    let after = store.logged_after().unwrap().unwrap();
    assert!(store.log(..).all(|commit| commit.unwrap().number > after));
    assert_eq!(contents(&reader, &k), expected);
    assert_eq!(contents(&store.snapshot(), &k), Contents::new());
    prove(&store);
    // Nothing is given up for a commit that puts something.
    let before = store.log(..).count();
    assert!(store.put(&k, "large", vec![0; 100_000]).unwrap_err().is_full());
    assert_eq!(store.log(..).count(), before);
}

/// A tombstone that found no slot is the last version: whoever reads meets it first, and what is added after
/// it goes into a new vector, also if a slot has become free meanwhile.
#[test]
fn a_tombstone_beside_the_slots_is_found_and_followed() {
    let store = Store::open(&pool_of(1 << 20), "store").unwrap();
    let k = store.keyspace("k").unwrap();
    let get = |snapshot: &Snapshot, key: &str| snapshot.get(&k, key).unwrap();
    for key in ["held", "free"] {
        // Both slots are needed, so the deletion finds none.
        store.put(&k, key, "1").unwrap();
        let first = store.snapshot();
        store.put(&k, key, "2").unwrap();
        let second = store.snapshot();
        let before = prove(&store);
        store.delete(&k, key).unwrap();
        assert_eq!(prove(&store), before, "there is no vector");
        let third = store.snapshot();
        assert_eq!((store.get(&k, key).unwrap(), get(&third, key)), (None, None));
        assert_eq!([&first, &second].map(|held| get(held, key).unwrap()), [b"1", b"2"]);
        if key == "free" {
            drop((first, second));
            store.put(&k, key, "3").unwrap();
        } else {
            store.put(&k, key, "3").unwrap();
            assert_eq!([&first, &second].map(|held| get(held, key).unwrap()), [b"1", b"2"]);
        }
        assert_eq!(store.get(&k, key).unwrap().as_deref(), Some(&b"3"[..]));
        assert_eq!((get(&third, key), get(&store.snapshot(), key)), (None, Some(b"3".to_vec())));
        prove(&store);
    }
}

/// Puts and deletions of few keys while snapshots come and go: each snapshot has what it had.
#[test]
fn snapshots_around_deletions_have_what_they_had() {
    const STEPS: u32 = 6000;
    let retentions = [Retention::None, Retention::Versions(3), Retention::All];
    for (seed, retention) in retentions.into_iter().enumerate() {
        let pool = pool_of(8 << 20);
        let store = Store::open(&pool, "store").unwrap();
        let k = store.keyspace_with("k", retention).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed as u64);
        let (now, held, past) = (Contents::new(), Vec::new(), BTreeMap::new());
        let mut changing = Changing { store, k, now, held, past };
        for step in 0..STEPS {
            changing.change(step, &mut rng);
            changing.hold_and_compare(&format!("{retention:?}, step {step}"), &mut rng);
            match rng.random_range(0..60) {
                0 => _ = changing.store.collect(3).unwrap(),
                1 => changing = changing.reopened(&pool),
                _ => {}
            }
            if step % 500 == 0 {
                prove(&changing.store);
            }
        }
        let Changing { store, k, held, past, .. } = changing;
        if retention == Retention::All {
            for (number, expected) in &past {
                assert_eq!(&contents(&store.at(*number).unwrap(), &k), expected, "as of {number}");
            }
        }
        drop(held);
        (0..5).for_each(|key| _ = store.delete(&k, [key]).unwrap());
        store.set_retention(&k, Retention::None).unwrap();
        while store.collect(100).unwrap() {}
        let mut marks = pool.marks().unwrap();
        assert_eq!(store.check(&mut marks).unwrap().keys, 0, "{retention:?}");
        marks.finish().unwrap();
    }
}

/// A store whose keyspace is changed, the contents that it has, and those that snapshots have.
struct Changing {
    store: Store,
    k: Keyspace,
    now: Contents,
    held: Vec<(Snapshot, Contents)>,
    /// By the number of each commit.
    past: BTreeMap<u64, Contents>,
}

impl Changing {
    /// Puts or deletes one of five keys.
    fn change(&mut self, step: u32, rng: &mut Xoshiro256PlusPlus) {
        let key = vec![rng.random_range(0..5)];
        if rng.random_bool(0.4) {
            self.store.delete(&self.k, &key).unwrap();
            self.now.remove(&key);
        } else {
            let value = vec![step as u8; rng.random_range(0..20)];
            self.store.put(&self.k, &key, &value).unwrap();
            self.now.insert(key, value);
        }
        self.past.insert(self.store.snapshot().number(), self.now.clone());
    }

    /// Holds the newest snapshot, or not, and lets some go after a comparison.
    fn hold_and_compare(&mut self, when: &str, rng: &mut Xoshiro256PlusPlus) {
        let Self { store, k, now, held, .. } = self;
        if rng.random_bool(0.4) {
            held.push((store.snapshot(), now.clone()));
        }
        while held.len() > rng.random_range(1..40) {
            let (snapshot, expected) = held.swap_remove(rng.random_range(0..held.len()));
            assert_eq!(contents(&snapshot, k), expected, "{when}");
            for key in 0..5 {
                assert_eq!(snapshot.get(k, [key]).unwrap().as_ref(), expected.get(&vec![key]));
            }
        }
        assert_eq!(contents(&store.snapshot(), k), *now, "{when}");
        (0..5).for_each(|key| assert_eq!(store.get(k, [key]).unwrap().as_ref(), now.get(&vec![key])));
    }

    fn reopened(self, pool: &Pool) -> Changing {
        let Changing { store, k, now, held, past } = self;
        drop(held);
        prove(&store);
        drop((store, k));
        let store = Store::open(pool, "store").unwrap();
        let k = store.find_keyspace("k").unwrap().unwrap();
        Changing { store, k, now, held: Vec::new(), past }
    }
}

/// Readers without a registration look at the table while it gets a tombstone, and a vector after that.
#[test]
fn current_reads_beside_deletions_see_a_value_or_none() {
    let store = Store::open(&pool_of(8 << 20), "store").unwrap();
    let k = store.keyspace("k").unwrap();
    let rounds = 3000_u64;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < rounds {
                        // Each round ends with a deletion of both, in one commit.
                        if let Some(value) = store.get(&k, "a").unwrap() {
                            let round = u64::from_be_bytes(value.try_into().unwrap());
                            assert!(round >= last, "{round} after {last}");
                            last = round;
                        }
                        let snapshot = store.snapshot();
                        let both = ["a", "b"].map(|key| snapshot.get(&k, key).unwrap());
                        assert_eq!(both[0], both[1]);
                    }
                })
            })
            .collect();
        for round in 1..rounds {
            let held: Vec<Snapshot> = (0..3)
                .map(|_| {
                    let mut tx = store.begin();
                    for key in ["a", "b"] {
                        tx.put(&k, key, round.to_be_bytes()).unwrap();
                    }
                    tx.commit().unwrap();
                    store.snapshot()
                })
                .collect();
            let mut tx = store.begin();
            for key in ["a", "b"] {
                tx.delete(&k, key).unwrap();
            }
            tx.commit().unwrap();
            assert!(held.iter().all(|held| held.get(&k, "a").unwrap().unwrap() == round.to_be_bytes()));
        }
        let mut tx = store.begin();
        for key in ["a", "b"] {
            tx.put(&k, key, rounds.to_be_bytes()).unwrap();
        }
        tx.commit().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    prove(&store);
}
