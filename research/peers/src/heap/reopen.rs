//! Opening a heap that a killed process left, and the first allocation in it.

use super::native::Pmemobj;
use super::side::{HashTable, Side};
use super::tembo::Tembo;
use crate::engines::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The time that opening took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Opening {
    pub(super) open_us: f64,
    pub(super) first_us: f64,
}

/// Openings of a heap of some size.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) side: &'static str,
    pub(super) bytes: u64,
    pub(super) times: Vec<Opening>,
}

/// This program again.
pub(super) fn command() -> Result<Command> {
    Ok(Command::new(std::env::current_exe()?))
}

/// Fills most of a heap of `bytes` bytes, and goes on changing it a little.
pub(super) fn fill(side: &str, path: &Path, bytes: u64) -> Result<u64> {
    let size = usize::try_from(bytes)?;
    let filled = bytes / 10 * 7;
    if side == Tembo::NAME {
        let mut heap = Tembo::open(path, size, 0, 1, false, false)?;
        heap.fill(filled)?;
        push_and_leave(heap)?;
    } else {
        let mut heap = Pmemobj::open(path, size, 0, 1, false)?;
        heap.fill(filled)?;
        push_and_leave(heap)?;
    }
    Ok(filled)
}

/// Changes the heap, and leaves it open.
fn push_and_leave(mut heap: impl Side) -> Result<()> {
    (0..1000).try_for_each(|i| heap.push(i))?;
    std::mem::forget(heap);
    Ok(())
}

/// Opens the heap, and allocates and links an object.
pub(super) fn open(side: &str, path: &Path, bytes: u64) -> Result<Opening> {
    let size = usize::try_from(bytes)?;
    warm_up(side, &path.with_extension("warm"))?;
    let begun = Instant::now();
    if side == Tembo::NAME {
        first_push(begun, Tembo::open(path, size, 0, 1, false, false)?)
    } else {
        first_push(begun, Pmemobj::open(path, size, 0, 1, false)?)
    }
}

/// Has the code of this large program, of which each page that is used for the first time costs some
/// microseconds, brought into memory: by a small heap.
fn warm_up(side: &str, path: &Path) -> Result<()> {
    const BYTES: usize = 16 << 20;
    fn push(mut heap: impl Side) -> Result<()> {
        (0..10).try_for_each(|i| heap.push(i))
    }
    if side == Tembo::NAME {
        push(Tembo::open(path, BYTES, 0, 1, false, false)?)?;
    } else {
        push(Pmemobj::open(path, BYTES, 0, 1, false)?)?;
    }
    Ok(std::fs::remove_file(path)?)
}

fn first_push<S: Side>(begun: Instant, mut heap: S) -> Result<Opening> {
    let open_us = begun.elapsed().as_secs_f64() * 1e6;
    let begun = Instant::now();
    heap.push(1)?;
    let first_us = begun.elapsed().as_secs_f64() * 1e6;
    // This process is killed too, so that the next one has as much to do.
    std::mem::forget(heap);
    Ok(Opening { open_us, first_us })
}

/// Fills a heap of each side, kills the process, and opens what is left in `rounds` other processes, each of
/// which is killed too.
pub(super) fn compare(folder: &Path, bytes: u64, rounds: usize) -> Result<Vec<Opened>> {
    let mut all = Vec::new();
    for side in [Tembo::NAME, Pmemobj::NAME] {
        eprintln!("opening {} MiB: {side}", bytes >> 20);
        let path = folder.join(format!("open-{side}"));
        let arguments = |command: &mut Command, what: &str| {
            command.arg("child-heap").arg(what).arg(side).arg(&path).arg(bytes.to_string());
        };
        let mut filling = command()?;
        arguments(&mut filling, "fill");
        let _: u64 = crate::supervise::ask_in_place(&mut filling)?;
        let mut times = Vec::new();
        for _ in 0..rounds.max(5) {
            let mut opening = command()?;
            arguments(&mut opening, "open");
            times.push(crate::supervise::ask_in_place(&mut opening)?);
        }
        std::fs::remove_file(&path)?;
        all.push(Opened { side, bytes, times });
    }
    Ok(all)
}
