//! Removes records by clearing bits in their leaf's state word.

use super::WbTree;
use super::edit::{Edit, Path};
use super::layout::{LEAF_SLOTS, LeafState, TreeWord};
use super::locks::HeldLocks;
use super::node::{Leaf, Media};
use super::search::{Probe, TreePosition};
use super::sums::Counting;
use crate::direction::Direction;
use crate::error::{Error, Result, corrupt};
use std::ops::Bound;
use tembo_pool::{KeptSpace, Tx};

/// A leaf with fewer entries than this is joined with a neighbour, if one fits.
const SPARSE_BELOW: usize = LEAF_SLOTS / 4;

/// Whether a leaf with `count` entries left has to be joined with a neighbour, or removed.
#[inline]
pub(crate) fn becomes_sparse(tree: TreeWord, count: usize) -> bool {
    if tree.level() == 0 { count == 0 } else { count < SPARSE_BELOW }
}

impl WbTree {
    /// Removes a record; returns whether there was one. O(log n).
    ///
    /// A leaf that becomes sparse is joined with a neighbour. If the pool has no room for the joint leaf, the
    /// leaf stays sparse: a removal never fails for lack of space.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool is damaged. The transaction is then unchanged, and can go on.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn remove(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        self.assert_writes(tx);
        self.change(tx, |tx| self.find_and_remove(tx, key))
    }

    /// As [`remove`](Self::remove), without an undo point of its own, for a caller that has one from before.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove), but the transaction may hold a part of the change: the caller must
    /// roll it back to a savepoint from before the call, or drop it.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn remove_without_undo(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        self.assert_writes(tx);
        self.change_without_undo(tx, |tx| self.find_and_remove(tx, key))
    }

    fn find_and_remove(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        let place = self.find_place(tx, Probe::new(key))?;
        self.remove_record(tx, &place, key)
    }

    /// Removes the record with the smallest key; returns its key and value. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn pop_first(&self, tx: &mut Tx<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.pop(tx, Direction::Up)
    }

    /// Removes the record with the largest key; returns its key and value. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn pop_last(&self, tx: &mut Tx<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.pop(tx, Direction::Down)
    }

    fn pop(&self, tx: &mut Tx<'_>, direction: Direction) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.assert_writes(tx);
        let Some(spot) = self.nearest(self.pending(tx), direction, Bound::Unbounded)? else {
            return Ok(None);
        };
        let popped = (spot.record.key.to_vec(), spot.record.value().to_vec());
        if !self.remove(tx, spot.record.key)? {
            return Err(corrupt("a record", spot.off(), "on the way to its key", "elsewhere"));
        }
        Ok(Some(popped))
    }

    /// Removes the record at a key's place; returns whether there was one.
    pub(crate) fn remove_record(
        &self,
        tx: &mut Tx<'_>,
        place: &TreePosition<'_>,
        key: &[u8],
    ) -> Result<bool> {
        let (Some(leaf), Some(found)) = (&place.leaf, &place.found) else { return Ok(false) };
        self.remove_entries(tx, (place.tree, place.held), leaf, key, &[(found.slot, found.record)])?;
        Ok(true)
    }

    /// Removes entries, given as slots and records, from the leaf to which `key` belongs.
    ///
    /// PERSIST(I5): one word removes the entries. Their prefixes, fingerprints and record words stay, so
    /// readers with the earlier state still find the records, which stay as long as the readers' pins.
    pub(crate) fn remove_entries(
        &self,
        tx: &mut Tx<'_>,
        (tree, held): (TreeWord, Option<&HeldLocks<'_>>),
        (leaf, state): &(Leaf, LeafState),
        key: &[u8],
        entries: &[(usize, u64)],
    ) -> Result<()> {
        let slots = entries.iter().fold(0, |slots, (slot, _)| slots | 1 << slot);
        let next = state.next(state.bitmap() & !slots);
        let seen = leaf.state(Media(self.region()))?.bitmap() & slots;
        for (slot, record) in entries.iter().filter(|(slot, _)| seen >> slot & 1 != 0) {
            let before = self.region().load_u64(leaf.record_off(*slot)).map_err(tembo_pool::Error::from)?;
            if before != *record {
                // ORDER: this transaction has stored another record in the slot. It stores the old one again,
                // so that no reader sees the new record before the state that follows.
                tx.store(leaf.record_off(*slot), before)?;
            }
        }
        if self.counting != Counting::Nothing {
            self.count_removed(tx, tree, (leaf, key), entries)?;
        }
        tx.store(leaf.off, next.0)?;
        for (_, record) in entries {
            tx.free(*record)?;
        }
        self.change_len(tx, -(entries.len() as i64))?;
        if becomes_sparse(tree, next.count()) {
            self.tidy(tx, (tree, held), key)?;
        }
        Ok(())
    }

    /// Joins the sparse leaf on the way to `key` with a neighbour, if there is room in the neighbour and
    /// for the new nodes in the pool.
    fn tidy(
        &self,
        tx: &mut Tx<'_>,
        (tree, held): (TreeWord, Option<&HeldLocks<'_>>),
        key: &[u8],
    ) -> Result<()> {
        let before = tx.savepoint();
        tx.use_kept_space(KeptSpace::Half);
        let mut edit = Edit::new(self, tx, held);
        let joined = Path::to_key(edit.view(), tree, key)
            .and_then(|path| edit.join_leaf(&path, key))
            .and_then(|()| edit.finish());
        tx.use_kept_space(KeptSpace::None);
        match joined {
            Err(Error::Pool(e)) if e.is_full() => {
                tx.rollback_to(before);
                Ok(())
            }
            other => other,
        }
    }
}
