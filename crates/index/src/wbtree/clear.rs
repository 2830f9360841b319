//! Empties a tree at once, and frees its nodes and records step by step.
//!
//! Clearing moves the tree's root word into the list of doomed trees: the header leads to the first, and the
//! root node of each to the next. It allocates nothing, so it works in a full pool. Every step of reclaiming
//! frees one node, the last one of the first doomed tree. The order keeps the rest a tree: first the leaves
//! of an inner node from the last to the first, then the node. An inner node's first word has the number of
//! its freed children. Readers that are still in a doomed tree read neither of these words, and its blocks
//! are not reused while the readers are pinned.

use super::WbTree;
use super::layout::{LEAF_SLOTS, MAX_HEIGHT, SeparatorWord, TreeWord, field};
use super::node::{Inner, Leaf, Media, View};
use super::sums::Counting;
use crate::error::{Result, corrupt};
use tembo_pool::Tx;

/// The offset of the word that leads from a doomed tree to the next.
pub(crate) fn next_doomed_off(tree: TreeWord) -> u64 {
    let field = if tree.level() == 0 { field!(PmLeaf.next_doomed) } else { field!(PmInner.next_doomed) };
    tree.node().saturating_add(field)
}

/// In a tree that counts: the word of an inner node has the count of freed children, and no tally.
const RECLAIMED: u64 = 1 << 63;

/// The offset of the count of an inner node's freed children.
fn reclaimed_off(node: &Inner<'_>) -> u64 {
    node.off + field!(PmInner.tally)
}

/// How many children of a node in a doomed tree are left.
pub(crate) fn children_left<'m>(view: impl View<'m>, counting: Counting, node: &Inner<'_>) -> Result<usize> {
    let word = view.load(reclaimed_off(node))?;
    let reclaimed = match counting {
        Counting::Nothing => word,
        _ if word & RECLAIMED == 0 => 0,
        _ => word & !RECLAIMED,
    };
    usize::try_from(reclaimed).ok().and_then(|gone| node.count().checked_sub(gone)).ok_or_else(|| {
        corrupt("the count of freed children", node.off, format!("at most {}", node.count()), reclaimed)
    })
}

impl WbTree {
    /// Removes every record. O(1): the space is given back by later calls of [`reclaim`](Self::reclaim),
    /// [`put`](Self::put) and [`remove`](Self::remove). Needs no space.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is damaged. The transaction is then unchanged.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn clear(&self, tx: &mut Tx<'_>) -> Result<()> {
        self.assert_writes(tx);
        let tree = self.root(self.pending(tx))?;
        if tree.is_empty() {
            return Ok(());
        }
        let before = tx.savepoint();
        let outcome = self.doom(tx, tree);
        if outcome.is_err() {
            tx.rollback_to(before);
        }
        outcome
    }

    fn doom(&self, tx: &mut Tx<'_>, tree: TreeWord) -> Result<()> {
        let doomed = tx.load(self.doomed_off())?;
        tx.store(next_doomed_off(tree), doomed)?;
        tx.store(self.doomed_off(), tree.0)?;
        // The other parts of the length stay: only the sum counts.
        self.change_len(tx, (self.length(self.pending(tx))?.wrapping_neg()) as i64)?;
        self.store_root(tx, TreeWord::EMPTY)
    }

    /// Whether a cleared tree is not freed yet.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is damaged.
    pub fn has_cleared(&self) -> Result<bool> {
        Ok(Media(self.region()).load(self.doomed_off())? != 0)
    }

    /// Frees up to `steps` nodes of cleared trees, and the records in them; returns whether any are left. A
    /// step frees at most 43 blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when a cleared tree is damaged. The transaction then has all steps
    /// before the damage, whole.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    #[cold]
    pub fn reclaim(&self, tx: &mut Tx<'_>, steps: usize) -> Result<bool> {
        self.assert_writes(tx);
        for _ in 0..steps {
            let doomed = TreeWord(tx.load(self.doomed_off())?);
            if doomed.is_empty() {
                return Ok(false);
            }
            let before = tx.savepoint();
            if let Err(e) = self.reclaim_node(tx, doomed) {
                tx.rollback_to(before);
                return Err(e);
            }
        }
        Ok(tx.load(self.doomed_off())? != 0)
    }

    /// Frees one node of the cleared trees; returns whether there was one. After an error the caller rolls
    /// the transaction back.
    pub(crate) fn reclaim_doomed(&self, tx: &mut Tx<'_>) -> Result<bool> {
        let doomed = TreeWord(tx.load(self.doomed_off())?);
        if !doomed.is_empty() {
            self.reclaim_node(tx, doomed)?;
        }
        Ok(!doomed.is_empty())
    }

    /// Frees the last node of a doomed tree.
    #[cold]
    fn reclaim_node(&self, tx: &mut Tx<'_>, doomed: TreeWord) -> Result<()> {
        let (mut off, mut level) = (doomed.node(), doomed.level());
        if level > MAX_HEIGHT {
            return Err(corrupt("the root of a cleared tree", off, "a level up to 32", level));
        }
        let next = tx.load(next_doomed_off(doomed))?;
        let mut parent = None;
        let mut blocks = Vec::new();
        loop {
            if level == 0 {
                self.leaf_blocks(tx, off, &mut blocks)?;
                break;
            }
            let node = Inner::open(self.region(), off, level)?;
            let left = children_left(self.pending(tx), self.counting, &node)?;
            if left == 0 {
                inner_blocks(&node, &mut blocks)?;
                break;
            }
            off = tx.load(node.child_off(left - 1))?;
            parent = Some((node, left));
            level -= 1;
        }
        match parent {
            Some((node, left)) => {
                let mark = if self.counting == Counting::Nothing { 0 } else { RECLAIMED };
                tx.store(reclaimed_off(&node), mark | (node.count() - left + 1) as u64)?;
            }
            None => tx.store(self.doomed_off(), next)?,
        }
        blocks.into_iter().try_for_each(|block| tx.free(block))?;
        Ok(())
    }

    /// A leaf's blocks: its records and itself.
    fn leaf_blocks(&self, tx: &Tx<'_>, off: u64, blocks: &mut Vec<u64>) -> Result<()> {
        let view = self.pending(tx);
        let leaf = Leaf::open(self.region(), off)?;
        let live = leaf.state(view)?.bitmap();
        for slot in (0..LEAF_SLOTS).filter(|slot| live >> slot & 1 == 1) {
            blocks.push(view.load(leaf.record_off(slot))?);
        }
        blocks.push(off);
        Ok(())
    }
}

/// An inner node's blocks: its separators', its common bytes', and itself.
fn inner_blocks(node: &Inner<'_>, blocks: &mut Vec<u64>) -> Result<()> {
    for i in 0..node.count() - 1 {
        if let SeparatorWord::Block(block) = node.separator_place(i)? {
            blocks.push(block);
        }
    }
    let common = node.common_block()?;
    if common != 0 {
        blocks.push(common);
    }
    blocks.push(node.off);
    Ok(())
}
