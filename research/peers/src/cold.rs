//! Random lookups of 1 KiB values in a database that is larger than memory: each engine in a process of its
//! own, in a control group whose memory is a part of the data.
//!
//! A process fills a database on tmpfs, where a sync costs nothing, and closes it. It is copied to a disk,
//! and its pages are dropped. Another process joins the group, opens it, and looks random keys up one by one:
//! for a third of the time unmeasured. Beside each engine the device's random reads of 4 KiB past the cache
//! are measured, in a file of their own.

use crate::engines::{self, Kind, Result};
use crate::group::{self, Group};
use crate::measure::Plan;
use crate::supervise::ask_in_place;
use crate::workload::{Shape, Workload, mix};
use rustix::fs::{Advice, OFlags, fadvise};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tembo_pmem::Durability;

/// The arguments of `cold`.
#[derive(clap::Args)]
pub(crate) struct ColdOptions {
    /// Records of 8 + 1,024 bytes
    #[arg(long, default_value_t = 400_000)]
    records: u64,
    /// The data are so many times as large as the memory of the group
    #[arg(long, default_value_t = 4)]
    times: u64,
    /// Seconds of lookups; the first third is not counted
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    #[arg(long, value_delimiter = ',', default_value = "tembo,lmdb,redb,rocksdb")]
    read_engines: Vec<String>,
    /// A folder on a disk
    #[arg(long)]
    disk: PathBuf,
}

/// One of the two processes of an engine.
#[derive(clap::Args)]
pub(crate) struct ColdChild {
    engine: String,
    folder: PathBuf,
    records: u64,
    durability: Durability,
    /// The control group to join, and the seconds of lookups; without it, the database is filled
    group: Option<PathBuf>,
    seconds: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lookups {
    count: u64,
    seconds: f64,
    p99_us: f64,
    read_bytes: u64,
}

/// The part of the group's memory that engines with a cache of their own get for that.
const CACHE_PARTS: u64 = 2;
/// Read by `redb.rs` and `c/rocksdb.c`.
const CACHE_ENV: &str = "PEERS_CACHE_BYTES";
const PATIENCE: Duration = Duration::from_secs(600);
const FLOOR_BYTES: u64 = 256 << 20;
const FLOOR_READS: u64 = 3000;

pub(crate) fn compare(folder: &Path, durability: Durability, options: &ColdOptions) -> Result<()> {
    let all = engines::all();
    let found =
        |id: &String| all.iter().find(|kind| kind.id == id).ok_or(format!("no engine is called {id}"));
    let kinds = options.read_engines.iter().map(found).collect::<std::result::Result<Vec<_>, _>>()?;
    let memory = options.records * 1032 / options.times;
    let group = Group::create("cold", Some(memory))?;
    let floor = tempfile::NamedTempFile::new_in(&options.disk)?;
    fill_floor(floor.as_file())?;
    println!("{} records of 8 + 1,024 bytes, a control group of {} MiB.\n", options.records, memory >> 20);
    println!(
        "| engine | lookups/s | mean, us | p99, us | bytes read for each | 4 KiB by O_DIRECT, us | mean to that |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for kind in kinds {
        let looked_up = run(kind, folder, durability, options, &group, memory);
        let floor_us = floor_us(floor.path())?;
        match looked_up {
            Err(e) => println!("| {} | {e} | | | | {floor_us:.0} | |", kind.name),
            Ok(Lookups { count, seconds, p99_us, read_bytes }) => {
                let mean = seconds * 1e6 / count as f64;
                println!(
                    "| {} | {:.0} | {mean:.0} | {p99_us:.0} | {} | {floor_us:.0} | {:.1} |",
                    kind.name,
                    count as f64 / seconds,
                    read_bytes / count,
                    mean / floor_us
                );
            }
        }
    }
    Ok(())
}

fn run(
    kind: &Kind,
    folder: &Path,
    durability: Durability,
    options: &ColdOptions,
    group: &Group,
    memory: u64,
) -> Result<Lookups> {
    let place = |folder: &Path| tempfile::Builder::new().prefix("tembo-cold-").tempdir_in(folder);
    let (made, copied) = (place(folder)?, place(&options.disk)?);
    let child = |folder: &Path| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["child-cold", kind.id]).arg(folder);
        command.args([options.records.to_string(), durability.to_string()]);
        std::io::Result::Ok(command)
    };
    let _: u64 = ask_in_place(&mut child(made.path())?)?;
    let copy =
        Command::new("cp").args(["-r", "--sparse=always"]).arg(made.path()).arg(copied.path()).status()?;
    if !copy.success() {
        return Err("the database could not be copied".into());
    }
    drop(made);
    let data = fs::read_dir(copied.path())?.next().ok_or("nothing was copied")??.path();
    for entry in fs::read_dir(&data)? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    let mut reads = child(&data)?;
    reads.arg(group.path()).arg(options.seconds.to_string());
    reads.env(CACHE_ENV, (memory / CACHE_PARTS).to_string());
    ask_in_place(&mut reads)
}

/// Fills a database and returns the number of its records, or looks records up.
pub(crate) fn child(child: &ColdChild) -> Result<serde_json::Value> {
    let kind = engines::all().into_iter().find(|kind| kind.id == child.engine).ok_or("no such engine")?;
    let ColdChild { records, durability, .. } = *child;
    let plan = Plan { shape: Shape::Kib, keys: records, seed: 1, limit: PATIENCE, durability };
    let mut workload = Workload::new(plan.shape, plan.seed);
    let (Some(group), Some(seconds)) = (&child.group, child.seconds) else {
        let mut engine = (kind.open)(&plan.setup(&child.folder))?;
        for index in 0..records {
            let (key, value) = workload.record(index);
            engine.insert(key, value)?;
        }
        engine.settle()?;
        return Ok(records.into());
    };
    group::join(group)?;
    let mut engine = (kind.open)(&plan.setup(&child.folder))?;
    let seconds = seconds as f64;
    let (begun, mut counted_from, mut read_before) = (Instant::now(), None, 0);
    let mut times = Vec::new();
    for i in 0_u64.. {
        let started = begun.elapsed().as_secs_f64();
        if started >= seconds {
            break;
        }
        if counted_from.is_none() && started >= seconds / 3.0 {
            (counted_from, read_before) = (Some(started), read_bytes()?);
        }
        let (key, value) = workload.record(mix(i) % records);
        let mut is_right = false;
        engine.get(key, &mut |stored| is_right = stored == value)?;
        if !is_right {
            return Err("a record is not there, or another one".into());
        }
        if counted_from.is_some() {
            times.push(begun.elapsed().as_secs_f64() - started);
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    let p99 = times.get(times.len() * 99 / 100).ok_or("no lookup was counted")?;
    let lookups = Lookups {
        count: times.len() as u64,
        seconds: begun.elapsed().as_secs_f64() - counted_from.unwrap_or_default(),
        p99_us: p99 * 1e6,
        read_bytes: read_bytes()? - read_before,
    };
    Ok(serde_json::to_value(lookups)?)
}

/// Bytes that this process let the system read from devices.
fn read_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    Ok(line.ok_or("no count of read bytes")?.trim().parse()?)
}

fn fill_floor(file: &File) -> Result<()> {
    let piece: Vec<u8> = (0..1_u64 << 17).flat_map(|i| mix(i).to_le_bytes()).collect();
    for off in (0..FLOOR_BYTES).step_by(piece.len()) {
        file.write_all_at(&piece, off)?;
    }
    Ok(file.sync_all()?)
}

/// The mean time of a random read of 4 KiB past the cache.
fn floor_us(path: &Path) -> Result<f64> {
    let direct = i32::try_from(OFlags::DIRECT.bits())?;
    let file = File::options().read(true).custom_flags(direct).open(path)?;
    let mut buffer = vec![0; 8192];
    let start = buffer.as_ptr().align_offset(4096);
    let begun = Instant::now();
    for i in 0..FLOOR_READS {
        file.read_exact_at(&mut buffer[start..start + 4096], mix(i) % (FLOOR_BYTES / 4096) * 4096)?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / FLOOR_READS as f64)
}
