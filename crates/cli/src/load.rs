//! `tembo load`: a pool from a dump.
//!
//! A new pool is filled under another name beside its own and takes its own when everything is in it and on
//! the device, so that nobody ever sees a part of it.

use crate::args::Load;
use crate::dump::{Item, ReadError, Reader};
use crate::failure::{Failure, Outcome, with_causes};
use crate::progress::Progress;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use tembo::{FixedMap, Map, MapOptions, Options, Pool};

const BUFFER_BYTES: usize = 1 << 20;
/// A batch is committed when it has this many pending words, ...
const BATCH_WORDS: usize = 256;
/// ... or this many bytes of new data.
const BATCH_BYTES: usize = 1 << 20;

/// Loads from the file or the standard input that was asked for.
pub(crate) fn run(arguments: &Load) -> Outcome {
    let options = Options::new().durability(arguments.durability);
    match &arguments.input {
        None => load(arguments, &options, io::stdin().lock()),
        Some(path) => {
            let file = File::open(path).map_err(Failure::during(format!("opening {}", path.display())))?;
            load(arguments, &options, BufReader::with_capacity(BUFFER_BYTES, file))
        }
    }
}

fn load(arguments: &Load, options: &Options, input: impl BufRead) -> Outcome {
    let entries = if arguments.merge {
        let mut reader = reader(input)?;
        let pool = options.clone().create(true).open(&arguments.pool)?;
        fill(&pool, &mut reader)?
    } else {
        create_from(&arguments.pool, options, input)?
    };
    eprintln!("tembo: {entries} entries loaded into {}", arguments.pool.display());
    Ok(())
}

fn reader<R: BufRead>(input: R) -> Outcome<Reader<R>> {
    Reader::new(input).map_err(unreadable)
}

fn unreadable(error: ReadError) -> Failure {
    Failure::Failed(with_causes(&error))
}

/// Makes the pool at `path`, whole or not at all.
fn create_from(path: &Path, options: &Options, input: impl BufRead) -> Outcome<u64> {
    if path.symlink_metadata().is_ok() {
        let path = path.display();
        return Err(Failure::Failed(format!(
            "{path} exists already; add --merge to load into it, or choose another path"
        )));
    }
    let mut reader = reader(input)?;
    let unfinished = Unfinished::beside(path);
    let pool = options.clone().create_new(true).open(&unfinished.path)?;
    let entries = fill(&pool, &mut reader)?;
    drop(pool);
    unfinished.become_pool(path)?;
    Ok(entries)
}

/// A pool that is being filled; removed when dropped, unless it became what it was to be.
struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    fn beside(path: &Path) -> Unfinished {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".loading-{}", std::process::id()));
        Unfinished { path: path.with_file_name(name) }
    }

    /// Gives the pool its name. A link fails where a rename would replace what somebody else has made meanwhile.
    fn become_pool(&self, path: &Path) -> Outcome {
        let naming = || format!("giving the loaded pool its name {}", path.display());
        File::open(&self.path).and_then(|file| file.sync_all()).map_err(Failure::during(naming()))?;
        std::fs::hard_link(&self.path, path).map_err(Failure::during(naming()))?;
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(Failure::during(naming()))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Either it has its own name by now, or it is a part of a pool that nobody wants.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Puts everything that the dump holds into the pool; returns how many entries that were.
fn fill<R: BufRead>(pool: &Pool, reader: &mut Reader<R>) -> Outcome<u64> {
    let mut progress = Progress::new("loading", None);
    // The maps of the last lines that began one of their kind; the reader says which one an entry is for.
    let (mut map, mut fixed_map): (Option<Map>, Option<FixedMap>) = (None, None);
    let (mut entries, mut batch_bytes) = (0, 0);
    let mut batch = pool.batch()?;
    while let Some(item) = reader.next().map_err(unreadable)? {
        match item {
            Item::Map(name) => {
                // Opening a map may create it, which is a write of its own.
                batch.commit()?;
                map = Some(pool.open_map(&name)?);
                (batch, batch_bytes) = (pool.batch()?, 0);
            }
            Item::VersionedMap(name) => {
                batch.commit()?;
                map = Some(pool.open_map_with(&name, MapOptions::new().versioned(true))?);
                (batch, batch_bytes) = (pool.batch()?, 0);
            }
            Item::FixedMap(name) => {
                batch.commit()?;
                fixed_map = Some(pool.open_fixed_map(&name)?);
                (batch, batch_bytes) = (pool.batch()?, 0);
            }
            Item::FixedEntry { key, value } => {
                let map = fixed_map.as_ref().expect("the reader refuses an entry before the first map");
                map.put(key, value)?;
                entries += 1;
                progress.advance(1);
            }
            Item::Entry { key, value } => {
                let map = map.as_ref().expect("the reader refuses an entry before the first map");
                batch.put(map, &key, &value)?;
                entries += 1;
                batch_bytes += key.len() + value.len();
                progress.advance(1);
                if batch.pending_words() >= BATCH_WORDS || batch_bytes >= BATCH_BYTES {
                    batch.commit()?;
                    (batch, batch_bytes) = (pool.batch()?, 0);
                }
            }
        }
    }
    batch.commit()?;
    Ok(entries)
}
