//! Commands that change a store.

use super::bytes::shown;
use super::change_store;
use super::read::no_value;
use crate::args::{Place, SnapshotChoice, Writing};
use crate::failure::{Failure, Outcome};
use crate::report::{print, print_json};
use serde::Serialize;
use std::io::Read;
use std::path::Path;

/// A commit that was made.
#[derive(Serialize)]
struct Committed {
    snapshot: u64,
}

/// A snapshot that was kept or deleted.
#[derive(Serialize)]
struct SnapshotName<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
}

/// The contents of a file, or of standard input.
pub(super) fn value_of(path: &Path) -> Outcome<Vec<u8>> {
    if path != Path::new("-") {
        return std::fs::read(path).map_err(Failure::at_file("opening", path));
    }
    let mut value = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut value);
    read.map(|_| value).map_err(Failure::during("reading the value from standard input"))
}

pub(super) fn put(
    place: &Place,
    (name, key, value): (&str, Vec<u8>, Vec<u8>),
    writing: &Writing,
    create: bool,
) -> Outcome {
    let snapshot =
        change_store(place, (writing.durability, create, true), |store| Ok(store.put(name, &key, &value)?))?;
    said(writing, &Committed { snapshot }, &format!("{snapshot}\n"))
}

pub(super) fn del(place: &Place, (name, key): (&str, Vec<u8>), writing: &Writing) -> Outcome {
    let snapshot = change_store(place, (writing.durability, false, false), |store| {
        store.delete(name, &key)?.ok_or_else(|| no_value(name, &key))
    })?;
    said(writing, &Committed { snapshot }, &format!("{snapshot}\n"))
}

pub(super) fn keep(place: &Place, name: &str, at: Option<&SnapshotChoice>, writing: &Writing) -> Outcome {
    if let Some(SnapshotChoice::Ago(_)) = at {
        let why = "only the current snapshot, kept ones, and those that all keyspaces retain can be kept; name \
                   one by its name or number";
        return Err(Failure::Usage(why.to_owned()));
    }
    let number = change_store(place, (writing.durability, false, false), |store| Ok(store.keep(name, at)?))?;
    let text = format!("kept {} as {}\n", number, shown(name.as_bytes()));
    said(writing, &SnapshotName { name, number: Some(number) }, &text)
}

pub(super) fn delete(place: &Place, name: &str, writing: &Writing) -> Outcome {
    change_store(place, (writing.durability, false, false), |store| Ok(store.delete_kept(name)?))?;
    said(writing, &SnapshotName { name, number: None }, &format!("deleted {}\n", shown(name.as_bytes())))
}

fn said(writing: &Writing, json: &impl Serialize, text: &str) -> Outcome {
    if writing.json { print_json(json) } else { print(text) }
}
