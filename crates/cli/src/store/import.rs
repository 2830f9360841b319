//! `tembo store import`: keys from JSON lines, or from a map.

use super::bytes::JsonBytes;
use super::collecting::collect_due;
use super::{change, name_in};
use crate::args::{Place, Writing};
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::report::{print, print_json};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use tembo::Quoted;
use tembo::store::{Keyspace, Retention, Store};

const BUFFER_BYTES: usize = 1 << 20;
/// Most keys of a commit.
const GROUP_KEYS: usize = 512;
/// Bytes of keys and values after which a commit is made, even if they are fewer.
const GROUP_BYTES: usize = 1 << 20;
/// The longest line: the longest value, each byte of it as an escape in JSON, and the rest.
const MAX_LINE_BYTES: u64 = 6 * tembo::MAX_VALUE_BYTES + (1 << 20);

/// A line of the input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    keyspace: String,
    key: JsonBytes,
    /// `null` deletes the key; a line without it is wrong.
    #[serde(deserialize_with = "Option::deserialize")]
    value: Option<JsonBytes>,
}

/// The numbers that an import ends with.
#[derive(Default, serde::Serialize)]
struct Imported {
    put: u64,
    deleted: u64,
    commits: u64,
}

pub(super) fn run(place: &Place, input: Option<&Path>, writing: &Writing, create: bool) -> Outcome {
    let (input, bytes): (Box<dyn BufRead>, _) = match input {
        None => (Box::new(io::stdin().lock()), None),
        Some(path) => {
            let file = File::open(path).map_err(Failure::at_file("opening", path))?;
            let bytes = file.metadata().ok().filter(|of| of.is_file()).map(|of| of.len());
            (Box::new(BufReader::with_capacity(BUFFER_BYTES, file)), bytes)
        }
    };
    let imported = change(place, (writing.durability, create), |pool| {
        let store = pool.open_store(&name_in(pool.store_names()?, place)?)?;
        let imported = import(&store, input, bytes)?;
        collect_due(&store);
        Ok(imported)
    })?;
    if writing.json {
        return print_json(&imported);
    }
    let Imported { put, deleted, commits } = imported;
    print(&format!("{put} keys put, {deleted} deleted, in {commits} commits\n"))
}

/// A map that was copied.
#[derive(serde::Serialize)]
struct Copied<'a> {
    map: &'a str,
    keyspace: &'a str,
    keys: u64,
    snapshots: Vec<String>,
    commits: u64,
}

pub(super) fn from_map(place: &Place, (map, keyspace): (&str, &str), writing: &Writing) -> Outcome {
    let mut progress = Progress::new("copying", None);
    let copied = change(place, (writing.durability, false), |pool| {
        let names: Vec<String> = pool.list()?.into_iter().map(|listed| listed.name).collect();
        let missing =
            || Failure::Failed(format!("there is no map {}; there is {}", Quoted(map), names.join(", ")));
        // Before a store is made for nothing.
        if !names.iter().any(|name| name == map) {
            return Err(missing());
        }
        let store = pool.open_store(&name_in(pool.store_names()?, place)?)?;
        let target = (&store, keyspace, Retention::None);
        pool.convert_map(map, target, &mut |keys| progress.advance(keys))?.ok_or_else(missing)
    })?;
    drop(progress);
    let (keys, commits) = (copied.keys, copied.commits);
    let copied = Copied { map, keyspace, keys, snapshots: copied.snapshots, commits };
    if writing.json {
        return print_json(&copied);
    }
    let kept: String = copied.snapshots.iter().map(|name| format!("kept snapshot {name}\n")).collect();
    print(&format!("{keys} keys of the map {map} in the keyspace {keyspace}, in {commits} commits\n{kept}"))
}

/// Lines that are to be committed together.
struct Group<'s> {
    store: &'s Store,
    keyspaces: BTreeMap<String, Keyspace>,
    changes: Vec<(Keyspace, Vec<u8>, Option<Vec<u8>>)>,
    bytes: usize,
    done: Imported,
}

fn import(store: &Store, mut input: impl BufRead, bytes: Option<u64>) -> Outcome<Imported> {
    // A bar of bytes, if it is known how many there are; else a count of lines.
    let mut progress = Progress::new("importing", bytes);
    let mut group =
        Group { store, keyspaces: BTreeMap::new(), changes: Vec::new(), bytes: 0, done: Imported::default() };
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let read = io::Read::take(&mut input, MAX_LINE_BYTES).read_until(b'\n', &mut text);
        let length = read.map_err(Failure::during("reading the lines"))?;
        if length == 0 {
            break;
        }
        let outcome = group.take(&text);
        outcome.map_err(|failure| at_line(number, group.done.commits, failure))?;
        progress.advance(if bytes.is_some() { length as u64 } else { 1 });
    }
    group.commit()?;
    Ok(group.done)
}

fn at_line(number: u64, commits: u64, failure: Failure) -> Failure {
    let kept = if commits == 0 { "nothing was imported" } else { "the commits before it stay" };
    let text = |text: String| format!("line {number}: {text}; {kept}");
    match failure {
        Failure::Failed(why) => Failure::Failed(text(why)),
        Failure::Store(kind, why) => Failure::Store(kind, text(why)),
        other => other,
    }
}

impl Group<'_> {
    fn take(&mut self, text: &[u8]) -> Outcome {
        if text.trim_ascii().is_empty() {
            return Ok(());
        }
        let line: Line =
            serde_json::from_slice(text).map_err(|e| Failure::Failed(format!("not a key in JSON: {e}")))?;
        let bytes = |written: JsonBytes| written.into_bytes().map_err(Failure::Failed);
        let (key, value) = (bytes(line.key)?, line.value.map(bytes).transpose()?);
        let keyspace = match self.keyspaces.get(&line.keyspace) {
            Some(keyspace) => keyspace.clone(),
            None => {
                let keyspace = self.store.keyspace(&line.keyspace)?;
                self.keyspaces.insert(line.keyspace, keyspace.clone());
                keyspace
            }
        };
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.changes.push((keyspace, key, value));
        if self.changes.len() >= GROUP_KEYS || self.bytes >= GROUP_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Outcome {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut tx = self.store.begin();
        let (mut put, mut deleted) = (0, 0);
        for (keyspace, key, value) in self.changes.drain(..) {
            match value {
                Some(value) => {
                    put += 1;
                    tx.put(&keyspace, key, value)?;
                }
                None => {
                    deleted += 1;
                    tx.delete(&keyspace, key)?;
                }
            }
        }
        tx.commit()?;
        self.bytes = 0;
        self.done.put += put;
        self.done.deleted += deleted;
        self.done.commits += 1;
        Ok(())
    }
}
