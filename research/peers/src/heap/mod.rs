//! Tembo's heap beside libpmemobj's, and beside the floor: the same objects and keys, by turns in one
//! process, every change a durable transaction of its own. `research/heap-costs.md` says what is compared and
//! how.
//!
//! [`side`] is what both heaps do; [`tembo`], [`native`] do it; [`rows`] measures; [`reopen`] kills and
//! opens; [`report`] prints.

mod native;
mod reopen;
mod report;
mod rows;
mod side;
mod tembo;

use crate::engines::Result;
use clap::Args;
use reopen::Opened;
use rows::{Counts, Plan};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct HeapOptions {
    /// Keys of the hash tables and of the ordered maps
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Rounds, each with new heaps; medians of all parts of all rounds are printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only rows whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Open heaps of 8 GiB too, which takes as much memory where the folder is on tmpfs
    #[arg(long)]
    large: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this side only, and print no table: for profilers
    #[arg(long)]
    side: Option<String>,
}

/// The work of a child process.
#[derive(clap::Subcommand)]
pub(crate) enum HeapChild {
    /// Counts fences; prints a line
    Counts { folder: PathBuf },
    /// Fills a heap; prints a line, and waits to be killed
    Fill { side: String, path: PathBuf, bytes: u64 },
    /// Opens a heap that was left; prints a line
    Open { side: String, path: PathBuf, bytes: u64 },
}

/// Runs in the children of [`compare`].
pub(crate) fn child(child: &HeapChild) -> Result<()> {
    match child {
        HeapChild::Counts { folder } => crate::answer(rows::counts(folder)),
        HeapChild::Fill { side, path, bytes } => crate::answer(reopen::fill(side, path, *bytes)),
        HeapChild::Open { side, path, bytes } => crate::answer(reopen::open(side, path, *bytes)),
    }
}

/// Runs everything and prints it.
pub(crate) fn compare(folder: &Path, options: &HeapOptions) -> Result<()> {
    let plan = Plan {
        keys: options.keys,
        rounds: options.rounds,
        only: options.only.clone(),
        seed: options.seed,
        side: options.side.clone(),
    };
    // Also for this process, which has not used the library yet.
    if std::env::var_os("PMEM_IS_PMEM_FORCE").is_none_or(|value| value != "1") {
        return again_with_lines_flushed();
    }
    let data = tempfile::Builder::new().prefix("tembo-heaps-").tempdir_in(folder)?;
    let measured = rows::measure(data.path(), &plan)?;
    if plan.side.is_some() {
        return Ok(());
    }
    let counts: Vec<Counts> = crate::supervise::ask_in_place(
        reopen::command()?
            .arg("child-heap")
            .arg("counts")
            .arg(data.path())
            .env("LD_PRELOAD", env!("PEERS_COUNT_LIBRARY")),
    )?;
    let mut opened: Vec<Opened> = Vec::new();
    let sizes: &[u64] = if options.large { &[64 << 20, 8 << 30] } else { &[64 << 20] };
    for bytes in sizes {
        opened.extend(reopen::compare(data.path(), *bytes, options.rounds)?);
    }
    let machine = crate::Machine::describe(folder)?;
    println!("{}", machine.render());
    println!("{}", report::render(&plan, &measured, &counts, &opened));
    Ok(())
}

/// libpmemobj reads the variable when it is loaded, so the program begins anew.
pub(crate) fn again_with_lines_flushed() -> Result<()> {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new(std::env::current_exe()?);
    Err(command.args(std::env::args_os().skip(1)).env("PMEM_IS_PMEM_FORCE", "1").exec().into())
}

/// libpmemobj's hash table and array, for the programs of the NV-heaps paper.
#[cfg(peer = "bdb")]
pub(crate) struct Table(native::Pmemobj);

#[cfg(peer = "bdb")]
impl Table {
    /// Makes a pool with an array of so many entries of 64 bytes, and a table of so many buckets, up to a
    /// power of two.
    pub(crate) fn open(path: &Path, entries: u64, buckets: u64) -> Result<Table> {
        let bytes = ((256 << 20) + entries * 300 + buckets * 128).next_multiple_of(1 << 20);
        let bytes = usize::try_from(bytes)?;
        Ok(Table(native::Pmemobj::open(path, bytes, entries, buckets.next_power_of_two(), true)?))
    }

    /// Inserts a key if it is not there, and removes it otherwise.
    pub(crate) fn toggle(&mut self, key: u64) -> Result<()> {
        if side::HashTable::lookup(&mut self.0, key)?.is_some() {
            return side::HashTable::remove(&mut self.0, key);
        }
        side::HashTable::insert(&mut self.0, key, key)
    }

    /// Exchanges two entries.
    pub(crate) fn swap(&mut self, [a, b]: [usize; 2]) -> Result<()> {
        self.0.swap_elements(u32::try_from(a)?, u32::try_from(b)?)
    }
}
