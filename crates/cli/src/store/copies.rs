//! `tembo store backup` and `tembo store restore`.

use super::opened::Reached;
use super::{change, name_in};
use crate::args::{Place, SnapshotChoice};
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::report::{print, print_json};
use crate::unfinished::Unfinished;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use tembo::Durability;

const BUFFER_BYTES: usize = 1 << 20;

/// A backup that was written.
#[derive(Serialize)]
struct WrittenBackup {
    snapshot: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    keyspaces: u64,
    changes: u64,
    bytes: u64,
}

/// A store that was restored.
#[derive(Serialize)]
struct Restored {
    store: String,
    keyspaces: usize,
}

/// Counts the bytes that go through it.
struct Counted<'p, T> {
    inner: T,
    progress: &'p mut Progress,
    bytes: u64,
}

impl<T: Write> Write for Counted<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.bytes += count as u64;
        self.progress.advance(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Counted<'_, T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.bytes += count as u64;
        self.progress.advance(count as u64);
        Ok(count)
    }
}

pub(super) fn backup(
    place: &Place,
    path: &Path,
    (at, since): (Option<&SnapshotChoice>, Option<&SnapshotChoice>),
    json: bool,
) -> Outcome {
    let store = Reached::of(place)?.find(place)?;
    let writing = Failure::at_file("writing", path);
    let file = Unfinished::new(path).map_err(&writing)?;
    let mut progress = Progress::new("writing", None);
    let inner = BufWriter::with_capacity(BUFFER_BYTES, file.file());
    let mut out = Counted { inner, progress: &mut progress, bytes: 0 };
    let (snapshot, since, summary) = store.back_up((at, since), &mut out)?;
    out.flush().map_err(&writing)?;
    let bytes = out.bytes;
    drop(out);
    drop(progress);
    file.publish(path).map_err(&writing)?;
    let written =
        WrittenBackup { snapshot, since, keyspaces: summary.keyspaces, changes: summary.changes, bytes };
    if json {
        return print_json(&written);
    }
    let WrittenBackup { snapshot, keyspaces, changes, .. } = written;
    print(&format!("snapshot {snapshot} in {}: {changes} keys of {keyspaces} keyspaces\n", path.display()))
}

pub(super) fn restore(
    place: &Place,
    paths: &[PathBuf],
    (durability, create): (Durability, bool),
    json: bool,
) -> Outcome {
    let mut files = Vec::new();
    for path in paths {
        files.push((path, File::open(path).map_err(Failure::at_file("opening", path))?));
    }
    let bytes = files.iter().map(|(_, file)| file.metadata().map(|of| of.len())).sum::<io::Result<u64>>();
    let mut progress = Progress::new("restoring", bytes.ok());
    let restored = change(place, (durability, create), |pool| {
        let name = match &place.store {
            Some(name) => name.clone(),
            None if pool.store_names()?.is_empty() => name_in(Vec::new(), place)?,
            None => {
                let why =
                    "the pool has a store already; say with --store how the restored one is to be named";
                return Err(Failure::Usage(why.to_owned()));
            }
        };
        let mut restoring = pool.begin_restore(&name)?;
        for (path, file) in &files {
            let inner = BufReader::with_capacity(BUFFER_BYTES, file);
            let read = restoring.read(Counted { inner, progress: &mut progress, bytes: 0 });
            if let Err(error) = read {
                pool.abort_restore(restoring)?;
                let why = tembo::Error::from(error);
                return Err(Failure::Failed(format!("{}: {why}; nothing was restored", path.display())));
            }
        }
        let store = pool.finish_restore(restoring)?;
        Ok(Restored { store: name, keyspaces: store.keyspaces()?.len() })
    })?;
    drop(progress);
    if json {
        return print_json(&restored);
    }
    print(&format!("restored {}, with {} keyspaces\n", restored.store, restored.keyspaces))
}
