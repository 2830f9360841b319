//! `tembo load`: a pool from a dump.
//!
//! A new pool is filled under another name beside its own and takes its own when everything is in it and on
//! the device, so that nobody ever sees a part of it.

use crate::accept;
use crate::args::Load;
use crate::dump::{Item, ReadError, Reader};
use crate::failure::{Failure, Outcome, with_causes};
use crate::maps::note_unknown;
use crate::progress::Progress;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use tembo::{FixedMap, HashTable, Map, MapOptions, Options, Pool};

const BUFFER_BYTES: usize = 1 << 20;
/// So many entries go into a map together, ...
const GROUP_ENTRIES: usize = 64;
/// ... or as many as have this many bytes.
const GROUP_BYTES: usize = 1 << 20;

/// Loads from the file or the standard input that was asked for.
pub(crate) fn run(arguments: &Load) -> Outcome {
    let mut options =
        Options::new().durability(arguments.durability).accept_unclean(arguments.accept_unclean);
    if let Some(count) = arguments.root_count {
        options = options.root_count(count);
    }
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
        let pool = accept::open(&options.clone().create(true), &arguments.pool)?;
        note_unknown(&pool)?;
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

/// What the entries that come belong to.
enum Target {
    None,
    Map(Map),
    FixedMap(FixedMap),
    HashTable(HashTable),
}

/// Fills the maps of a pool. Entries of maps of byte strings are gathered, and go into them together.
struct Filling<'p> {
    pool: &'p Pool,
    target: Target,
    gathered: Vec<(Vec<u8>, Vec<u8>)>,
    gathered_bytes: usize,
}

impl Filling<'_> {
    /// The entries that come belong to another map, which is opened when those before are in theirs.
    fn turn_to(&mut self, open: impl FnOnce(&Pool) -> tembo::Result<Target>) -> Outcome {
        self.write_gathered()?;
        self.target = open(self.pool)?;
        Ok(())
    }

    fn take(&mut self, key: Vec<u8>, value: Vec<u8>) -> Outcome {
        self.gathered_bytes += key.len() + value.len();
        self.gathered.push((key, value));
        if self.gathered.len() >= GROUP_ENTRIES || self.gathered_bytes >= GROUP_BYTES {
            self.write_gathered()?;
        }
        Ok(())
    }

    fn write_gathered(&mut self) -> Outcome {
        let entries = self.gathered.drain(..);
        self.gathered_bytes = 0;
        match &self.target {
            Target::Map(map) if entries.len() > 0 => {
                let mut batch = self.pool.batch()?;
                for (key, value) in entries {
                    batch.put(map, &key, &value)?;
                }
                batch.commit()?;
            }
            Target::HashTable(table) if entries.len() > 0 => table.batch(|batch| {
                for (key, value) in entries {
                    batch.put(key, value)?;
                }
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    }
}

/// Puts everything that the dump holds into the pool; returns how many entries that were.
fn fill<R: BufRead>(pool: &Pool, reader: &mut Reader<R>) -> Outcome<u64> {
    let mut progress = Progress::new("loading", None);
    let mut filling = Filling { pool, target: Target::None, gathered: Vec::new(), gathered_bytes: 0 };
    let mut entries = 0;
    while let Some(item) = reader.next().map_err(unreadable)? {
        match item {
            Item::LeftOut { name, what } => eprintln!("note: the dump lacks {name:?}, which is {what}"),
            Item::Map(name) => filling.turn_to(|pool| pool.open_map(&name).map(Target::Map))?,
            Item::VersionedMap(name) => {
                let options = MapOptions::new().versioned(true);
                filling.turn_to(|pool| pool.open_map_with(&name, options).map(Target::Map))?;
            }
            Item::HashTable(name) => {
                filling.turn_to(|pool| pool.open_hash_table(&name).map(Target::HashTable))?;
            }
            Item::FixedMap(name) => {
                filling.turn_to(|pool| pool.open_fixed_map(&name).map(Target::FixedMap))?;
            }
            Item::FixedEntry { key, value } => {
                let Target::FixedMap(map) = &filling.target else {
                    unreachable!("the reader gives such entries behind such a map")
                };
                map.put(key, value)?;
                entries += 1;
                progress.advance(1);
            }
            Item::Entry { key, value } => {
                filling.take(key, value)?;
                entries += 1;
                progress.advance(1);
            }
        }
    }
    filling.write_gathered()?;
    Ok(entries)
}
