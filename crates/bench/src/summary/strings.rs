//! The map for byte strings beside `BTreeMap<Vec<u8>, u64>`, with the flushes and fences of persistent memory.

use super::compare::{Contender, SCAN_LENGTH, compare};
use super::{Goal, Measurement, Row, Scale, Value, temporary_pool};
use crate::figures::Error;
use crate::workload::{Keys, Operation};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;
use tembo_index::WbTree;
use tembo_pool::{Lane, Pool};

const OTHER: &str = "BTreeMap<Vec<u8>, u64>";

pub(super) const ONE_MILLION: Measurement = Measurement {
    name: "strings-1M",
    rows: &[
        Row { name: "string-insert-1M", unit: "ns", against: OTHER, goal: Goal::AtMost(1.2) },
        Row { name: "string-lookup-1M", unit: "ns", against: OTHER, goal: Goal::AtMost(0.8) },
        Row { name: "string-scan-100-1M", unit: "ns", against: OTHER, goal: Goal::None },
        Row { name: "string-delete-1M", unit: "ns", against: OTHER, goal: Goal::None },
    ],
    run: |scale| compare_with_std(1_000_000, scale),
};

pub(super) const TWENTY_MILLION: Measurement = Measurement {
    name: "strings-20M",
    rows: &[
        Row { name: "string-insert-20M", unit: "ns", against: OTHER, goal: Goal::AtMost(1.2) },
        Row { name: "string-lookup-20M", unit: "ns", against: OTHER, goal: Goal::AtMost(0.8) },
        Row { name: "string-scan-100-20M", unit: "ns", against: OTHER, goal: Goal::None },
        Row { name: "string-delete-20M", unit: "ns", against: OTHER, goal: Goal::None },
    ],
    run: |scale| compare_with_std(20_000_000, scale),
};

pub(super) const THREADS: Measurement = Measurement {
    name: "string-threads",
    rows: &[Row {
        name: "string-lookup-2-threads",
        unit: "M/s",
        against: "one thread's rate",
        goal: Goal::AtLeast(1.85),
    }],
    run: two_threads,
};

/// The product's map, a commit for each change.
struct Ours {
    lane: Lane,
    map: WbTree,
    pool: Pool,
}

impl Ours {
    fn new() -> Result<Ours, Error> {
        let pool = temporary_pool(false)?;
        let mut lane = pool.lane()?;
        let mut tx = lane.begin();
        let map = WbTree::create(&mut tx, "summary")?;
        tx.commit()?;
        Ok(Ours { lane, map, pool })
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

impl Contender<Vec<u8>> for Ours {
    #[inline(always)]
    fn insert(&mut self, key: &Vec<u8>, value: u64) -> Result<(), Error> {
        let mut tx = self.lane.begin();
        self.map.put(&mut tx, key, &[&value.to_le_bytes()])?;
        Ok(tx.commit()?)
    }

    #[inline(always)]
    fn lookup(&self, key: &Vec<u8>) -> Result<Option<u64>, Error> {
        Ok(self.map.get_pinned(key)?.map(|value| word(&value)))
    }

    #[inline(always)]
    fn delete(&mut self, key: &Vec<u8>) -> Result<bool, Error> {
        let mut tx = self.lane.begin();
        let was_there = self.map.remove(&mut tx, key)?;
        tx.commit()?;
        Ok(was_there)
    }

    #[inline(always)]
    fn scan(&self, from: &Vec<u8>) -> Result<u64, Error> {
        let range = self.map.range::<Vec<u8>>(from..);
        range.take(SCAN_LENGTH).try_fold(0u64, |sum, entry| Ok(sum.wrapping_add(word(entry?.value()))))
    }
}

fn compare_with_std(count: usize, scale: Scale) -> Result<Vec<Value>, Error> {
    let keys = Keys::<Vec<u8>>::new(scale.of(count), 1, scale.seed);
    let mut keys = keys.loaded;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(scale.seed);
    keys.shuffle(&mut random);
    let mut others = keys.clone();
    others.shuffle(&mut random);
    let result = compare(&mut Ours::new()?, &mut BTreeMap::new(), &keys, &others)?;
    Ok(vec![result.insert, result.lookup, result.scan, result.delete])
}

/// Lookups of one thread, and of two at the same time.
fn two_threads(scale: Scale) -> Result<Vec<Value>, Error> {
    let operations = scale.of(1_000_000);
    let keys = Keys::<Vec<u8>>::new(operations, operations, scale.seed);
    let mut ours = Ours::new()?;
    keys.loaded.iter().try_for_each(|key| ours.insert(key, 1))?;
    let sought = keys.of(Operation::Search);
    let rate = |threads: usize| {
        let begin = Barrier::new(threads + 1);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    begin.wait();
                    for key in sought {
                        let value = ours.map.get_pinned(key);
                        assert!(black_box(value).is_ok_and(|value| value.is_some()), "a key is lost");
                    }
                });
            }
            begin.wait();
            Instant::now()
        })
        .elapsed()
        .as_secs_f64()
    };
    rate(1);
    let (mut one, mut two) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        one = one.min(rate(1));
        two = two.min(rate(2));
    }
    drop(ours.pool);
    let per_second = 2.0 * sought.len() as f64 / two;
    Ok(vec![Value { value: per_second / 1e6, ratio: 2.0 * one / two }])
}
