//! Memory, private and page cache, that a pool on a disk takes under random puts: with a journal, beside the
//! page cache alone.
//!
//! A process joins a control group without a limit, fills a pool, puts values of random keys and closes the
//! pool. The group's memory is looked at all the time: its peak counts.

use crate::engines::Result;
use crate::group::{self, Group, Memory};
use crate::measure::timed;
use crate::supervise::ask;
use crate::workload::mix;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tembo::Options;
use tembo_pmem::Durability;

/// The arguments of `memory`.
#[derive(clap::Args)]
pub(crate) struct MemoryOptions {
    /// GiB of data in the pool
    #[arg(long, default_value_t = 4.0)]
    gib: f64,
    /// Seconds of puts to random keys
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// A folder on a disk
    #[arg(long)]
    disk: PathBuf,
}

/// The process of a durability.
#[derive(clap::Args)]
pub(crate) struct MemoryChild {
    group: PathBuf,
    folder: PathBuf,
    bytes: u64,
    seconds: u64,
    durability: Durability,
}

/// The measurements of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    keys: u64,
    puts: u64,
    /// The time of a put.
    us: f64,
    pool_bytes: u64,
    journal_bytes: u64,
}

/// The most that `relaxed` may take, in peaks of the page cache alone.
const BAR: f64 = 1.3;
const VALUE_BYTES: usize = 1000;
/// Between two looks at the group's memory.
const LOOKS: Duration = Duration::from_millis(50);
/// Keys between two looks at the pool's length.
const FILL_STRIDE: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(3600);

pub(crate) fn compare(options: &MemoryOptions) -> Result<()> {
    println!("{} GiB of data, values of 1,000 bytes, a control group without a limit; MiB.\n", options.gib);
    println!(
        "| durability | keys | puts | puts/s | pool | journal | peak of private + page cache | private then | page cache \
         then | counter's peak |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut peaks = Vec::new();
    for durability in [Durability::PageCache, Durability::ON_DISK] {
        let (held, peak, counted) = run(durability, options)?;
        let mib = |bytes: u64| bytes >> 20;
        let counted = counted.map_or("none".to_owned(), |bytes| mib(bytes).to_string());
        println!(
            "| {durability} | {} | {} | {:.0} | {} | {} | {} | {} | {} | {counted} |",
            held.keys,
            held.puts,
            1e6 / held.us,
            mib(held.pool_bytes),
            mib(held.journal_bytes),
            mib(peak.all()),
            mib(peak.anonymous),
            mib(peak.cache)
        );
        peaks.push(peak.all() as f64);
    }
    let ratio = peaks[1] / peaks[0];
    let verdict = if ratio <= BAR { "met" } else { "missed" };
    println!("\nRatio of the peaks: {ratio:.2}, bar {BAR}: {verdict}.");
    Ok(())
}

/// Runs a child in a group of its own; returns also the peak, and the group's own count of it.
fn run(durability: Durability, options: &MemoryOptions) -> Result<(Held, Memory, Option<u64>)> {
    let group = Group::create("memory", None)?;
    let folder = tempfile::Builder::new().prefix("tembo-memory-").tempdir_in(&options.disk)?;
    let bytes = (options.gib * f64::from(1 << 30)) as u64;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child-memory").arg(group.path()).arg(folder.path());
    command.args([bytes, options.seconds].map(|number| number.to_string())).arg(durability.to_string());
    let ended = AtomicBool::new(false);
    let (held, peak) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| peak(&group, &ended));
        let held = ask(&mut command, PATIENCE);
        ended.store(true, Ordering::Relaxed);
        (held, looking.join())
    });
    let peak = peak.map_err(|_| "the thread that looks at the group panicked")??;
    Ok((held?, peak, group.peak_bytes()))
}

/// The most memory of the group until the child has ended.
fn peak(group: &Group, ended: &AtomicBool) -> Result<Memory> {
    let mut peak = Memory::default();
    while !ended.load(Ordering::Relaxed) {
        let memory = group.memory()?;
        if memory.all() > peak.all() {
            peak = memory;
        }
        std::thread::sleep(LOOKS);
    }
    Ok(peak)
}

/// Fills a pool, puts, and closes the pool.
pub(crate) fn child(child: &MemoryChild) -> Result<Held> {
    group::join(&child.group)?;
    let options = Options::new().create(true).durability(child.durability);
    let pool = options.open(child.folder.join("memory.pool"))?;
    let map = pool.open_map("memory")?;
    let mut keys = 0;
    while pool.stats().used_bytes() < child.bytes {
        for key in keys..keys + FILL_STRIDE {
            map.put(key.to_be_bytes(), value(key))?;
        }
        keys += FILL_STRIDE;
    }
    let puts = timed(u64::MAX, Duration::from_secs(child.seconds), |i| {
        map.put((mix(i) % keys).to_be_bytes(), value(i))?;
        Ok(())
    })?;
    let stats = pool.stats();
    Ok(Held {
        keys,
        puts: puts.operations,
        us: puts.ns / 1e3,
        pool_bytes: stats.pool_bytes,
        journal_bytes: stats.journal_bytes,
    })
}

/// A value that tells puts apart.
fn value(i: u64) -> [u8; VALUE_BYTES] {
    let mut value = [7; VALUE_BYTES];
    value[..8].copy_from_slice(&mix(i).to_le_bytes());
    value
}
