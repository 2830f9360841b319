//! Puts a record, usually by four words in one leaf.

use super::WbTree;
use super::edit::Edit;
use super::items::{Item, Items};
use super::layout::{LEAF_SLOTS, LeafState, TreeWord};
use super::node::{Leaf, Media};
use super::search::{Found, Probe, TreePosition};
use super::sums::Counting;
use crate::error::Result;
use crate::key_prefix::prefix8;
use crate::record::check_lengths;
use tembo_pool::Tx;

impl WbTree {
    /// Puts a record whose value is the concatenation of `value`; returns whether it replaced one with the
    /// same key. It is durable, and visible to readers, once the transaction is committed. O(log n).
    ///
    /// If a cleared tree is still being freed, this frees a little of it.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong), [`Error::ValueTooLong`](crate::Error::ValueTooLong),
    /// and [`Error::Pool`](crate::Error::Pool) when the pool is full or damaged. The transaction then is as
    /// it was, and can go on.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn put(&self, tx: &mut Tx<'_>, key: &[u8], value: &[&[u8]]) -> Result<bool> {
        self.assert_writes(tx);
        let value_bytes = check_lengths(key, value)?;
        self.counting.check_length(value_bytes)?;
        self.change(tx, |tx| self.write_and_put(tx, key, value, value_bytes))
    }

    /// As [`put`](Self::put), without an undo point of its own, for a caller that has one from before.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put), but the transaction may hold a part of the change: the caller must roll it
    /// back to a savepoint from before the call, or drop it.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn put_without_undo(&self, tx: &mut Tx<'_>, key: &[u8], value: &[&[u8]]) -> Result<bool> {
        self.assert_writes(tx);
        let value_bytes = check_lengths(key, value)?;
        self.counting.check_length(value_bytes)?;
        self.change_without_undo(tx, |tx| self.write_and_put(tx, key, value, value_bytes))
    }

    #[inline(always)]
    fn write_and_put(&self, tx: &mut Tx<'_>, key: &[u8], value: &[&[u8]], value_bytes: u64) -> Result<bool> {
        // The record is written first, so that its lines arrive during the search for the leaf.
        let record = self.write_record(tx, key, value, value_bytes)?;
        let probe = Probe::new(key);
        let place = self.find_place(tx, probe)?;
        self.put_record(tx, &place, probe, record)
    }

    /// Puts a record at its key's place; returns whether the key was there.
    #[inline]
    pub(crate) fn put_record(
        &self,
        tx: &mut Tx<'_>,
        place: &TreePosition<'_>,
        probe: Probe<'_>,
        record: u64,
    ) -> Result<bool> {
        let Some((leaf, state)) = &place.leaf else {
            self.plant(tx, place, probe, record)?;
            self.change_len(tx, 1)?;
            return Ok(false);
        };
        let by = match self.counting {
            Counting::Nothing => 0,
            _ => self.count_put(tx, place.tree, probe.key, (record, place.found.map(|old| old.record)))?,
        };
        if let Some(found) = &place.found {
            self.add_to_leaf(tx, leaf, by)?;
            self.replace_entry(tx, leaf, *state, found, record)?;
            return Ok(true);
        }
        match self.free_slot(leaf, *state)? {
            Some(slot) => {
                self.add_to_leaf(tx, leaf, by)?;
                self.add_entry(tx, leaf, *state, slot, probe, record)?;
            }
            None => self.split(tx, place, probe, record)?,
        }
        self.change_len(tx, 1)?;
        Ok(false)
    }

    /// Gives an entry that was found in a leaf another record.
    #[inline(always)]
    pub(crate) fn replace_entry(
        &self,
        tx: &mut Tx<'_>,
        leaf: &Leaf,
        state: LeafState,
        found: &Found<'_>,
        record: u64,
    ) -> Result<()> {
        // PERSIST(I5): the one word that replaces a value. The new record is durable before it is stored.
        tx.store(leaf.record_off(found.slot), record)?;
        tx.free(found.record)?;
        if leaf.state(Media(self.region()))?.bitmap() >> found.slot & 1 == 0 {
            // ORDER: this transaction made the entry. Readers find it through the state, so the state
            // must become visible after the new record word.
            tx.store(leaf.off, state.0)?;
        }
        Ok(())
    }

    /// Makes the first leaf of an empty tree.
    fn plant(&self, tx: &mut Tx<'_>, place: &TreePosition<'_>, probe: Probe<'_>, record: u64) -> Result<()> {
        let mut items = Items::new(0);
        items.push(Item { prefix: prefix8(probe.key), record, fingerprint: probe.fingerprint });
        let mut edit = Edit::new(self, tx, place.held);
        let leaf = edit.build_leaf(&items)?;
        edit.store_root(TreeWord::new(leaf, 0))?;
        edit.finish()
    }

    /// A slot that is free on media too. A slot that this transaction has emptied is still live for readers,
    /// who must not find another entry in it.
    pub(crate) fn free_slot(&self, leaf: &Leaf, state: LeafState) -> Result<Option<usize>> {
        let home = leaf.state(Media(self.region()))?;
        let slot = (state.bitmap() | home.bitmap()).trailing_ones() as usize;
        Ok((slot < LEAF_SLOTS).then_some(slot))
    }

    /// Fills a free slot.
    ///
    /// PERSIST(I5): the record is durable before any of these words is stored, and one redo record has all of
    /// them. ORDER: readers find the entry through the state, which is stored last.
    fn add_entry(
        &self,
        tx: &mut Tx<'_>,
        leaf: &Leaf,
        state: LeafState,
        slot: usize,
        probe: Probe<'_>,
        record: u64,
    ) -> Result<()> {
        tx.store(leaf.prefix_off(slot), leaf.prefix_of(probe.key)?)?;
        tx.store(leaf.record_off(slot), record)?;
        let (word_off, shift) = leaf.fingerprint_place(slot);
        let word = tx.load(word_off)? & !(0xFF << shift) | u64::from(probe.fingerprint) << shift;
        tx.store(word_off, word)?;
        Ok(tx.store(leaf.off, state.next(state.bitmap() | 1 << slot).0)?)
    }
}
