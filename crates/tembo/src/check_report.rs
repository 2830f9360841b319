//! The findings of a check.

use crate::kinds::Unknown;
use tembo_heap::Summary;
use tembo_index::VersionedReport as VersionsReport;
use tembo_pool::{ClassUsage, Reached, Usage};

/// The findings of a complete [check](crate::Pool::check).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Every map of byte strings that keeps no versions, with its number of records.
    pub maps: Vec<(String, u64)>,
    /// Every map of byte strings that keeps versions, with a report of its newest version and its named
    /// snapshots.
    pub versioned_maps: Vec<(String, VersionsReport)>,
    /// Every hash table, as in [`hash_tables`](crate::Pool::hash_tables).
    pub hash_tables: Vec<(String, VersionsReport)>,
    /// Every map of fixed-size keys with its number of records.
    pub fixed_maps: Vec<(String, u64)>,
    /// Every store.
    pub stores: Vec<(String, tembo_store::Report)>,
    /// The heap of persistent objects, if there is one.
    pub heap: Option<Summary>,
    /// Dropped maps that still have blocks.
    pub dropped_maps: u64,
    /// Dropped stores that still have blocks.
    pub dropped_stores: u64,
    /// Structures that this version of the library cannot read, and hence did not check.
    pub unknown: Vec<Unknown>,
    /// Allocated blocks that no known structure reaches; they may belong to the unknown ones. 0 if there are
    /// none.
    pub unreached_blocks: u64,
    /// How the space is used.
    pub usage: Usage,
    /// How the slabs of each block size are used, the smallest first.
    pub classes: Vec<ClassUsage>,
    /// The blocks of each named structure, in order of the names; the heap's is the last.
    pub space: Vec<(String, Reached)>,
}

impl CheckReport {
    /// Notes a structure whose blocks were ticked off between two moments.
    pub(crate) fn note_space(&mut self, name: String, before: Reached, after: Reached) {
        let (blocks, bytes) = (after.blocks - before.blocks, after.bytes - before.bytes);
        if blocks > 0 {
            self.space.push((name, Reached { blocks, bytes }));
        }
    }
}
