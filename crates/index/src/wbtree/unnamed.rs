//! Trees without a name, as parts of other structures.
//!
//! # Values that change in place
//!
//! The owner of such a tree may change words of a value in place, by [`Tx::store`] in transactions of its
//! own: it asks for the value's *place*, and loads and stores words there. That is an exception to I4 of the
//! tree, with these rules:
//!
//! * Nobody borrows such a value: it is never asked for with [`get`](WbTree::get),
//!   [`advance`](super::Range::advance) or the like, only by its place.
//! * A record stays where it is until its key is removed, or is put again, or the owner
//!   [compacts](WbTree::compact_at) the tree: then it keeps no places, and no thread changes words of values.
//! * If two threads change words of one value, or one changes words and the other removes the key, one of
//!   them waits until the other's commit has returned (L3 of the pool's log). The tree's own locks do not
//!   ensure that.
//! * Who changes words beside other writers holds a pin from before the lookup to after the commit.
//! * A record that was [inserted](WbTree::lock_to_insert) beside other writers can be found by others before
//!   the commit has returned. The owner's lock of the key keeps them from changing it.

use super::WbTree;
use super::get::find_stable;
use super::length::length_part;
use super::locks::{HeldLocks, LengthHeld, Locks};
use super::node::{Leaf, Media, View};
use super::search::{Goal, Probe, TreePosition, descend};
use super::sums::Counting;
use crate::direction::Direction;
use crate::error::{Error, Result, corrupt};
use crate::map_kind::{MapFormat, MapKind};
use crate::record::{RECORD_HEAD_BYTES, ValuePlace, check_lengths, write_record};
use std::ops::Bound;
use tembo_pool::{BriefPin, Pool, Tx};

/// The [locked](WbTree::lock_to_insert) place of a key that is to be inserted beside other writers. To be
/// dropped after the commit has returned.
pub struct InsertHeld<'l> {
    tree: &'l WbTree,
    probe: Probe<'l>,
    /// The place, if the change is possible in this leaf alone.
    in_leaf: Option<TreePosition<'l>>,
    held: HeldLocks<'l>,
    _length: LengthHeld<'l>,
}

impl InsertHeld<'_> {
    /// Puts the record, in the transaction that the place was locked for.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::put`]; the transaction then is as it was.
    ///
    /// # Panics
    ///
    /// If the transaction is not of the tree's pool.
    pub fn insert(&self, tx: &mut Tx<'_>, value: &[&[u8]]) -> Result<()> {
        self.tree.assert_writes(tx);
        let value_bytes = check_lengths(self.probe.key, value)?;
        let before = tx.savepoint();
        let outcome = match &self.in_leaf {
            Some(place) => self.tree.put_new(tx, place, self.probe, value, value_bytes),
            None => {
                let place = self.tree.place_under(&self.held, self.probe);
                place.and_then(|place| self.tree.put_new(tx, &place, self.probe, value, value_bytes))
            }
        };
        if outcome.is_err() {
            tx.rollback_to(before);
        }
        outcome
    }
}

/// The beginning of an insertion beside other writers: the leaf of its key, at a moment.
#[derive(Debug, Clone, Copy)]
pub struct InsertHint {
    version: u64,
    leaf: Option<Leaf>,
}

/// Where a key is, or belongs. It holds until the transaction that it was looked up in changes the tree.
pub struct KeyPlace<'t> {
    tree: &'t WbTree,
    probe: Probe<'t>,
    place: TreePosition<'t>,
}

impl KeyPlace<'_> {
    /// The place of its value.
    #[inline]
    pub fn value(&self) -> Option<ValuePlace> {
        self.place.found.map(|found| found.entry.place())
    }

    /// Puts a record of the key, which is absent.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::put`]; the transaction then is as it was.
    ///
    /// # Panics
    ///
    /// If the transaction is not of the tree's pool.
    pub fn insert(self, tx: &mut Tx<'_>, value: &[&[u8]]) -> Result<()> {
        let KeyPlace { tree, probe, place } = self;
        tree.assert_writes(tx);
        let value_bytes = check_lengths(probe.key, value)?;
        let before = tx.savepoint();
        let outcome = tree.put_new(tx, &place, probe, value, value_bytes);
        if outcome.is_err() {
            tx.rollback_to(before);
        }
        outcome
    }

    /// Removes the record of the key, which exists.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::remove`].
    ///
    /// # Panics
    ///
    /// If the transaction is not of the tree's pool.
    pub fn remove(self, tx: &mut Tx<'_>) -> Result<()> {
        self.tree.assert_writes(tx);
        self.tree.remove_record(tx, &self.place, self.probe.key).map(drop)
    }
}

impl std::fmt::Debug for KeyPlace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPlace").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for InsertHeld<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InsertHeld").finish_non_exhaustive()
    }
}

impl WbTree {
    /// Makes an empty tree that only its owner's structure leads to, by [`head`](Self::head).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool is full. The transaction then is as it was.
    pub fn create_unnamed(tx: &mut Tx<'_>) -> Result<WbTree> {
        let before = tx.savepoint();
        let outcome =
            WbTree::write_header(tx, Counting::Nothing).and_then(|header| WbTree::at(tx.pool(), header));
        if outcome.is_err() {
            tx.rollback_to(before);
        }
        outcome
    }

    /// The tree whose head lies at `off`. Takes the same time for a tree of any size.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if no tree's head lies there, [`Error::FormatVersion`].
    pub fn open_unnamed(pool: &Pool, off: u64) -> Result<WbTree> {
        if let MapFormat::Other { found, supported, .. } = MapKind::Plain.format_at(pool, off)? {
            return Err(Error::FormatVersion { found, supported });
        }
        WbTree::at(pool, off)
    }

    /// Where the tree's head lies.
    pub fn head(&self) -> u64 {
        self.header_off()
    }

    /// Frees the head of a tree that is empty and of which nothing is being freed any more.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool is damaged, or the tree is not empty: its owner emptied it, so it
    /// differs from what was written.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn free_unnamed(self, tx: &mut Tx<'_>) -> Result<()> {
        self.assert_writes(tx);
        let doomed = tx.load(self.doomed_off())?;
        if doomed != 0 || !self.root(self.pending(tx))?.is_empty() {
            let found = format!("one with nodes, or with a doomed tree {doomed:#x}");
            return Err(corrupt("a tree to be freed", self.header_off(), "an empty tree", found));
        }
        Ok(tx.free(self.header_off())?)
    }

    /// The place of the value of `key`, for words that the owner changes in place. It is readable as long as
    /// the pin lives. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Panics
    ///
    /// If the pin is not of this tree's pool.
    #[inline]
    pub fn place(&self, pin: &BriefPin<'_>, key: &[u8]) -> Result<Option<ValuePlace>> {
        Ok(self.place_and_leaf(pin, key)?.0)
    }

    /// As [`place`](Self::place), beside other writers. Also returns a hint, with which an insertion of the
    /// key can begin.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Panics
    ///
    /// If the pin is not of this tree's pool.
    #[inline]
    pub fn place_beside(
        &self,
        pin: &BriefPin<'_>,
        locks: &Locks,
        key: &[u8],
    ) -> Result<(Option<ValuePlace>, InsertHint)> {
        let version = locks.version();
        let (place, leaf) = self.place_and_leaf(pin, key)?;
        Ok((place, InsertHint { version, leaf }))
    }

    #[inline]
    fn place_and_leaf(&self, pin: &BriefPin<'_>, key: &[u8]) -> Result<(Option<ValuePlace>, Option<Leaf>)> {
        assert!(pin.is_of(self.pool()), "a pin of another pool");
        let view = Media(self.region());
        let tree = self.root(view)?;
        if tree.is_empty() {
            return Ok((None, None));
        }
        let leaf = descend(view, tree, Goal::At(key), |_, _| ())?;
        let found = find_stable(view, &leaf, Probe::new(key))?;
        Ok((found.map(|found| found.entry.place()), Some(leaf)))
    }

    /// Where a key is, or belongs, as the transaction sees it. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    #[inline]
    pub fn look_up_in<'t>(&'t self, tx: &Tx<'_>, key: &'t [u8]) -> Result<KeyPlace<'t>> {
        self.assert_writes(tx);
        let probe = Probe::new(key);
        Ok(KeyPlace { tree: self, probe, place: self.find_place(tx, probe)? })
    }

    /// As [`place`](Self::place), as the transaction sees it.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    #[inline]
    pub fn place_in(&self, tx: &Tx<'_>, key: &[u8]) -> Result<Option<ValuePlace>> {
        Ok(self.look_up_in(tx, key)?.value())
    }

    /// How far behind a multiple of 16 the value of a key of this length lies, for values that have to be
    /// aligned: the length of the part of the record before it.
    pub fn value_begins_after(key_bytes: u64) -> u64 {
        RECORD_HEAD_BYTES + key_bytes
    }

    /// Removes the record with the smallest key, if `before` says so, which gets the key and the place of its
    /// value; returns whether it did.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove), and those of `before`.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn pop_first_place<E: From<Error>>(
        &self,
        tx: &mut Tx<'_>,
        before: impl FnOnce(&mut Tx<'_>, &[u8], ValuePlace) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.assert_writes(tx);
        let (key, place) = match self.nearest(self.pending(tx), Direction::Up, Bound::Unbounded)? {
            Some(spot) => (spot.record.key.to_vec(), spot.record.place()),
            None => return Ok(false),
        };
        before(tx, &key, place)?;
        Ok(self.remove(tx, &key)?)
    }

    /// Locks the place of an absent key, to [insert](InsertHeld::insert) it in a transaction beside those of
    /// other writers; once in a transaction. `locks` are those of the [turn](tembo_pool::Turn) whose
    /// transaction it is. The result is held until the commit has returned.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn lock_to_insert<'l>(
        &'l self,
        tx: &Tx<'_>,
        locks: &'l Locks,
        (key, hint): (&'l [u8], InsertHint),
    ) -> Result<InsertHeld<'l>> {
        self.assert_writes(tx);
        let length = locks.lock_length(length_part(tx));
        let probe = Probe::new(key);
        let (in_leaf, held) = match self.lock_leaf_with_room(locks, probe, hint)? {
            Some((place, held)) => (Some(place), held),
            None => (None, locks.lock_structure()),
        };
        Ok(InsertHeld { tree: self, probe, in_leaf, held, _length: length })
    }

    fn put_new(
        &self,
        tx: &mut Tx<'_>,
        place: &TreePosition<'_>,
        probe: Probe<'_>,
        value: &[&[u8]],
        value_bytes: u64,
    ) -> Result<()> {
        debug_assert!(place.found.is_none(), "a key that is there");
        let record = write_record(tx, probe.key, value, value_bytes)?;
        self.put_record(tx, place, probe, record).map(drop)
    }

    /// Locks the leaf of the key, if that is not full.
    #[inline]
    fn lock_leaf_with_room<'l>(
        &self,
        locks: &'l Locks,
        probe: Probe<'_>,
        hint: InsertHint,
    ) -> Result<Option<(TreePosition<'_>, HeldLocks<'l>)>> {
        let view = Media(self.region());
        if let Some(leaf) = hint.leaf
            && locks.version() == hint.version
        {
            let held = locks.lock_leaf(leaf.off);
            // As in `lock_in_place`: the path still leads to the leaf.
            if locks.version() == hint.version {
                let (tree, state) = (self.root(view)?, leaf.state(view)?);
                let has_room = self.free_slot(&leaf, state)?.is_some() && view.load(self.doomed_off())? == 0;
                let place = TreePosition { tree, leaf: Some((leaf, state)), found: None, held: None };
                return Ok(has_room.then_some((place, held)));
            }
        }
        self.lock_in_place_to_insert(locks, probe)
    }
}
