//! Bytes that engines write to a disk for each byte that is put, where a put does not wait for the disk.
//!
//! A process fills a database, closes it and opens it again, puts values of random keys, a commit each, and
//! closes it. The device's count of sectors tells what all that cost it, from the first put until everything
//! is on the device; then the database is opened once more, and some of its records are looked up.

use crate::disk::{Device, Puts, process_write_bytes};
use crate::engines::{self, Engine, Kind, Result};
use crate::measure::Plan;
use crate::supervise::ask;
use crate::workload::{Shape, Workload, mix};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tembo_pmem::Durability;

/// The arguments of `written`.
#[derive(clap::Args)]
pub(crate) struct WrittenOptions {
    /// Records of 8 + 1,024 bytes that a database is filled with; several numbers are measured one after
    /// another
    #[arg(long, value_delimiter = ',', default_values_t = [100_000, 1_000_000])]
    keys: Vec<u64>,
    /// Puts of random keys, a commit each (default: as many as keys)
    #[arg(long)]
    puts: Option<u64>,
    /// Seconds after which the puts end where they are
    #[arg(long, default_value_t = 60)]
    limit_s: u64,
    /// The engines: tembo, lmdb, redb, rocksdb
    #[arg(long, value_delimiter = ',', default_value = "tembo,lmdb,redb,rocksdb")]
    engines: Vec<String>,
    /// A folder on a disk that nothing else writes to: all that the device is given counts
    #[arg(long)]
    disk: PathBuf,
}

/// The process of an engine.
#[derive(clap::Args)]
pub(crate) struct WrittenChild {
    engine: String,
    folder: PathBuf,
    keys: u64,
    puts: u64,
    limit_s: u64,
    durability: Durability,
}

/// The measurements of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    settings: String,
    puts: Puts,
    /// How long the last sync and the closing took.
    close_s: f64,
    device_bytes: u64,
    /// `write_bytes` of the process: pages as often as they became dirty, so that it may be more.
    process_bytes: u64,
}

const SHAPE: Shape = Shape::Kib;
/// For filling and opening, which have no limit.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Records that are looked up in the end.
const CHECKED: u64 = 1000;

fn put_bytes(puts: u64) -> f64 {
    (puts * (SHAPE.key_bytes() + SHAPE.value_bytes()) as u64) as f64
}

pub(crate) fn compare(durability: Durability, options: &WrittenOptions) -> Result<()> {
    if !matches!(durability, Durability::Relaxed { .. }) {
        return Err(format!(
            "all engines are synchronised in intervals: --durability relaxed, not {durability}"
        )
        .into());
    }
    let all = engines::relaxed();
    let found =
        |id: &String| all.iter().find(|kind| kind.id == id).ok_or(format!("no engine is called {id}"));
    let kinds = options.engines.iter().map(found).collect::<std::result::Result<Vec<_>, _>>()?;
    println!("Records of 8 + 1,024 bytes, {durability}, {}.\n", options.disk.display());
    println!(
        "| keys | engine | puts | puts/s | p99.9, us | longest, ms | close, s | device bytes for each byte put | \
         `write_bytes` |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|---:|");
    let mut settings = Vec::new();
    for &keys in &options.keys {
        for kind in &kinds {
            let outcome = run(kind, keys, durability, options);
            println!("| {keys} | {} | {} |", kind.name, cells(&outcome));
            if let Ok(written) = outcome {
                let line = format!("- {} {}: {}", kind.name, (kind.version)(), written.settings);
                if !settings.contains(&line) {
                    settings.push(line);
                }
            }
        }
    }
    println!("\n{}", settings.join("\n"));
    Ok(())
}

fn cells(outcome: &Result<Written>) -> String {
    match outcome {
        Err(e) => format!("{e} | | | | | |"),
        Ok(Written { puts, close_s, device_bytes, process_bytes, .. }) => format!(
            "{} | {:.0} | {:.0} | {:.1} | {close_s:.1} | {:.2} | {:.2}",
            puts.count,
            puts.rate(),
            puts.p999_us,
            puts.longest_ms,
            *device_bytes as f64 / put_bytes(puts.count),
            *process_bytes as f64 / put_bytes(puts.count)
        ),
    }
}

fn run(kind: &Kind, keys: u64, durability: Durability, options: &WrittenOptions) -> Result<Written> {
    let folder = tempfile::Builder::new().prefix("tembo-written-").tempdir_in(&options.disk)?;
    let puts = options.puts.unwrap_or(keys);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["child-written", kind.id]).arg(folder.path());
    command.args([keys, puts, options.limit_s].map(|number| number.to_string())).arg(durability.to_string());
    ask(&mut command, PATIENCE + Duration::from_secs(options.limit_s))
}

/// Fills, puts, closes and looks up.
pub(crate) fn child(child: &WrittenChild) -> Result<Written> {
    let kind = engines::relaxed().into_iter().find(|kind| kind.id == child.engine).ok_or("no such engine")?;
    let WrittenChild { keys, durability, .. } = *child;
    let limit = Duration::from_secs(child.limit_s);
    let plan = Plan { shape: SHAPE, keys, seed: 1, limit, durability };
    let open = || (kind.open)(&plan.setup(&child.folder));
    let mut workload = Workload::new(plan.shape, plan.seed);
    let mut engine = open()?;
    engine.fill(&mut workload, 0..keys)?;
    engine.sync()?;
    drop(engine);

    let mut engine = open()?;
    engine.sync()?;
    let device = Device::below(&child.folder)?;
    let (device_before, process_before) = (device.synced_bytes()?, process_write_bytes()?);
    let mut last_puts = vec![None; usize::try_from(keys)?];
    let values = Workload::new(plan.shape, plan.seed);
    let puts = Puts::random(keys, child.puts, limit, |key, i| {
        last_puts[key as usize] = Some(u32::try_from(i)?);
        engine.insert(workload.key(key), values.part(i))
    })?;
    let settings = engine.settings();
    let closing = Instant::now();
    engine.sync()?;
    drop(engine);
    let device_bytes = device.synced_bytes()? - device_before;
    let close_s = closing.elapsed().as_secs_f64();
    let process_bytes = process_write_bytes()? - process_before;
    look_up(open()?.as_mut(), &last_puts)?;
    Ok(Written { settings, puts, close_s, device_bytes, process_bytes })
}

/// Requires some of the records to be as they were put last.
fn look_up(engine: &mut dyn Engine, last_puts: &[Option<u32>]) -> Result<()> {
    let (mut workload, values) = (Workload::new(SHAPE, 1), Workload::new(SHAPE, 1));
    for i in 0..CHECKED {
        let index = mix(i) % last_puts.len() as u64;
        let (key, filled) = workload.record(index);
        let value = last_puts[index as usize].map_or(filled, |put| values.part(put.into()));
        let mut is_right = false;
        engine.get(key, &mut |stored| is_right = stored == value)?;
        if !is_right {
            return Err(format!("record {index} is not as it was put last").into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_relaxed_engine_keeps_what_was_put_last() {
        let durability = Durability::Relaxed { interval_ms: 20 };
        for kind in engines::relaxed() {
            let folder = tempfile::tempdir().unwrap();
            let plan = Plan { shape: SHAPE, keys: 500, seed: 1, limit: PATIENCE, durability };
            let mut workload = Workload::new(SHAPE, 1);
            let values = Workload::new(SHAPE, 1);
            let mut engine = (kind.open)(&plan.setup(folder.path())).unwrap();
            engine.fill(&mut workload, 0..500).unwrap();
            let mut last_puts = vec![None; 500];
            Puts::random(500, 2000, PATIENCE, |key, i| {
                last_puts[key as usize] = Some(u32::try_from(i)?);
                engine.insert(workload.key(key), values.part(i))
            })
            .unwrap();
            engine.sync().unwrap();
            drop(engine);
            let mut engine = (kind.open)(&plan.setup(folder.path())).unwrap();
            look_up(engine.as_mut(), &last_puts).unwrap();
            last_puts.fill(Some(2000));
            assert!(look_up(engine.as_mut(), &last_puts).is_err(), "{}", kind.name);
        }
    }
}
