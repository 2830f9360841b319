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
}

#[derive(Debug, Serialize)]
struct MapDescription {
    name: String,
    entries: u64,
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
            maps.push(MapDescription { name, entries: map.len()? });
        }
    }
    maps.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Description {
        path: path.display().to_string(),
        uuid: pool.raw().uuid().to_string(),
        pool_bytes: stats.pool_bytes,
        unused_bytes: stats.unused_bytes,
        maps,
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
            // Writing to a string cannot fail.
            let noun = if map.entries == 1 { "entry" } else { "entries" };
            let _ = writeln!(text, "    {:width$}  {} {noun}", map.name, map.entries);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Description {
        let map = |name: &str, entries| MapDescription { name: name.to_owned(), entries };
        Description {
            path: "a.pool".to_owned(),
            uuid: "67e55044-10b1-426f-9247-bb680e5fe0c8".to_owned(),
            pool_bytes: 4 << 20,
            unused_bytes: 1536,
            maps: vec![map("db0", 12), map("été", 1)],
        }
    }

    #[test]
    fn people_get_aligned_lines() {
        let expected = "a.pool\n  uuid    67e55044-10b1-426f-9247-bb680e5fe0c8\n  size    4.00 MiB\n  \
                        unused  1.50 KiB\n  maps    2\n    db0  12 entries\n    été  1 entry\n";
        assert_eq!(sample().text(), expected);
    }

    #[test]
    fn programs_get_exact_numbers() {
        let json = serde_json::to_value(sample()).unwrap();
        assert_eq!(json["unused_bytes"], 1536);
        assert_eq!(json["maps"][1]["name"], "été");
    }
}
