//! The tree of fixed-size keys beside the standard library's B-tree in DRAM, in one run, on one thread and
//! several.
//!
//! `cargo bench -p tembo-index --bench u64tree -- [records] [rounds] [page-cache|emulated|synced] [directory]
//! [threads]`
//!
//! Times depend on the machine; the ratios are what counts.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use tembo_index::U64Tree;
use tembo_pmem::Durability;
use tembo_pool::{Options, Pool};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SCAN: usize = 100;

/// Best nanoseconds per operation.
#[derive(Clone, Copy)]
struct Times {
    insert: f64,
    lookup: f64,
    update: f64,
    scan: f64,
    remove: f64,
}

impl Times {
    const NONE: Times =
        Times { insert: f64::MAX, lookup: f64::MAX, update: f64::MAX, scan: f64::MAX, remove: f64::MAX };

    fn best(self, other: Times) -> Times {
        Times {
            insert: self.insert.min(other.insert),
            lookup: self.lookup.min(other.lookup),
            update: self.update.min(other.update),
            scan: self.scan.min(other.scan),
            remove: self.remove.min(other.remove),
        }
    }
}

fn time(count: usize, body: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let start = Instant::now();
    body()?;
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

struct Keys {
    insert: Vec<u64>,
    lookup: Vec<u64>,
}

impl Keys {
    fn new(records: usize, seed: u64) -> Keys {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let insert: Vec<u64> = (0..records).map(|_| rng.random()).collect();
        let mut lookup = insert.clone();
        lookup.shuffle(&mut rng);
        Keys { insert, lookup }
    }

    fn scans(&self) -> &[u64] {
        &self.lookup[..self.lookup.len() / 20]
    }
}

fn std_tree(keys: &Keys) -> Outcome<Times> {
    let mut map = BTreeMap::new();
    let n = keys.insert.len();
    Ok(Times {
        insert: time(n, || {
            keys.insert.iter().for_each(|k| _ = map.insert(*k, k ^ 1));
            Ok(())
        })?,
        lookup: time(n, || {
            keys.lookup.iter().for_each(|k| assert!(map.get(k).is_some_and(|v| *v == k ^ 1)));
            Ok(())
        })?,
        update: time(n, || {
            keys.lookup.iter().for_each(|k| _ = map.insert(*k, k ^ 2));
            Ok(())
        })?,
        scan: time(keys.scans().len(), || {
            let mut records = Vec::with_capacity(SCAN);
            for k in keys.scans() {
                records.clear();
                records.extend(map.range(k..).take(SCAN).map(|(k, v)| (*k, *v)));
                black_box(&records);
            }
            Ok(())
        })?,
        remove: time(n, || {
            keys.lookup.iter().for_each(|k| assert!(map.remove(k).is_some()));
            Ok(())
        })?,
    })
}

fn tembo(keys: &Keys, pool: &Pool, round: usize) -> Outcome<Times> {
    let tree = U64Tree::create(pool, &format!("tree {round}"))?;
    let n = keys.insert.len();
    let times = Times {
        insert: time(n, || Ok(keys.insert.iter().try_for_each(|k| tree.put(*k, k ^ 1).map(drop))?))?,
        lookup: time(n, || {
            Ok(keys.lookup.iter().try_for_each(|k| tree.get(*k).map(|v| assert!(v == Some(k ^ 1))))?)
        })?,
        update: time(n, || Ok(keys.lookup.iter().try_for_each(|k| tree.put(*k, k ^ 2).map(drop))?))?,
        scan: time(keys.scans().len(), || {
            let mut records = Vec::with_capacity(SCAN);
            for k in keys.scans() {
                records.clear();
                tree.scan(*k, SCAN, &mut records)?;
                black_box(&records);
            }
            Ok(())
        })?,
        remove: time(n, || {
            Ok(keys.lookup.iter().try_for_each(|k| tree.remove(*k).map(|v| assert!(v.is_some())))?)
        })?,
    };
    assert_eq!(tree.count()?, 0);
    Ok(times)
}

/// Millions of operations per second with several threads: insertions, then lookups.
fn scaling(keys: &Keys, pool: &Pool, threads: usize) -> Outcome<(f64, f64)> {
    let tree = U64Tree::create(pool, &format!("scaling {threads}"))?;
    let per_thread = keys.insert.len().div_ceil(threads);
    let run = |keys: &[u64], work: &(dyn Fn(u64) -> tembo_index::Result<()> + Sync)| -> Outcome<f64> {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> = keys
                .chunks(per_thread)
                .map(|part| scope.spawn(move || part.iter().try_for_each(|k| work(*k))))
                .collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker that does not panic"))
        })?;
        Ok(keys.len() as f64 / start.elapsed().as_secs_f64() / 1e6)
    };
    let inserts = run(&keys.insert, &|k| tree.put(k, k ^ 1).map(drop))?;
    let lookups = run(&keys.lookup, &|k| tree.get(k).map(|v| assert!(v == Some(k ^ 1))))?;
    Ok((inserts, lookups))
}

fn run(path: &Path, args: &[String]) -> Outcome<()> {
    let number = |at: usize, default: usize| args.get(at).map_or(Ok(default), |arg| arg.parse());
    let (records, rounds, threads) = (number(0, 1_000_000)?, number(1, 3)?, number(4, 2)?);
    let durability = args.get(2).map_or(Ok(Durability::Emulated), |name| name.parse())?;
    let mut options = Options::new().durability(durability);
    options.create_new = true;
    let pool = Pool::open(path, &options)?;
    let (mut ours, mut std) = (Times::NONE, Times::NONE);
    let mut scaled = vec![(0f64, 0f64); threads];
    for round in 0..rounds {
        let keys = Keys::new(records, 42 + round as u64);
        std = std.best(std_tree(&keys)?);
        ours = ours.best(tembo(&keys, &pool, round)?);
        for (i, best) in scaled.iter_mut().enumerate() {
            let pool_path = path.with_extension(format!("{i}"));
            let pool = Pool::open(&pool_path, &options)?;
            let outcome = scaling(&keys, &pool, i + 1);
            std::fs::remove_file(&pool_path)?;
            let (inserts, lookups) = outcome?;
            *best = (best.0.max(inserts), best.1.max(lookups));
        }
    }
    println!(
        "{records} records, best of {rounds} rounds, domain {}, flush {:?}",
        pool.region().domain(),
        pool.region().flush_instruction()
    );
    println!("{:<24}{:>12}{:>12}{:>10}", "", "tembo, ns", "BTreeMap", "ratio");
    let rows = [
        ("insert", ours.insert, std.insert),
        ("lookup", ours.lookup, std.lookup),
        ("update", ours.update, std.update),
        ("scan of 100", ours.scan, std.scan),
        ("remove", ours.remove, std.remove),
    ];
    for (what, ours, std) in rows {
        println!("{what:<24}{ours:>12.1}{std:>12.1}{:>10.2}", ours / std);
    }
    for (i, (inserts, lookups)) in scaled.iter().enumerate() {
        let (one_insert, one_lookup) = scaled[0];
        println!(
            "{} thread(s): {inserts:.2} M inserts/s ({:.2} x one), {lookups:.2} M lookups/s ({:.2} x one)",
            i + 1,
            inserts / one_insert,
            lookups / one_lookup
        );
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let directory = args.get(3).cloned().unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let path = Path::new(&directory).join(format!("tembo-fixed-{}.pool", std::process::id()));
    let outcome = run(&path, &args);
    let _ = std::fs::remove_file(&path);
    outcome
}
