//! Puts to a pool on a disk, and its openings after a kill and after a closing.
//!
//! `cargo bench -p tembo --bench journal -- put DIRECTORY [SECONDS]`: puts to random keys, a commit each, in
//! `page-cache` and `relaxed` by turns.
//!
//! `cargo bench -p tembo --bench journal -- open DIRECTORY [MIB...]`: a process puts until the ring has so
//! many MiB of records and dies; others open the pool and die. Then openings after a closing.
//!
//! `cargo bench -p tembo --bench journal -- cold DIRECTORY [MIB...]`: openings as after a failure of power.
//! The file is not in the page cache, and the opener sees the id of another boot (a bind mount, which needs
//! root). A floor is measured by turns: 32 threads read as many bytes from the beginning of the file as the
//! ring has of records, and as many pages anywhere as these change.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tembo::{Durability, Options, Pool};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const KEYS: u64 = 200_000;
const FIXED_KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 1000;
const ROUNDS: usize = 5;
/// The most MiB of records that are asked for. A write-back begins at half of the ring, 256.
const RING_MIB_MAX: u64 = 200;
const PAGE_BYTES: u64 = 4096;
/// Threads that read at once, and what each reads of the ring at once.
const QUEUE_DEPTH: usize = 32;
const PART_BYTES: u64 = 256 << 10;
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
    let elapsed = begun.elapsed();
    let stats = pool.journal_stats().ok_or("there is no journal: DIRECTORY has to be on a disk")?;
    let pages = stats.private_bytes / PAGE_BYTES;
    println!("{} {pages}", elapsed.as_secs_f64() * 1e3);
    if let Some(ring_bytes) = ring_bytes {
        let map = pool.open_map("bench")?;
        let used = || pool.journal_stats().map_or(u64::MAX, |stats| stats.used_bytes);
        for i in (0_u64..).take_while(|_| used() < ring_bytes) {
            map.put((mix(i) % KEYS).to_be_bytes(), [i as u8; VALUE_BYTES])?;
        }
    }
    std::process::abort();
}

/// Milliseconds of an opening by a process that dies, and how many pages it changed. Before it dies, it puts
/// until the ring has `ring_bytes` of records.
fn open_and_die(path: &Path, ring_bytes: Option<u64>) -> Outcome<(f64, u64)> {
    let mut command = Command::new(std::env::current_exe()?);
    outcome_of(command.arg("child").arg(path).args(ring_bytes.map(|bytes| bytes.to_string())))
}

/// As [`open_and_die`], by a process that sees the id of another boot.
fn open_in_another_boot(path: &Path) -> Outcome<f64> {
    let id = path.with_extension("boot");
    std::fs::write(&id, "00000000-0000-4000-8000-000000000001\n")?;
    // The mount is of the child's own namespace.
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"",
    ]);
    Ok(outcome_of(command.arg(id).arg(std::env::current_exe()?).arg("child").arg(path))?.0)
}

fn outcome_of(command: &mut Command) -> Outcome<(f64, u64)> {
    let output = command.output().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    let text = String::from_utf8(output.stdout)?;
    let numbers = text.trim().split_once(' ');
    let (ms, pages) = numbers.ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok((ms.parse()?, pages.parse()?))
}

/// Takes a file out of the page cache.
fn forget(path: &Path) -> Outcome<File> {
    let file = File::open(path)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(file)
}

/// Milliseconds in which threads read `ring_bytes` in order, and `pages` anywhere.
fn read_together(path: &Path, ring_bytes: u64, pages: u64) -> Outcome<f64> {
    let file = forget(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let page_count = file.metadata()?.len() / PAGE_BYTES;
    let (parts, next) = (ring_bytes / PART_BYTES, AtomicU64::new(0));
    let read = || -> std::io::Result<()> {
        let mut buffer = vec![0; PART_BYTES as usize];
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part < parts {
                file.read_exact_at(&mut buffer, part * PART_BYTES)?;
            } else if part < parts + pages {
                file.read_exact_at(&mut buffer[..PAGE_BYTES as usize], mix(part) % page_count * PAGE_BYTES)?;
            } else {
                return Ok(());
            }
        }
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..QUEUE_DEPTH).map(|_| scope.spawn(read)).collect();
        readers.into_iter().try_for_each(|reader| reader.join().expect("no reader panics"))
    })?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

fn cold_openings(path: &Path, mib: u64) -> Outcome {
    fill(path)?;
    let (mut openings, mut floors, mut changed) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        open_and_die(path, Some(mib << 20))?;
        changed = open_and_die(path, None)?.1;
        forget(path)?;
        openings.push(open_in_another_boot(path)?);
        floors.push(read_together(path, mib << 20, changed)?);
    }
    let (opening, floor) = (median(openings), median(floors));
    println!(
        "{mib} MiB in the ring, {changed} pages: {opening:.0} ms, cold; {floor:.0} to read as much; ratio {:.2}",
        opening / floor
    );
    Ok(())
}

fn openings(path: &Path, mib: u64) -> Outcome {
    fill(path)?;
    open_and_die(path, Some(mib << 20))?;
    let killed = (0..ROUNDS).map(|_| Ok(open_and_die(path, None)?.0)).collect::<Outcome<Vec<_>>>()?;
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
    let [task, directory] = arguments.first_chunk().ok_or("put, open or cold, and a directory on a disk")?;
    if task == "child" {
        return child(Path::new(directory), number(2)?);
    }
    let folder = tempfile::tempdir_in(directory)?;
    let path = folder.path().join("bench.pool");
    match task.as_str() {
        "put" => compare_puts(&path, number(2)?.unwrap_or(2)),
        "open" | "cold" => {
            let measure = if task == "open" { openings } else { cold_openings };
            let given = (2..arguments.len()).filter_map(|at| number(at).transpose());
            let sizes = given.collect::<Result<Vec<_>, _>>()?;
            if let Some(mib) = sizes.iter().find(|mib| **mib > RING_MIB_MAX) {
                return Err(format!("{mib} MiB: a write-back begins before; at most {RING_MIB_MAX}").into());
            }
            for mib in if sizes.is_empty() { vec![66, 110, 162] } else { sizes } {
                measure(&path, mib)?;
                std::fs::remove_file(&path)?;
            }
            Ok(())
        }
        other => Err(format!("no task is called {other}").into()),
    }
}
