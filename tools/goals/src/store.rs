//! The versioned store beside the plain map for byte strings: what transactions and versions cost.

use crate::Error;
use crate::comparison::{Contender, SCAN_LENGTH, Times, by_turns, compare};
use crate::goals::{Goal, Measurement, Row, Scale, Value, seconds, temporary_pool};
use crate::workload::Keys;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicBool, Ordering};
use tembo_index::{WbTree, Writers};
use tembo_pool::Pool;
use tembo_store::{Keyspace, Store};

const MAP: &str = "the plain map";
const ONE_THREAD: &str = "one thread's rate";

pub(crate) const ONE_MILLION: Measurement = Measurement {
    name: "store-1M",
    rows: &[
        Row { name: "store-put-1M", unit: "ns", against: MAP, goal: Goal::None },
        Row { name: "store-overwrite-1M", unit: "ns", against: MAP, goal: Goal::None },
        Row { name: "store-get-1M", unit: "ns", against: MAP, goal: Goal::None },
        Row { name: "store-scan-100-1M", unit: "ns", against: MAP, goal: Goal::None },
        Row { name: "store-delete-1M", unit: "ns", against: MAP, goal: Goal::None },
        Row {
            name: "store-as-of-100-versions",
            unit: "ns",
            against: "a current get",
            goal: Goal::AtMost(1.5),
        },
    ],
    run: one_thread,
};

pub(crate) const THREADS: Measurement = Measurement {
    name: "store-threads",
    rows: &[
        Row { name: "store-put-2-threads", unit: "M/s", against: ONE_THREAD, goal: Goal::AtLeast(1.5) },
        Row { name: "store-overwrite-2-threads", unit: "M/s", against: ONE_THREAD, goal: Goal::AtLeast(1.5) },
        Row {
            name: "store-put-2-threads-map",
            unit: "M/s",
            against: "two on the plain map",
            goal: Goal::None,
        },
        Row {
            name: "store-overwrite-2-threads-map",
            unit: "M/s",
            against: "two on the plain map",
            goal: Goal::None,
        },
    ],
    run: two_threads,
};

pub(crate) const SPACE: Measurement = Measurement {
    name: "store-space",
    rows: &[Row {
        name: "store-held-snapshot",
        unit: "B a key",
        against: "96 B for an overwritten 8-byte value",
        goal: Goal::AtMost(1.0),
    }],
    run: held_snapshot,
};

struct InStore {
    store: Store,
    keyspace: Keyspace,
    _pool: Pool,
}

impl InStore {
    fn new() -> Result<InStore, Error> {
        let pool = temporary_pool(false)?;
        let store = Store::open(&pool, "summary")?;
        let keyspace = store.keyspace("summary")?;
        Ok(InStore { store, keyspace, _pool: pool })
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

impl Contender<[u8; 8]> for InStore {
    fn insert(&mut self, key: &[u8; 8], value: u64) -> Result<(), Error> {
        self.store.put(&self.keyspace, key, value.to_le_bytes())?;
        Ok(())
    }

    fn lookup(&self, key: &[u8; 8]) -> Result<Option<u64>, Error> {
        Ok(self.store.get(&self.keyspace, key)?.map(|value| word(&value)))
    }

    fn delete(&mut self, key: &[u8; 8]) -> Result<bool, Error> {
        self.store.delete(&self.keyspace, key)?;
        Ok(true)
    }

    fn scan(&self, from: &[u8; 8]) -> Result<u64, Error> {
        let mut entries = self.store.snapshot().range(&self.keyspace, *from..)?;
        let mut sum = 0u64;
        for _ in 0..SCAN_LENGTH {
            let Some((_, value)) = entries.advance()? else { break };
            sum = sum.wrapping_add(word(value));
        }
        Ok(sum)
    }
}

struct InMap {
    writers: Writers,
    map: WbTree,
    _pool: Pool,
}

impl InMap {
    fn new() -> Result<InMap, Error> {
        let pool = temporary_pool(false)?;
        let writers = Writers::new(pool.lane()?);
        let mut tx = writers.begin();
        let map = WbTree::create(&mut tx, "summary")?;
        tx.commit()?;
        Ok(InMap { writers, map, _pool: pool })
    }
}

impl Contender<[u8; 8]> for InMap {
    fn insert(&mut self, key: &[u8; 8], value: u64) -> Result<(), Error> {
        self.map.concurrent(&self.writers).put(key, &[&value.to_le_bytes()])?;
        Ok(())
    }

    fn lookup(&self, key: &[u8; 8]) -> Result<Option<u64>, Error> {
        Ok(self.map.get_pinned(key)?.map(|value| word(&value)))
    }

    fn delete(&mut self, key: &[u8; 8]) -> Result<bool, Error> {
        Ok(self.map.concurrent(&self.writers).remove(key)?)
    }

    fn scan(&self, from: &[u8; 8]) -> Result<u64, Error> {
        let range = self.map.range::<[u8; 8]>(from..);
        range.take(SCAN_LENGTH).try_fold(0u64, |sum, entry| Ok(sum.wrapping_add(word(entry?.value()))))
    }
}

fn shuffled_keys(scale: Scale) -> Vec<[u8; 8]> {
    let loaded = Keys::<u64>::new(scale.of(1_000_000), 1, scale.seed).loaded;
    let mut keys: Vec<_> = loaded.into_iter().map(u64::to_be_bytes).collect();
    keys.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(scale.seed));
    keys
}

fn one_thread(scale: Scale) -> Result<Vec<Value>, Error> {
    let keys = shuffled_keys(scale);
    let mut others = keys.clone();
    others.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(scale.seed + 1));
    let overwrite = {
        let (mut store, mut map) = (InStore::new()?, InMap::new()?);
        keys.iter().try_for_each(|key| store.insert(key, 1).and_then(|()| map.insert(key, 1)))?;
        let times: Times = by_turns(
            &mut store,
            &mut map,
            &others,
            |side, turn| turn.iter().zip(0..).try_for_each(|(key, value)| side.insert(key, value)),
            |side, turn| turn.iter().zip(0..).try_for_each(|(key, value)| side.insert(key, value)),
        )?;
        times.per_operation(others.len())
    };
    let result = compare(&mut InStore::new()?, &mut InMap::new()?, &keys, &others)?;
    Ok(vec![result.insert, overwrite, result.lookup, result.scan, result.delete, as_of(&others, scale)?])
}

/// Gets of keys that have 100 versions each, in an old snapshot and in the current one.
fn as_of(keys: &[[u8; 8]], scale: Scale) -> Result<Value, Error> {
    const VERSIONS: usize = 100;
    let keys = &keys[..scale.of(5_000).min(keys.len())];
    let mut sides = [InStore::new()?, InStore::new()?];
    let mut held = Vec::new();
    for round in 0..VERSIONS as u64 {
        for side in &mut sides {
            keys.iter().try_for_each(|key| side.insert(key, round))?;
            held.push(side.store.snapshot());
        }
    }
    let old = [held[VERSIONS].clone(), held[VERSIONS + 1].clone()];
    let turns: Vec<[u8; 8]> = (0..40).flat_map(|_| keys.iter().copied()).collect();
    let [first, second] = &mut sides;
    let get = |side: &InStore, snapshot: &tembo_store::Snapshot, turn: &[[u8; 8]]| -> Result<(), Error> {
        for key in turn {
            snapshot.get(&side.keyspace, key)?.ok_or("a version is lost")?;
        }
        Ok(())
    };
    let times = by_turns(
        first,
        second,
        &turns,
        |side, turn| get(side, &old[0], turn),
        |side, turn| get(side, &side.store.snapshot(), turn),
    )?;
    Ok(times.per_operation(turns.len()))
}

/// Insertions and overwrites of one thread, and of two at the same time with half of the keys each.
fn two_threads(scale: Scale) -> Result<Vec<Value>, Error> {
    const ROUNDS: usize = 3;
    let keys = shuffled_keys(scale);
    // By side (store, map) and number of threads: insertions, overwrites.
    let mut best = [[[f64::INFINITY; 2]; 2]; 2];
    let failed = AtomicBool::new(false);
    let note = |is_ok: bool| {
        if !is_ok {
            failed.store(true, Ordering::Relaxed);
        }
    };
    for _ in 0..ROUNDS {
        for threads in [1, 2] {
            let ours = InStore::new()?;
            let theirs = InMap::new()?;
            (1..threads).try_for_each(|_| theirs.writers.add().map(drop))?;
            for work in 0..2 {
                let times = [
                    seconds(threads, &keys, &|key| {
                        note(ours.store.put(&ours.keyspace, key, 1_u64.to_le_bytes()).is_ok());
                    }),
                    seconds(threads, &keys, &|key| {
                        let value = 1_u64.to_le_bytes();
                        note(theirs.map.concurrent(&theirs.writers).put(key, &[&value]).is_ok());
                    }),
                ];
                for (side, time) in times.into_iter().enumerate() {
                    let best = &mut best[side][threads - 1][work];
                    *best = best.min(time);
                }
            }
        }
    }
    if failed.load(Ordering::Relaxed) {
        return Err("a put failed".into());
    }
    let of = |work: usize, other: f64| Value {
        value: keys.len() as f64 / best[0][1][work] / 1e6,
        ratio: other / best[0][1][work],
    };
    let [[one, _], [_, map]] = best;
    Ok(vec![of(0, one[0]), of(1, one[1]), of(0, map[0]), of(1, map[1])])
}

/// The bytes that a held snapshot costs for each key that is overwritten.
fn held_snapshot(scale: Scale) -> Result<Vec<Value>, Error> {
    let keys = shuffled_keys(scale);
    let mut side = InStore::new()?;
    keys.iter().try_for_each(|key| side.insert(key, 1))?;
    let allocated = |side: &InStore| Ok::<u64, Error>(side.store.pool().marks()?.usage().allocated_bytes);
    let before = allocated(&side)?;
    let snapshot = side.store.snapshot();
    keys.iter().try_for_each(|key| side.insert(key, 2))?;
    let after = allocated(&side)?;
    drop(snapshot);
    let bytes = (after - before) as f64 / keys.len() as f64;
    Ok(vec![Value { value: bytes, ratio: bytes / 96.0 }])
}
