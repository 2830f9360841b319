//! `tembo load`: a pool from a dump.
//!
//! A new pool is filled without a name, and gets its name when all of it is on the device. So no program ever
//! sees a part of it, and an interrupted load leaves nothing behind (`unfinished`).

use crate::args::Load;
use crate::causes::with_causes;
use crate::dump::{Item, ReadError, Reader};
use crate::failure::{Failure, Outcome};
use crate::maps::note_unknown;
use crate::progress::Progress;
use crate::unclean;
use crate::unfinished::Unfinished;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use tembo::{FixedMap, HashTable, Map, MapOptions, Options, Pool, Quoted};

const BUFFER_BYTES: usize = 1 << 20;
/// Most entries that go into a map together.
const GROUP_ENTRIES: usize = 64;
/// Bytes of entries after which they go into the map, even if they are fewer.
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
            let file = File::open(path).map_err(Failure::at_file("opening", path))?;
            load(arguments, &options, BufReader::with_capacity(BUFFER_BYTES, file))
        }
    }
}

fn load(arguments: &Load, options: &Options, input: impl BufRead) -> Outcome {
    let entries = if arguments.merge {
        let mut reader = reader(input)?;
        let pool = unclean::open(&options.clone().create(true), &arguments.pool)?;
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
    let unfinished = Unfinished::new(path).map_err(Failure::at_file("creating", path))?;
    // As short as a pool can be: it grows with its contents.
    let pool = options.clone().initial_bytes(0).create_in_file(unfinished.file(), path)?;
    let entries = fill(&pool, &mut reader)?;
    drop(pool);
    unfinished.publish(path).map_err(Failure::at_file("giving the loaded pool its name", path))?;
    Ok(entries)
}

/// Opens a map of which the dump says no more. Dumps did not always say what a map counts: a new map of the
/// server's gets what the server asks for.
fn open_map(pool: &Pool, name: &str) -> tembo::Result<Map> {
    match pool.find_map(name)? {
        Some(map) => Ok(map),
        None => pool.open_map_with(name, MapOptions::new().counting(tembo_server::counting_of(name))),
    }
}

/// The structure that the next entries belong to.
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
    fn put(&mut self, item: Item) -> Outcome {
        match item {
            Item::LeftOut { name, what } => {
                eprintln!("note: the dump lacks {}, which is {what}", Quoted(&name));
                Ok(())
            }
            Item::Map(name) => self.turn_to(|pool| open_map(pool, &name).map(Target::Map)),
            Item::CountingMap { name, counting } => {
                let options = MapOptions::new().counting(counting);
                self.turn_to(|pool| pool.open_map_with(&name, options).map(Target::Map))
            }
            Item::VersionedMap(name) => {
                let options = MapOptions::new().versioned(true);
                self.turn_to(|pool| pool.open_map_with(&name, options).map(Target::Map))
            }
            Item::HashTable(name) => self.turn_to(|pool| pool.open_hash_table(&name).map(Target::HashTable)),
            Item::FixedMap(name) => self.turn_to(|pool| pool.open_fixed_map(&name).map(Target::FixedMap)),
            Item::FixedEntry { key, value } => {
                let Target::FixedMap(map) = &self.target else {
                    unreachable!("the reader gives such entries behind such a map")
                };
                Ok(map.put(key, value).map(drop)?)
            }
            Item::Entry { key, value } => self.take(key, value),
        }
    }

    /// The entries that follow belong to another map. It is opened once the earlier entries are in theirs.
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
        let is_entry = matches!(item, Item::Entry { .. } | Item::FixedEntry { .. });
        filling.put(item).map_err(|failure| at_line(reader.line_number(), failure))?;
        entries += u64::from(is_entry);
        progress.advance(u64::from(is_entry));
    }
    filling.write_gathered()?;
    Ok(entries)
}

/// A failure that a line of the dump led to.
fn at_line(line: u64, failure: Failure) -> Failure {
    match failure {
        Failure::Store(kind, text) => Failure::Store(kind, format!("line {line} of the dump: {text}")),
        other => other,
    }
}
