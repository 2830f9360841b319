//! The versioned tree: fences, beside other trees and itself, readers beside a writer, opening after a crash,
//! rollback.

use crate::Error;
use crate::by_turns::{self as bytes, by_turns};
use crate::crash;
use crate::goals::{Goal, Measurement, Row, Scale, Value, temporary_pool};
use crate::stats::median;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tembo_index::VersionedTree;
use tembo_pmem::Durability::{Emulated, PageCache};
use tembo_pmem::{Observer, Region, ThreadTag, snapshot};
use tembo_pool::{Geometry, Pool};

const FENCES: &str = "fences";
const FREE_FLUSHES: &str = "itself without flushes";
const WB_TREE: &str = "the wB+-Tree of byte strings";

pub(crate) const COUNTS: Measurement = Measurement {
    name: "cdds-fences",
    rows: &[
        Row { name: "cdds-put-fences", unit: FENCES, against: "one fence", goal: Goal::AtMost(2.0) },
        Row {
            name: "cdds-batch-put-fences",
            unit: FENCES,
            against: "a put by itself",
            goal: Goal::AtMost(0.125),
        },
    ],
    run: fences,
};

pub(crate) const TUPLES: Measurement = Measurement {
    name: "cdds-tuples",
    rows: &[
        Row { name: "cdds-put-2KiB", unit: "ns", against: FREE_FLUSHES, goal: Goal::None },
        Row { name: "cdds-get-2KiB", unit: "ns", against: FREE_FLUSHES, goal: Goal::None },
        Row { name: "cdds-delete-2KiB", unit: "ns", against: FREE_FLUSHES, goal: Goal::None },
        Row { name: "cdds-put-2KiB-wbtree", unit: "ns", against: WB_TREE, goal: Goal::None },
        Row { name: "cdds-get-2KiB-wbtree", unit: "ns", against: WB_TREE, goal: Goal::None },
        Row { name: "cdds-delete-2KiB-wbtree", unit: "ns", against: WB_TREE, goal: Goal::None },
    ],
    run: |scale| tuples(300_000, 2048, scale),
};

pub(crate) const SMALL_TUPLES: Measurement = Measurement {
    name: "cdds-small",
    rows: &[
        Row { name: "cdds-put-32B", unit: "ns", against: FREE_FLUSHES, goal: Goal::None },
        Row { name: "cdds-get-32B", unit: "ns", against: FREE_FLUSHES, goal: Goal::None },
        Row { name: "cdds-delete-32B", unit: "ns", against: FREE_FLUSHES, goal: Goal::None },
        Row { name: "cdds-put-32B-wbtree", unit: "ns", against: WB_TREE, goal: Goal::None },
        Row { name: "cdds-get-32B-wbtree", unit: "ns", against: WB_TREE, goal: Goal::None },
        Row { name: "cdds-delete-32B-wbtree", unit: "ns", against: WB_TREE, goal: Goal::None },
    ],
    run: |scale| tuples(1_000_000, 32, scale),
};

pub(crate) const READERS: Measurement = Measurement {
    name: "cdds-readers",
    rows: &[
        Row {
            name: "cdds-get-beside-writer",
            unit: "M/s",
            against: "the rate alone",
            goal: Goal::AtLeast(0.9),
        },
        Row { name: "cdds-get-beside-other", unit: "M/s", against: "the rate alone", goal: Goal::None },
    ],
    run: readers,
};

pub(crate) const OPEN: Measurement = Measurement {
    name: "cdds-open",
    rows: &[Row { name: "cdds-open-64MiB", unit: "ms", against: "5 ms", goal: Goal::AtMost(1.0) }],
    run: |scale| open(64 << 20, scale),
};

pub(crate) const OPEN_LARGE: Measurement = Measurement {
    name: "cdds-open-large",
    rows: &[Row { name: "cdds-open-8GiB", unit: "ms", against: "5 ms", goal: Goal::AtMost(1.0) }],
    run: |scale| open(8 << 30, scale),
};

pub(crate) const ROLLBACK: Measurement = Measurement {
    name: "cdds-rollback",
    rows: &[
        Row { name: "cdds-rollback-100k", unit: "ms", against: "making the updates again", goal: Goal::None },
        Row {
            name: "cdds-rollback-1k-nodes",
            unit: "nodes opened",
            against: "the nodes of the tree",
            goal: Goal::None,
        },
        Row {
            name: "cdds-rollback-100k-nodes",
            unit: "nodes opened",
            against: "the nodes of the tree",
            goal: Goal::None,
        },
    ],
    run: rollback,
};

/// Fences of puts, each a version of its own, and in batches of 32.
fn fences(scale: Scale) -> Result<Vec<Value>, Error> {
    const BATCH: usize = 32;
    let keys = scale.of(100_000) as u64;
    let pool = temporary_pool(true)?;
    let per_put = |name, batch: usize| -> Result<f64, Error> {
        let tree = VersionedTree::create(&pool, name)?;
        let before = snapshot();
        for from in (0..keys).step_by(batch) {
            tree.batch(|changes| {
                (from..keys.min(from + batch as u64))
                    .try_for_each(|i| changes.put(&bytes::key(i), &value(i)).map(drop))
            })?;
        }
        Ok((snapshot() - before).fences as f64 / keys as f64)
    };
    let (single, batched) = (per_put("single", 1)?, per_put("batched", BATCH)?);
    Ok(vec![Value { value: single, ratio: single }, Value { value: batched, ratio: batched / single }])
}

fn tuples(keys: usize, value_bytes: usize, scale: Scale) -> Result<Vec<Value>, Error> {
    let mut sides = vec![bytes::cdds(Emulated)?, bytes::cdds(PageCache)?, bytes::wbtree(Emulated)?];
    let results = by_turns(&mut sides, scale.of(keys), value_bytes, scale.seed)?;
    let of = |other: usize| (0..3).map(move |at| (other, at));
    Ok(of(1)
        .chain(of(2))
        .map(|(other, at)| Value { value: results[0][at], ratio: results[0][at] / results[other][at] })
        .collect())
}

fn loaded(pool: &Pool, keys: u64) -> Result<VersionedTree, Error> {
    let tree = VersionedTree::create(pool, "summary")?;
    for from in (0..keys).step_by(64) {
        tree.batch(|batch| {
            (from..keys.min(from + 64)).try_for_each(|i| batch.put(&bytes::key(i), &value(i)).map(drop))
        })?;
    }
    Ok(tree)
}

fn value(number: u64) -> [u8; 64] {
    std::array::from_fn(|_| number as u8)
}

/// Gets at the newest version for a while, by turns: alone, concurrently with a thread that updates the tree
/// while a snapshot is held, and concurrently with one that updates another tree.
fn readers(scale: Scale) -> Result<Vec<Value>, Error> {
    const ROUNDS: usize = 7;
    let keys = scale.of(500_000) as u64;
    let (pool, other_pool) = (temporary_pool(false)?, temporary_pool(false)?);
    let (tree, other) = (loaded(&pool, keys)?, loaded(&other_pool, keys)?);
    let gets = scale.of(400_000);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(scale.seed);
    let mut ratios = [Vec::new(), Vec::new()];
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let snapshots = [tree.snapshot(), other.snapshot()];
        let alone = rate(&tree, keys, gets, random.random())?;
        for (place, written) in [&tree, &other].into_iter().enumerate() {
            let beside = beside_writer(&tree, written, keys, gets, random.random())?;
            ratios[place].push(beside / alone);
            rates[place].push(beside);
        }
        drop(snapshots);
        while tree.collect(10_000)? || other.collect(10_000)? {}
    }
    let of = |place: usize| Value {
        value: median(rates[place].iter().copied()),
        ratio: median(ratios[place].iter().copied()),
    };
    Ok(vec![of(0), of(1)])
}

/// Million gets in a second.
fn rate(tree: &VersionedTree, keys: u64, gets: usize, seed: u64) -> Result<f64, Error> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let begun = Instant::now();
    for _ in 0..gets {
        let reader = tree.reader();
        let found = reader.get(&bytes::key(random.random_range(0..keys)))?;
        black_box(found.ok_or("a key is not there")?[0]);
    }
    Ok(gets as f64 / begun.elapsed().as_secs_f64() / 1e6)
}

fn beside_writer(
    tree: &VersionedTree,
    written: &VersionedTree,
    keys: u64,
    gets: usize,
    seed: u64,
) -> Result<f64, Error> {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
            while !ends.load(Ordering::Relaxed) {
                let number: u64 = random.random_range(0..keys);
                written.put(&bytes::key(number), &value(random.random()))?;
            }
            Ok::<_, tembo_index::Error>(())
        });
        let rate = rate(tree, keys, gets, seed);
        ends.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| "the writer panicked")??;
        rate
    })
}

fn open(bytes: u64, scale: Scale) -> Result<Vec<Value>, Error> {
    let ms = crash::open_ms(scale.of(bytes as usize) as u64)?;
    Ok(vec![Value { value: ms, ratio: ms / 5.0 }])
}

/// Rolls back updates of random keys, each a version: how long it takes, and which nodes it reads.
fn rollback(scale: Scale) -> Result<Vec<Value>, Error> {
    let (keys, updates) = (scale.of(1_000_000) as u64, scale.of(100_000));
    let pool = temporary_pool(false)?;
    let tree = loaded(&pool, keys)?;
    let before = tree.snapshot();
    let begun = Instant::now();
    update(&tree, keys, updates, scale.seed)?;
    let updating = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    tree.rollback_to(before.version())?;
    let rolling = begun.elapsed().as_secs_f64();
    drop((before, tree, pool));
    let mut values = vec![Value { value: rolling * 1e3, ratio: rolling / updating }];
    for updates in [scale.of(1_000), updates] {
        let (read, all) = nodes_read(keys / 4, updates, scale.seed)?;
        values.push(Value { value: read as f64, ratio: read as f64 / all as f64 });
    }
    Ok(values)
}

fn update(tree: &VersionedTree, keys: u64, updates: usize, seed: u64) -> Result<(), Error> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..updates {
        tree.put(&bytes::key(random.random_range(0..keys)), &value(random.random()))?;
    }
    Ok(())
}

/// Notes which nodes are read: nodes are opened as a whole.
#[derive(Debug, Default)]
struct Nodes(Mutex<std::collections::HashSet<u64>>);

impl Nodes {
    fn take(&self) -> usize {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).len()
    }
}

/// Bytes of a node without its fences, which nothing else that is read has.
const NODE_BYTES: u64 = 960;

impl Observer for Nodes {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
    fn wants_loads(&self) -> bool {
        true
    }
    fn load(&self, _: ThreadTag, off: u64, bytes: u64) {
        if bytes == NODE_BYTES {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(off);
        }
    }
}

/// How many nodes a rollback reads, of both versions, and how many the tree has.
fn nodes_read(keys: u64, updates: usize, seed: u64) -> Result<(usize, usize), Error> {
    let nodes = Arc::new(Nodes::default());
    let bytes = (keys * 400 + updates as u64 * 1200 + (64 << 20)).next_multiple_of(1 << 20);
    let region = Region::simulated(&vec![0; bytes as usize], bytes, Some(nodes.clone()))?;
    let tree =
        loaded(&Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() })?, keys)?;
    let before = tree.snapshot();
    update(&tree, keys, updates, seed)?;
    nodes.take();
    tree.reader().iter().try_for_each(|entry| entry.map(drop))?;
    let all = nodes.take();
    tree.rollback_to(before.version())?;
    Ok((nodes.take(), all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_reads_what_changed_and_not_the_tree() {
        let (read, all) = nodes_read(20_000, 10, 1).unwrap();
        assert!(all > 20_000 / 28 && read > 0 && read < all / 4, "{read} of {all}");
    }
}
