//! Readers during a commit: at each of its stores, every key has the value from before the transaction or the
//! one from after it.

use super::Bench;
use crate::WbTree;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::Pool;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The values that a reader may find while a transaction is made.
struct Expected {
    pool: Pool,
    tree: WbTree,
    before: Model,
    after: Model,
}

#[derive(Default)]
struct Reader {
    expected: Mutex<Option<Expected>>,
    failures: Mutex<Vec<String>>,
}

impl Reader {
    fn look(&self) {
        let Ok(expected) = self.expected.try_lock() else { return };
        let Some(Expected { pool, tree, before, after }) = &*expected else { return };
        let pin = pool.pin();
        let keys: BTreeSet<&Vec<u8>> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let found = tree.get(&pin, key).map(|value| value.map(<[u8]>::to_vec));
            let is_expected =
                |model: &Model| found.as_ref().is_ok_and(|found| found.as_ref() == model.get(key));
            if !is_expected(before) && !is_expected(after) {
                self.failures.lock().unwrap().push(format!(
                    "{}: {:?}",
                    key.escape_ascii(),
                    found.map(|found| found.map(|found| found.len()))
                ));
            }
        }
    }
}

impl Observer for Reader {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {
        self.look();
    }
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
}

/// Transactions of up to `changes_max` changes each. The keys are few, so that many are changed more than
/// once.
fn seen_by_readers(seed: u64, keys: u32, changes_max: u32, rounds: u32) {
    let reader = Arc::new(Reader::default());
    let mut bench =
        Bench::in_region(Region::simulated(&vec![0; 1 << 20], 1 << 28, Some(reader.clone())).unwrap());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut model = Model::new();
    for round in 0..rounds {
        let mut changes = Vec::new();
        let mut after = model.clone();
        for i in 0..rng.random_range(1..=changes_max) {
            let key = format!("key {:03}", rng.random_range(0..keys)).into_bytes();
            if rng.random_ratio(2, 3) {
                let value = format!("{round} {i}").repeat(rng.random_range(1..30)).into_bytes();
                after.insert(key.clone(), value.clone());
                changes.push((key, Some(value)));
            } else {
                after.remove(&key);
                changes.push((key, None));
            }
        }
        let (pool, tree) = (bench.pool.clone(), bench.tree.clone());
        let expected = Expected { pool, tree, before: model, after: after.clone() };
        *reader.expected.lock().unwrap() = Some(expected);
        let mut tx = bench.lane.begin();
        for (key, value) in &changes {
            match value {
                Some(value) => bench.tree.put(&mut tx, key, &[value]).unwrap(),
                None => bench.tree.remove(&mut tx, key).unwrap(),
            };
        }
        tx.commit().unwrap();
        reader.look();
        // Breaks the circle: the reader has the tree, the tree has the pool, and the pool has the reader.
        *reader.expected.lock().unwrap() = None;
        model = after;
        let failures = reader.failures.lock().unwrap();
        let changes: Vec<String> = changes
            .iter()
            .map(|(key, value)| format!("{} {}", key.escape_ascii(), value.is_some()))
            .collect();
        assert!(failures.is_empty(), "seed {seed}, round {round}, {changes:?}: {failures:?}");
    }
}

#[test]
fn at_each_store_of_a_commit_a_key_is_as_before_or_as_after() {
    (0..60).for_each(|seed| seen_by_readers(seed, 40, 7, 60));
}

#[test]
fn so_it_is_where_nodes_are_divided_and_joined_more_than_once() {
    (0..3).for_each(|seed| seen_by_readers(seed, 700, 250, 6));
}
