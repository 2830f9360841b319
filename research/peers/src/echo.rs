//! Figures 3 and 4 of Echo's paper: the latency of a get and of a durable put in one thread, and the
//! throughput of mixed gets and puts with the number of threads. Drawn by the figure runner of
//! `research/papers`.
//!
//! The paper's Masstree, which keeps nothing after a crash, is replaced by two ordered maps in memory:
//! `BTreeMap` behind a lock for readers and writers, and the skip list of crossbeam. A get copies the value
//! into the caller's buffer on all sides, as in the paper. A second store in Figure 4 has a master thread
//! ([`master`](crate::master)).

use crate::engines::shared::{Hand, Shared, copy, shared_kinds};
use crate::engines::{self, Engine, Result, Setup as EngineSetup};
use crate::master::Master;
use crate::measure::timed;
use crate::workload::{Shape, Workload, mix, shuffled};
use crossbeam_skiplist::SkipMap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Barrier, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tembo_bench::figures::{Drawing, Error, Figure, Setup};
use tembo_bench::nvm::Params;
use tembo_bench::plot::{Kind as PanelKind, Panel, Series};
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_pmem::Durability;
use tembo_pool::{Options, Pool};
use tembo_store::{Keyspace, Store};

/// The arguments of `echo`.
#[derive(clap::Args)]
pub(crate) struct EchoOptions {
    /// Draw small, to find out whether everything works
    #[arg(long)]
    quick: bool,
    /// Where the figures are written
    #[arg(long, default_value = "figures")]
    out: PathBuf,
    /// Draw only this one
    #[arg(long, value_parser = ["3", "4"])]
    figure: Option<String>,
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

const FIGURES: [Figure; 2] = [
    Figure::new(
        "echo-figure-3",
        "Figure 3 of Echo: latency of an operation, values of 1 KiB",
        |_| 1,
        latency,
    ),
    Figure::new(
        "echo-figure-4",
        "Figure 4 of Echo: throughput and threads, values of 1 KiB",
        |_| 1,
        throughput,
    ),
];

/// Draws the figures.
pub(crate) fn draw(options: &EchoOptions) -> Result<()> {
    let EchoOptions { quick, seed, .. } = *options;
    let setup = Setup { quick, seed, params: Params::wbtree(), medium: "pcm".to_owned() };
    for (figure, name) in FIGURES.iter().zip(["3", "4"]) {
        if options.figure.as_deref().is_none_or(|wanted| wanted == name) {
            let files = figure.draw(&setup, &options.out)?;
            print!("{}", std::fs::read_to_string(&files[0])?);
        }
    }
    Ok(())
}

const OURS: &str = "Tembo, versioned store";
const WITH_MASTER: &str = "Tembo, store with a master thread";
const TREE: &str = "BTreeMap behind a RwLock, in memory";
const SKIP_LIST: &str = "crossbeam's skip list, in memory";
const LEVELDB_TMPFS: &str = "LevelDB, tmpfs";
/// Operations of a run in Figure 3, at most.
const OPERATIONS: u64 = 50_000;
/// Tries of a get in the skip list until a key counts as lost.
const GET_TRIES: u32 = 10_000;
/// Distinguishes the random orders.
const UPDATE_ORDER: u64 = 1;
const GET_ORDER: u64 = 2;
/// Shares of gets, in percent.
const MIXES: [u64; 2] = [80, 50];

fn keys(setup: &Setup) -> u64 {
    if setup.quick { 2_000 } else { 100_000 }
}

fn rounds(setup: &Setup) -> usize {
    if setup.quick { 1 } else { 3 }
}

/// How long a run of Figure 4 takes, and half of a run of Figure 3 may.
fn limit(setup: &Setup) -> Duration {
    Duration::from_millis(if setup.quick { 30 } else { 200 })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn folder(parent: &Path) -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("tembo-echo-").tempdir_in(parent)?)
}

fn shared_memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() { shared } else { std::env::temp_dir() }
}

fn engine_setup(folder: &Path, keys: u64) -> EngineSetup<'_> {
    let (key_bytes, value_bytes) = (Shape::Kib.key_bytes(), Shape::Kib.value_bytes());
    let capacity_bytes = (6 * keys * 1200 + (256 << 20)).next_multiple_of(1 << 21);
    EngineSetup { folder, key_bytes, value_bytes, capacity_bytes, durability: Durability::Emulated }
}

/// A store under comparison.
enum Side {
    Tembo(Store, Keyspace),
    Master(Master),
    Engine(Box<dyn Shared>),
    Tree(RwLock<BTreeMap<[u8; 8], Vec<u8>>>),
    SkipList(Box<SkipMap<[u8; 8], Vec<u8>>>),
}

/// The names of all sides, ours first.
fn sides() -> Vec<String> {
    let engines = shared_kinds().into_iter().map(|kind| on_tmpfs(kind.name));
    let mut all = vec![OURS.to_owned(), WITH_MASTER.to_owned()];
    all.extend(engines);
    all.extend([TREE, SKIP_LIST].map(str::to_owned));
    all
}

fn on_tmpfs(engine: &str) -> String {
    format!("{engine}, tmpfs")
}

impl Side {
    fn open(name: &str, folder: &Path, keys: u64) -> Result<Side> {
        Ok(match name {
            OURS | WITH_MASTER => {
                let mut options = Options::new().durability(Durability::Emulated);
                options.create = true;
                let pool = Pool::open(folder.join("echo.pool"), &options)?;
                let store = Store::open(&pool, "echo")?;
                let keyspace = store.keyspace("echo")?;
                match name {
                    OURS => Side::Tembo(store, keyspace),
                    _ => Side::Master(Master::new(store, keyspace)?),
                }
            }
            TREE => Side::Tree(RwLock::default()),
            SKIP_LIST => Side::SkipList(Box::default()),
            name => {
                let kind = shared_kinds().into_iter().find(|kind| on_tmpfs(kind.name) == name);
                let kind = kind.ok_or_else(|| format!("no engine is called {name}"))?;
                Side::Engine((kind.open)(&engine_setup(folder, keys))?)
            }
        })
    }

    fn hand(&self) -> Result<Box<dyn Hand + Send + '_>> {
        Ok(match self {
            Side::Tembo(store, keyspace) => Box::new((store, keyspace)),
            Side::Master(master) => Box::new(master.hand()?),
            Side::Engine(engine) => engine.hand()?,
            Side::Tree(map) => Box::new(map),
            Side::SkipList(map) => Box::new(map.as_ref()),
        })
    }
}

impl Hand for (&Store, &Keyspace) {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(self.1, key, value)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        let value = self.0.get(self.1, key)?;
        let is_there = value.is_some();
        *buffer = value.unwrap_or_default();
        Ok(is_there)
    }
}

/// An engine of the table of peers, in one thread.
impl Hand for Box<dyn Engine> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key, value)
    }

    fn get(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        self.as_mut().get(key, &mut |value| copy(value, buffer))
    }
}

impl Hand for &RwLock<BTreeMap<[u8; 8], Vec<u8>>> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut map = self.write().unwrap_or_else(PoisonError::into_inner);
        copy(value, map.entry(key.try_into()?).or_default());
        Ok(())
    }

    fn get(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        let map = self.read().unwrap_or_else(PoisonError::into_inner);
        let value = map.get(key);
        value.into_iter().for_each(|value| copy(value, buffer));
        Ok(value.is_some())
    }
}

impl Hand for &SkipMap<[u8; 8], Vec<u8>> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key.try_into()?, value.to_vec());
        Ok(())
    }

    fn get(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        // An insertion removes the entry of its key before it inserts the new one: a reader may come between.
        let mut tries = 0..GET_TRIES;
        let entry = std::iter::repeat_with(|| SkipMap::get(self, key))
            .find(|entry| entry.is_some() || tries.next().is_none())
            .flatten();
        entry.iter().for_each(|entry| copy(entry.value(), buffer));
        Ok(entry.is_some())
    }
}

/// Gets, puts of new keys and updates, in ns. Merge trees are not compacted before the gets.
fn three(hand: &mut dyn Hand, setup: &Setup) -> Result<[f64; 3]> {
    let mut workload = Workload::new(Shape::Kib, setup.seed);
    let values = Workload::new(Shape::Kib, setup.seed);
    let count = keys(setup).min(OPERATIONS);
    // As much again, so that a disk gets its share of time.
    let put = timed(count, 2 * limit(setup), |i| hand.put(workload.key(i), values.part(i)))?;
    let count = put.operations;
    let order = shuffled(count, setup.seed ^ UPDATE_ORDER);
    let update = timed(count, 2 * limit(setup), |i| {
        let index = u64::from(order[i as usize]);
        hand.put(workload.key(index), values.part(index + 1))
    })?;
    let order = shuffled(count, setup.seed ^ GET_ORDER);
    let mut buffer = Vec::new();
    let get = timed(count, 2 * limit(setup), |i| {
        let index = u64::from(order[i as usize]);
        let is_there = hand.get(workload.key(index), &mut buffer)?;
        let is_right = buffer == values.part(index) || buffer == values.part(index + 1);
        if is_there && is_right { Ok(()) } else { Err(format!("record {index} is wrong").into()) }
    })?;
    Ok([get.ns, put.ns, update.ns])
}

/// The names and places of Figure 3: an engine of the table of peers in a folder, or a side of Figure 4.
fn latency_rows() -> Vec<(String, Option<(&'static str, PathBuf)>)> {
    let mut rows = vec![
        (OURS.to_owned(), Some(("tembo-store", shared_memory()))),
        (LEVELDB_TMPFS.to_owned(), Some(("leveldb", shared_memory()))),
        ("LevelDB, disk".to_owned(), Some(("leveldb", PathBuf::from("/var/tmp")))),
    ];
    for (id, name) in [("rocksdb", "RocksDB"), ("lmdb", "LMDB"), ("redb", "redb"), ("fjall", "fjall")] {
        if engines::all().iter().any(|kind| kind.id == id) {
            rows.push((format!("{name}, tmpfs"), Some((id, shared_memory()))));
        }
    }
    rows.extend([TREE, SKIP_LIST].map(|name| (name.to_owned(), None)));
    rows
}

fn latency_of(name: &str, engine: Option<&(&str, PathBuf)>, setup: &Setup) -> Result<[f64; 3]> {
    let Some((id, parent)) = engine else {
        let side = Side::open(name, Path::new(""), keys(setup))?;
        return three(side.hand()?.as_mut(), setup);
    };
    let folder = folder(parent)?;
    let kind = engines::all().into_iter().find(|kind| kind.id == *id);
    let kind = kind.ok_or_else(|| format!("no engine is called {id}"))?;
    let mut engine = (kind.open)(&engine_setup(folder.path(), keys(setup)))?;
    three(&mut engine, setup)
}

const LATENCIES: [&str; 3] = ["get", "put of a new key", "update"];

fn latency(setup: &Setup, progress: &Progress) -> std::result::Result<Drawing, Error> {
    let rows = latency_rows();
    let mut times = vec![Vec::new(); rows.len()];
    for round in 1..=rounds(setup) {
        for ((name, engine), times) in rows.iter().zip(&mut times) {
            progress.doing(format!("round {round}: {name}"));
            times.push(latency_of(name, engine.as_ref(), setup).map_err(|e| format!("{name}: {e}"))?);
        }
    }
    progress.step();
    let medians: Vec<[f64; 3]> = times
        .iter()
        .map(|runs| std::array::from_fn(|at| median(runs.iter().map(|run| run[at]).collect())))
        .collect();
    let mut table = Table::new(&["store", "operation", "us", "to_tembo"]);
    for ((name, _), ns) in rows.iter().zip(&medians) {
        for (at, operation) in LATENCIES.iter().enumerate() {
            let ratio = ns[at] / medians[0][at];
            table.add(vec![name.clone(), (*operation).to_owned(), number(ns[at] / 1e3), number(ratio)]);
        }
    }
    let series = |((name, _), ns): (&(String, _), &[f64; 3])| Series {
        name: name.clone(),
        values: ns.iter().map(|ns| Some(ns / 1e3)).collect(),
    };
    let panels = vec![Panel {
        title: "Latency of an operation, one thread".to_owned(),
        x_label: String::new(),
        y_label: "us".to_owned(),
        categories: LATENCIES.map(str::to_owned).to_vec(),
        series: rows.iter().zip(&medians).map(series).collect(),
        kind: PanelKind::Bars,
        log: true,
    }];
    let notes = vec![format!(
        "up to {} random 8-byte keys put one by one, each durable before the next (the maps in memory are not), all \
         updated and got in other orders; medians of {} rounds by turns; wall time; a get copies the value",
        keys(setup).min(OPERATIONS),
        rounds(setup)
    )];
    Ok(Drawing { table, panels, notes })
}

/// Numbers of threads: 1 up to what the machine has, doubling.
fn thread_counts() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    [1, 2, 4, 8, 16, 32].into_iter().filter(|threads| *threads <= cores.max(2)).collect()
}

/// Operations in a second of so many threads together.
fn rate(side: &Side, threads: usize, gets: u64, setup: &Setup, run: u64) -> Result<f64> {
    let hands = (0..threads).map(|_| side.hand()).collect::<Result<Vec<_>>>()?;
    let start = Barrier::new(threads);
    let start = &start;
    std::thread::scope(|scope| {
        let running: Vec<_> = hands
            .into_iter()
            .enumerate()
            .map(|(thread, mut hand)| {
                scope.spawn(move || -> Result<f64> {
                    let mut workload = Workload::new(Shape::Kib, setup.seed);
                    let values = Workload::new(Shape::Kib, setup.seed);
                    let (mut buffer, mut state) = (Vec::new(), mix(run << 8 | thread as u64));
                    start.wait();
                    let begun = Instant::now();
                    let done = timed(u64::MAX, limit(setup), |_| {
                        state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
                        let index = (state >> 8) % keys(setup);
                        if mix(state) % 100 < gets {
                            match hand.get(workload.key(index), &mut buffer)? {
                                true => Ok(()),
                                false => Err(format!("record {index} is lost").into()),
                            }
                        } else {
                            hand.put(workload.key(index), values.part(state >> 8))
                        }
                    })?;
                    Ok(done.operations as f64 / begun.elapsed().as_secs_f64())
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<f64>>| match thread.join() {
            Ok(rate) => rate,
            Err(_) => Err("a thread panicked".into()),
        };
        running.into_iter().map(join).sum::<Result<f64>>()
    })
}

fn throughput(setup: &Setup, progress: &Progress) -> std::result::Result<Drawing, Error> {
    let threads = thread_counts();
    let sides = sides();
    let places = MIXES.len() * threads.len();
    let mut rates = vec![vec![Vec::new(); places]; sides.len()];
    for round in 1..=rounds(setup) {
        for (name, rates) in sides.iter().zip(&mut rates) {
            progress.doing(format!("round {round}: {name}"));
            mixes(name, setup, round as u64, rates).map_err(|e| format!("{name}: {e}"))?;
        }
    }
    progress.step();
    let medians: Vec<Vec<f64>> =
        rates.into_iter().map(|side| side.into_iter().map(median).collect()).collect();
    let mut table =
        Table::new(&["gets_percent", "store", "threads", "operations_per_s", "to_1_thread", "to_tembo"]);
    let mut panels = Vec::new();
    for (mix, gets) in MIXES.iter().enumerate() {
        let at = mix * threads.len();
        for (name, rates) in sides.iter().zip(&medians) {
            for (place, threads) in threads.iter().enumerate() {
                let rate = rates[at + place];
                table.add(vec![
                    gets.to_string(),
                    name.clone(),
                    threads.to_string(),
                    number(rate),
                    number(rate / rates[at]),
                    number(rate / medians[0][at + place]),
                ]);
            }
        }
        panels.push(Panel {
            title: format!("{gets}% gets, {}% durable puts", 100 - gets),
            x_label: "threads".to_owned(),
            y_label: "operations per second".to_owned(),
            categories: threads.iter().map(usize::to_string).collect(),
            series: sides
                .iter()
                .zip(&medians)
                .map(|(name, rates)| Series {
                    name: name.clone(),
                    values: rates[at..at + threads.len()].iter().copied().map(Some).collect(),
                })
                .collect(),
            kind: PanelKind::Lines,
            log: true,
        });
    }
    let notes = vec![format!(
        "{} random 8-byte keys, each put before; random keys are got, or put durably (the maps in memory are not \
         durable); medians of {} rounds by turns; wall time; a get copies the value; the engines sync, LMDB has its locks",
        keys(setup),
        rounds(setup)
    )];
    Ok(Drawing { table, panels, notes })
}

/// Fills a side, and measures each mix with each number of threads.
fn mixes(name: &str, setup: &Setup, round: u64, rates: &mut [Vec<f64>]) -> Result<()> {
    let folder = folder(&shared_memory())?;
    let side = Side::open(name, folder.path(), keys(setup))?;
    let mut workload = Workload::new(Shape::Kib, setup.seed);
    let values = Workload::new(Shape::Kib, setup.seed);
    let mut hand = side.hand()?;
    for index in 0..keys(setup) {
        hand.put(workload.key(index), values.part(index))?;
    }
    drop(hand);
    let counts = thread_counts();
    for (mix, gets) in MIXES.into_iter().enumerate() {
        for (place, threads) in counts.iter().enumerate() {
            let at = mix * counts.len() + place;
            rates[at].push(rate(&side, *threads, gets, setup, round * 64 + at as u64)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_figures_are_drawn_small() {
        let folder = tempfile::tempdir().unwrap();
        draw(&EchoOptions { quick: true, out: folder.path().to_owned(), figure: None, seed: 3 }).unwrap();
        let lines = |name: &str| {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
            text.lines().filter(|line| !line.starts_with('#')).count()
        };
        assert_eq!(lines("echo-figure-3.csv"), 1 + latency_rows().len() * LATENCIES.len());
        assert_eq!(lines("echo-figure-4.csv"), 1 + MIXES.len() * sides().len() * thread_counts().len());
    }
}
