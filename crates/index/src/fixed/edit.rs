//! Changes of single records.

use super::create::{FixedTree, Tree};
use super::fingerprints::{fingerprint, likely_slot, lines_of};
use super::get::Place;
use super::layout::{SLOTS, key_off, last_present_off, last_value_off, value_off};
use super::lock::Locked;
use super::node::Leaf;
use super::node::simd::{Operation, Portable, Search};
use crate::error::Result;
use std::sync::atomic::Ordering;
use tembo_pool::BriefPin;

/// What is to become of a record.
#[derive(Clone, Copy)]
enum Edit {
    Put(u64),
    Insert(u64),
    Update(u64),
    Swap { expected: u64, value: u64 },
    Remove,
}

impl Edit {
    /// The value afterwards, given the one before.
    fn outcome(self, old: Option<u64>) -> Option<u64> {
        match (self, old) {
            (Edit::Put(value), _) | (Edit::Insert(value), None) | (Edit::Update(value), Some(_)) => {
                Some(value)
            }
            (Edit::Swap { expected, value }, Some(old)) if old == expected => Some(value),
            (Edit::Remove, _) => None,
            _ => old,
        }
    }

    /// Whether a leaf is sparse because of it.
    fn leaves_sparse(self, leaf: &Leaf) -> bool {
        matches!(self, Edit::Remove) && leaf.len.load(Ordering::Relaxed) < SPARSE
    }
}

/// A leaf with fewer records is joined with a neighbour, if both fit into one.
const SPARSE: u64 = SLOTS as u64 / 8;

impl FixedTree {
    /// Sets the value of a key, and returns the one before. One line, one fence.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is full, read-only or damaged, or the device failed. After a
    /// failure of the device the outcome is unknown until the pool is opened again; otherwise nothing was changed.
    pub fn put(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.edit(key, Edit::Put(value))
    }

    /// Sets the value of a key that is absent; `false`, at no cost, if it is present.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn insert(&self, key: u64, value: u64) -> Result<bool> {
        Ok(self.edit(key, Edit::Insert(value))?.is_none())
    }

    /// Sets the value of a key that is present, and returns the one before; `None`, at no cost, if it is absent.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.edit(key, Edit::Update(value))
    }

    /// Sets the value of a key if it is `expected`, and returns the one before. So the exchange was made if that is
    /// `Some(expected)`.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn compare_and_swap(&self, key: u64, expected: u64, value: u64) -> Result<Option<u64>> {
        self.edit(key, Edit::Swap { expected, value })
    }

    /// Removes a key, and returns its value. One line, one fence; nothing if it is absent.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove(&self, key: u64) -> Result<Option<u64>> {
        self.edit(key, Edit::Remove)
    }

    #[inline(always)]
    fn edit(&self, key: u64, edit: Edit) -> Result<Option<u64>> {
        self.tree.best.run(Change { tree: &self.tree, key, edit })
    }
}

/// A change of one record.
struct Change<'t> {
    tree: &'t Tree,
    key: u64,
    edit: Edit,
}

impl Operation for Change<'_> {
    type Outcome = Result<Option<u64>>;

    #[inline(always)]
    fn run_by<S: Search>(self, search: S) -> Result<Option<u64>> {
        let Change { tree, key, edit } = self;
        if tree.pool.is_read_only() {
            return Err(tembo_pool::Error::ReadOnly.into());
        }
        if key == u64::MAX {
            return tree.edit_last(edit);
        }
        // As in a lookup.
        let pin = tree.pool.pin_briefly();
        if let Place::Leaf(leaf) = tree.find_place_by(search, key, &pin) {
            tree.fetch_slot(search, leaf, key);
            if let Some(mut locked) = Locked::new(leaf, &tree.bias)
                && !key > leaf.floor.load(Ordering::Acquire)
                && let Some(old) = tree.edit_record(search, &mut locked, key, edit)?
            {
                let is_sparse = old.is_some() && edit.leaves_sparse(leaf);
                drop(locked);
                if is_sparse {
                    tree.join_at(key)?;
                }
                return Ok(old);
            }
        }
        drop(pin);
        tree.edit_again(key, edit)
    }
}

impl Tree {
    /// Changes a record, where a node is cold or full, or something is changing.
    #[cold]
    #[inline(never)]
    fn edit_again(&self, key: u64, edit: Edit) -> Result<Option<u64>> {
        let pin = self.pool.pin_briefly();
        loop {
            let Some(mut locked) = self.lock_leaf(key, &pin)? else { continue };
            match self.edit_record(Portable, &mut locked, key, edit)? {
                Some(old) => {
                    let is_sparse = old.is_some() && edit.leaves_sparse(locked.leaf);
                    drop(locked);
                    if is_sparse {
                        self.join_at(key)?;
                    }
                    return Ok(old);
                }
                None => {
                    drop(locked);
                    self.divide_at(key)?;
                }
            }
        }
    }

    /// Asks for the line that a change will store to. The lock may wait for what this thread flushed last, and meanwhile it comes.
    #[inline(always)]
    fn fetch_slot<S: Search>(&self, search: S, leaf: &Leaf, key: u64) {
        let matches = leaf.fingerprints.matches_by(search, fingerprint(key));
        let likely = if matches == 0 { leaf.fingerprints.unused_by(search) } else { matches };
        if likely != 0 {
            let slot = likely_slot(likely, lines_of(key));
            self.region().prefetch_for_store(key_off(leaf.off, slot));
        }
    }

    /// Locks the leaf to which a key belongs; `None` if the search has to start again.
    fn lock_leaf<'g>(&'g self, key: u64, pin: &'g BriefPin<'_>) -> Result<Option<Locked<'g>>> {
        let mut leaf = match self.find_place(key, pin) {
            Place::Leaf(leaf) => leaf,
            Place::Cold(_) => {
                self.warm(key)?;
                return Ok(None);
            }
        };
        loop {
            let Some(locked) = Locked::new(leaf, &self.bias) else { return Ok(None) };
            if !key > leaf.floor.load(Ordering::Acquire) {
                return Ok(Some(locked));
            }
            drop(locked);
            match self.neighbour(&leaf.next, pin) {
                Some(right) => leaf = right,
                None => return Ok(None),
            }
        }
    }

    /// Makes the change in a locked leaf; `None` if it is full. Returns the value before.
    #[inline(always)]
    fn edit_record<S: Search>(
        &self,
        search: S,
        locked: &mut Locked<'_>,
        key: u64,
        edit: Edit,
    ) -> Result<Option<Option<u64>>> {
        let (leaf, region) = (locked.leaf, self.region());
        let found = self.search_by(search, leaf, key)?;
        let old = found.map(|(_, value)| value);
        match (found, edit.outcome(old)) {
            (_, new) if new == old && !matches!(edit, Edit::Put(_) | Edit::Update(_)) => {}
            (None, None) => {}
            (Some((slot, _)), Some(value)) => {
                locked.change(slot);
                region.store_u64(value_off(leaf.off, slot), value)?;
                self.persist_slot(leaf.off, slot)?;
            }
            (Some((slot, _)), None) => {
                locked.change(slot);
                region.store_u64(key_off(leaf.off, slot), 0)?;
                self.persist_slot(leaf.off, slot)?;
                leaf.fingerprints.clear(slot);
                leaf.len.store(leaf.len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
            }
            (None, Some(value)) => {
                let unused = leaf.fingerprints.unused_by(search);
                if unused == 0 {
                    // It will be divided.
                    self.fetch_leaf(leaf);
                    return Ok(None);
                }
                let slot = likely_slot(unused, lines_of(key));
                locked.change(slot);
                region.store_u64(value_off(leaf.off, slot), value)?;
                // I3: after the value, in the same line.
                region.store_u64(key_off(leaf.off, slot), !key)?;
                self.persist_slot(leaf.off, slot)?;
                leaf.fingerprints.set(slot, fingerprint(key));
                leaf.len.store(leaf.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        }
        Ok(Some(old))
    }

    /// The same for the largest key, whose record is in the header.
    #[cold]
    fn edit_last(&self, edit: Edit) -> Result<Option<u64>> {
        let pin = self.pool.pin_briefly();
        let _lock = self.last_lock.lock();
        let (region, header) = (self.region(), self.header);
        let old = self.last(&pin);
        let new = edit.outcome(old);
        if new == old {
            return Ok(old);
        }
        if let Some(value) = new {
            region.store_u64(last_value_off(header), value)?;
        }
        if new.is_some() != old.is_some() {
            region.store_u64(last_present_off(header), u64::from(new.is_some()))?;
        }
        region.flush(last_value_off(header), 16);
        // PERSIST(I4): durable before it is published below.
        region.fence().map_err(tembo_pool::Error::Sync)?;
        self.last.set(new, &self.garbage, &self.claim);
        Ok(old)
    }
}
