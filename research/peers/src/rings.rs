//! Journals of different sizes: what a put costs the disk and how long it takes, and how long a pool opens
//! after a kill.
//!
//! For each size a process fills a pool, puts values of random keys, and is killed with its journal as full
//! as that left it; another opens the pool.

use crate::disk::{Device, Puts};
use crate::engines::Result;
use crate::supervise::ask_in_place;
use crate::workload::mix;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tembo::{Map, Options, Pool};
use tembo_bench::plot::{self, Kind, Panel, Series};
use tembo_goals::machine::Machine;
use tembo_goals::table::{Table, number};
use tembo_pmem::Durability;

/// The arguments of `rings`.
#[derive(clap::Args)]
pub(crate) struct RingOptions {
    /// Keys of 8 bytes, with values of 1,000
    #[arg(long, default_value_t = 400_000)]
    keys: u64,
    /// Seconds of puts to random keys
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Sizes of the journal in MiB; a pool of usual geometry has room for 1,023 at most
    #[arg(long, value_delimiter = ',', default_value = "16,32,64,128,256,512,1023")]
    mib: Vec<u64>,
    /// A folder on a disk that nothing else writes to: all that the device is given counts
    #[arg(long)]
    disk: PathBuf,
    /// Where rings.csv and rings.svg are written
    #[arg(long, default_value = "figures")]
    out: PathBuf,
}

/// One of the two processes of a size.
#[derive(clap::Args)]
pub(crate) struct RingChild {
    pool: PathBuf,
    keys: u64,
    mib: u64,
    /// Seconds of puts; without it, the pool is opened after a kill
    seconds: Option<u64>,
}

/// The measurements of the process that puts.
#[derive(Debug, Serialize, Deserialize)]
struct Killed {
    puts: Puts,
    /// From the first put until the last was on the device.
    device_bytes: u64,
    ring_bytes: u64,
    /// Records that the ring had for the next process.
    used_bytes: u64,
    write_backs: u64,
    stalls: u64,
}

/// The measurements of the process that opens the pool.
#[derive(Debug, Serialize, Deserialize)]
struct Opened {
    open_ms: f64,
    /// Lines that were newer in the journal.
    lines: u64,
}

/// A size of the journal, and what it costs.
struct Row {
    mib: u64,
    killed: Killed,
    opened: Opened,
}

const VALUE_BYTES: usize = 1000;
const MAP: &str = "rings";
const TITLE: &str = "Journals of different sizes: relaxed puts of 1,000 bytes, and opening after kill -9";

impl Row {
    fn device_per_byte(&self) -> f64 {
        self.killed.device_bytes as f64 / (self.killed.puts.count * (8 + VALUE_BYTES as u64)) as f64
    }

    fn held_mib(&self) -> f64 {
        self.killed.used_bytes as f64 / f64::from(1 << 20)
    }

    fn cells(&self) -> Vec<String> {
        let Killed { puts, write_backs, stalls, .. } = &self.killed;
        let numbers = [
            puts.rate(),
            puts.p999_us,
            puts.longest_ms,
            self.device_per_byte(),
            self.held_mib(),
            self.opened.open_ms,
        ];
        let mut cells = vec![self.mib.to_string()];
        cells.extend(numbers.map(number));
        cells.extend([self.opened.lines, *write_backs, *stalls, puts.count].map(|count| count.to_string()));
        cells
    }
}

const COLUMNS: [&str; 11] = [
    "ring_mib",
    "puts_per_s",
    "p99.9_us",
    "longest_ms",
    "device_bytes_per_byte",
    "held_mib",
    "open_ms",
    "lines_in_the_ring",
    "write_backs",
    "stalls",
    "puts",
];

/// Measures, prints Markdown, and draws.
pub(crate) fn draw(options: &RingOptions) -> Result<()> {
    println!("| {} |", COLUMNS.join(" | ").replace('_', " "));
    println!("|{}", "---:|".repeat(COLUMNS.len()));
    let mut rows = Vec::new();
    for &mib in &options.mib {
        match run(mib, options) {
            Ok(row) => {
                println!("| {} |", row.cells().join(" | "));
                rows.push(row);
            }
            // The others count all the same.
            Err(e) => println!("| {mib} | {e} |{}", " |".repeat(COLUMNS.len() - 2)),
        }
    }
    if rows.is_empty() {
        return Err("no size could be measured".into());
    }
    let notes = notes(options);
    let mut table = Table::new(&COLUMNS);
    rows.iter().for_each(|row| table.add(row.cells()));
    let header: Vec<String> = std::iter::once(TITLE.to_owned()).chain(notes.iter().cloned()).collect();
    std::fs::create_dir_all(&options.out)?;
    std::fs::write(options.out.join("rings.csv"), table.csv(&header))?;
    let svg = plot::svg(TITLE, &panels(&rows), &notes).map_err(|e| e.to_string())?;
    Ok(std::fs::write(options.out.join("rings.svg"), svg)?)
}

fn notes(options: &RingOptions) -> Vec<String> {
    let RingOptions { keys, seconds, .. } = options;
    vec![
        format!(
            "{keys} keys of 8 bytes, random puts of {VALUE_BYTES} bytes for {seconds} s in {}, a commit each; the \
             device's sectors from the first put until the last was on the device, to bytes of keys and values",
            Durability::ON_DISK
        ),
        "opening: Pool::open in another process after kill -9, with a warm page cache".to_owned(),
        format!("machine: {}", Machine::this()),
        format!("command: research/bench-peers rings --disk DIRECTORY --seconds {seconds} --keys {keys}"),
    ]
}

fn panels(rows: &[Row]) -> Vec<Panel> {
    let panel = |title: &str, y_label: &str, log: bool, series: Vec<(&str, Vec<f64>)>| Panel {
        title: title.to_owned(),
        x_label: "ring, MiB".to_owned(),
        y_label: y_label.to_owned(),
        categories: rows.iter().map(|row| row.mib.to_string()).collect(),
        series: series
            .into_iter()
            .map(|(name, values)| Series {
                name: name.to_owned(),
                values: values.into_iter().map(Some).collect(),
            })
            .collect(),
        kind: Kind::Lines,
        log,
    };
    let of = |value: fn(&Row) -> f64| rows.iter().map(value).collect::<Vec<_>>();
    vec![
        panel(
            "Bytes to the device for each byte put",
            "bytes",
            false,
            vec![("device", of(Row::device_per_byte))],
        ),
        panel("Puts", "puts per second", false, vec![("puts", of(|row| row.killed.puts.rate()))]),
        panel(
            "Time of a put",
            "us",
            true,
            vec![
                ("p99.9", of(|row| row.killed.puts.p999_us)),
                ("longest", of(|row| row.killed.puts.longest_ms * 1e3)),
            ],
        ),
        panel("Opening after kill -9", "ms", false, vec![("opening", of(|row| row.opened.open_ms))]),
    ]
}

fn run(mib: u64, options: &RingOptions) -> Result<Row> {
    let folder = tempfile::Builder::new().prefix("tembo-rings-").tempdir_in(&options.disk)?;
    let child = || -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("child-rings").arg(folder.path().join("rings.pool"));
        command.args([options.keys, mib].map(|number| number.to_string()));
        Ok(command)
    };
    // Killed as soon as it has answered.
    let killed = ask_in_place(child()?.arg(options.seconds.to_string()))?;
    let opened = ask_in_place(&mut child()?)?;
    Ok(Row { mib, killed, opened })
}

/// Puts and leaves the pool open, or opens the pool.
pub(crate) fn child(child: &RingChild) -> Result<serde_json::Value> {
    match child.seconds {
        Some(seconds) => Ok(serde_json::to_value(put(child, Duration::from_secs(seconds))?)?),
        None => Ok(serde_json::to_value(open(child)?)?),
    }
}

fn options(mib: u64) -> Options {
    Options::new().create(true).durability(Durability::ON_DISK).journal_bytes(mib << 20)
}

/// A value that tells puts apart.
fn value(i: u64) -> [u8; VALUE_BYTES] {
    let mut value = [7; VALUE_BYTES];
    value[..8].copy_from_slice(&mix(i).to_le_bytes());
    value
}

fn put(child: &RingChild, limit: Duration) -> Result<Killed> {
    let pool = options(child.mib).open(&child.pool)?;
    let map = pool.open_map(MAP)?;
    for key in 0..child.keys {
        map.put(key.to_be_bytes(), value(key))?;
    }
    pool.make_durable()?;
    let device = Device::below(child.pool.parent().unwrap_or(Path::new(".")))?;
    let before = device.synced_bytes()?;
    let puts = Puts::random(child.keys, u64::MAX, limit, |key, i| {
        map.put(key.to_be_bytes(), value(i))?;
        Ok(())
    })?;
    pool.make_durable()?;
    let device_bytes = device.synced_bytes()? - before;
    let stats = pool.journal_stats().ok_or("the pool has no journal")?;
    leave_open(pool, map);
    Ok(Killed {
        puts,
        device_bytes,
        ring_bytes: stats.ring_bytes,
        used_bytes: stats.used_bytes,
        write_backs: stats.write_backs,
        stalls: stats.stalls,
    })
}

/// The process is about to be killed.
fn leave_open(pool: Pool, map: Map) {
    std::mem::forget((map, pool));
}

fn open(child: &RingChild) -> Result<Opened> {
    let begun = Instant::now();
    let pool = options(child.mib).open(&child.pool)?;
    let open_ms = begun.elapsed().as_secs_f64() * 1e3;
    let map = pool.open_map(MAP)?;
    for key in 0..child.keys {
        if map.get(key.to_be_bytes())?.is_none_or(|value| value.len() != VALUE_BYTES) {
            return Err(format!("key {key} is lost").into());
        }
    }
    let lines = pool.journal_lines().ok_or("the pool has no journal")?;
    leave_open(pool, map);
    Ok(Opened { open_ms, lines })
}
