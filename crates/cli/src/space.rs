//! How the space of a pool is used: by structure, and by the size of blocks.

use crate::size::human_bytes;
use serde::Serialize;
use std::fmt::Write as _;
use tembo::{CheckReport, Pool};

/// The space of a pool.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Space {
    allocated_bytes: u64,
    /// Free blocks between allocated ones, and the heads and ends of slabs.
    hole_bytes: u64,
    slab_overhead_bytes: u64,
    free_bytes: u64,
    structures: Vec<StructureSpace>,
    classes: Vec<ClassSpace>,
    /// Bytes of a heap's objects that stay where they are when the pool is compacted: those that several
    /// pointers share, or that weak pointers lead to.
    unmoved_bytes: u64,
    /// Named snapshots that hold removed data of their structures, by structure.
    held_by: Vec<String>,
}

#[derive(Debug, Serialize)]
struct StructureSpace {
    name: String,
    blocks: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ClassSpace {
    block_bytes: u64,
    slabs: u64,
    allocated_blocks: u64,
    free_blocks: u64,
    hole_bytes: u64,
}

impl Space {
    /// Reads the whole pool.
    pub(crate) fn of(pool: &Pool) -> tembo::Result<Space> {
        let report = pool.check()?;
        let mut space = Space { held_by: held_by(pool)?, ..Space::new(&report) };
        let journal = pool.stats().journal_bytes;
        if journal > 0 {
            space.structures.push(StructureSpace {
                name: "the journal".to_owned(),
                blocks: 1,
                bytes: journal,
            });
        }
        Ok(space)
    }

    fn new(report: &CheckReport) -> Space {
        let usage = report.usage;
        let classes: Vec<ClassSpace> = report
            .classes
            .iter()
            .map(|class| ClassSpace {
                block_bytes: class.block_bytes,
                slabs: class.slabs,
                allocated_blocks: class.allocated_blocks,
                free_blocks: class.free_blocks,
                hole_bytes: class.free_bytes(),
            })
            .collect();
        let hole_bytes = classes.iter().map(|class| class.hole_bytes).sum();
        let in_slabs: u64 = classes.iter().map(|class| class.allocated_blocks * class.block_bytes).sum();
        let structures = report.space.iter().map(|(name, reached)| StructureSpace {
            name: name.clone(),
            blocks: reached.blocks,
            bytes: reached.bytes,
        });
        Space {
            allocated_bytes: usage.allocated_bytes,
            hole_bytes,
            slab_overhead_bytes: usage.slab_bytes.saturating_sub(in_slabs + hole_bytes),
            free_bytes: usage.free_chunk_bytes,
            structures: structures.collect(),
            classes,
            unmoved_bytes: report.heap.as_ref().map_or(0, |heap| heap.fixed_bytes),
            held_by: Vec::new(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "  space   {} allocated, {} in holes, {} in heads of slabs, {} free\n",
            human_bytes(self.allocated_bytes),
            human_bytes(self.hole_bytes),
            human_bytes(self.slab_overhead_bytes),
            human_bytes(self.free_bytes)
        );
        let width = self.structures.iter().map(|each| each.name.chars().count()).max().unwrap_or(0);
        for StructureSpace { name, blocks, bytes } in &self.structures {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {name:width$}  {} in {blocks} blocks", human_bytes(*bytes));
        }
        if self.unmoved_bytes > 0 {
            let bytes = human_bytes(self.unmoved_bytes);
            let _ = writeln!(
                text,
                "    {bytes} of shared objects stay where they are when the pool is compacted"
            );
        }
        self.held_by.iter().for_each(|what| _ = writeln!(text, "    {what} holds what was there"));
        text.push_str("  blocks\n");
        for class in &self.classes {
            let _ = writeln!(
                text,
                "    of {:>5} bytes: {:>8} in {:>6} slabs, {:>10} in holes",
                class.block_bytes,
                class.allocated_blocks,
                class.slabs,
                human_bytes(class.hole_bytes)
            );
        }
        text
    }
}

/// The named snapshots of a pool, each with its structure.
fn held_by(pool: &Pool) -> tembo::Result<Vec<String>> {
    let mut held = Vec::new();
    let mut add = |structure: &str, snapshot: &str| held.push(format!("snapshot {snapshot} of {structure}"));
    for name in pool.map_names()? {
        if let Some(map) = pool.find_map(&name)?.filter(tembo::Map::is_versioned) {
            map.snapshots()?.iter().for_each(|kept| add(&name, &kept.name));
        }
    }
    for (name, table) in pool.hash_tables()? {
        table.kept.iter().for_each(|kept| add(&name, &kept.name));
    }
    for name in pool.store_names()? {
        for kept in pool.find_store(&name)?.map(|store| store.kept()).transpose()?.unwrap_or_default() {
            add(&name, &kept.name.unwrap_or_else(|| kept.number.to_string()));
        }
    }
    Ok(held)
}
