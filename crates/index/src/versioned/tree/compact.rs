//! Moves nodes and records for a compaction.
//!
//! A node moves as one does that is divided or joined: it is rebuilt, and the entry above leads to the new
//! one. A record moves with its leaf, which is rebuilt with an entry of the same start that leads to the
//! copy.

use super::super::layout::Form;
use super::super::moves::Moves;
use super::super::node::Record;
use super::super::queue::Dead;
use super::super::view::region;
use super::draft::NEW;
use super::layout::{Field, node_bytes};
use super::lookup::Goal;
use super::node::Node;
use super::ordered::TreeBuilder;
use super::path::NodePath;
use crate::error::Result;
use crate::record::write_record;
use tembo_pool::Tx;

/// A step looks at up to this many leaves.
const LEAVES_PER_STEP: usize = 64;

impl TreeBuilder {
    /// Moves the selected blocks of the leaves, from the leaf of `from` on; returns the key at which the next
    /// call continues.
    pub(super) fn compact(
        &mut self,
        tx: &mut Tx<'_>,
        moves: &mut Moves<'_>,
        from: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let mut next = (self.drafts.root != 0).then(|| from.to_vec());
        for _ in 0..LEAVES_PER_STEP {
            let Some(key) = &next else { break };
            if moves.is_enough() {
                break;
            }
            next = self.compact_leaf(tx, moves, key)?;
        }
        Ok(next)
    }

    /// As [`compact`](Self::compact), at one leaf.
    fn compact_leaf(
        &mut self,
        tx: &mut Tx<'_>,
        moves: &mut Moves<'_>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let mut path = self.path(tx, Goal::At(key))?;
        while let Some(depth) = self.inner_to_move(tx, moves, &path)? {
            self.change();
            moves.note(node_bytes(path.depth() - depth));
            self.rebuild(tx, &path, depth, &[])?;
            self.touch(&path);
            self.is_broken = false;
            path = self.path(tx, Goal::At(key))?;
        }
        let leaf = path.leaf();
        if leaf & NEW == 0 && self.draft_of(leaf).is_none() {
            let node = Node::open(region(tx), leaf, 0)?;
            let next = node.high()?.map(<[u8]>::to_vec);
            if !moves.wants(leaf, node.birth()) && !has_record_to_move(&node, self.before.number, moves)? {
                return Ok(next);
            }
        }
        let draft = self.draft(tx, leaf, 0)?;
        let next = self.fences(tx, draft)?.high;
        self.change();
        self.move_records(tx, moves, draft)?;
        if leaf & NEW == 0 {
            moves.note(node_bytes(0));
            self.rebuild(tx, &path, path.depth(), &[])?;
        }
        self.touch(&path);
        self.is_broken = false;
        Ok(next)
    }

    /// The depth of the first inner node of a path that is to be moved.
    fn inner_to_move(&self, tx: &Tx<'_>, moves: &Moves<'_>, path: &NodePath) -> Result<Option<usize>> {
        for depth in 0..path.depth() {
            let id = path.id(depth);
            if id & NEW == 0 && moves.wants(id, Node::open(region(tx), id, path.depth() - depth)?.birth()) {
                return Ok(Some(depth));
            }
        }
        Ok(None)
    }

    /// Makes the entries of a leaf's draft lead to copies of the records that are to be moved.
    fn move_records(&mut self, tx: &mut Tx<'_>, moves: &mut Moves<'_>, leaf: usize) -> Result<()> {
        let live: Vec<usize> = self.drafts.nodes[leaf].live().collect();
        for slot in live {
            let node = &self.drafts.nodes[leaf];
            let (old, start) = (node.value(slot), node.start(slot));
            if node.form(slot)? != Form::Block || !moves.wants(old, start) {
                continue;
            }
            let pool = tx.pool().clone();
            let record = Record::read(pool.region(), old)?;
            let new = write_record(tx, record.key, &[record.value], record.value.len() as u64)?;
            moves.note(record.media_bytes());
            self.dead.push(Dead::record(old, start, self.version));
            // No earlier version has the copy.
            self.drafts.moved_out.push(new);
            self.drafts.nodes[leaf].set_value(slot, new);
        }
        Ok(())
    }
}

/// Whether a leaf leads, in a version, to a record that is to be moved.
fn has_record_to_move(leaf: &Node<'_>, version: u64, moves: &Moves<'_>) -> Result<bool> {
    for slot in leaf.slots_in(version) {
        let start = leaf.start(slot).version();
        if leaf.form(slot)? == Form::Block && moves.wants(leaf.field(slot, Field::Value), start) {
            return Ok(true);
        }
    }
    Ok(false)
}
