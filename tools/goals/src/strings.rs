//! The map for byte strings against `BTreeMap<Vec<u8>, u64>`, with the flushes and fences of persistent
//! memory.

use crate::Error;
use crate::comparison::{Contender, SCAN_LENGTH, compare};
use crate::goals::{Goal, Measurement, Row, Scale, Value, seconds, temporary_pool};
use crate::workload::Keys;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::hint::black_box;
use tembo_index::{WbTree, Writers};
use tembo_pool::{Lane, Pool};

const OTHER: &str = "BTreeMap<Vec<u8>, u64>";

pub(crate) const ONE_MILLION: Measurement = Measurement {
    name: "strings-1M",
    rows: &[
        Row { name: "string-insert-1M", unit: "ns", against: OTHER, goal: Goal::AtMost(1.2) },
        Row { name: "string-lookup-1M", unit: "ns", against: OTHER, goal: Goal::AtMost(0.8) },
        Row { name: "string-scan-100-1M", unit: "ns", against: OTHER, goal: Goal::None },
        Row { name: "string-delete-1M", unit: "ns", against: OTHER, goal: Goal::None },
    ],
    run: |scale| compare_with_std(1_000_000, scale),
};

pub(crate) const TWENTY_MILLION: Measurement = Measurement {
    name: "strings-20M",
    rows: &[
        Row { name: "string-insert-20M", unit: "ns", against: OTHER, goal: Goal::AtMost(1.2) },
        Row { name: "string-lookup-20M", unit: "ns", against: OTHER, goal: Goal::AtMost(0.8) },
        Row { name: "string-scan-100-20M", unit: "ns", against: OTHER, goal: Goal::None },
        Row { name: "string-delete-20M", unit: "ns", against: OTHER, goal: Goal::None },
    ],
    run: |scale| compare_with_std(20_000_000, scale),
};

pub(crate) const THREADS: Measurement = Measurement {
    name: "string-threads",
    rows: &[
        Row {
            name: "string-insert-2-threads",
            unit: "M/s",
            against: "one thread's rate",
            goal: Goal::AtLeast(1.7),
        },
        Row {
            name: "string-lookup-2-threads",
            unit: "M/s",
            against: "one thread's rate",
            goal: Goal::AtLeast(1.85),
        },
    ],
    run: two_threads,
};

/// The product's map, a commit for each change.
struct Ours {
    lane: Lane,
    map: WbTree,
    /// Where all of it lies.
    _pool: Pool,
}

impl Ours {
    fn new() -> Result<Ours, Error> {
        let pool = temporary_pool(false)?;
        let mut lane = pool.lane()?;
        let mut tx = lane.begin();
        let map = WbTree::create(&mut tx, "summary")?;
        tx.commit()?;
        Ok(Ours { lane, map, _pool: pool })
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

fn shuffled_keys(count: usize, scale: Scale) -> Vec<Vec<u8>> {
    let mut keys = Keys::<Vec<u8>>::new(scale.of(count), 1, scale.seed).loaded;
    keys.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(scale.seed));
    keys
}

fn compare_with_std(count: usize, scale: Scale) -> Result<Vec<Value>, Error> {
    let keys = shuffled_keys(count, scale);
    let mut others = keys.clone();
    others.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(scale.seed + 1));
    let result = compare(&mut Ours::new()?, &mut BTreeMap::new(), &keys, &others)?;
    Ok(vec![result.insert, result.lookup, result.scan, result.delete])
}

/// Insertions and lookups of one thread, and of two at the same time with half of the keys each; a commit for
/// each insertion.
fn two_threads(scale: Scale) -> Result<Vec<Value>, Error> {
    const ROUNDS: usize = 3;
    let keys = shuffled_keys(1_000_000, scale);
    let mut best = [[f64::INFINITY; 2]; 2];
    for _ in 0..ROUNDS {
        for threads in [1, 2] {
            let pool = temporary_pool(false)?;
            let writers = Writers::new(pool.lane()?);
            (1..threads).try_for_each(|_| writers.add().map(drop))?;
            let mut tx = writers.begin();
            let map = WbTree::create(&mut tx, "summary")?;
            tx.commit()?;
            let insert = seconds(threads, &keys, &|key| {
                assert!(
                    map.concurrent(&writers).put(key, &[&1_u64.to_le_bytes()]).is_ok(),
                    "an insertion failed"
                );
            });
            let lookup = seconds(threads, &keys, &|key| {
                let value = map.get_pinned(key);
                assert!(black_box(value).is_ok_and(|value| value.is_some()), "a key is lost");
            });
            let best = &mut best[threads - 1];
            *best = [best[0].min(insert), best[1].min(lookup)];
        }
    }
    let value = |work: usize| Value {
        value: keys.len() as f64 / best[1][work] / 1e6,
        ratio: best[0][work] / best[1][work],
    };
    Ok(vec![value(0), value(1)])
}
