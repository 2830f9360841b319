//! How long a store takes to open after a crash, at several sizes.
//!
//! `cargo bench -p tembo --bench open -- [directory] [sizes in MiB ...]`      (default: 64 and 2048 MiB in
//! /dev/shm)
//!
//! For each size a child process fills a store and dies without closing it; then, twenty times, a child
//! writes some more and dies, and this process opens the store and makes its first write. Prints medians and
//! maxima.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tembo::{Map, Options, Pool};

const VALUE_BYTES: usize = 256;
const OPENINGS: usize = 20;

fn open(path: &Path) -> Result<(Pool, Map), Box<dyn Error>> {
    let pool = Options::new().create(true).open(path)?;
    let map = pool.open_map("bench")?;
    Ok((pool, map))
}

/// Fills the store until it has `mib` MiB of live data, or writes a little more; then dies.
fn child(path: &Path, mib: u64) -> Result<(), Box<dyn Error>> {
    let (pool, map) = open(path)?;
    let mut key = map.len()?;
    let wanted = mib << 20;
    let mut bytes = 0;
    while bytes < wanted {
        let mut batch = pool.batch()?;
        for _ in 0..64 {
            batch.put(
                &map,
                &key.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(),
                &[key as u8; VALUE_BYTES],
            )?;
            key += 1;
            bytes += VALUE_BYTES as u64;
        }
        batch.commit()?;
    }
    for extra in 0..50u64 {
        map.put((key + extra).to_be_bytes(), [1; VALUE_BYTES])?;
    }
    // The process ends here without running any destructor, as a crash would.
    std::process::abort();
}

fn run_child(path: &Path, mib: u64) -> Result<(), Box<dyn Error>> {
    let _ = Command::new(std::env::current_exe()?).arg("child").arg(path).arg(mib.to_string()).output()?;
    Ok(())
}

fn measure(path: &Path, mib: u64) -> Result<(), Box<dyn Error>> {
    run_child(path, mib)?;
    let (mut opens, mut firsts, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    let mut live = 0;
    for _ in 0..OPENINGS {
        run_child(path, 0)?;
        let begun = Instant::now();
        let (pool, map) = open(path)?;
        opens.push(begun.elapsed());
        assert!(pool.recovery().records_replayed > 0, "the child did not crash");
        for (nth, times) in [&mut firsts, &mut seconds].into_iter().enumerate() {
            let begun = Instant::now();
            map.put([nth as u8], [2; VALUE_BYTES])?;
            times.push(begun.elapsed());
        }
        live = map.len()?;
    }
    let row = |times: &mut Vec<std::time::Duration>| {
        times.sort_unstable();
        let us = |d: std::time::Duration| d.as_secs_f64() * 1e6;
        format!("{:>9.0} {:>9.0}", us(times[times.len() / 2]), us(times[times.len() - 1]))
    };
    println!("{mib:>8} {live:>10}  {}  {}  {}", row(&mut opens), row(&mut firsts), row(&mut seconds));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [verb, path, mib] = args.as_slice()
        && verb == "child"
    {
        return child(Path::new(path), mib.parse()?);
    }
    let directory = args.first().map_or("/dev/shm", |d| d.as_str());
    let sizes: Vec<u64> = args.iter().skip(1).map(|mib| mib.parse()).collect::<Result<_, _>>()?;
    let sizes = if sizes.is_empty() { vec![64, 2048] } else { sizes };
    println!("after a crash, microseconds, median and maximum of {OPENINGS}");
    println!("     MiB    records       open       max  first put       max    second       max");
    for mib in sizes {
        let path = Path::new(directory).join(format!("tembo-open-{}-{mib}.pool", std::process::id()));
        let outcome = measure(&path, mib);
        let _ = std::fs::remove_file(&path);
        outcome?;
    }
    Ok(())
}
