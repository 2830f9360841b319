//! Changes of single records by several threads at once, each durable when its call returns.

use super::WbTree;
use super::Writers;
use super::length::length_part;
use super::locks::{HeldLocks, Locks};
use super::node::{Media, View};
use super::remove::becomes_sparse;
use super::search::{Goal, Probe, TreePosition, descend, descend_to, find};
use super::sums::Counting;
use crate::error::{Error, Result};
use crate::key_edit::KeyEdit;
use crate::record::check_lengths;
use tembo_pool::{Turn, Tx};

/// A tree with the writers that change it, made by [`WbTree::concurrent`].
#[derive(Debug, Clone, Copy)]
pub struct ConcurrentWriter<'t> {
    tree: &'t WbTree,
    writers: &'t Writers,
}

/// Says that a change may insert or remove a record.
#[derive(Clone, Copy)]
struct MayInsertOrRemove {
    inserts: bool,
    removes: bool,
}

impl WbTree {
    /// The tree, for changes of single records by any number of concurrent threads, which all name the same
    /// writers. Each change is a transaction of its own.
    ///
    /// ```
    /// # fn main() -> Result<(), tembo_index::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("example.pool");
    /// # let mut options = tembo_pool::Options::new();
    /// # options.create = true;
    /// # let pool = tembo_pool::Pool::open(&path, &options)?;
    /// use tembo_index::{WbTree, Writers};
    ///
    /// let writers = Writers::new(pool.lane()?);
    /// let mut tx = writers.begin();
    /// let squares = WbTree::create(&mut tx, "squares")?;
    /// tx.commit()?;
    /// std::thread::scope(|scope| {
    ///     for start in [0u32, 1] {
    ///         let squares = squares.concurrent(&writers);
    ///         scope.spawn(move || {
    ///             let mut numbers = (start..100).step_by(2);
    ///             let square = |i: u32| (i * i).to_be_bytes();
    ///             numbers.try_for_each(|i| squares.put(&i.to_be_bytes(), &[&square(i)]).map(drop))
    ///         });
    ///     }
    /// });
    /// assert_eq!(squares.len()?, 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// The changes panic if the writers are not of this tree's pool.
    #[inline]
    pub fn concurrent<'t>(&'t self, writers: &'t Writers) -> ConcurrentWriter<'t> {
        ConcurrentWriter { tree: self, writers }
    }
}

impl ConcurrentWriter<'_> {
    /// A transaction, with the locks that it needs. The writer of a tree that counts is the only one.
    #[inline]
    fn turn(&self) -> Result<Turn<'_, Locks>> {
        if self.tree.counting() == Counting::Nothing {
            return self.writers.turn::<Error>();
        }
        self.writers.expect_other("a map that counts")?;
        Ok(Turn { tx: self.writers.begin(), locks: None, number: 0 })
    }

    /// As [`WbTree::put`], durable on return.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::put`], and for a commit. After a failure of the device the outcome is unknown until
    /// the pool is opened again; otherwise nothing was changed. The same holds for all changes.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[&[u8]]) -> Result<bool> {
        let Turn { mut tx, locks, .. } = self.turn()?;
        let Some(locks) = locks else {
            let was_there = self.tree.put(&mut tx, key, value)?;
            tx.commit()?;
            return Ok(was_there);
        };
        let value_bytes = check_lengths(key, value)?;
        let probe = Probe::new(key);
        let may = MayInsertOrRemove { inserts: true, removes: false };
        let outcome = self.tree.write_record(&mut tx, key, value, value_bytes).and_then(|record| {
            self.change(tx, locks, probe, may, |tx, place| {
                self.tree.change(tx, |tx| self.tree.put_record(tx, place, probe, record))
            })
        });
        match outcome {
            // There was no space for the record. The second path frees cleared blocks first, and writes the
            // record last.
            Err(e) if e.is_full() && self.tree.has_cleared()? => {
                self.decide(key, may, |_| KeyEdit::Put(value.concat()))
            }
            outcome => outcome,
        }
    }

    /// As [`WbTree::remove`], durable on return.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        let Turn { mut tx, locks, .. } = self.turn()?;
        let Some(locks) = locks else {
            let was_there = self.tree.remove(&mut tx, key)?;
            tx.commit()?;
            return Ok(was_there);
        };
        self.change(
            tx,
            locks,
            Probe::new(key),
            MayInsertOrRemove { inserts: false, removes: true },
            |tx, place| self.tree.change(tx, |tx| self.tree.remove_record(tx, place, key)),
        )
    }

    /// As [`WbTree::insert`], durable on return.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let is_there = self.decide(key, MayInsertOrRemove { inserts: true, removes: false }, |old| {
            KeyEdit::inserted(value, old)
        })?;
        Ok(!is_there)
    }

    /// As [`WbTree::update`], durable on return.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.decide(key, MayInsertOrRemove { inserts: false, removes: false }, |old| {
            KeyEdit::updated(value, old)
        })
    }

    /// As [`WbTree::compare_and_swap`], durable on return.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
        let may = MayInsertOrRemove { inserts: expected.is_none(), removes: new.is_none() };
        let mut is_expected = false;
        self.decide(key, may, |old| {
            is_expected = old == expected;
            KeyEdit::swapped(new, is_expected)
        })?;
        Ok(is_expected)
    }

    /// As [`WbTree::modify`], durable on return. No other thread writes to the key while `change` runs.
    /// `change` may read, but a write by it is refused with [`Error::WouldWait`](crate::Error::WouldWait). (A
    /// scan by `change` ends once no thread changes the records that it reads.)
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn modify<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<bool> {
        let may = MayInsertOrRemove { inserts: true, removes: true };
        let mut held = None;
        self.decide(key, may, |old| {
            held = Some(self.writers.hold_here("a map, in a closure that `modify` calls"));
            change(old).map_or(KeyEdit::Remove, KeyEdit::Put)
        })
    }

    fn decide<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        may: MayInsertOrRemove,
        decide: impl FnOnce(Option<&[u8]>) -> KeyEdit<V>,
    ) -> Result<bool> {
        let Turn { mut tx, locks, .. } = self.turn()?;
        let Some(locks) = locks else {
            let is_there = self.tree.decide(&mut tx, key, decide)?;
            tx.commit()?;
            return Ok(is_there);
        };
        let probe = Probe::new(key);
        self.change(tx, locks, probe, may, |tx, place| self.tree.decide_at(tx, place, probe, decide))
    }

    /// Makes a change at a key's place, concurrently with other writers. Locks one leaf if the change needs
    /// no other, otherwise the structure too.
    ///
    /// PERSIST(I7): locks are released after the commit has returned.
    #[inline]
    fn change<T>(
        &self,
        mut tx: Tx<'_>,
        locks: &Locks,
        probe: Probe<'_>,
        may: MayInsertOrRemove,
        change: impl FnOnce(&mut Tx<'_>, &TreePosition<'_>) -> Result<T>,
    ) -> Result<T> {
        self.tree.assert_writes(&tx);
        let _length = locks.lock_length(length_part(&tx));
        let _pin = self.tree.pool().pin_for_writing();
        if let Some((place, held)) = self.tree.lock_in_place(locks, probe, may)? {
            // The tree word of the place may be older than the leaf's lock; it is used only to tell whether a
            // leaf is sparse.
            let outcome = change(&mut tx, &place);
            let outcome = end(tx, outcome);
            drop(held);
            return outcome;
        }
        let held = locks.lock_structure();
        let place = self.tree.place_under(&held, probe)?;
        let outcome = change(&mut tx, &place);
        end(tx, outcome)
    }
}

impl WbTree {
    /// Finds and locks the leaf of a key, if the change may be possible in this leaf alone.
    #[inline]
    fn lock_in_place<'l>(
        &self,
        locks: &'l Locks,
        probe: Probe<'_>,
        may: MayInsertOrRemove,
    ) -> Result<Option<(TreePosition<'_>, HeldLocks<'l>)>> {
        let view = Media(self.region());
        loop {
            let version = locks.version();
            let tree = self.root(view)?;
            // Cleared trees are freed only by changes that lock the structure.
            if tree.is_empty() || view.load(self.doomed_off())? != 0 {
                return Ok(None);
            }
            let leaf = descend(view, tree, Goal::At(probe.key), |_, _| ())?;
            let held = locks.lock_leaf(leaf.off);
            if locks.version() != version && !self.still_leads_to(leaf.off, probe)? {
                continue;
            }
            let state = leaf.state(view)?;
            let found = find(view, view, &leaf, state, probe)?;
            let stays = match found {
                Some(_) => !may.removes || !becomes_sparse(tree, state.count() - 1),
                None => !may.inserts || self.free_slot(&leaf, state)?.is_some(),
            };
            let place = TreePosition { tree, leaf: Some((leaf, state)), found, held: None };
            return Ok(stays.then_some((place, held)));
        }
    }

    /// Whether the path to a key still leads to this leaf, which is locked.
    #[cold]
    fn still_leads_to(&self, leaf: u64, probe: Probe<'_>) -> Result<bool> {
        let view = Media(self.region());
        let tree = self.root(view)?;
        Ok(!tree.is_empty() && descend_to(view, tree, Goal::At(probe.key), |_, _| ())? == leaf)
    }

    /// The place of a key, with the structure and its leaf locked.
    #[cold]
    pub(crate) fn place_under<'p>(
        &'p self,
        held: &'p HeldLocks<'_>,
        probe: Probe<'_>,
    ) -> Result<TreePosition<'p>> {
        let view = Media(self.region());
        let tree = self.root(view)?;
        if tree.is_empty() {
            return Ok(TreePosition { tree, leaf: None, found: None, held: Some(held) });
        }
        let leaf = descend(view, tree, Goal::At(probe.key), |_, _| ())?;
        held.lock(leaf.off);
        let state = leaf.state(view)?;
        let found = find(view, view, &leaf, state, probe)?;
        Ok(TreePosition { tree, leaf: Some((leaf, state)), found, held: Some(held) })
    }

    /// As [`lock_in_place`](Self::lock_in_place), to insert a record.
    #[inline]
    pub(crate) fn lock_in_place_to_insert<'l>(
        &self,
        locks: &'l Locks,
        probe: Probe<'_>,
    ) -> Result<Option<(TreePosition<'_>, HeldLocks<'l>)>> {
        self.lock_in_place(locks, probe, MayInsertOrRemove { inserts: true, removes: false })
    }
}

/// Commits a change or rolls it back, before anything is unlocked: until then the blocks that it would free
/// stay claimed.
fn end<T>(tx: Tx<'_>, outcome: Result<T>) -> Result<T> {
    let outcome = outcome?;
    tx.commit()?;
    Ok(outcome)
}
