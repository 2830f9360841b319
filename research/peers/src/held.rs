//! The cost of a snapshot that is held, in bytes for each value that is overwritten under it, and of reads of
//! the past.
//!
//! A number of the records of a database are overwritten in four rounds, a commit each: with one snapshot
//! held, with a second one that was opened before the second round, with the same two, and, after both were
//! let go, with none. Bytes are those that the engine has taken and cannot use for anything else: Tembo's
//! pool without its free chunks, LMDB's pages up to the last one, redb's allocated pages.

use crate::engines::Result;
use crate::engines::native::lmdb_held;
use crate::workload::{mix, shuffled};
use redb::{Database, ReadableDatabase, TableDefinition};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use tembo_pmem::Durability;
use tembo_pool::{Options, Pool};
use tembo_store::{Audit, Keyspace, Retention, Snapshot, Store};

/// The arguments of `held`.
#[derive(clap::Args)]
pub(crate) struct HeldOptions {
    /// Records, and how many of them are overwritten
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    #[arg(long, default_value_t = 50_000)]
    overwritten: u64,
    /// Keys whose past is read, of 100 versions each
    #[arg(long, default_value_t = 20_000)]
    past_keys: u64,
}

const ROUNDS: usize = 4;
const VERSIONS: u64 = 100;
/// Transactions of so many records fill a database.
const BATCH: u64 = 1000;
/// Rounds of reads, the sides by turns; medians are printed.
const READ_ROUNDS: usize = 5;

/// Bytes at first, and after each round.
type Bytes = [u64; ROUNDS + 1];

pub(crate) fn compare(folder: &Path, options: &HeldOptions) -> Result<()> {
    let HeldOptions { records, overwritten, .. } = *options;
    let mut order = shuffled(records, 1);
    order.truncate(usize::try_from(overwritten)?);
    let place = || tempfile::Builder::new().prefix("tembo-held-").tempdir_in(folder);
    println!(
        "{records} records of 8 + 8 bytes, {} of them overwritten in each round, a commit each.\n",
        order.len()
    );
    println!(
        "| engine | 1st overwrite, a snapshot held | 2nd, one more held | 3rd, the same held | all of these, after both were let go and one more round |"
    );
    println!("|---|---:|---:|---:|---:|");
    let row = |name: &str, bytes: Bytes| {
        let each = |from: u64, to: u64| (to as f64 - from as f64) / order.len() as f64;
        let rounds: Vec<String> =
            (1..ROUNDS).map(|round| format!("{:.0}", each(bytes[round - 1], bytes[round]))).collect();
        println!("| {name} | {} | {:.0} |", rounds.join(" | "), each(bytes[0], bytes[ROUNDS]));
    };
    row("Tembo, versioned store", tembo(place()?.path(), records, &order, Audit::Off)?);
    row(
        "the same, with the log of commits",
        tembo(place()?.path(), records, &order, Audit::Commits(u64::MAX >> 8))?,
    );
    row("LMDB", lmdb_held(place()?.path(), records, &order)?);
    row("redb", redb(place()?.path(), records, &order)?);
    past(place()?.path(), options.past_keys)
}

fn key(index: u64) -> [u8; 8] {
    mix(index + 1).to_be_bytes()
}

fn open(folder: &Path, retention: Retention) -> Result<(Pool, Store, Keyspace)> {
    let mut options = Options::new().durability(Durability::Emulated);
    options.create = true;
    let pool = Pool::open(folder.join("held.pool"), &options)?;
    let store = Store::open(&pool, "held")?;
    let keyspace = store.keyspace_with("held", retention)?;
    Ok((pool, store, keyspace))
}

fn used(pool: &Pool) -> u64 {
    pool.stats().pool_bytes - pool.stats().unused_bytes
}

fn tembo(folder: &Path, records: u64, order: &[u32], audit: Audit) -> Result<Bytes> {
    let (pool, store, keyspace) = open(folder, Retention::None)?;
    for from in (0..records).step_by(BATCH as usize) {
        store.transact(|tx| {
            (from..records.min(from + BATCH)).try_for_each(|i| tx.put(&keyspace, key(i), 0u64.to_ne_bytes()))
        })?;
    }
    store.set_audit(audit)?;
    let mut bytes = [used(&pool); ROUNDS + 1];
    let mut held: Vec<Snapshot> = Vec::new();
    for (round, bytes) in bytes.iter_mut().enumerate().skip(1) {
        match round {
            1 | 2 => held.push(store.snapshot()),
            ROUNDS => {
                // The first is as it was, in all that the rounds before overwrote.
                for (snapshot, value) in held.drain(..).zip([0u64, 1]) {
                    for &index in order {
                        let stored = snapshot.get(&keyspace, key(index.into()))?;
                        if stored.as_deref() != Some(&value.to_ne_bytes()) {
                            return Err(format!("record {index} of a held snapshot is wrong").into());
                        }
                    }
                }
            }
            _ => {}
        }
        for &index in order {
            store.put(&keyspace, key(index.into()), (round as u64).to_ne_bytes())?;
        }
        if round == ROUNDS {
            while store.collect(1 << 12)? {}
            while store.count_space(1 << 12)? {}
            // Slabs without blocks are made free chunks when space is missing, or by this.
            pool.trim()?;
            eprintln!(
                "after the snapshots were let go: {} bytes of old versions, {} that wait for readers",
                store.space()?.old_bytes,
                pool.limbo_bytes()
            );
        }
        *bytes = used(&pool);
    }
    Ok(bytes)
}

const TABLE: TableDefinition<'static, &'static [u8; 8], &'static [u8; 8]> = TableDefinition::new("held");

fn redb(folder: &Path, records: u64, order: &[u32]) -> Result<Bytes> {
    let db = Database::create(folder.join("held.redb"))?;
    let used = || -> Result<u64> {
        let transaction = db.begin_write()?;
        let stats = transaction.stats()?;
        let bytes = stats.allocated_pages() * stats.page_size() as u64;
        transaction.abort()?;
        Ok(bytes)
    };
    let transaction = db.begin_write()?;
    {
        let mut table = transaction.open_table(TABLE)?;
        for index in 0..records {
            table.insert(&key(index), &0u64.to_ne_bytes())?;
        }
    }
    transaction.commit()?;
    let mut bytes = [used()?; ROUNDS + 1];
    let mut held = Vec::new();
    for (round, bytes) in bytes.iter_mut().enumerate().skip(1) {
        match round {
            1 | 2 => held.push(db.begin_read()?),
            ROUNDS => held.clear(),
            _ => {}
        }
        for &index in order {
            let transaction = db.begin_write()?;
            transaction.open_table(TABLE)?.insert(&key(index.into()), &(round as u64).to_ne_bytes())?;
            transaction.commit()?;
        }
        *bytes = used()?;
    }
    Ok(bytes)
}

/// Reads keys of many versions, now and in the past.
fn past(folder: &Path, keys: u64) -> Result<()> {
    let (_pool, store, keyspace) = open(folder, Retention::All)?;
    let mut numbers = Vec::new();
    for version in 0..VERSIONS {
        for from in (0..keys).step_by(BATCH as usize) {
            store.transact(|tx| {
                (from..keys.min(from + BATCH))
                    .try_for_each(|i| tx.put(&keyspace, key(i), version.to_ne_bytes()))
            })?;
        }
        numbers.push(store.snapshot().number());
    }
    let order = shuffled(keys, 2);
    let read = |snapshot: Option<&Snapshot>, version: u64| -> Result<f64> {
        let begun = Instant::now();
        for &index in order.iter().cycle().take(200_000) {
            let key = key(index.into());
            let value = match snapshot {
                Some(snapshot) => snapshot.get(&keyspace, key)?,
                None => store.get(&keyspace, key)?,
            };
            if black_box(&value).as_deref() != Some(&version.to_ne_bytes()) {
                return Err(format!("record {index} is not as it was in version {version}").into());
            }
        }
        Ok(begun.elapsed().as_secs_f64() * 1e9 / 200_000.0)
    };
    let last = VERSIONS - 1;
    let current = store.snapshot();
    let mut rows =
        vec![("Store::get".to_owned(), None, last), ("the current snapshot".to_owned(), Some(current), last)];
    for version in [98, 90, 50, 10, 0] {
        let name = format!("as of version {} of {VERSIONS}", version + 1);
        rows.push((name, Some(store.at(numbers[version as usize])?), version));
    }
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..READ_ROUNDS {
        for ((_, snapshot, version), times) in rows.iter().zip(&mut times) {
            times.push(read(snapshot.as_ref(), *version)?);
        }
    }
    let medians: Vec<f64> = times
        .iter_mut()
        .map(|times| {
            times.sort_by(f64::total_cmp);
            times[READ_ROUNDS / 2]
        })
        .collect();
    println!("\nReads of {keys} keys of {VERSIONS} versions, all retained.\n");
    println!("| read | ns | to the current snapshot | to Store::get |\n|---|---:|---:|---:|");
    for ((name, ..), ns) in rows.iter().zip(&medians) {
        println!("| {name} | {ns:.0} | {:.2} | {:.2} |", ns / medians[1], ns / medians[0]);
    }
    Ok(())
}
