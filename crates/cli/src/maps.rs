//! `tembo maps` lists the names in a pool, and `tembo drop` removes them.

use crate::args::{DropMaps, Maps};
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::report::{print, print_json};
use serde::Serialize;
use tembo::{Kind, Options, Pool};

/// Steps of giving space back in one commit.
const RECLAIM_STEPS: usize = 16;

/// Something that has a name.
#[derive(Debug, Serialize)]
struct NamedStructure {
    name: String,
    kind: &'static str,
    /// A description of a structure that this program does not know, with advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

/// Prints the list that was asked for.
pub(crate) fn run(arguments: &Maps) -> Outcome {
    let pool = Options::new().read_only(true).open(&arguments.pool)?;
    let named = pool.list()?.into_iter().map(|listed| {
        let kind = listed.kind.in_words();
        let unknown = match listed.kind {
            Kind::Unknown(unknown) => Some(format!("{}; {}", unknown.what(), unknown.advice())),
            _ => None,
        };
        NamedStructure { name: listed.name, kind, unknown }
    });
    let named: Vec<NamedStructure> = named.collect();
    if arguments.json { print_json(&named) } else { print(&text(&named)) }
}

fn text(named: &[NamedStructure]) -> String {
    let width = named.iter().map(|named| named.name.chars().count()).max().unwrap_or(0);
    let lines = named.iter().map(|named| match &named.unknown {
        Some(unknown) => format!("{:width$}  {unknown}\n", named.name),
        None => format!("{:width$}  {}\n", named.name, named.kind),
    });
    lines.collect()
}

/// Drops maps and stores, one after the other, and gives their space back.
pub(crate) fn drop_maps(arguments: &DropMaps) -> Outcome {
    let pool = Options::new().durability(arguments.durability).open(&arguments.pool)?;
    note_unknown(&pool)?;
    for name in &arguments.maps {
        let listed = pool.list()?;
        let is_store = listed.iter().any(|listed| listed.name == *name && listed.kind == Kind::Store);
        let is_dropped = if is_store { pool.drop_store(name)? } else { pool.drop_map(name)? };
        if !is_dropped {
            let names: Vec<&str> = listed.iter().map(|listed| &*listed.name).collect();
            return Err(Failure::Failed(format!(
                "there is no map or store {name:?}; there is {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )));
        }
        let mut progress = Progress::new("giving space back", None);
        while pool.reclaim_dropped(RECLAIM_STEPS)? {
            progress.advance(RECLAIM_STEPS as u64);
        }
        print(&format!("dropped {name}\n"))?;
    }
    Ok(())
}

/// Prints on standard error the structures in the pool that this program does not know, for commands that
/// skip them.
pub(crate) fn note_unknown(pool: &Pool) -> Outcome {
    pool.unknown()?.iter().for_each(|unknown| eprintln!("note: in this pool {unknown}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_aligned_lines() {
        let named = [
            NamedStructure { name: "a".into(), kind: "map", unknown: None },
            NamedStructure {
                name: "future".into(),
                kind: "unknown",
                unknown: Some("of the kind X; wait".into()),
            },
        ];
        assert_eq!(text(&named), "a       map\nfuture  of the kind X; wait\n");
        assert_eq!(text(&[]), "");
    }
}
