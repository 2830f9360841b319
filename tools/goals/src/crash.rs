//! How soon a CDDS tree is there again after `kill -9`.

use crate::Error;
use crate::stats::median;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use tembo_index::VersionedTree;
use tembo_pool::{Options, Pool};

/// The hidden task of the program that fills a tree and then updates it until it is killed.
pub const CHILD: &str = "cdds-child";

const NAME: &str = "crash";
const VALUE_BYTES: usize = 2048;
const OPENINGS: usize = 10;
/// Changes of a version while the tree is filled.
const BATCH: u64 = 64;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn open(path: &Path) -> Result<VersionedTree, Error> {
    let mut options = Options::new();
    options.create = true;
    let pool = Pool::open(path, &options)?;
    Ok(match VersionedTree::open(&pool, NAME)? {
        Some(tree) => tree,
        None => VersionedTree::create(&pool, NAME)?,
    })
}

/// Runs in the child: fills the tree with `bytes` bytes of values, unless they are there, says so, and
/// changes values for ever.
///
/// # Errors
///
/// When there is no room.
pub fn child(path: &Path, bytes: u64) -> Result<(), Error> {
    let tree = open(path)?;
    let keys = bytes / VALUE_BYTES as u64;
    let mut next = tree.len();
    while next < keys {
        let end = keys.min(next + BATCH);
        tree.batch(|batch| {
            (next..end).try_for_each(|i| batch.put(&key(i), &[i as u8; VALUE_BYTES]).map(drop))
        })?;
        next = end;
    }
    println!("filled");
    std::io::stdout().flush()?;
    for turn in 0u64.. {
        tree.put(&key(turn.wrapping_mul(7919) % keys), &[turn as u8; VALUE_BYTES])?;
    }
    Ok(())
}

/// Fills a tree with so many bytes of values, kills the process that updates it, and opens it, ten times. The
/// median of the milliseconds until the first key is found and the first one put.
///
/// # Errors
///
/// When the program cannot be run once more, or a tree comes back wrong.
pub fn open_ms(bytes: u64) -> Result<f64, Error> {
    let shared = Path::new("/dev/shm");
    let folder = if shared.is_dir() { tempfile::tempdir_in(shared)? } else { tempfile::tempdir()? };
    let path = folder.path().join("crash.pool");
    let keys = bytes / VALUE_BYTES as u64;
    let mut times = Vec::new();
    for _ in 0..OPENINGS {
        kill_in_the_midst(&path, bytes)?;
        let begun = Instant::now();
        let tree = open(&path)?;
        let found = tree.get(&key(keys / 2))?;
        tree.put(&key(0), &[1; VALUE_BYTES])?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        if found.map(|value| value.len()) != Some(VALUE_BYTES) || tree.len() != keys {
            return Err("a tree came back wrong after its process was killed".into());
        }
        let recovery = tree.pool().recovery();
        if recovery.records_replayed == 0 {
            return Err("the process was killed where nothing was under way".into());
        }
    }
    Ok(median(times.into_iter()))
}

fn kill_in_the_midst(path: &Path, bytes: u64) -> Result<(), Error> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .arg(path)
        .arg(bytes.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = child.stdout.take().ok_or("the child has no output")?;
    let read = BufReader::new(output).read_line(&mut line);
    std::thread::sleep(std::time::Duration::from_millis(20));
    child.kill()?;
    child.wait()?;
    read?;
    if line.trim() == "filled" { Ok(()) } else { Err(format!("the child said {line:?}").into()) }
}
