//! `tembo dump`: a pool's contents as text.

mod format;
mod text;

pub(crate) use format::{Item, ReadError, Reader, Writer};
pub(crate) use text::Shown;

use crate::args::Dump;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::unclean;
use crate::unfinished::Unfinished;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major, minor};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, StdoutLock, Write};
use tembo::{Counting, Map, Options, Pool, Unknown};

const BUFFER_BYTES: usize = 1 << 20;

/// The kind of structure that a name of the pool belongs to.
enum StructureKind {
    Map,
    FixedMap,
    HashTable,
}

/// Writes the dump to the file or the standard output that was asked for.
pub(crate) fn run(arguments: &Dump) -> Outcome {
    let options = Options::new().read_only(true).accept_unclean(arguments.accept_unclean);
    let pool = unclean::open(&options, &arguments.pool)?;
    // A dump holds no heaps, those of other formats neither.
    let (heaps, unknown): (Vec<Unknown>, Vec<Unknown>) =
        pool.unknown()?.into_iter().partition(Unknown::is_heap);
    if !unknown.is_empty() && !arguments.skip_unknown {
        let all: Vec<String> = unknown.iter().map(Unknown::to_string).collect();
        return Err(Failure::Failed(format!(
            "{}. Nothing was dumped; --skip-unknown dumps the other maps",
            all.join(". ")
        )));
    }
    unknown.iter().for_each(|unknown| eprintln!("note: left out of the dump: {unknown}"));
    heaps.iter().for_each(|heap| eprintln!("note: in this pool {heap}"));
    if !heaps.is_empty() || pool.list()?.iter().any(|listed| listed.kind == tembo::Kind::Heap) {
        eprintln!(
            "note: the pool also has a heap of persistent objects, which a dump does not hold; copy the file to keep it"
        );
    }
    for name in pool.store_names()? {
        eprintln!("note: {name} is a store, which a dump does not hold; `tembo store backup` keeps it");
    }
    for (name, snapshots) in snapshots(&pool)? {
        let what = match snapshots {
            0 => continue,
            1 => "a named snapshot".to_owned(),
            more => format!("{more} named snapshots"),
        };
        eprintln!("note: {name} also has {what}, which a dump does not hold; copy the file to keep that");
    }
    let Some(path) = &arguments.output else {
        let out = standard_output().map_err(Failure::output)?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, out);
        return write_pool(&pool, &unknown, out, Failure::output);
    };
    let writing = Failure::at_file("writing", path);
    let file = Unfinished::new(path).map_err(&writing)?;
    write_pool(&pool, &unknown, BufWriter::with_capacity(BUFFER_BYTES, file.file()), &writing)?;
    file.publish(path).map_err(&writing)
}

/// Standard output, unless it is closed. Before `main` begins, the runtime opens the null device for reading
/// and writing in the place of a closed standard stream. A shell opens it for writing only, and a dump there
/// succeeds.
fn standard_output() -> io::Result<StdoutLock<'static>> {
    /// The device number of `/dev/null` on Linux.
    const NULL_DEVICE: (u32, u32) = (1, 3);
    let out = io::stdout().lock();
    let (found, flags) = (fstat(&out)?, fcntl_getfl(&out)?);
    let is_null = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
        && (major(found.st_rdev), minor(found.st_rdev)) == NULL_DEVICE;
    if is_null && flags.contains(OFlags::RDWR) {
        let why = "standard output is closed, or a null device that is open for reading too; --output writes to a file";
        return Err(io::Error::other(why));
    }
    Ok(out)
}

/// How many named snapshots each map has that keeps versions, and each hash table.
fn snapshots(pool: &Pool) -> Outcome<Vec<(String, usize)>> {
    let mut counts = Vec::new();
    for name in pool.map_names()? {
        if let Some(map) = pool.find_map(&name)?.filter(Map::is_versioned) {
            counts.push((name, map.snapshots()?.len()));
        }
    }
    counts.extend(pool.hash_tables()?.into_iter().map(|(name, table)| (name, table.kept.len())));
    Ok(counts)
}

fn write_pool<W: Write>(
    pool: &Pool,
    left_out: &[Unknown],
    out: W,
    failed: impl Fn(io::Error) -> Failure,
) -> Outcome {
    let mut names: BTreeMap<String, StructureKind> = BTreeMap::new();
    names.extend(pool.map_names()?.into_iter().map(|name| (name, StructureKind::Map)));
    names.extend(pool.fixed_map_names()?.into_iter().map(|name| (name, StructureKind::FixedMap)));
    names.extend(pool.hash_tables()?.into_iter().map(|(name, _)| (name, StructureKind::HashTable)));
    let mut writer = Writer::new(out).map_err(&failed)?;
    for unknown in left_out {
        writer.left_out(&unknown.name, &unknown.what()).map_err(&failed)?;
    }
    for (name, kind) in names {
        match kind {
            StructureKind::Map => write_map(pool, &name, &mut writer, &failed)?,
            StructureKind::FixedMap => write_fixed_map(pool, &name, &mut writer, &failed)?,
            StructureKind::HashTable => write_hash_table(pool, &name, &mut writer, &failed)?,
        }
    }
    writer.finish().map(|_| ()).map_err(failed)
}

fn write_map<W: Write>(
    pool: &Pool,
    name: &str,
    writer: &mut Writer<W>,
    failed: &impl Fn(io::Error) -> Failure,
) -> Outcome {
    let Some(map) = pool.find_map(name)? else { return Ok(()) };
    let mut progress = Progress::new("dumping", Some(map.len()?));
    match map.counting() {
        _ if map.is_versioned() => writer.versioned_map(name),
        Counting::Nothing => writer.map(name),
        counting => writer.counting_map(name, counting),
    }
    .map_err(failed)?;
    for entry in map.iter() {
        let entry = entry?;
        writer.entry(entry.key(), entry.value()).map_err(failed)?;
        progress.advance(1);
    }
    Ok(())
}

fn write_hash_table<W: Write>(
    pool: &Pool,
    name: &str,
    writer: &mut Writer<W>,
    failed: &impl Fn(io::Error) -> Failure,
) -> Outcome {
    let Some(table) = pool.find_hash_table(name)? else { return Ok(()) };
    let snapshot = table.snapshot();
    let mut progress = Progress::new("dumping", Some(snapshot.len()));
    writer.hash_table(name).map_err(failed)?;
    for entry in snapshot.iter() {
        let entry = entry?;
        writer.entry(entry.key(), entry.value()).map_err(failed)?;
        progress.advance(1);
    }
    Ok(())
}

fn write_fixed_map<W: Write>(
    pool: &Pool,
    name: &str,
    writer: &mut Writer<W>,
    failed: &impl Fn(io::Error) -> Failure,
) -> Outcome {
    let Some(map) = pool.find_fixed_map(name)? else { return Ok(()) };
    let mut progress = Progress::new("dumping", None);
    writer.fixed_map(name).map_err(failed)?;
    for record in map.iter() {
        let (key, value) = record?;
        writer.fixed_entry(key, value).map_err(failed)?;
        progress.advance(1);
    }
    Ok(())
}
