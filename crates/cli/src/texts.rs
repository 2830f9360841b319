//! Texts of errors that differ from the library's, because they name the command's own arguments.
//!
//! `tests/suite/errors.rs` has every text with what leads to it.

use crate::causes::{pool_error, with_causes};
use clap::error::{ContextKind, ContextValue};
use std::io;
use std::path::Path;
use tembo::store::Error as StoreError;
use tembo::{Error, PoolError, PoolErrorKind, Quoted, RegionError};

/// The command's text for an error of the store.
pub(crate) fn of_store(error: &Error) -> String {
    match error {
        Error::MapKind { name, is_versioned } => {
            let (keeps, said) = if *is_versioned {
                ("keeps versions", "versioned_map")
            } else {
                ("keeps no versions", "map")
            };
            format!(
                "the map {} {keeps}; say {said} in the dump's line that names it, or load into another pool",
                Quoted(name)
            )
        }
        Error::OtherKind { name, found, expected } => {
            let name = Quoted(name);
            format!(
                "{name} is {found}, not {expected}; use another name for what is to be {expected}, or another pool"
            )
        }
        Error::NoSuchSnapshot { name } => {
            format!(
                "there is no snapshot named {}; `tembo snapshot list` names those there are",
                Quoted(name)
            )
        }
        Error::Store(error) => of_transactions(error).unwrap_or_else(|| with_causes(error)),
        _ => pool_error(error).and_then(of_pool).unwrap_or_else(|| with_causes(error)),
    }
}

/// The command's text for an error of a transactional store.
fn of_transactions(error: &StoreError) -> Option<String> {
    Some(match error {
        StoreError::NoSuchSnapshot { name } => format!(
            "no snapshot is kept under the name {}; `tembo store snapshot list` names those that are",
            Quoted(name)
        ),
        StoreError::SnapshotExists { name } => format!(
            "a snapshot is kept under the name {} already; choose another, or `tembo store snapshot delete` that first",
            Quoted(name)
        ),
        StoreError::SnapshotGone { number, current } => format!(
            "snapshot {number} is not there; the current one is {current}, and `tembo store snapshot list` names those that \
             are kept"
        ),
        StoreError::NotRetained { number, keyspace } => format!(
            "the keyspace {} does not retain snapshot {number}; `tembo store snapshot keep` keeps a snapshot to be read later",
            Quoted(keyspace)
        ),
        StoreError::StoreExists { name } => {
            format!("there is {} already; choose another name with --store, or another pool", Quoted(name))
        }
        _ => return None,
    })
}

/// Whether the text says which file or variable it is about.
pub(crate) fn names_a_path(error: &Error) -> bool {
    matches!(
        pool_error(error).map(PoolError::kind),
        Some(
            PoolErrorKind::Io { .. }
                | PoolErrorKind::NotAFile { .. }
                | PoolErrorKind::NotFound { .. }
                | PoolErrorKind::NoDirectory { .. }
                | PoolErrorKind::DanglingLink { .. }
                | PoolErrorKind::AlreadyExists { .. }
                | PoolErrorKind::Locked { .. }
                | PoolErrorKind::Region(RegionError::Environment { .. })
        )
    )
}

fn of_pool(error: &PoolError) -> Option<String> {
    Some(match error.kind() {
        PoolErrorKind::NotFound { path } => {
            format!("there is no pool at {}; `tembo serve` and `tembo load` make pools", path.display())
        }
        PoolErrorKind::MaximumTooSmall { needed_bytes, max_bytes } => {
            format!("a new pool needs {needed_bytes} bytes, and --max-bytes allows {max_bytes}; allow more")
        }
        PoolErrorKind::Region(RegionError::NotDax) => {
            "the file does not lie on persistent memory (MAP_SYNC is refused); mount its file system with -o dax, or \
             choose another --durability: auto, page-cache, synced, journaled, relaxed or emulated"
                .to_owned()
        }
        PoolErrorKind::Region(RegionError::NoFlushInstruction) => {
            "this processor has no instruction that writes cache lines back; choose --durability page-cache, synced, journaled or relaxed"
                .to_owned()
        }
        _ => return None,
    })
}

/// Why a file that the arguments name cannot be opened or made.
pub(crate) fn of_file(doing: &'static str, path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{shown} exists already; choose another path, or move it away")
        }
        io::ErrorKind::NotFound => match directory.filter(|directory| !directory.exists()) {
            Some(directory) => {
                format!("{} does not exist; make that directory, or name another path", directory.display())
            }
            None if doing == "opening" => format!("there is no file {shown}"),
            None => format!("{doing} {shown}: {error}"),
        },
        _ => format!("{doing} {shown}: {error}"),
    }
}

/// An error in the arguments, which quotes no more of a long one than a person can use.
pub(crate) fn bounded(mut error: clap::Error) -> clap::Error {
    const SHOWN_CHARS: usize = 60;
    let long: Vec<(ContextKind, String)> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => {
                let (end, _) = text.char_indices().nth(SHOWN_CHARS)?;
                Some((kind, format!("{}...", &text[..end])))
            }
            _ => None,
        })
        .collect();
    for (kind, text) in long {
        error.insert(kind, ContextValue::String(text));
    }
    error
}
