//! The tree beside `BTreeMap<Vec<u8>, u64>`, in one process, by turns.
//!
//! `cargo bench -p tembo-index --bench map -- [records] [rounds] [page-cache|emulated|synced] [directory]`
//!
//! Prints nanoseconds per operation and their ratio to the map's. The ratio is what counts: times depend on
//! the machine and its neighbours, and both sides suffer from them alike, because they take turns.
//!
//! Then the tree with two threads beside the tree with one, both with a commit for each change.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;
use tembo_index::{WbTree, Writers};
use tembo_pmem::Durability;
use tembo_pool::{Lane, Options, Pool};

/// Operations that one side does before it is the other's turn.
const TURN: usize = 20_000;

type Error = Box<dyn std::error::Error>;

/// Nanoseconds of both sides in one measurement.
#[derive(Default, Clone, Copy)]
struct Times {
    tree_ns: u128,
    map_ns: u128,
}

struct Row {
    what: &'static str,
    operations: usize,
    times: Times,
}

impl Row {
    fn print(&self) {
        let per = |ns: u128| ns as f64 / self.operations as f64;
        let (tree, map) = (per(self.times.tree_ns), per(self.times.map_ns));
        println!("{:<28} {tree:>9.1} {map:>9.1} {:>7.2}", self.what, tree / map);
    }
}

fn timed<T>(ns: &mut u128, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = work();
    *ns += start.elapsed().as_nanos();
    outcome
}

/// Lets both sides do their part of every turn, the order changing from turn to turn.
fn by_turns<T>(
    items: &[T],
    mut tree: impl FnMut(&[T]) -> Result<(), Error>,
    mut map: impl FnMut(&[T]),
) -> Result<Times, Error> {
    let mut times = Times::default();
    for (number, turn) in items.chunks(TURN).enumerate() {
        if number % 2 == 0 {
            timed(&mut times.tree_ns, || tree(turn))?;
            timed(&mut times.map_ns, || map(turn));
        } else {
            timed(&mut times.map_ns, || map(turn));
            timed(&mut times.tree_ns, || tree(turn))?;
        }
    }
    Ok(times)
}

fn temporary_pool(durability: Durability, directory: &std::path::Path) -> Result<Pool, Error> {
    let path = directory.join(format!("tembo-bench-{}.pool", std::process::id()));
    let mut options = Options::new().durability(durability);
    options.create_new = true;
    let pool = Pool::open(&path, &options)?;
    std::fs::remove_file(&path)?;
    Ok(pool)
}

/// The tree, which has a pool of its own, and the map.
struct Sides {
    pool: Pool,
    lane: Lane,
    tree: WbTree,
    map: BTreeMap<Vec<u8>, u64>,
}

impl Sides {
    fn new(durability: Durability, directory: &std::path::Path) -> Result<Sides, Error> {
        let pool = temporary_pool(durability, directory)?;
        let mut lane = pool.lane()?;
        let mut tx = lane.begin();
        let tree = WbTree::create(&mut tx, "bench")?;
        tx.commit()?;
        Ok(Sides { pool, lane, tree, map: BTreeMap::new() })
    }

    fn insert(&mut self, keys: &[[u8; 20]]) -> Result<Times, Error> {
        let Self { lane, tree, map, .. } = self;
        by_turns(
            keys,
            |turn| {
                for (i, key) in turn.iter().enumerate() {
                    let mut tx = lane.begin();
                    tree.put(&mut tx, key, &[&(i as u64).to_le_bytes()])?;
                    tx.commit()?;
                }
                Ok(())
            },
            |turn| turn.iter().enumerate().for_each(|(i, key)| _ = map.insert(key.to_vec(), i as u64)),
        )
    }

    fn look_up_with_a_pin_each(&self, keys: &[[u8; 20]]) -> Result<Times, Error> {
        by_turns(
            keys,
            |turn| {
                for key in turn {
                    assert!(black_box(self.tree.get_pinned(key)?).is_some());
                }
                Ok(())
            },
            |turn| turn.iter().for_each(|key| assert!(black_box(self.map.get(key.as_slice())).is_some())),
        )
    }

    fn look_up_with_one_pin(&self, keys: &[[u8; 20]]) -> Result<Times, Error> {
        let pin = self.pool.pin();
        by_turns(
            keys,
            |turn| {
                for key in turn {
                    assert!(black_box(self.tree.get(&pin, key)?).is_some());
                }
                Ok(())
            },
            |turn| turn.iter().for_each(|key| assert!(black_box(self.map.get(key.as_slice())).is_some())),
        )
    }

    fn look_up_absent(&self, keys: &[[u8; 20]]) -> Result<Times, Error> {
        let pin = self.pool.pin();
        by_turns(
            keys,
            |turn| {
                for key in turn {
                    assert!(black_box(self.tree.get(&pin, key)?).is_none());
                }
                Ok(())
            },
            |turn| turn.iter().for_each(|key| assert!(black_box(self.map.get(key.as_slice())).is_none())),
        )
    }

    fn walk(&self, records: usize) -> Result<Times, Error> {
        let mut times = Times::default();
        let walked = timed(&mut times.tree_ns, || {
            self.tree.iter().map(|e| e.map(|e| e.value().len())).sum::<Result<usize, _>>()
        })?;
        let other = timed(&mut times.map_ns, || self.map.keys().map(|k| black_box(k).len()).sum::<usize>());
        assert!(walked == records * 8 && other == records * 20);
        Ok(times)
    }

    fn remove(&mut self, keys: &[[u8; 20]]) -> Result<Times, Error> {
        let Self { lane, tree, map, .. } = self;
        by_turns(
            keys,
            |turn| {
                for key in turn {
                    let mut tx = lane.begin();
                    assert!(tree.remove(&mut tx, key)?);
                    tx.commit()?;
                }
                Ok(())
            },
            |turn| turn.iter().for_each(|key| assert!(map.remove(key.as_slice()).is_some())),
        )
    }

    /// Puts that share a commit with this many others.
    fn put_in_groups(&mut self, keys: &[[u8; 20]], size: usize) -> Result<Times, Error> {
        let Self { lane, tree, map, .. } = self;
        by_turns(
            keys,
            |turn| {
                for group in turn.chunks(size) {
                    let mut tx = lane.begin();
                    for key in group {
                        tree.put(&mut tx, key, &[&7u64.to_le_bytes()])?;
                    }
                    tx.commit()?;
                }
                Ok(())
            },
            |turn| turn.iter().for_each(|key| _ = map.insert(key.to_vec(), 7)),
        )
    }
}

fn run(records: usize, durability: Durability, directory: &std::path::Path) -> Result<Vec<Row>, Error> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(42);
    let keys: Vec<[u8; 20]> = (0..records).map(|_| random.random()).collect();
    let mut shuffled = keys.clone();
    shuffled.shuffle(&mut random);
    let absent: Vec<[u8; 20]> = (0..records).map(|_| random.random()).collect();
    let mut sides = Sides::new(durability, directory)?;
    let mut rows = Vec::new();
    let mut row = |what, times| rows.push(Row { what, operations: records, times });
    row("insert, a commit each", sides.insert(&keys)?);
    row("lookup, a pin each", sides.look_up_with_a_pin_each(&shuffled)?);
    row("lookup, one pin", sides.look_up_with_one_pin(&shuffled)?);
    row("lookup of absent keys", sides.look_up_absent(&absent)?);
    row("walk, per record", sides.walk(records)?);
    row("replace, a commit each", sides.put_in_groups(&shuffled, 1)?);
    row("remove, a commit each", sides.remove(&keys)?);
    row("insert, 32 to a commit", sides.put_in_groups(&keys, 32)?);
    Ok(rows)
}

/// A tree that threads share.
struct Shared {
    tree: WbTree,
    writers: Writers,
}

/// The work of one thread with one key.
type Work = fn(&Shared, &[u8; 20]) -> tembo_index::Result<()>;

const WORK: [(&str, Work); 4] = [
    ("insert", |shared, key| shared.tree.concurrent(&shared.writers).put(key, &[&[1; 8]]).map(drop)),
    ("replace", |shared, key| shared.tree.concurrent(&shared.writers).put(key, &[&[2; 8]]).map(drop)),
    ("lookup", |shared, key| shared.tree.get_pinned(key).map(|value| assert!(black_box(value).is_some()))),
    ("remove", |shared, key| shared.tree.concurrent(&shared.writers).remove(key).map(|found| assert!(found))),
];

/// Seconds of each kind of work, all keys divided among this many threads.
fn threads(
    count: usize,
    keys: &[[u8; 20]],
    durability: Durability,
    directory: &std::path::Path,
) -> Result<Vec<f64>, Error> {
    let pool = temporary_pool(durability, directory)?;
    let writers = Writers::new(pool.lane()?);
    (1..count).try_for_each(|_| writers.add().map(|added| assert!(added)))?;
    let mut tx = writers.begin();
    let tree = WbTree::create(&mut tx, "bench")?;
    tx.commit()?;
    let shared = Shared { tree, writers };
    let seconds = |work: Work| {
        let begin = Barrier::new(count);
        std::thread::scope(|scope| -> tembo_index::Result<f64> {
            let parts = keys.chunks(keys.len().div_ceil(count));
            let threads: Vec<_> = parts
                .map(|part| {
                    let (shared, begin) = (&shared, &begin);
                    scope.spawn(move || -> tembo_index::Result<f64> {
                        begin.wait();
                        let start = Instant::now();
                        part.iter().try_for_each(|key| work(shared, key))?;
                        Ok(start.elapsed().as_secs_f64())
                    })
                })
                .collect();
            threads.into_iter().try_fold(0.0, |longest: f64, thread| {
                Ok(longest.max(thread.join().expect("a thread that did not panic")?))
            })
        })
    };
    Ok(WORK.iter().map(|(_, work)| seconds(*work)).collect::<tembo_index::Result<_>>()?)
}

/// One thread and two by turns; the best of each.
fn compare_threads(
    records: usize,
    rounds: usize,
    durability: Durability,
    directory: &std::path::Path,
) -> Result<(), Error> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(43);
    let keys: Vec<[u8; 20]> = (0..records).map(|_| random.random()).collect();
    let mut best = [vec![f64::INFINITY; WORK.len()], vec![f64::INFINITY; WORK.len()]];
    for _ in 0..rounds {
        for (count, best) in (1..).zip(&mut best) {
            let seconds = threads(count, &keys, durability, directory)?;
            best.iter_mut().zip(seconds).for_each(|(best, seconds)| *best = best.min(seconds));
        }
    }
    println!("{:<28} {:>9} {:>9} {:>7}", "millions per second", "1 thread", "2 threads", "ratio");
    for (i, (what, _)) in WORK.iter().enumerate() {
        let [one, two] = [best[0][i], best[1][i]].map(|seconds| records as f64 / seconds / 1e6);
        println!("{what:<28} {one:>9.2} {two:>9.2} {:>7.2}", two / one);
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let argument = |i: usize, default: &str| arguments.get(i).map_or(default, String::as_str).to_owned();
    let records: usize = argument(0, "1000000").parse()?;
    let rounds: usize = argument(1, "3").parse()?;
    let durability: Durability = argument(2, "emulated").parse()?;
    let directory = argument(3, &std::env::temp_dir().to_string_lossy());
    println!("{records} random keys of 20 bytes, values of 8 bytes, durability {durability}");
    println!("{:<28} {:>9} {:>9} {:>7}", "ns per operation", "tree", "BTreeMap", "ratio");
    for _ in 0..rounds {
        run(records, durability, directory.as_ref())?.iter().for_each(Row::print);
    }
    compare_threads(records, rounds, durability, directory.as_ref())
}
