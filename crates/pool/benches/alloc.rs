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
use tembo_pool::{Lane, Options, Pool};

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

/// A pool with a table of words.
struct Bench {
    pool: Pool,
    lane: Lane,
    table: u64,
}

/// The words of the table.
const WORDS: u64 = 1 << 16;

impl Bench {
    fn new(path: &Path, durability: Durability) -> Result<Bench, Box<dyn Error>> {
        let mut options = Options::new().durability(durability);
        options.create_new = true;
        let pool = Pool::open(path, &options)?;
        let mut lane = pool.lane()?;
        let mut tx = lane.begin();
        let table = tx.alloc(8 * WORDS)?;
        tx.write_fresh(table, &vec![0; 8 * WORDS as usize])?;
        tx.set_root("table", 1, table)?;
        tx.commit()?;
        Ok(Bench { pool, lane, table })
    }

    /// A random word of the table.
    fn word(&self, round: u64) -> u64 {
        self.table + 8 * (round.wrapping_mul(0x9E37_79B9) % WORDS)
    }

    /// Its line.
    fn line(&self, round: u64) -> u64 {
        self.word(round) & !63
    }

    fn persist_a_line(&self) -> Result<f64, Box<dyn Error>> {
        let region = self.pool.region();
        per_call(|round| {
            region.store_u64(self.line(round), 0)?;
            Ok(region.persist(self.line(round), 8)?)
        })
    }

    fn store_a_word(&mut self) -> Result<f64, Box<dyn Error>> {
        per_call(|round| {
            let word = self.word(round);
            let mut tx = self.lane.begin();
            tx.store(word, round)?;
            Ok(tx.commit()?)
        })
    }

    fn store_a_line(&mut self) -> Result<f64, Box<dyn Error>> {
        per_call(|round| {
            let line = self.line(round);
            let mut tx = self.lane.begin();
            (0..8).try_for_each(|i| tx.store(line + 8 * i, round + i))?;
            Ok(tx.commit()?)
        })
    }

    fn allocate_and_free(&mut self) -> Result<f64, Box<dyn Error>> {
        per_call(|_| {
            let mut tx = self.lane.begin();
            let block = tx.alloc(64)?;
            tx.commit()?;
            let mut tx = self.lane.begin();
            tx.free(black_box(block))?;
            Ok(tx.commit()?)
        })
    }

    /// Clears the table, and then lets its words lead to blocks.
    fn replace_a_block(&mut self) -> Result<f64, Box<dyn Error>> {
        let mut tx = self.lane.begin();
        (0..WORDS).try_for_each(|i| tx.store(self.table + 8 * i, 0))?;
        tx.commit()?;
        per_call(|round| {
            let word = self.word(round);
            let mut tx = self.lane.begin();
            let block = tx.alloc(64)?;
            tx.write_fresh(block, &[7; 64])?;
            let old = tx.load(word)?;
            tx.store(word, block)?;
            if old != 0 {
                tx.free(old)?;
            }
            Ok(tx.commit()?)
        })
    }
}

fn run(path: &Path, durability: Durability) -> Result<(), Box<dyn Error>> {
    let mut bench = Bench::new(path, durability)?;
    let region = bench.pool.region();
    println!(
        "domain {}, flush {:?}, lines past the caches {}, best of 5 runs of {ROUNDS}",
        region.domain(),
        region.flush_instruction(),
        region.streams_single_lines(),
    );
    let floor = bench.persist_a_line()?;
    let row = |what: &str, ns: f64| println!("{what:<48} {ns:>8.1} ns {:>6.2} x floor", ns / floor);
    row("floor: store, flush and fence one random line", floor);
    row("an empty transaction", per_call(|_| Ok(bench.lane.begin().commit()?))?);
    row("store one random word", bench.store_a_word()?);
    row("store the 8 words of a random line", bench.store_a_line()?);
    row("allocate 64 bytes, commit; free, commit", bench.allocate_and_free()?);
    row("allocate and link 64 bytes, free the old, commit", bench.replace_a_block()?);
    let pin = per_call(|_| {
        black_box(bench.pool.pin());
        Ok(())
    })?;
    row("pin and unpin", pin);
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
