//! The tree of 8-byte keys against `BTreeMap<u64, u64>`, with the flushes and fences of persistent memory;
//! the cost of its changes in lines and fences; and two threads against one.

use crate::Error;
use crate::comparison::{Contender, SCAN_LENGTH, compare};
use crate::goals::{Goal, Measurement, Row, Scale, Value, seconds, temporary_pool};
use crate::workload::Keys;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::hint::black_box;
use tembo_index::U64Tree;
use tembo_pmem::{Counts, snapshot};

const OTHER: &str = "BTreeMap<u64, u64>";

pub(crate) const ONE_MILLION: Measurement = Measurement {
    name: "words-1M",
    rows: &[
        Row { name: "word-insert-1M", unit: "ns", against: OTHER, goal: Goal::AtMost(1.05) },
        Row { name: "word-lookup-1M", unit: "ns", against: OTHER, goal: Goal::AtMost(0.55) },
        Row { name: "word-scan-100-1M", unit: "ns", against: OTHER, goal: Goal::AtMost(0.7) },
        Row { name: "word-delete-1M", unit: "ns", against: OTHER, goal: Goal::AtMost(0.9) },
    ],
    run: |scale| compare_with_std(1_000_000, scale),
};

pub(crate) const TWENTY_MILLION: Measurement = Measurement {
    name: "words-20M",
    rows: &[
        Row { name: "word-insert-20M", unit: "ns", against: OTHER, goal: Goal::AtMost(1.05) },
        Row { name: "word-lookup-20M", unit: "ns", against: OTHER, goal: Goal::AtMost(0.55) },
        Row { name: "word-scan-100-20M", unit: "ns", against: OTHER, goal: Goal::AtMost(0.7) },
        Row { name: "word-delete-20M", unit: "ns", against: OTHER, goal: Goal::None },
    ],
    run: |scale| compare_with_std(20_000_000, scale),
};

const EACH: &str = "one of each per operation";

pub(crate) const COUNTS: Measurement = Measurement {
    name: "word-counts",
    rows: &[
        Row { name: "word-insert-lines", unit: "lines", against: EACH, goal: Goal::AtMost(1.3) },
        Row { name: "word-insert-fences", unit: "fences", against: EACH, goal: Goal::AtMost(1.1) },
        Row { name: "word-update-lines", unit: "lines", against: EACH, goal: Goal::AtMost(1.0) },
        Row { name: "word-update-fences", unit: "fences", against: EACH, goal: Goal::AtMost(1.0) },
        Row { name: "word-delete-lines", unit: "lines", against: EACH, goal: Goal::AtMost(1.0) },
        Row { name: "word-delete-fences", unit: "fences", against: EACH, goal: Goal::AtMost(1.0) },
    ],
    run: counts,
};

pub(crate) const THREADS: Measurement = Measurement {
    name: "word-threads",
    rows: &[
        Row {
            name: "word-insert-2-threads",
            unit: "M/s",
            against: "one thread's rate",
            goal: Goal::AtLeast(1.7),
        },
        Row {
            name: "word-lookup-2-threads",
            unit: "M/s",
            against: "one thread's rate",
            goal: Goal::AtLeast(1.85),
        },
    ],
    run: two_threads,
};

impl Contender<u64> for U64Tree {
    #[inline(always)]
    fn insert(&mut self, key: &u64, value: u64) -> Result<(), Error> {
        self.put(*key, value)?;
        Ok(())
    }

    #[inline(always)]
    fn lookup(&self, key: &u64) -> Result<Option<u64>, Error> {
        Ok(self.get(*key)?)
    }

    #[inline(always)]
    fn delete(&mut self, key: &u64) -> Result<bool, Error> {
        Ok(self.remove(*key)?.is_some())
    }

    #[inline(always)]
    fn scan(&self, from: &u64) -> Result<u64, Error> {
        let mut records = Vec::with_capacity(SCAN_LENGTH);
        U64Tree::scan(self, *from, SCAN_LENGTH, &mut records)?;
        Ok(records.iter().fold(0, |sum, (_, value)| sum.wrapping_add(*value)))
    }
}

fn new_tree(count: bool) -> Result<U64Tree, Error> {
    Ok(U64Tree::create(&temporary_pool(count)?, "summary")?)
}

/// As many keys as the scale says, in random order, and the same in another.
fn shuffled_keys(count: usize, scale: Scale) -> (Vec<u64>, Vec<u64>) {
    let mut keys = Keys::<u64>::new(scale.of(count), 1, scale.seed).loaded;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(scale.seed);
    keys.shuffle(&mut random);
    let mut others = keys.clone();
    others.shuffle(&mut random);
    (keys, others)
}

fn compare_with_std(count: usize, scale: Scale) -> Result<Vec<Value>, Error> {
    let (keys, others) = shuffled_keys(count, scale);
    let result = compare(&mut new_tree(false)?, &mut BTreeMap::new(), &keys, &others)?;
    Ok(vec![result.insert, result.lookup, result.scan, result.delete])
}

fn counts(scale: Scale) -> Result<Vec<Value>, Error> {
    let (keys, others) = shuffled_keys(1_000_000, scale);
    let tree = new_tree(true)?;
    let cost =
        |keys: &[u64], work: &dyn Fn(u64) -> tembo_index::Result<Option<u64>>| -> Result<Counts, Error> {
            let before = snapshot();
            keys.iter().try_for_each(|key| work(*key).map(drop))?;
            Ok(snapshot() - before)
        };
    let insert = cost(&keys, &|key| tree.put(key, 1))?;
    let update = cost(&others, &|key| tree.put(key, 2))?;
    // So few that no leaf is joined.
    let some = &others[..others.len() / 4];
    let delete = cost(some, &|key| tree.remove(key))?;
    let per = |counts: Counts, operations: usize| {
        [counts.lines, counts.fences].map(|count| {
            let value = count as f64 / operations as f64;
            Value { value, ratio: value }
        })
    };
    Ok([per(insert, keys.len()), per(update, others.len()), per(delete, some.len())].concat())
}

/// Insertions and lookups of one thread, and of two at the same time: the best of rounds by turns.
fn two_threads(scale: Scale) -> Result<Vec<Value>, Error> {
    const ROUNDS: usize = 9;
    let (keys, others) = shuffled_keys(2_000_000, scale);
    let mut best = [[f64::INFINITY; 2]; 2];
    for _ in 0..ROUNDS {
        for threads in [1, 2] {
            let tree = new_tree(false)?;
            let insert =
                seconds(threads, &keys, &|key| assert!(tree.put(*key, 1).is_ok_and(|old| old.is_none())));
            let lookup = seconds(threads, &others, &|key| {
                assert!(black_box(tree.get(*key)).is_ok_and(|v| v == Some(1)))
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
