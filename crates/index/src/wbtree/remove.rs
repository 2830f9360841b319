//! Removing a record: one bit of its leaf's state word.

use super::WbTree;
use super::edit::{Edit, Path};
use super::layout::{LEAF_SLOTS, TreeWord};
use super::search::{Goal, Probe, descend, find_pending};
use crate::error::{Error, Result};
use tembo_pool::Tx;

/// Steps of freeing a cleared tree that every removal takes.
const RECLAIM_STEPS: usize = 1;

/// A leaf with fewer entries than this looks for a neighbour to join.
const SPARSE_BELOW: usize = LEAF_SLOTS / 4;

impl WbTree {
    /// Removes a record; returns whether there was one. O(log n).
    ///
    /// A leaf that became sparse is joined with a neighbour. In a pool so full that the joint leaf finds no
    /// room, it is left sparse: removing never fails for lack of space.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool is damaged. The transaction then is as it was, and can go on.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn remove(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        self.assert_writes(tx);
        self.reclaim(tx, RECLAIM_STEPS)?;
        let before = tx.savepoint();
        let outcome = self.remove_record(tx, key);
        if outcome.is_err() {
            tx.rollback_to(before);
        }
        outcome
    }

    fn remove_record(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        let view = self.pending(tx);
        let tree = self.root(view)?;
        if tree.is_empty() {
            return Ok(false);
        }
        let leaf = descend(view, tree, Goal::At(key), |_, _| ())?;
        let (state, found) = find_pending(view, &leaf, Probe::new(key))?;
        let Some((slot, record)) = found.map(|found| (found.slot, found.record)) else {
            return Ok(false);
        };
        // PERSIST(I5): the one word that removes the entry. Its prefix, fingerprint and record word stay, so that
        // readers with the state before still find the record, which lives as long as their pins.
        let next = state.next(state.bitmap() & !(1 << slot));
        tx.store(leaf.off, next.0)?;
        tx.free(record)?;
        self.change_len(tx, -1)?;
        if next.count() < SPARSE_BELOW {
            self.tidy(tx, tree, key)?;
        }
        Ok(true)
    }

    /// Joins the sparse leaf on the way to `key` with a neighbour, if there is room in the neighbour and for the
    /// new nodes in the pool.
    fn tidy(&self, tx: &mut Tx<'_>, tree: TreeWord, key: &[u8]) -> Result<()> {
        let before = tx.savepoint();
        let mut edit = Edit::new(self, tx);
        let joined = Path::to_key(edit.view(), tree, key)
            .and_then(|path| edit.join_leaf(&path, key))
            .and_then(|()| edit.finish());
        match joined {
            Err(Error::Pool(tembo_pool::Error::Full { .. })) => {
                tx.rollback_to(before);
                Ok(())
            }
            other => other,
        }
    }
}
