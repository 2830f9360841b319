//! Moves records and nodes to other blocks, for a compaction of the pool.
//!
//! A step handles one leaf. It copies the records, and the nodes on the way, that lie in sparse slabs, and
//! stores the copies' offsets in the words that led to them, as a put or a division would: readers meet the
//! old copy or the new one, which are equal. Separators in blocks of their own move with their node.
//!
//! In a tree whose values change in place ([`unnamed`](super::unnamed)), the owner ensures that no thread
//! changes them meanwhile, and that no later change uses a place from before. Readers that hold a pin may
//! still use such a place: the old record stays as it was when it was replaced.

use super::WbTree;
use super::edit::{Edit, InnerDraft, Path};
use super::items::Items;
use super::layout::{INNER_BYTES, LEAF_BYTES, SeparatorWord, TreeWord};
use super::node::{Inner, Record, View};
use crate::error::Result;
use tembo_pool::{Compaction, KeptSpace, Tx};

/// A step stops after the record with which it has copied this many bytes.
const BYTES_PER_STEP: u64 = 128 << 10;

/// The progress of one step of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionStep {
    /// How many bytes of records and nodes were copied.
    pub moved_bytes: u64,
    /// The key at which the next step continues; `None` at the end of the tree.
    pub next: Option<Vec<u8>>,
}

impl WbTree {
    /// Moves the leaf of `from`, its records and the nodes on the way there, as far as they lie in the
    /// compaction's slabs; returns the key at which the next step continues. The contents do not change.
    /// Takes time in proportion to a leaf and the records that it copies, up to 128 KiB and one record; the
    /// transaction must be empty, and is committed by the caller.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is full or damaged. The transaction then is as it
    /// was.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn compact_at(
        &self,
        tx: &mut Tx<'_>,
        compaction: &Compaction,
        from: &[u8],
    ) -> Result<CompactionStep> {
        self.assert_writes(tx);
        let before = tx.savepoint();
        tx.use_kept_space(KeptSpace::Half);
        let outcome = self.try_compact_at(tx, compaction, from);
        tx.use_kept_space(KeptSpace::None);
        outcome.inspect_err(|_| tx.rollback_to(before))
    }

    fn try_compact_at(
        &self,
        tx: &mut Tx<'_>,
        compaction: &Compaction,
        from: &[u8],
    ) -> Result<CompactionStep> {
        let tree = self.root(self.pending(tx))?;
        if tree == TreeWord::EMPTY {
            return Ok(CompactionStep { moved_bytes: 0, next: None });
        }
        let mut edit = Edit::new(self, tx, None);
        let path = Path::to_key(edit.view(), tree, from)?;
        // Moving an inner node changes the path to all nodes below it, so it is a step of its own.
        if let Some(moved_bytes) = edit.move_inner(&path, from, compaction)? {
            edit.finish()?;
            return Ok(CompactionStep { moved_bytes, next: Some(from.to_vec()) });
        }
        let next = match path.steps.last() {
            Some((_, child)) => path.high_fence(path.steps.len() - 1, *child, from)?,
            None => None,
        };
        let next = next.map(|fence| fence.to_vec());
        let (moved_bytes, is_done) = edit.move_leaf(&path, compaction)?;
        edit.finish()?;
        Ok(CompactionStep { moved_bytes, next: if is_done { next } else { Some(from.to_vec()) } })
    }
}

impl<'m> Edit<'m, '_, '_> {
    /// Moves the first inner node of the path that is to be moved, or whose separators are; returns the
    /// bytes.
    fn move_inner(&mut self, path: &Path<'m>, key: &[u8], compaction: &Compaction) -> Result<Option<u64>> {
        let Some(depth) = first_to_move(path, compaction)? else { return Ok(None) };
        let (node, _) = path.steps[depth];
        let level = path.tree.level() - depth;
        let mut draft = InnerDraft::of(self.view(), &node, key)?;
        let mut moved_bytes = INNER_BYTES;
        for separator in draft.separators.iter_mut().filter(|separator| compaction.has(separator.block)) {
            // A separator without a block gets one here.
            self.retire(std::mem::take(&mut separator.block));
            moved_bytes += separator.len() as u64;
        }
        self.retire_inner(&node)?;
        let new = self.build_inner(level, node.kind.skip(), draft.part(0..draft.children.len()))?;
        self.replace(path, depth, new)?;
        Ok(Some(moved_bytes))
    }

    /// Moves records of the path's leaf, and then the leaf, if they are to be moved. Returns the bytes, and
    /// whether all of them were.
    fn move_leaf(&mut self, path: &Path<'m>, compaction: &Compaction) -> Result<(u64, bool)> {
        let leaf = path.leaf;
        let view = self.view();
        let state = leaf.state(view)?;
        let (mut live, mut moved_bytes) = (state.bitmap(), 0);
        while live != 0 && moved_bytes < BYTES_PER_STEP {
            let slot = live.trailing_zeros() as usize;
            live &= live - 1;
            let word = leaf.record_off(slot);
            let old = self.view().load(word)?;
            if compaction.has(old) {
                let record = Record::read(self.region(), old)?;
                let (key, value) = (record.key, record.value());
                let new = self.tree.write_record(self.tx, key, &[value], value.len() as u64)?;
                // PERSIST(I5): the one word that replaces a record, as in a put.
                self.tx.store(word, new)?;
                self.retire(old);
                moved_bytes += (key.len() + value.len()) as u64;
            }
        }
        if live != 0 || !compaction.has(leaf.off) {
            return Ok((moved_bytes, live == 0));
        }
        // Readers would see the stores to the old leaf before the commit. So the leaf itself moves in a later
        // step, when its records have moved.
        if moved_bytes > 0 {
            return Ok((moved_bytes, false));
        }
        let mut items = Items::new(leaf.skip());
        items.gather(self.view(), &leaf, state)?;
        let new = self.build_leaf(&items)?;
        self.retire_leaf(leaf.off)?;
        self.replace(path, path.steps.len(), new)?;
        Ok((LEAF_BYTES, true))
    }
}

/// The depth of the first inner node of a path that is to be moved, or some of whose separators are.
fn first_to_move(path: &Path<'_>, compaction: &Compaction) -> Result<Option<usize>> {
    // A walk visits the first leaf below each node once, so it looks at separators only there.
    let first_leaf_from = path.steps.iter().rposition(|(_, child)| *child > 0).map_or(0, |depth| depth + 1);
    for (depth, (node, _)) in path.steps.iter().enumerate() {
        if compaction.has(node.off) || depth >= first_leaf_from && has_separator(node, compaction)? {
            return Ok(Some(depth));
        }
    }
    Ok(None)
}

/// Whether a separator of a node, or the block of their shared bytes, is to be moved.
fn has_separator(node: &Inner<'_>, compaction: &Compaction) -> Result<bool> {
    for i in 0..node.count() - 1 {
        if let SeparatorWord::Block(block) = node.separator_place(i)?
            && compaction.has(block)
        {
            return Ok(true);
        }
    }
    Ok(compaction.has(node.common_block()?))
}
