//! The costs of blocks, transactions and opening.
//!
//! `cargo bench -p tembo-pool --bench alloc -- [page-cache|emulated|synced] [directory]`
//!
//! Times depend on the machine; beside them stands the time of a bare flush and fence of one line in the same
//! run, which is the floor of any durable operation.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use tembo_pmem::Durability;
use tembo_pool::{Options, Pool};

const ROUNDS: u64 = 200_000;

/// Nanoseconds per call, the best of five runs.
fn per_call(mut body: impl FnMut(u64) -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for round in 0..ROUNDS {
            body(round)?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / ROUNDS as f64);
    }
    Ok(best)
}

fn run(path: &Path, durability: Durability) -> Result<(), Box<dyn Error>> {
    let mut options = Options::new().durability(durability);
    options.create_new = true;
    let pool = Pool::open(path, &options)?;
    let region = pool.region();
    println!(
        "domain {}, flush {:?}, lines past the caches {}, best of 5 runs of {ROUNDS}",
        region.domain(),
        region.flush_instruction(),
        region.streams_single_lines(),
    );
    let mut lane = pool.lane()?;
    let mut tx = lane.begin();
    let words = 1 << 16;
    let table = tx.alloc(8 * words)?;
    tx.write_fresh(table, &vec![0; 8 * words as usize])?;
    tx.set_root("table", 1, table)?;
    tx.commit()?;
    let word = |round: u64| table + 8 * (round.wrapping_mul(0x9E37_79B9) % words);
    let line = |round: u64| word(round) & !63;

    let floor = per_call(|round| {
        region.store_u64(line(round), 0)?;
        Ok(region.persist(line(round), 8)?)
    })?;
    let row = |what: &str, ns: f64| println!("{what:<48} {ns:>8.1} ns {:>6.2} x floor", ns / floor);
    row("floor: store, flush and fence one random line", floor);
    row("an empty transaction", per_call(|_| Ok(lane.begin().commit()?))?);
    let store = per_call(|round| {
        let mut tx = lane.begin();
        tx.store(word(round), round)?;
        Ok(tx.commit()?)
    })?;
    row("store one random word", store);
    let object = per_call(|round| {
        let mut tx = lane.begin();
        (0..8).try_for_each(|i| tx.store(line(round) + 8 * i, round + i))?;
        Ok(tx.commit()?)
    })?;
    row("store the 8 words of a random line", object);
    let pair = per_call(|round| {
        let mut tx = lane.begin();
        let block = tx.alloc(64)?;
        tx.commit()?;
        let mut tx = lane.begin();
        tx.free(black_box(block))?;
        let _ = round;
        Ok(tx.commit()?)
    })?;
    row("allocate 64 bytes, commit; free, commit", pair);
    let mut tx = lane.begin();
    (0..words).try_for_each(|i| tx.store(table + 8 * i, 0))?;
    tx.commit()?;
    let linked = per_call(|round| {
        let mut tx = lane.begin();
        let block = tx.alloc(64)?;
        tx.write_fresh(block, &[7; 64])?;
        let old = tx.load(word(round))?;
        tx.store(word(round), block)?;
        if old != 0 {
            tx.free(old)?;
        }
        Ok(tx.commit()?)
    })?;
    row("allocate and link 64 bytes, free the old, commit", linked);
    row(
        "pin and unpin",
        per_call(|_| {
            black_box(pool.pin());
            Ok(())
        })?,
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let durability = args.first().map_or(Ok(Durability::Emulated), |name| name.parse())?;
    let directory = args.get(1).cloned().unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let path = Path::new(&directory).join(format!("tembo-alloc-{}.pool", std::process::id()));
    let outcome = run(&path, durability);
    let _ = std::fs::remove_file(&path);
    outcome
}
