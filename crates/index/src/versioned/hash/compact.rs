//! Moves nodes and records for a compaction.
//!
//! A walk over the version before finds the nodes that are to be moved, or that lead to such records. Then
//! these are copied, and with them all nodes on the way there, as a change of a key copies them.

use super::super::layout::Form;
use super::super::moves::Moves;
use super::super::node::Record;
use super::super::queue::Dead;
use super::super::view::region;
use super::hashed::HashBuilder;
use super::layout::digit;
use super::node::{TrieEntry, TrieNode, TriePlace};
use crate::error::Result;
use crate::record::write_record;
use tembo_pmem::Region;
use tembo_pool::Tx;

/// A step looks at up to this many nodes. More than there are on the way to one.
const NODES_PER_STEP: usize = 512;

/// The walk that looks for blocks to be moved.
struct Search<'s, 'c> {
    region: &'s Region,
    seed: u64,
    moves: &'s mut Moves<'c>,
    /// Nodes of hashes below this one are done.
    from: u64,
    nodes_left: usize,
    /// The nodes that are to be copied: the leading bits of their hashes, and their depths.
    found: Vec<(u64, usize)>,
}

impl Search<'_, '_> {
    /// Visits a node and the nodes below it; returns the hash at which the next call continues, if it stopped
    /// before the end.
    fn visit(&mut self, off: u64, path: u64, depth: usize) -> Result<Option<u64>> {
        self.nodes_left = self.nodes_left.saturating_sub(1);
        let node = TrieNode::open(self.region, off, depth)?;
        let mut is_wanted = self.moves.wants(off, node.birth);
        if is_wanted {
            self.moves.note(node.media_bytes());
        }
        let mut children = Vec::new();
        for place in 0..node.places() {
            match node.place_on(self.seed, path, place)? {
                (TriePlace::Child(child), below) => children.push((child, below)),
                (TriePlace::TrieEntry(entry), _) if wants_record(self.moves, &entry) => {
                    self.moves.note(Record::read(self.region, entry.value)?.media_bytes());
                    is_wanted = true;
                }
                _ => {}
            }
        }
        if is_wanted {
            self.found.push((path, depth));
        }
        for (child, below) in children {
            // All hashes below the child are at most this.
            let last = below | u64::MAX.checked_shr(4 * (depth as u32 + 1)).unwrap_or(0);
            if last < self.from {
                continue;
            }
            if self.nodes_left == 0 || self.moves.is_enough() {
                return Ok(Some(below.max(self.from)));
            }
            if let Some(next) = self.visit(child, below, depth + 1)? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }
}

fn wants_record(moves: &Moves<'_>, entry: &TrieEntry) -> bool {
    entry.form == Form::Block && moves.wants(entry.value, entry.version)
}

impl HashBuilder {
    /// Moves the selected blocks from the hash `from` on; returns the hash at which the next call continues.
    pub(super) fn compact(
        &mut self,
        tx: &mut Tx<'_>,
        moves: &mut Moves<'_>,
        from: u64,
    ) -> Result<Option<u64>> {
        let root = self.before.root.node();
        if root == 0 {
            return Ok(None);
        }
        let (seed, found) = (self.seed, Vec::new());
        let mut search = Search { region: region(tx), seed, moves, from, nodes_left: NODES_PER_STEP, found };
        let next = search.visit(root, 0, 0)?;
        let found = search.found;
        for (path, depth) in found {
            self.change();
            let mut node = self.root_draft(tx)?;
            for depth in 0..depth {
                node = self.child_draft(tx, node, digit(path, depth))?;
            }
            self.move_records(tx, moves, node)?;
            self.is_broken = false;
        }
        Ok(next)
    }

    /// Makes the entries of a draft lead to copies of the records that are to be moved.
    fn move_records(&mut self, tx: &mut Tx<'_>, moves: &Moves<'_>, node: usize) -> Result<()> {
        let pool = tx.pool().clone();
        for entry in self.drafts.entries_of(node).filter(|entry| wants_record(moves, entry)) {
            let record = Record::read(pool.region(), entry.value)?;
            let new = write_record(tx, record.key, &[record.value], record.value.len() as u64)?;
            self.dead.push(Dead::record(entry.value, entry.version, self.version));
            entry.value = new;
        }
        Ok(())
    }
}
