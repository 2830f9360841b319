//! How long a store takes to open after a crash, at several sizes, and after crashes of processes that had
//! just opened it.
//!
//! `cargo bench -p tembo-store --bench open -- [directory] [sizes in MiB ...]`      (default: 64 and 1024 MiB
//! in /dev/shm)
//!
//! For each size a child process fills a store, keeps snapshots, and dies without closing it; then, twenty
//! times, a child writes some more and dies, and this process opens the store, reads a key and makes its
//! first commit. The second row of a size is the same with three more children before this process, each of
//! which opens the store and dies at once. Prints medians and maxima.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tembo_pool::{Options, Pool};
use tembo_store::{Keyspace, Store};

const VALUE_BYTES: usize = 1000;
const OPENINGS: usize = 20;
/// Transactions of so many keys fill it.
const BATCH: u64 = 64;
/// Children that open the store and die, one after the other.
const NESTED: usize = 3;

type Outcome = Result<(), Box<dyn Error>>;

fn open_pool(path: &Path) -> Result<Pool, Box<dyn Error>> {
    let mut options = Options::new();
    options.create = true;
    Ok(Pool::open(path, &options)?)
}

fn open(path: &Path) -> Result<(Pool, Store, Keyspace), Box<dyn Error>> {
    let pool = open_pool(path)?;
    let (store, keyspace) = open_store(&pool)?;
    Ok((pool, store, keyspace))
}

fn open_store(pool: &Pool) -> Result<(Store, Keyspace), Box<dyn Error>> {
    let store = Store::open(pool, "bench")?;
    let keyspace = store.keyspace("keys")?;
    Ok((store, keyspace))
}

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Fills the store with `mib` MiB of values, or opens it and writes a little more, or nothing at all; then
/// dies.
fn child(path: &Path, mib: u64, writes: bool) -> Outcome {
    let (_pool, store, keyspace) = open(path)?;
    let count = (mib << 20) / VALUE_BYTES as u64;
    for from in (0..count).step_by(BATCH as usize) {
        store.transact(|tx| {
            (from..(from + BATCH).min(count))
                .try_for_each(|i| tx.put(&keyspace, key(i), [i as u8; VALUE_BYTES]))
        })?;
        if from.is_multiple_of(1 << 16) {
            store.keep(store.snapshot().number(), &from.to_string())?;
        }
    }
    if writes {
        for i in 0..50u64 {
            store.put(&keyspace, key(i), [i as u8; VALUE_BYTES])?;
        }
        let mut unfinished = store.begin();
        unfinished.put(&keyspace, key(1), "never committed")?;
    }
    // The process ends here without running any destructor, as a crash would.
    std::process::abort();
}

fn run_child(path: &Path, mib: u64, writes: bool) -> Outcome {
    let program = std::env::current_exe()?;
    let _ =
        Command::new(program).arg("child").arg(path).args([mib.to_string(), writes.to_string()]).output()?;
    Ok(())
}

fn row(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    format!("{:>9.0} {:>9.0}", us(times[times.len() / 2]), us(times[times.len() - 1]))
}

fn measure(path: &Path, mib: u64, nested: usize) -> Outcome {
    let (mut pools, mut opens) = (Vec::new(), Vec::new());
    let (mut reads, mut firsts) = (Vec::new(), Vec::new());
    for i in 0..OPENINGS as u64 {
        run_child(path, 0, true)?;
        for _ in 0..nested {
            run_child(path, 0, false)?;
        }
        let begun = Instant::now();
        let pool = open_pool(path)?;
        pools.push(begun.elapsed());
        let (store, keyspace) = open_store(&pool)?;
        opens.push(begun.elapsed());
        assert!(nested > 0 || pool.recovery().records_replayed > 0, "the child did not crash");
        let begun = Instant::now();
        let value = store.get(&keyspace, key(i))?;
        reads.push(begun.elapsed());
        assert!(
            value.is_some_and(|value| value == [i as u8; VALUE_BYTES]),
            "the last write to key {i} is lost"
        );
        let begun = Instant::now();
        store.put(&keyspace, key(1 << 40), [2; VALUE_BYTES])?;
        firsts.push(begun.elapsed());
    }
    let (opens, reads, firsts) = (row(&mut opens), row(&mut reads), row(&mut firsts));
    let pools = row(&mut pools);
    println!("{mib:>8} {:>8}  {pools}  {opens}  {reads}  {firsts}", nested + 1);
    Ok(())
}

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [verb, path, mib, writes] = args.as_slice()
        && verb == "child"
    {
        return child(Path::new(path), mib.parse()?, writes.parse()?);
    }
    let directory = args.first().map_or("/dev/shm", |directory| directory.as_str());
    let sizes: Vec<u64> = args.iter().skip(1).map(|mib| mib.parse()).collect::<Result<_, _>>()?;
    let sizes = if sizes.is_empty() { vec![64, 1024] } else { sizes };
    println!("after crashes, microseconds, median and maximum of {OPENINGS}");
    println!(
        "     MiB  crashes  open pool       max  and store       max  first get       max  first put       max"
    );
    for mib in sizes {
        let path = Path::new(directory).join(format!("tembo-store-{}-{mib}.pool", std::process::id()));
        let outcome = run_child(&path, mib, true)
            .and_then(|()| measure(&path, mib, 0))
            .and_then(|()| measure(&path, mib, NESTED));
        let _ = std::fs::remove_file(&path);
        outcome?;
    }
    Ok(())
}
