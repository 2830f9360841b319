//! `tembo dump`: a pool's contents as text.

mod format;
mod text;

pub(crate) use format::{Item, ReadError, Reader, Writer};

use crate::args::Dump;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use tembo::{Options, Pool};

const BUFFER_BYTES: usize = 1 << 20;

/// Writes the dump to the file or the standard output that was asked for.
pub(crate) fn run(arguments: &Dump) -> Outcome {
    let pool = Options::new().read_only(true).open(&arguments.pool)?;
    if pool.describe_heap()?.is_some() {
        eprintln!(
            "note: the pool also has a heap of persistent objects, which a dump does not hold; copy the file to keep it"
        );
    }
    for name in pool.map_names()? {
        let snapshots = match pool.find_map(&name)? {
            Some(map) if map.is_versioned() => map.snapshots()?.len(),
            _ => 0,
        };
        if snapshots > 0 {
            let what = if snapshots == 1 {
                "a named snapshot".to_owned()
            } else {
                format!("{snapshots} named snapshots")
            };
            eprintln!("note: {name} also has {what}, which a dump does not hold; copy the file to keep that");
        }
    }
    for (name, _) in pool.hash_tables()? {
        eprintln!(
            "note: the pool also has the hash table {name}, which a dump does not hold; copy the file to keep it"
        );
    }
    let Some(path) = &arguments.output else {
        let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        return write_pool(&pool, out, Failure::output);
    };
    let writing = |error: io::Error| Failure::Failed(format!("writing {}: {error}", path.display()));
    let file = File::create_new(path).map_err(writing)?;
    let written = write_pool(&pool, BufWriter::with_capacity(BUFFER_BYTES, &file), writing)
        .and_then(|()| file.sync_all().map_err(writing));
    if written.is_err() {
        // The file was created above; what is in it is no dump.
        let _ = std::fs::remove_file(path);
    }
    written
}

fn write_pool<W: Write>(pool: &Pool, out: W, failed: impl Fn(io::Error) -> Failure) -> Outcome {
    let fixed = pool.fixed_map_names()?;
    let mut names = pool.map_names()?;
    names.extend(fixed.iter().cloned());
    names.sort();
    let mut writer = Writer::new(out).map_err(&failed)?;
    for name in names {
        if fixed.contains(&name) {
            write_fixed_map(pool, &name, &mut writer, &failed)?;
        } else {
            write_map(pool, &name, &mut writer, &failed)?;
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
    if map.is_versioned() { writer.versioned_map(name) } else { writer.map(name) }.map_err(failed)?;
    for entry in map.iter() {
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
