//! The format document, made from the code: `docs/format.md` is checked against this.

use crate::layout::{Geometry, PmEntry, PmHeader, PmLane, PmRecord, PmRoot, PmSlab, PmZone};
use std::fmt::Write;
use tembo_pmem::journal::{PmRingHead, PmRingRecord};
use tembo_pmem::{Field, MediaLayout};

/// The tables of the pool's media structs, in Markdown.
pub fn describe() -> String {
    let mut out = String::new();
    section::<PmHeader>(&mut out);
    section::<PmRoot>(&mut out);
    section::<PmLane>(&mut out);
    section::<PmRecord>(&mut out);
    section::<PmEntry>(&mut out);
    section::<PmZone>(&mut out);
    section::<PmSlab>(&mut out);
    section::<PmRingHead>(&mut out);
    section::<PmRingRecord>(&mut out);
    out
}

/// The table of the offsets in a pool of the default geometry, in Markdown.
pub fn describe_offsets() -> String {
    let mut out = String::new();
    let g = Geometry::default();
    let _ = writeln!(out, "## Offsets in a pool of the default geometry\n");
    let _ = writeln!(out, "| what | offset | bytes |\n|---|---:|---:|");
    let rows = [
        ("header", 0, g.roots_off()),
        ("root directory", g.roots_off(), g.lanes_off() - g.roots_off()),
        ("lanes", g.lanes_off(), g.lane_off(g.lane_count) - g.lanes_off()),
        ("zone 0", g.zones_off(), g.zone_bytes()),
        ("zone 0: header and chunk table", g.zones_off(), g.zone_header_chunks() * g.chunk()),
    ];
    for (what, off, bytes) in rows {
        let _ = writeln!(out, "| {what} | {off} | {bytes} |");
    }
    out
}

/// One struct's table, in Markdown.
pub fn section<T: MediaLayout>(out: &mut String) {
    let _ = writeln!(out, "## {}::{} ({} bytes)\n", structure(T::MODULE), T::NAME, T::BYTES);
    let _ = writeln!(out, "| offset | bytes | field | meaning |\n|---:|---:|---|---|");
    for Field { name, off, bytes, doc } in T::FIELDS {
        let _ = writeln!(out, "| {off} | {bytes} | `{name}` | {} |", doc.trim());
    }
    out.push('\n');
}

/// The structure that a module's types belong to: a module of the index, or a whole crate.
///
/// Several structures have types of the same name, so a table is cited with its structure: `pool::PmRecord`,
/// `wbtree::PmRecord`.
fn structure(module: &str) -> &str {
    let path = module.strip_prefix("tembo_").unwrap_or(module);
    let path = path.strip_suffix("::layout").unwrap_or(path);
    path.strip_prefix("index::").unwrap_or_else(|| path.split("::").next().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::structure;

    #[test]
    fn a_type_is_named_by_its_structure() {
        assert_eq!(structure("tembo_pool::layout"), "pool");
        assert_eq!(structure("tembo_heap::objects::layout"), "heap");
        assert_eq!(structure("tembo_index::wbtree::layout"), "wbtree");
        assert_eq!(structure("tembo_index::versioned::tree::layout"), "versioned::tree");
    }
}
