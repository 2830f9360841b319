//! `tembo info`: what a pool is and holds.

use crate::args::Info;
use crate::failure::Outcome;
use crate::report::{Lines, print, print_json};
use crate::size::human_bytes;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use tembo::{Options, Pool};

/// What is known of a pool without reading its entries.
#[derive(Debug, Serialize)]
struct Description {
    path: String,
    uuid: String,
    pool_bytes: u64,
    /// Of them, in chunks that hold nothing.
    unused_bytes: u64,
    maps: Vec<MapDescription>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heap: Option<HeapDescription>,
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
    kind: Kind,
    /// Maps of 8-byte keys keep no count, and counting would read them as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
}

/// What a map's keys and values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Byte strings.
    Bytes,
    /// Integers of 8 bytes.
    Fixed,
}

/// Prints the description that was asked for.
pub(crate) fn run(arguments: &Info) -> Outcome {
    let pool = Options::new().read_only(true).open(&arguments.pool)?;
    let description = describe(&arguments.pool, &pool)?;
    if arguments.json { print_json(&description) } else { print(&description.text()) }
}

fn describe(path: &Path, pool: &Pool) -> Outcome<Description> {
    let stats = pool.stats();
    let mut maps = Vec::new();
    for name in pool.map_names()? {
        if let Some(map) = pool.find_map(&name)? {
            maps.push(MapDescription { name, kind: Kind::Bytes, entries: Some(map.len()?) });
        }
    }
    let fixed = pool.fixed_map_names()?;
    maps.extend(fixed.into_iter().map(|name| MapDescription { name, kind: Kind::Fixed, entries: None }));
    maps.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Description {
        path: path.display().to_string(),
        uuid: pool.raw().uuid().to_string(),
        pool_bytes: stats.pool_bytes,
        unused_bytes: stats.unused_bytes,
        maps,
        heap: pool.describe_heap()?.map(|heap| HeapDescription {
            root: heap.root_type,
            generation: heap.generation,
            types: heap.types.into_iter().map(|(name, layout)| TypeDescription { name, layout }).collect(),
        }),
    })
}

impl Description {
    fn text(&self) -> String {
        let mut lines = Lines::default();
        lines
            .add("uuid", &self.uuid)
            .add("size", human_bytes(self.pool_bytes))
            .add("unused", human_bytes(self.unused_bytes))
            .add("maps", self.maps.len());
        let mut text = format!("{}\n{}", self.path, lines.text());
        let width = self.maps.iter().map(|map| map.name.chars().count()).max().unwrap_or(0);
        for map in &self.maps {
            let what = match (map.kind, map.entries) {
                (Kind::Fixed, _) => "8-byte keys and values".to_owned(),
                (Kind::Bytes, Some(1)) => "1 entry".to_owned(),
                (Kind::Bytes, entries) => format!("{} entries", entries.unwrap_or(0)),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {:width$}  {what}", map.name);
        }
        if let Some(heap) = &self.heap {
            let _ = writeln!(text, "  heap    with a root of type {}; its types:", heap.root);
            heap.types.iter().for_each(|each| _ = writeln!(text, "    {}", each.layout));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Description {
        let map = |name: &str, kind, entries| MapDescription { name: name.to_owned(), kind, entries };
        Description {
            path: "a.pool".to_owned(),
            uuid: "67e55044-10b1-426f-9247-bb680e5fe0c8".to_owned(),
            pool_bytes: 4 << 20,
            unused_bytes: 1536,
            maps: vec![
                map("db0", Kind::Bytes, Some(12)),
                map("ids", Kind::Fixed, None),
                map("été", Kind::Bytes, Some(1)),
            ],
            heap: None,
        }
    }

    #[test]
    fn people_get_aligned_lines() {
        let expected = "a.pool\n  uuid    67e55044-10b1-426f-9247-bb680e5fe0c8\n  size    4.00 MiB\n  \
                        unused  1.50 KiB\n  maps    3\n    db0  12 entries\n    ids  8-byte keys and values\n    été  1 entry\n";
        assert_eq!(sample().text(), expected);
    }

    #[test]
    fn programs_get_exact_numbers() {
        let json = serde_json::to_value(sample()).unwrap();
        assert_eq!(json["unused_bytes"], 1536);
        assert_eq!(json["maps"][1], serde_json::json!({"name": "ids", "kind": "fixed"}));
        assert_eq!(json["maps"][2], serde_json::json!({"name": "été", "kind": "bytes", "entries": 1}));
    }
}
