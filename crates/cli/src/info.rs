//! `tembo info`: what a pool is and holds.

use crate::args::Info;
use crate::failure::{Failure, Outcome};
use crate::report::{Lines, print, print_json};
use crate::served::{Served, holder};
use crate::size::human_bytes;
use crate::snapshot::{ListedSnapshot, listed, named};
use crate::space::Space;
use crate::store::{StoreDescription, describe_served};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use tembo::{Ending, Options, Pool};

/// The facts about a pool that are known without reading its entries.
#[derive(Debug, Serialize)]
struct Description {
    path: String,
    uuid: String,
    /// How the last use for writing ended.
    last_use: &'static str,
    #[serde(skip)]
    ending: Ending,
    pool_bytes: u64,
    /// The part of the bytes that lies in empty chunks.
    unused_bytes: u64,
    /// Bytes that are set aside for the journal, if there is one.
    #[serde(skip_serializing_if = "is_zero")]
    journal_bytes: u64,
    /// Lines that the journal has newer than the rest of the file, if there is a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    journal_lines: Option<u64>,
    maps: Vec<MapDescription>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stores: Vec<StoreDescription>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heap: Option<HeapDescription>,
    /// Structures that this program does not know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<UnknownDescription>,
    /// Whether dropped maps still hold space.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    has_dropped_maps: bool,
    /// Whether dropped stores still hold space.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    has_dropped_stores: bool,
    /// How the space is used, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<Space>,
}

/// A structure that this program does not know.
#[derive(Debug, Serialize)]
struct UnknownDescription {
    name: String,
    what: String,
    advice: &'static str,
}

/// A heap of persistent objects.
#[derive(Debug, Serialize)]
struct HeapDescription {
    root: String,
    /// How often it was opened for writing.
    generation: u64,
    types: Vec<TypeDescription>,
}

#[derive(Debug, Serialize)]
struct TypeDescription {
    name: String,
    layout: String,
}

#[derive(Debug, Serialize)]
struct MapDescription {
    name: String,
    kind: MapTypes,
    /// Maps of 8-byte keys keep no count, and counting would read them as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
    /// The newest version of a map that keeps versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    /// Its named snapshots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    snapshots: Vec<ListedSnapshot>,
}

/// The types of a map's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum MapTypes {
    /// Byte strings.
    Bytes,
    /// Byte strings, in a map that keeps versions.
    Versioned,
    /// Byte strings without an order, in a hash table that keeps versions.
    Hash,
    /// Integers of 8 bytes.
    Fixed,
}

/// The facts that the owner of a pool tells others.
#[derive(Debug, Serialize)]
struct ServedDescription {
    path: String,
    in_use_by: String,
    served_at: String,
    stores: Vec<StoreDescription>,
}

/// Prints the description that was asked for.
pub(crate) fn run(arguments: &Info) -> Outcome {
    let pool = match Options::new().open_to_inspect(&arguments.pool) {
        Ok(pool) => pool,
        Err(error) => return run_beside(arguments, error),
    };
    let mut description = describe(&arguments.pool, &pool)?;
    if arguments.space {
        description.space = Some(Space::of(&pool)?);
    }
    if arguments.json { print_json(&description) } else { print(&description.text()) }
}

/// Describes the stores of a pool that could not be opened, if another process has it open and serves them.
fn run_beside(arguments: &Info, error: tembo::Error) -> Outcome {
    let holder = holder(&error).unwrap_or_else(|| "another process".to_owned());
    let served = Served::of(&arguments.pool, Failure::from(error))?;
    let served_at = served.socket.display().to_string();
    let description = ServedDescription {
        path: arguments.pool.display().to_string(),
        in_use_by: holder,
        served_at,
        stores: describe_served(served)?,
    };
    if arguments.json { print_json(&description) } else { print(&description.text()) }
}

impl ServedDescription {
    fn text(&self) -> String {
        let mut lines = Lines::default();
        lines.add("in use by", &self.in_use_by).add("served at", &self.served_at);
        let mut text = format!("{}\n{}", self.path, lines.text());
        self.stores.iter().for_each(|store| add_store(&mut text, store));
        text.push_str("  the rest of the pool is its owner's alone\n");
        text
    }
}

fn add_store(text: &mut String, store: &StoreDescription) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  store   {}: {}", store.name, store.summary());
    store.lines().iter().for_each(|line| _ = writeln!(text, "    {line}"));
}

fn describe(path: &Path, pool: &Pool) -> Outcome<Description> {
    let stats = pool.stats();
    let mut maps = Vec::new();
    for name in pool.map_names()? {
        if let Some(map) = pool.find_map(&name)? {
            let entries = Some(map.len()?);
            maps.push(if map.is_versioned() {
                let (version, snapshots) = (Some(map.version()?), named(&map)?);
                MapDescription { name, kind: MapTypes::Versioned, entries, version, snapshots }
            } else {
                MapDescription::new(name, MapTypes::Bytes, entries)
            });
        }
    }
    let fixed = pool.fixed_map_names()?;
    maps.extend(fixed.into_iter().map(|name| MapDescription::new(name, MapTypes::Fixed, None)));
    maps.extend(pool.hash_tables()?.into_iter().map(|(name, table)| MapDescription {
        name,
        kind: MapTypes::Hash,
        entries: Some(table.length),
        version: Some(table.version),
        snapshots: listed(table.kept),
    }));
    maps.sort_by(|a, b| a.name.cmp(&b.name));
    let stores = pool.store_names()?;
    let stores = stores.iter().map(|name| StoreDescription::in_pool(pool, name)).collect::<Outcome<_>>()?;
    let has_heap = pool.list()?.iter().any(|listed| listed.kind == tembo::Kind::Heap);
    let unknown = pool.unknown()?.into_iter().map(|unknown| UnknownDescription {
        what: unknown.what(),
        advice: unknown.advice(),
        name: unknown.name,
    });
    let unknown = unknown.collect();
    Ok(Description {
        path: path.display().to_string(),
        uuid: pool.uuid(),
        last_use: pool.last_ending().name(),
        ending: pool.last_ending(),
        pool_bytes: stats.pool_bytes,
        unused_bytes: stats.unused_bytes,
        journal_bytes: stats.journal_bytes,
        journal_lines: pool.journal_lines(),
        maps,
        stores,
        heap: if has_heap { describe_heap(pool)? } else { None },
        unknown,
        has_dropped_maps: pool.has_dropped_maps()?,
        has_dropped_stores: pool.has_dropped_stores()?,
        space: None,
    })
}

fn describe_heap(pool: &Pool) -> Outcome<Option<HeapDescription>> {
    Ok(pool.describe_heap()?.map(|heap| HeapDescription {
        root: heap.root_type,
        generation: heap.generation,
        types: heap.types.into_iter().map(|(name, layout)| TypeDescription { name, layout }).collect(),
    }))
}

impl MapDescription {
    /// Describes a map that keeps no versions.
    fn new(name: String, kind: MapTypes, entries: Option<u64>) -> MapDescription {
        MapDescription { name, kind, entries, version: None, snapshots: Vec::new() }
    }

    fn text(&self) -> String {
        let entries = match (self.kind, self.entries) {
            (MapTypes::Fixed, _) => return "8-byte keys and values".to_owned(),
            (_, Some(1)) => "1 entry".to_owned(),
            (_, entries) => format!("{} entries", entries.unwrap_or(0)),
        };
        let entries =
            if self.kind == MapTypes::Hash { format!("{entries} without an order") } else { entries };
        self.version.map_or(entries.clone(), |version| format!("{entries}, version {version}"))
    }
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Description {
    fn text(&self) -> String {
        let mut lines = Lines::default();
        lines
            .add("uuid", &self.uuid)
            .add("last use", self.ending.meaning())
            .add("size", human_bytes(self.pool_bytes))
            .add("unused", human_bytes(self.unused_bytes))
            .add("maps", self.maps.len());
        if let Some(count) = self.journal_lines {
            let set_aside = human_bytes(self.journal_bytes);
            lines.add(
                "journal",
                format!(
                    "{set_aside} set aside; {count} lines of 64 bytes are newer there than in the rest of the file"
                ),
            );
        }
        let mut text = format!("{}\n{}", self.path, lines.text());
        let width = self.maps.iter().map(|map| map.name.chars().count()).max().unwrap_or(0);
        for map in &self.maps {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {:width$}  {}", map.name, map.text());
            for named in &map.snapshots {
                let _ = writeln!(text, "    {:width$}    snapshot {}: {}", "", named.name(), named.text());
            }
        }
        self.stores.iter().for_each(|store| add_store(&mut text, store));
        if let Some(heap) = &self.heap {
            let _ = writeln!(text, "  heap    with a root of type {}; its types:", heap.root);
            heap.types.iter().for_each(|each| _ = writeln!(text, "    {}", each.layout));
        }
        for UnknownDescription { name, what, advice } in &self.unknown {
            let _ = writeln!(text, "  unknown {name:?} is {what}; {advice}");
        }
        if self.has_dropped_maps {
            text.push_str("  dropped maps, whose space is still coming back as the pool is written to\n");
        }
        if self.has_dropped_stores {
            text.push_str(
                "  dropped stores, whose space is still to come back: the next drop goes on with it\n",
            );
        }
        self.space.iter().for_each(|space| text.push_str(&space.text()));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Description {
        let map = |name: &str, kind, entries| MapDescription::new(name.to_owned(), kind, entries);
        let versioned = MapDescription { version: Some(9), ..map("log", MapTypes::Versioned, Some(3)) };
        Description {
            path: "a.pool".to_owned(),
            uuid: "67e55044-10b1-426f-9247-bb680e5fe0c8".to_owned(),
            last_use: "closed",
            ending: Ending::Closed,
            pool_bytes: 4 << 20,
            unused_bytes: 1536,
            journal_bytes: 0,
            journal_lines: None,
            maps: vec![
                map("db0", MapTypes::Bytes, Some(12)),
                map("ids", MapTypes::Fixed, None),
                versioned,
                MapDescription { version: Some(5), ..map("tags", MapTypes::Hash, Some(2)) },
                map("été", MapTypes::Bytes, Some(1)),
            ],
            stores: Vec::new(),
            heap: None,
            unknown: Vec::new(),
            has_dropped_maps: false,
            has_dropped_stores: false,
            space: None,
        }
    }

    #[test]
    fn people_get_aligned_lines() {
        let expected = "a.pool\n  uuid      67e55044-10b1-426f-9247-bb680e5fe0c8\n  last use  closed\n  size      4.00 MiB\n  \
                        unused    1.50 KiB\n  maps      5\n    db0   12 entries\n    ids   8-byte keys and values\n    log   3 entries, version 9\n    tags  2 entries without an order, version 5\n    été   1 entry\n";
        assert_eq!(sample().text(), expected);
    }

    #[test]
    fn programs_get_exact_numbers() {
        let json = serde_json::to_value(sample()).unwrap();
        assert_eq!(json["unused_bytes"], 1536);
        assert_eq!(json["maps"][1], serde_json::json!({"name": "ids", "kind": "fixed"}));
        assert_eq!(
            json["maps"][2],
            serde_json::json!({"name": "log", "kind": "versioned", "entries": 3, "version": 9})
        );
        assert_eq!(json["maps"][3]["kind"], "hash");
        assert_eq!(json["maps"][4], serde_json::json!({"name": "été", "kind": "bytes", "entries": 1}));
    }
}
