//! Changes of single records.

use super::create::{Tree, U64Tree};
use super::fingerprints::{NOWHERE, fingerprint, likely_slot, lines_of};
use super::get::{Fetch, SearchEnd};
use super::layout::{SLOTS, SLOTS_PER_LINE, last_present_off, last_value_off};
use super::lock::{Locked, Version, begin, is_durable_since};
use super::node::Leaf;
use super::node::simd::{Operation, Search};
use crate::error::Result;
use std::sync::atomic::Ordering;
use tembo_pmem::WritableLine;
use tembo_pool::BriefPin;

/// A change of a record.
#[derive(Clone, Copy)]
enum RecordEdit {
    Put(u64),
    Insert(u64),
    Update(u64),
    Swap { expected: u64, value: u64 },
    Remove,
}

impl RecordEdit {
    /// The value after the change, given the one before it.
    fn outcome(self, old: Option<u64>) -> Option<u64> {
        match (self, old) {
            (RecordEdit::Put(value), _)
            | (RecordEdit::Insert(value), None)
            | (RecordEdit::Update(value), Some(_)) => Some(value),
            (RecordEdit::Swap { expected, value }, Some(old)) if old == expected => Some(value),
            (RecordEdit::Remove, _) => None,
            _ => old,
        }
    }

    /// Whether a value is stored and made durable even if it is equal to the old one.
    fn is_stored_again(self) -> bool {
        matches!(self, RecordEdit::Put(_) | RecordEdit::Update(_))
    }

    /// Whether the change is mostly, or only, made to absent keys.
    fn expects_absence(self) -> bool {
        matches!(self, RecordEdit::Put(_) | RecordEdit::Insert(_))
    }

    /// Whether this change left the leaf sparse.
    fn leaves_sparse(self, leaf: &Leaf) -> bool {
        matches!(self, RecordEdit::Remove) && leaf.len.load(Ordering::Relaxed) < SPARSE
    }
}

/// A leaf with fewer records than this is joined with a neighbour, if both fit into one leaf.
const SPARSE: u64 = SLOTS as u64 / 8;

impl U64Tree {
    /// Sets the value of a key, and returns the one before. One line, one fence.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is full, read-only or damaged, or the device
    /// failed. After a failure of the device the outcome is unknown until the pool is opened again;
    /// otherwise nothing was changed.
    pub fn put(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.edit(key, || RecordEdit::Put(value))
    }

    /// Sets the value of a key that is absent; `false`, with nothing stored, if it is present.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn insert(&self, key: u64, value: u64) -> Result<bool> {
        Ok(self.edit(key, || RecordEdit::Insert(value))?.is_none())
    }

    /// Sets the value of a key that is present, and returns the one before; `None`, with nothing stored, if
    /// it is absent.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.edit(key, || RecordEdit::Update(value))
    }

    /// Sets the value of a key if it is `expected`, and returns the value before. The exchange was made if
    /// that is `Some(expected)`.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn compare_and_swap(&self, key: u64, expected: u64, value: u64) -> Result<Option<u64>> {
        self.edit(key, || RecordEdit::Swap { expected, value })
    }

    /// Removes a key, and returns its value. One line, one fence; nothing if it is absent.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove(&self, key: u64) -> Result<Option<u64>> {
        self.edit(key, || RecordEdit::Remove)
    }

    /// `edit` is a function so that the code for each kind of change is compiled separately.
    #[inline(always)]
    fn edit(&self, key: u64, edit: impl Fn() -> RecordEdit) -> Result<Option<u64>> {
        self.tree.pool.check_process()?;
        self.tree.best.run(Change { tree: &self.tree, key, edit })
    }
}

/// A change of one record.
struct Change<'t, E> {
    tree: &'t Tree,
    key: u64,
    edit: E,
}

/// The outcome of an attempt.
enum Attempt {
    /// The value before, and whether the leaf is sparse now.
    Done(Option<u64>, bool),
    /// The leaf has to be divided.
    Full,
    /// Nothing was done; the slow path finds out why.
    Unclear,
}

/// A leaf, and the version under which a thread reads it.
#[derive(Clone, Copy)]
struct LeafAt<'g> {
    leaf: &'g Leaf,
    version: Version,
}

impl LeafAt<'_> {
    /// Whether the leaf still has that version and no change is under way, so that the words that were read
    /// are durable.
    #[inline(always)]
    fn is_so(self) -> bool {
        is_durable_since(&self.leaf.version, self.version)
    }

    /// The outcome if no change is needed, provided that the value that was read [is still so](Self::is_so).
    #[inline(always)]
    fn done_if_so(self, found: Option<u64>) -> Attempt {
        if self.is_so() { Attempt::Done(found, false) } else { Attempt::Unclear }
    }
}

impl<E: Fn() -> RecordEdit> Operation for Change<'_, E> {
    type Outcome = Result<Option<u64>>;

    #[inline(always)]
    fn run_by<S: Search>(self, search: S) -> Result<Option<u64>> {
        let Change { tree, key, edit } = self;
        if tree.pool.is_read_only() || key == u64::MAX {
            return tree.edit_again(key, edit(), false);
        }
        // Pinned as in a lookup.
        let pin = tree.pool.pin_briefly();
        // Another processor may have the lines, so they are prefetched for a store. With a single writer,
        // prefetching a line for a store that never happens is useless.
        let fetch = if tree.bias.is_shared() { Fetch::ToStore } else { Fetch::ToLoad };
        let attempt = match tree.find_place_by(search, key, &pin, fetch) {
            SearchEnd::Leaf(leaf) => tree.try_edit(search, leaf, key, edit())?,
            SearchEnd::Cold(_) => Attempt::Unclear,
        };
        match attempt {
            Attempt::Done(old, is_sparse) => {
                if is_sparse {
                    tree.join_at(key)?;
                }
                Ok(old)
            }
            Attempt::Full | Attempt::Unclear => {
                drop(pin);
                tree.edit_again(key, edit(), matches!(attempt, Attempt::Full))
            }
        }
    }
}

impl Tree {
    /// Changes a record on the slow path: a node is cold, the leaf is full (`is_full`: certainly), or
    /// something is changing.
    #[cold]
    #[inline(never)]
    fn edit_again(&self, key: u64, edit: RecordEdit, is_full: bool) -> Result<Option<u64>> {
        if self.pool.is_read_only() {
            return Err(tembo_pool::ErrorKind::ReadOnly.into());
        }
        if key == u64::MAX {
            return self.edit_last(edit);
        }
        if is_full {
            self.divide_at(key)?;
        }
        let pin = self.pool.pin_briefly();
        loop {
            let Some(mut locked) = self.lock_leaf(key, &pin)? else { continue };
            match self.edit_record(&mut locked, key, edit)? {
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

    /// Makes the change in a leaf in the usual case that nothing else is changing there. It reads everything
    /// before it locks the leaf, and locks only if the leaf still has the version under which it read. With
    /// other threads around, the lock waits for this thread's last flush, and everything after the lock waits
    /// for the lock.
    #[inline(always)]
    fn try_edit<S: Search>(&self, search: S, leaf: &Leaf, key: u64, edit: RecordEdit) -> Result<Attempt> {
        leaf.fetch_to_change();
        let at = LeafAt { leaf, version: begin(&leaf.version) };
        let wanted = fingerprint(key);
        let matches = if edit.expects_absence() {
            leaf.fingerprints.matches_by(search, wanted)
        } else {
            leaf.fingerprints.candidates_by(search, wanted)
        };
        if !key <= leaf.floor.load(Ordering::Acquire) {
            return Ok(Attempt::Unclear);
        }
        if matches == 0 {
            return self.try_edit_absent(search, at, key, edit);
        }
        let slot = likely_slot(matches, lines_of(key));
        let line = self.line_to_change(leaf, slot)?;
        if line.load(slot % SLOTS_PER_LINE) != !key {
            return self.try_edit_elsewhere(search, at, matches & !(1 << slot), key, edit);
        }
        self.try_edit_present(at, slot, line, key, edit)
    }

    /// The same for a key that was not in the leaf under a version.
    #[inline(always)]
    fn try_edit_absent<S: Search>(
        &self,
        search: S,
        at: LeafAt<'_>,
        key: u64,
        edit: RecordEdit,
    ) -> Result<Attempt> {
        if edit.outcome(None).is_none() {
            return Ok(at.done_if_so(None));
        }
        at.leaf.fingerprints.fetch_to_set();
        let unused = at.leaf.fingerprints.unused_by(search);
        if unused == 0 {
            // Other threads may have changed the leaf since the version was read, so the key may be there by
            // now.
            if !at.is_so() {
                return Ok(Attempt::Unclear);
            }
            self.fetch_leaf(at.leaf);
            return Ok(Attempt::Full);
        }
        let slot = likely_slot(unused, lines_of(key));
        let line = self.line_to_change(at.leaf, slot)?;
        self.lock_and_change(at, slot, line, key, edit, None)
    }

    /// The same for a key that was in a slot under a version.
    #[inline(always)]
    fn try_edit_present(
        &self,
        at: LeafAt<'_>,
        slot: usize,
        line: WritableLine<'_>,
        key: u64,
        edit: RecordEdit,
    ) -> Result<Attempt> {
        let old = line.load(SLOTS_PER_LINE + slot % SLOTS_PER_LINE);
        if edit.outcome(Some(old)) == Some(old) && !edit.is_stored_again() {
            return Ok(at.done_if_so(Some(old)));
        }
        self.lock_and_change(at, slot, line, key, edit, Some(old))
    }

    /// The same for a key that may be in one of some slots, but not in the likeliest. A separate function,
    /// since it is seldom needed.
    #[inline(never)]
    fn try_edit_elsewhere<S: Search>(
        &self,
        search: S,
        at: LeafAt<'_>,
        slots: u128,
        key: u64,
        edit: RecordEdit,
    ) -> Result<Attempt> {
        match self.other_slot(at.leaf, slots, key) {
            NOWHERE => self.try_edit_absent(search, at, key, edit),
            slot => self.try_edit_present(at, slot, self.line_to_change(at.leaf, slot)?, key, edit),
        }
    }

    /// The line of a slot, prefetched for a store.
    #[inline(always)]
    fn line_to_change(&self, leaf: &Leaf, slot: usize) -> Result<WritableLine<'_>> {
        let off = leaf.line_off(slot / SLOTS_PER_LINE);
        self.region().prefetch_for_store(off);
        Ok(self.region().writable_line(off)?)
    }

    /// Locks the leaf if it still has that version, and changes the slot, whose value is `old`.
    #[inline(always)]
    fn lock_and_change(
        &self,
        at: LeafAt<'_>,
        slot: usize,
        line: WritableLine<'_>,
        key: u64,
        edit: RecordEdit,
        old: Option<u64>,
    ) -> Result<Attempt> {
        let Some(_locked) = Locked::at(at.leaf, at.version, slot, &self.bias) else {
            return Ok(Attempt::Unclear);
        };
        self.change_slot(at.leaf, slot, line, key, old, edit.outcome(old))?;
        Ok(Attempt::Done(old, old.is_some() && edit.leaves_sparse(at.leaf)))
    }

    /// Changes one slot, durably on return. The leaf is locked, and its version names the slot.
    #[inline(always)]
    fn change_slot(
        &self,
        leaf: &Leaf,
        slot: usize,
        line: WritableLine<'_>,
        key: u64,
        old: Option<u64>,
        new: Option<u64>,
    ) -> Result<()> {
        debug_assert!(old.is_some() || new.is_some(), "there is something to change");
        let place = slot % SLOTS_PER_LINE;
        match new {
            Some(value) => line.store(SLOTS_PER_LINE + place, value),
            None => line.store(place, 0),
        }
        if old.is_none() {
            // I3: the key follows the value, in the same line.
            line.store(place, !key);
        }
        line.flush();
        // PERSIST(I3): value and key are in the line that was flushed.
        self.region().fence().map_err(tembo_pool::Error::from)?;
        let len = leaf.len.load(Ordering::Relaxed);
        match (old, new) {
            (None, _) => {
                leaf.fingerprints.set(slot, fingerprint(key));
                leaf.len.store(len + 1, Ordering::Relaxed);
            }
            (_, None) => {
                leaf.fingerprints.clear(slot);
                leaf.len.store(len - 1, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(())
    }

    /// Locks the leaf to which a key belongs; `None` if the search has to start again.
    fn lock_leaf<'g>(&'g self, key: u64, pin: &'g BriefPin<'_>) -> Result<Option<Locked<'g>>> {
        let mut leaf = match self.find_place(key, pin) {
            SearchEnd::Leaf(leaf) => leaf,
            SearchEnd::Cold(_) => {
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
    fn edit_record(
        &self,
        locked: &mut Locked<'_>,
        key: u64,
        edit: RecordEdit,
    ) -> Result<Option<Option<u64>>> {
        let leaf = locked.leaf;
        let found = self.search(leaf, key)?;
        let old = found.map(|(_, value)| value);
        let new = edit.outcome(old);
        if new == old && !(old.is_some() && edit.is_stored_again()) {
            return Ok(Some(old));
        }
        let slot = match found {
            Some((slot, _)) => slot,
            None => {
                let unused = leaf.fingerprints.unused();
                if unused == 0 {
                    self.fetch_leaf(leaf);
                    return Ok(None);
                }
                likely_slot(unused, lines_of(key))
            }
        };
        let line = self.region().writable_line(leaf.line_off(slot / SLOTS_PER_LINE))?;
        locked.change(slot);
        self.change_slot(leaf, slot, line, key, old, new)?;
        Ok(Some(old))
    }

    /// Makes the change for the largest key, whose record is in the header.
    #[cold]
    fn edit_last(&self, edit: RecordEdit) -> Result<Option<u64>> {
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
        region.fence().map_err(tembo_pool::Error::from)?;
        self.last.set(new, &self.garbage, &self.claim);
        Ok(old)
    }
}
