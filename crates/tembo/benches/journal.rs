//! Puts to a pool on a disk, and its openings after a kill and after a closing.
//!
//! `cargo bench -p tembo --bench journal -- put DIRECTORY [SECONDS]`: puts to random keys, a commit each, in
//! `page-cache` and `relaxed` by turns.
//!
//! `cargo bench -p tembo --bench journal -- open DIRECTORY [MIB...]`: a process puts until the ring has so
//! many MiB of records and dies; others open the pool and die. Then openings after a closing.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tembo::{Durability, Options, Pool};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const KEYS: u64 = 200_000;
const FIXED_KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 1000;
const ROUNDS: usize = 5;
const RELAXED: Durability = Durability::Relaxed { interval_ms: 1000 };

fn open(path: &Path, durability: Durability) -> Outcome<Pool> {
    // Half of the ring is used before a write-back begins.
    let options = Options::new().create(true).durability(durability).journal_bytes(512 << 20);
    Ok(options.open(path)?)
}

/// Random numbers.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn fill(path: &Path) -> Outcome {
    let map = open(path, Durability::PageCache)?.open_map("bench")?;
    for key in 0..KEYS {
        map.put(key.to_be_bytes(), [1; VALUE_BYTES])?;
    }
    Ok(())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Calls `put` for some seconds; returns microseconds for each call.
fn timed(seconds: u64, mut put: impl FnMut(u64) -> Outcome) -> Outcome<f64> {
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..100 {
            put(mix(count))?;
            count += 1;
        }
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / count as f64)
}

/// Microseconds of a put of 8 + 8, 8 + 20 and 8 + 1,000 bytes.
fn puts(path: &Path, durability: Durability, seconds: u64) -> Outcome<[f64; 3]> {
    let pool = open(path, durability)?;
    let (fixed, map) = (pool.open_fixed_map("fixed")?, pool.open_map("bench")?);
    let words = timed(seconds, |i| Ok(fixed.put(i % FIXED_KEYS, i).map(drop)?))?;
    let of = |bytes: usize| {
        let value = vec![7; bytes];
        timed(seconds, |i| Ok(map.put((i % KEYS).to_be_bytes(), &value).map(drop)?))
    };
    Ok([words, of(20)?, of(VALUE_BYTES)?])
}

fn compare_puts(path: &Path, seconds: u64) -> Outcome {
    fill(path)?;
    let domains = [Durability::PageCache, RELAXED];
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (times, durability) in times.iter_mut().zip(domains) {
            times.push(puts(path, durability, seconds)?);
        }
    }
    for (row, what) in ["8 + 8 bytes", "8 + 20 bytes", "8 + 1,000 bytes"].into_iter().enumerate() {
        let [plain, relaxed] = times.each_ref().map(|all| median(all.iter().map(|us| us[row]).collect()));
        println!(
            "{what}: {plain:.2} us in the page cache, {relaxed:.2} relaxed, ratio {:.1}",
            relaxed / plain
        );
    }
    Ok(())
}

/// Puts until the ring has so many bytes of records, or only opens the pool; then dies.
fn child(path: &Path, ring_bytes: Option<u64>) -> Outcome {
    let begun = Instant::now();
    let pool = open(path, RELAXED)?;
    println!("{}", begun.elapsed().as_secs_f64() * 1e3);
    if let Some(ring_bytes) = ring_bytes {
        let map = pool.open_map("bench")?;
        let used = || pool.journal_stats().map_or(u64::MAX, |stats| stats.used_bytes);
        for i in (0_u64..).take_while(|_| used() < ring_bytes) {
            map.put((mix(i) % KEYS).to_be_bytes(), [i as u8; VALUE_BYTES])?;
        }
    }
    std::process::abort();
}

fn openings(path: &Path, mib: u64) -> Outcome {
    let child = |arguments: &[String]| -> Outcome<f64> {
        let mut command = Command::new(std::env::current_exe()?);
        let output = command.arg("child").arg(path).args(arguments).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    fill(path)?;
    child(&[(mib << 20).to_string()])?;
    let killed = (0..ROUNDS).map(|_| child(&[])).collect::<Outcome<Vec<f64>>>()?;
    drop(open(path, RELAXED)?);
    let closed = (0..ROUNDS).map(|_| {
        let begun = Instant::now();
        let pool = open(path, RELAXED)?;
        let elapsed = begun.elapsed();
        drop(pool);
        Outcome::Ok(elapsed.as_secs_f64() * 1e3)
    });
    let closed = closed.collect::<Outcome<Vec<f64>>>()?;
    println!(
        "{mib} MiB in the ring: {:.0} ms after a kill; {:.1} ms after a closing",
        median(killed),
        median(closed)
    );
    Ok(())
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |at: usize| arguments.get(at).map(|text| text.parse::<u64>()).transpose();
    let [task, directory] = arguments.first_chunk().ok_or("put or open, and a directory on a disk")?;
    if task == "child" {
        return child(Path::new(directory), number(2)?);
    }
    let folder = tempfile::tempdir_in(directory)?;
    let path = folder.path().join("bench.pool");
    match task.as_str() {
        "put" => compare_puts(&path, number(2)?.unwrap_or(2)),
        "open" => {
            let given = (2..arguments.len()).filter_map(|at| number(at).transpose());
            let sizes = given.collect::<Result<Vec<_>, _>>()?;
            for mib in if sizes.is_empty() { vec![66, 110, 162] } else { sizes } {
                openings(&path, mib)?;
                std::fs::remove_file(&path)?;
            }
            Ok(())
        }
        other => Err(format!("no task is called {other}").into()),
    }
}
