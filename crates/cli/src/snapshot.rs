//! `tembo snapshot`: named snapshots of maps that keep versions, and of hash tables.

use crate::args::{NamedSnapshot, Snapshot, SnapshotAction};
use crate::failure::{Failure, Kind, Outcome};
use crate::maps::note_unknown;
use crate::report::{print, print_json};
use crate::unclean;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use tembo::{HashTable, KeptSnapshot, Map, Options, Pool, Quoted};

/// Dead blocks that one call of the collector looks at.
const COLLECT_BUDGET: usize = 10_000;
/// Names that a message tells.
const NAMES_SHOWN: usize = 10;

/// The snapshots of a map.
#[derive(Debug, Serialize)]
struct Listed {
    map: String,
    /// The newest version.
    version: u64,
    snapshots: Vec<ListedSnapshot>,
}

/// A named snapshot.
#[derive(Debug, Serialize)]
pub(crate) struct ListedSnapshot {
    name: String,
    version: u64,
    entries: u64,
}

/// A structure that has snapshots.
enum Versioned {
    Map(Map),
    Table(HashTable),
}

impl Versioned {
    /// Names the newest version; returns its number.
    fn keep(&self, name: &str) -> tembo::Result<u64> {
        Ok(match self {
            Versioned::Map(map) => {
                let snapshot = map.snapshot()?;
                snapshot.keep(name)?;
                snapshot.version()
            }
            Versioned::Table(table) => {
                let snapshot = table.snapshot();
                snapshot.keep(name)?;
                snapshot.version()
            }
        })
    }

    /// Drops a snapshot, and frees what only that had; returns whether there was one.
    fn drop_snapshot(&self, name: &str) -> tembo::Result<bool> {
        Ok(match self {
            Versioned::Map(map) if map.drop_snapshot(name)? => {
                while map.collect(COLLECT_BUDGET)? {}
                true
            }
            Versioned::Table(table) if table.drop_snapshot(name)? => {
                while table.collect(COLLECT_BUDGET)? {}
                true
            }
            _ => false,
        })
    }

    /// Goes back to a snapshot; returns the version that this makes.
    fn rollback_to(&self, name: &str) -> tembo::Result<u64> {
        match self {
            Versioned::Map(map) => map.rollback_to(&map.open_snapshot(name)?),
            Versioned::Table(table) => table.rollback_to(&table.open_snapshot(name)?),
        }
    }

    fn version(&self) -> tembo::Result<u64> {
        match self {
            Versioned::Map(map) => map.version(),
            Versioned::Table(table) => Ok(table.version()),
        }
    }

    fn snapshots(&self) -> tembo::Result<Vec<KeptSnapshot>> {
        match self {
            Versioned::Map(map) => map.snapshots(),
            Versioned::Table(table) => Ok(table.snapshots()),
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Snapshot) -> Outcome {
    match &arguments.action {
        SnapshotAction::List { pool, map, json } => list(pool, map.as_deref(), *json),
        SnapshotAction::Keep(named) => {
            let version = open(named)?.keep(&named.name)?;
            print(&format!("kept {} of {} at version {version}\n", named.name, named.map))
        }
        SnapshotAction::Drop(named) => {
            if !open(named)?.drop_snapshot(&named.name)? {
                return Err(tembo::Error::NoSuchSnapshot { name: named.name.clone() }.into());
            }
            print(&format!("dropped {} of {}\n", named.name, named.map))
        }
        SnapshotAction::Rollback(named) => {
            let version = open(named)?.rollback_to(&named.name)?;
            print(&format!("{} is as it was in {}; that is version {version}\n", named.map, named.name))
        }
    }
}

/// The map, in a pool that is open for writing as long as the map is.
fn open(named: &NamedSnapshot) -> Outcome<Versioned> {
    let options = Options::new().durability(named.durability).accept_unclean(named.accept_unclean);
    find(&unclean::open(&options, &named.pool)?, &named.map)
}

fn find(pool: &Pool, name: &str) -> Outcome<Versioned> {
    let tables: Vec<String> = pool.hash_tables()?.into_iter().map(|(table, _)| table).collect();
    if tables.iter().any(|table| table == name)
        && let Some(table) = pool.find_hash_table(name)?
    {
        return Ok(Versioned::Table(table));
    }
    if pool.fixed_map_names()?.iter().any(|map| map == name) {
        return Err(refuse(format!(
            "{} is a fixed map, which keeps no versions and has no snapshots",
            Quoted(name)
        )));
    }
    if let Some(map) = pool.find_map(name)? {
        return if map.is_versioned() {
            Ok(Versioned::Map(map))
        } else {
            Err(refuse(format!(
                "the map {} keeps no versions, so it has no snapshots; load a dump of it, with versioned_map instead of map \
                 in the line that names it, into another pool",
                Quoted(name)
            )))
        };
    }
    let mut names = [pool.map_names()?, tables].concat();
    let more = names.len().saturating_sub(NAMES_SHOWN);
    names.truncate(NAMES_SHOWN);
    let names = match (names.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more, see `tembo info`", names.join(", ")),
    };
    Err(refuse(format!("there is no map {}; there is {names}", Quoted(name))))
}

fn refuse(text: String) -> Failure {
    Failure::Store(Kind::Failed, text)
}

fn list(path: &Path, only: Option<&str>, json: bool) -> Outcome {
    let pool = Options::new().open_to_inspect(path)?;
    note_unknown(&pool)?;
    let mut maps = Vec::new();
    match only {
        Some(name) => maps.push((name.to_owned(), find(&pool, name)?)),
        None => {
            for name in pool.map_names()? {
                let map = pool.find_map(&name)?.filter(Map::is_versioned);
                maps.extend(map.map(|map| (name, Versioned::Map(map))));
            }
            for (name, _) in pool.hash_tables()? {
                maps.extend(pool.find_hash_table(&name)?.map(|table| (name, Versioned::Table(table))));
            }
        }
    }
    maps.sort_by(|a, b| a.0.cmp(&b.0));
    let mut all = Vec::new();
    for (name, map) in maps {
        all.push(Listed { map: name, version: map.version()?, snapshots: listed(map.snapshots()?) });
    }
    if json { print_json(&all) } else { print(&text(&all)) }
}

/// The named snapshots of a map that keeps versions.
pub(crate) fn named(map: &Map) -> Outcome<Vec<ListedSnapshot>> {
    Ok(listed(map.snapshots()?))
}

/// Snapshots as they are printed.
pub(crate) fn listed(kept: Vec<KeptSnapshot>) -> Vec<ListedSnapshot> {
    let kept = kept.into_iter();
    kept.map(|kept| ListedSnapshot { name: kept.name, version: kept.version, entries: kept.length }).collect()
}

impl ListedSnapshot {
    /// The description of a snapshot, without its name.
    pub(crate) fn text(&self) -> String {
        let entries = if self.entries == 1 { "entry" } else { "entries" };
        format!("{} {entries}, version {}", self.entries, self.version)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

fn text(listed: &[Listed]) -> String {
    let mut text = String::new();
    for Listed { map, version, snapshots } in listed {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{map}: version {version}{}",
            if snapshots.is_empty() { ", no snapshots" } else { "" }
        );
        let width = snapshots.iter().map(|named| named.name.chars().count()).max().unwrap_or(0);
        for named in snapshots {
            let _ = writeln!(text, "  {:width$}  {}", named.name, named.text());
        }
    }
    if text.is_empty() {
        text.push_str("no map keeps versions\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_aligned_lines() {
        let named = |name: &str, version, entries| ListedSnapshot { name: name.to_owned(), version, entries };
        let listed = [
            Listed {
                map: "a".into(),
                version: 9,
                snapshots: vec![named("monday", 3, 1), named("fri", 7, 2)],
            },
            Listed { map: "b".into(), version: 1, snapshots: Vec::new() },
        ];
        let expected = "a: version 9\n  monday  1 entry, version 3\n  fri     2 entries, version 7\n\
                        b: version 1, no snapshots\n";
        assert_eq!(text(&listed), expected);
        assert_eq!(text(&[]), "no map keeps versions\n");
    }
}
