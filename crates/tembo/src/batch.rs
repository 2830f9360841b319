//! Groups of changes that become durable together.

use crate::map::Tree;
use crate::open_trees::TreeHandle;
use crate::pool::Shared;
use crate::{Error, Map, Pool, Result};
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use tembo_index::{HeldHere, NearRecord, Ranked, VersionedPart, VersionedTree, WbTree, Writers};
use tembo_pool::{KeptSpace, Tx};

/// A group of changes to any maps of a pool. A crash keeps all of them or none, and they share one fence.
///
/// As long as a batch lives, other writers of the pool's [`Map`]s wait; writers of a map that keeps versions
/// wait from the batch's first use of that map on. A batch sees its own changes; other threads see them after
/// the commit. Dropping it takes them back. Its changes of a map that keeps versions are one version.
///
/// A change that fails leaves the batch as it was; in a [nested transaction](Self::begin_nested), it leaves
/// the batch as it was before that.
///
/// A batch is atomic after a crash. During its commit, a concurrent reader may see it in one map before
/// another. Within one map, readers see all of it or nothing if the map keeps versions, or if they use
/// [`Map::scan`].
///
/// In the thread of the batch, calls that would wait for the batch fail with [`Error::WouldWait`]: other
/// changes of a map that keeps no versions or that the batch has used, another batch, [`Map::rollback_to`],
/// [`Map::collect`], [`Map::drop_snapshot`] and [`Snapshot::keep`](crate::Snapshot::keep). Every call for a
/// map of another pool fails with [`Error::ForeignMap`].
///
/// ```
/// # fn main() -> Result<(), tembo::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
/// let accounts = pool.open_map("accounts")?;
/// let mut batch = pool.batch()?;
/// batch.put(&accounts, b"alice", b"70")?;
/// batch.put(&accounts, b"bob", b"30")?;
/// assert_eq!(accounts.get("alice")?.as_deref(), None);
/// batch.commit()?;
/// assert_eq!(accounts.get("alice")?.as_deref(), Some(b"70".as_slice()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Batch<'p> {
    tx: Tx<'p>,
    shared: &'p Shared,
    writers: &'p Writers,
    /// Maps with versions that the batch has used.
    parts: Parts,
    /// Held while a map is added.
    adding: Mutex<()>,
    /// The number of changes of maps with versions.
    changes: u64,
    /// More than the number of changes before the last savepoint; 0 as long as there is none.
    savepoint: AtomicU64,
    /// The beginning of the nested transaction that is open.
    nested: Option<Savepoint>,
    /// Until the turn has ended.
    held: HeldHere,
}

/// A list that grows behind shared references.
#[derive(Debug, Default)]
struct Parts(OnceLock<Box<Part>>);

#[derive(Debug)]
struct Part {
    part: VersionedPart,
    /// Keeps the tree among the open ones.
    _tree: TreeHandle<VersionedTree>,
    next: Parts,
}

/// A point in a [`Batch`] to which it can go back.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    tx: tembo_pool::Savepoint,
    changes: u64,
}

impl Parts {
    fn find(&self, tree: &VersionedTree) -> Option<&VersionedPart> {
        let part = std::iter::successors(self.0.get(), |part| part.next.0.get());
        part.map(|part| &part.part).find(|part| part.is_of(tree))
    }

    fn find_mut(&mut self, tree: &VersionedTree) -> Option<&mut VersionedPart> {
        let mut parts = self;
        loop {
            let Part { part, next, .. } = &mut **parts.0.get_mut()?;
            if part.is_of(tree) {
                return Some(part);
            }
            parts = next;
        }
    }

    fn for_each<E>(&mut self, mut visit: impl FnMut(&mut VersionedPart) -> Result<(), E>) -> Result<(), E> {
        let mut parts = self;
        while let Some(part) = parts.0.get_mut() {
            visit(&mut part.part)?;
            parts = &mut part.next;
        }
        Ok(())
    }

    fn pending_words(&self) -> usize {
        let part = std::iter::successors(self.0.get(), |part| part.next.0.get());
        part.map(|part| part.part.pending_words()).sum()
    }
}

impl<'p> Batch<'p> {
    pub(crate) fn begin(shared: &'p Shared) -> Result<Batch<'p>> {
        let writers = shared.writers()?;
        let mut tx = shared.begin("a batch")?;
        shared.dropped.reclaim_within(&mut tx);
        Ok(Batch {
            tx,
            shared,
            writers,
            held: writers.hold_here("a batch"),
            parts: Parts::default(),
            adding: Mutex::default(),
            changes: 0,
            savepoint: AtomicU64::new(0),
            nested: None,
        })
    }

    /// Makes a change of a tree without versions.
    #[inline(always)]
    fn change_plain<T>(&mut self, body: impl FnOnce(&mut Tx<'p>) -> tembo_index::Result<T>) -> Result<T> {
        let outcome = body(&mut self.tx);
        outcome.map_err(|e| self.failed(e.into()))
    }

    /// Takes back the nested transaction that is open, if there is one, after one of its changes failed.
    #[cold]
    fn failed(&mut self, error: Error) -> Error {
        if let Some(begin) = self.nested {
            self.rollback_to(begin);
        }
        if matches!(error, Error::Full { .. }) {
            self.shared.note_starved();
        }
        error
    }

    /// The tree of a map that is going to be changed.
    #[inline(always)]
    fn changed_tree<'m>(&mut self, map: &'m Map) -> Result<&'m Tree> {
        self.tree(map).map_err(|e| self.failed(e))
    }

    /// The map's tree, if it is of the batch's pool.
    #[inline(always)]
    fn tree<'m>(&self, map: &'m Map) -> Result<&'m Tree> {
        if std::ptr::eq(&**map.pool.shared, self.shared) { Ok(&map.tree) } else { Err(Error::ForeignMap) }
    }

    /// The batch's part in a tree, whose other writers wait from now on. There is no deadlock: they wait for
    /// nothing that the batch has, and there is no other batch.
    fn part(&self, tree: &TreeHandle<VersionedTree>) -> Result<&VersionedPart> {
        if let Some(part) = self.parts.find(tree) {
            return Ok(part);
        }
        let _one_at_a_time = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = &self.parts;
        while let Some(part) = parts.0.get() {
            if part.part.is_of(tree) {
                return Ok(&part.part);
            }
            parts = &part.next;
        }
        let part = Part {
            part: tree.part_of_batch(self.held.thread())?,
            _tree: tree.clone(),
            next: Parts::default(),
        };
        Ok(&parts.0.get_or_init(|| Box::new(part)).part)
    }

    /// Makes a change of a tree. `body` gets the number of the last savepoint.
    fn change<T>(
        &mut self,
        tree: &TreeHandle<VersionedTree>,
        body: impl FnOnce(&mut VersionedPart, &mut Tx<'p>, u64) -> tembo_index::Result<T>,
    ) -> Result<T> {
        if let Err(e) = self.part(tree) {
            return Err(self.failed(e));
        }
        self.changes += 1;
        let part = self.parts.find_mut(tree).expect("found or made just now");
        let outcome = body(part, &mut self.tx, *self.savepoint.get_mut());
        outcome.map_err(|e| self.failed(e.into()))
    }
}

impl Pool {
    /// Waits until no other thread writes to a [`Map`], and begins a group of changes that become durable
    /// together, with one fence.
    ///
    /// # Errors
    ///
    /// [`Error::WouldWait`](crate::Error::WouldWait) if this thread has a batch already or is in a closure
    /// that [`Map::modify`] calls: it would wait for itself. [`Error::ReadOnly`](crate::Error::ReadOnly);
    /// [`Error::Pool`](crate::Error::Pool) after the device failed.
    pub fn batch(&self) -> Result<Batch<'_>> {
        // Before the batch has the turn that a compaction needs.
        if self.shared.feed_starved() {
            self.compact_for_room();
        } else if self.shared.pool.has_outgrown_waste() {
            self.compact_outgrown();
        }
        Batch::begin(&self.shared)
    }
}

impl Batch<'_> {
    /// The value of `key` as this batch sees it.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignMap`]; [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    #[inline]
    pub fn get<'b>(&'b self, map: &'b Map, key: &[u8]) -> Result<Option<&'b [u8]>> {
        Ok(match self.tree(map)? {
            Tree::Plain(tree) => tree.get_in(&self.tx, key)?,
            Tree::Versioned(tree) => self.part(tree)?.get(&self.tx, key)?,
        })
    }

    /// A record that lies near `key`, as this batch sees the map: one of its leaf, number `choice` modulo
    /// their count, in no particular order. With random keys and choices that is about a random record. A
    /// leaf with few records favours them; `leaf_count` lets the caller correct that. `None` if there is
    /// none there. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get); [`Error::KeepsVersions`](crate::Error::KeepsVersions) if the map keeps
    /// versions.
    pub fn neighbour<'b>(&'b self, map: &'b Map, key: &[u8], choice: u64) -> Result<Option<NearRecord<'b>>> {
        match self.tree(map)? {
            Tree::Plain(tree) => Ok(tree.neighbour_in(&self.tx, key, choice)?),
            Tree::Versioned(_) => Err(crate::Error::KeepsVersions),
        }
    }

    /// A hint that `keys` will be read or written soon: prefetches their nodes, for all keys at once. Pays
    /// from a few keys on, for maps larger than the processor's cache. Has no effect for maps that keep
    /// versions. At most [`PREFETCH_KEYS_MAX`](crate::PREFETCH_KEYS_MAX) keys are used.
    #[inline]
    pub fn prefetch<'k>(&self, map: &Map, keys: impl IntoIterator<Item = &'k [u8]>) {
        if let Ok(Tree::Plain(tree)) = self.tree(map) {
            tree.prefetch(&self.tx, keys);
        }
    }

    /// Gives `key` a value; returns whether it had one before.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignMap`] if the map is of another pool, and as for [`Map::put`]. The same holds for all
    /// changes.
    pub fn put(&mut self, map: &Map, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put_parts(map, key, &[value])
    }

    /// As [`put`](Self::put), with the value in parts, which are written one after the other.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`].
    #[inline]
    pub fn put_parts(&mut self, map: &Map, key: &[u8], value: &[&[u8]]) -> Result<bool> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => match self.nested {
                None => self.change_plain(|tx| tree.put(tx, key, value)),
                Some(_) => self.change_plain(|tx| tree.put_without_undo(tx, key, value)),
            },
            Tree::Versioned(tree) => {
                self.change(tree, |part, tx, savepoint| part.put(tx, savepoint, key, value))
            }
        }
    }

    /// Gives new values to many keys, one after the other: `decide` gets the number of each key and its
    /// present value, and returns the new one, or `None` if the key is to stay as it is. Keys in ascending
    /// order take the least time; in a map that keeps no versions, neighbours are found and put together.
    ///
    /// After an error the batch is as it was, as after other changes. A panic of `decide` leaves any number
    /// of the keys changed.
    ///
    /// ```
    /// # fn main() -> Result<(), tembo::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
    /// let words = pool.open_map("words")?;
    /// let mut batch = pool.batch()?;
    /// let (names, mut new) = (["left", "right"], 0);
    /// batch.put_many(&words, names.map(str::as_bytes), |number, old| {
    ///     new += usize::from(old.is_none());
    ///     Some([number as u8])
    /// })?;
    /// assert_eq!(new, 2);
    /// assert_eq!(batch.get(&words, b"right")?, Some(&[1][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Map::put`].
    pub fn put_many<'k, V: AsRef<[u8]>>(
        &mut self,
        map: &Map,
        keys: impl IntoIterator<Item = &'k [u8]>,
        mut decide: impl FnMut(usize, Option<&[u8]>) -> Option<V>,
    ) -> Result<()> {
        let before = if self.nested.is_none() { Some(self.savepoint()) } else { None };
        let outcome =
            match self.changed_tree(map)? {
                Tree::Plain(tree) => self.change_plain(|tx| tree.put_many_without_undo(tx, keys, decide)),
                Tree::Versioned(tree) => keys.into_iter().enumerate().try_for_each(|(number, key)| {
                    match decide(number, self.part(tree)?.get(&self.tx, key)?) {
                        Some(value) => self.put_parts(map, key, &[value.as_ref()]).map(drop),
                        None => Ok(()),
                    }
                }),
            };
        if let (Err(_), Some(before)) = (&outcome, before) {
            self.rollback_to(before);
        }
        outcome
    }

    /// Gives `key` a value if it has none; returns whether it did.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`].
    pub fn insert(&mut self, map: &Map, key: &[u8], value: &[u8]) -> Result<bool> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => self.change_plain(|tx| tree.insert(tx, key, value)),
            Tree::Versioned(tree) => {
                self.change(tree, |part, tx, savepoint| part.insert(tx, savepoint, key, value))
            }
        }
    }

    /// Gives `key` another value if it has one; returns whether it did.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`].
    pub fn update(&mut self, map: &Map, key: &[u8], value: &[u8]) -> Result<bool> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => self.change_plain(|tx| tree.update(tx, key, value)),
            Tree::Versioned(tree) => {
                self.change(tree, |part, tx, savepoint| part.update(tx, savepoint, key, value))
            }
        }
    }

    /// As [`Map::compare_and_swap`].
    ///
    /// # Errors
    ///
    /// As for [`Map::put`].
    pub fn compare_and_swap(
        &mut self,
        map: &Map,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => self.change_plain(|tx| tree.compare_and_swap(tx, key, expected, new)),
            Tree::Versioned(tree) => self
                .change(tree, |part, tx, savepoint| part.compare_and_swap(tx, savepoint, key, expected, new)),
        }
    }

    /// As [`Map::modify`]. A panic of `change` leaves the batch as it was.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`].
    pub fn modify<V: AsRef<[u8]>>(
        &mut self,
        map: &Map,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<bool> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => self.change_plain(|tx| tree.modify(tx, key, change)),
            Tree::Versioned(tree) => {
                self.change(tree, |part, tx, savepoint| part.modify(tx, savepoint, key, change))
            }
        }
    }

    /// Removes `key`; returns whether it was there.
    ///
    /// # Errors
    ///
    /// As for [`Map::remove`].
    pub fn remove(&mut self, map: &Map, key: &[u8]) -> Result<bool> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => match self.nested {
                None => self.change_plain(|tx| tree.remove(tx, key)),
                Some(_) => self.change_plain(|tx| tree.remove_without_undo(tx, key)),
            },
            Tree::Versioned(tree) => self.change(tree, |part, tx, savepoint| part.remove(tx, savepoint, key)),
        }
    }

    /// Removes the record with the smallest key; returns its key and value.
    ///
    /// # Errors
    ///
    /// As for [`Map::remove`].
    pub fn pop_first(&mut self, map: &Map) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => self.change_plain(|tx| tree.pop_first(tx)),
            Tree::Versioned(tree) => self.change(tree, |part, tx, savepoint| part.pop_first(tx, savepoint)),
        }
    }

    /// Removes the record with the largest key; returns its key and value.
    ///
    /// # Errors
    ///
    /// As for [`Map::remove`].
    pub fn pop_last(&mut self, map: &Map) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => self.change_plain(|tx| tree.pop_last(tx)),
            Tree::Versioned(tree) => self.change(tree, |part, tx, savepoint| part.pop_last(tx, savepoint)),
        }
    }

    /// Removes the records whose keys lie in `bounds`; returns how many. The record of the batch grows with
    /// them: for ranges of any size use [`Map::remove_range`].
    ///
    /// # Errors
    ///
    /// As for [`Map::remove`].
    pub fn remove_range<K: AsRef<[u8]>>(&mut self, map: &Map, bounds: impl RangeBounds<K>) -> Result<u64> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => self.change_plain(|tx| tree.remove_range(tx, bounds)),
            Tree::Versioned(tree) => {
                self.change(tree, |part, tx, savepoint| part.remove_range(tx, savepoint, bounds))
            }
        }
    }

    /// Removes everything from the map.
    ///
    /// # Errors
    ///
    /// As for [`Map::clear`].
    pub fn clear(&mut self, map: &Map) -> Result<()> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => self.change_plain(|tx| tree.clear(tx)),
            Tree::Versioned(tree) => self.change(tree, |part, tx, savepoint| part.clear(tx, savepoint)),
        }
    }

    /// Frees some space of a map that was cleared, in up to `steps` small steps; returns whether there is
    /// more to free.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn reclaim(&mut self, map: &Map, steps: usize) -> Result<bool> {
        match self.changed_tree(map)? {
            Tree::Plain(tree) => self.change_plain(|tx| tree.reclaim(tx, steps)),
            Tree::Versioned(tree) => {
                self.change(tree, |part, tx, savepoint| part.reclaim(tx, savepoint, steps))
            }
        }
    }

    /// The number of records of the map, as this batch sees it.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn len(&self, map: &Map) -> Result<u64> {
        match self.tree(map)? {
            Tree::Plain(tree) => Ok(tree.len_in(&self.tx)?),
            Tree::Versioned(tree) => Ok(self.part(tree)?.len()?),
        }
    }

    /// The sum of the weights of the map's records with smaller keys than `key`, as this batch sees it: their
    /// number, in a map that counts [records](crate::Counting::Records). O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::Index`](crate::Error::Index) if the map does not [count](crate::MapOptions::counting), and
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn rank(&self, map: &Map, key: &[u8]) -> Result<u64> {
        Ok(self.counting_tree(map)?.rank_in(&self.tx, key)?)
    }

    /// The record at position `nth`, counted from 0 in the order of the keys, as this batch sees the map:
    /// `nth` records have smaller keys. In a map that counts weights, the record to which the unit of weight
    /// number `nth` belongs. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`rank`](Self::rank).
    pub fn nth<'b>(&'b self, map: &'b Map, nth: u64) -> Result<Option<Ranked<'b>>> {
        Ok(self.counting_tree(map)?.nth_in(&self.tx, nth)?)
    }

    /// The sum of the weights of the records whose keys lie in `bounds`, as this batch sees the map. O(log
    /// n).
    ///
    /// # Errors
    ///
    /// As for [`rank`](Self::rank).
    pub fn count<K: AsRef<[u8]>>(&self, map: &Map, bounds: impl RangeBounds<K>) -> Result<u64> {
        let tree = self.counting_tree(map)?;
        // The smallest key above another has one more byte.
        let above = |key: &K| [key.as_ref(), &[0]].concat();
        let before = |end: Bound<&K>, is_upper: bool| match end {
            Bound::Unbounded if is_upper => tree.tally_in(&self.tx),
            Bound::Unbounded => Ok(0),
            Bound::Included(key) if is_upper => tree.rank_in(&self.tx, &above(key)),
            Bound::Excluded(key) if !is_upper => tree.rank_in(&self.tx, &above(key)),
            Bound::Included(key) | Bound::Excluded(key) => tree.rank_in(&self.tx, key.as_ref()),
        };
        let (low, high) = (before(bounds.start_bound(), false)?, before(bounds.end_bound(), true)?);
        Ok(high.saturating_sub(low))
    }

    fn counting_tree<'m>(&self, map: &'m Map) -> Result<&'m WbTree> {
        match self.tree(map)? {
            Tree::Plain(tree) => Ok(tree),
            Tree::Versioned(_) => Err(tembo_index::Error::CountsNothing.into()),
        }
    }

    /// Gives the records whose keys lie in `bounds`, as this batch sees them, to `visit`, in order, until it
    /// breaks. The first record costs O(log n), the others O(1) on average.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignMap`]; [`Error::KeepsVersions`] if the map keeps versions;
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged, and then some records may have been
    /// visited.
    pub fn walk<'b, K: AsRef<[u8]>>(
        &'b self,
        map: &'b Map,
        bounds: impl RangeBounds<K>,
        visit: impl FnMut(&'b [u8], &'b [u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.tree(map)? {
            Tree::Plain(tree) => Ok(tree.walk_in(&self.tx, bounds, visit)?),
            Tree::Versioned(_) => Err(Error::KeepsVersions),
        }
    }

    /// As [`walk`](Self::walk), from the last record of the range to the first.
    ///
    /// # Errors
    ///
    /// As for [`walk`](Self::walk).
    pub fn walk_back<'b, K: AsRef<[u8]>>(
        &'b self,
        map: &'b Map,
        bounds: impl RangeBounds<K>,
        visit: impl FnMut(&'b [u8], &'b [u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.tree(map)? {
            Tree::Plain(tree) => Ok(tree.walk_back_in(&self.tx, bounds, visit)?),
            Tree::Versioned(_) => Err(Error::KeepsVersions),
        }
    }

    /// As [`put`](Self::put), for a small record that is a note of space to be freed by a later batch: it may
    /// take half of the space that is reserved for removals, so that it works in a full pool.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn put_to_free(&mut self, map: &Map, key: &[u8], value: &[u8]) -> Result<bool> {
        self.tx.use_kept_space(KeptSpace::Half);
        let outcome = self.put_parts(map, key, &[value]);
        self.tx.use_kept_space(KeptSpace::None);
        outcome
    }

    /// A point for [`rollback_to`](Self::rollback_to).
    pub fn savepoint(&self) -> Savepoint {
        // Nothing changes while there are shared references, so all threads store the same number.
        self.savepoint.store(self.changes + 1, Ordering::Relaxed);
        Savepoint { tx: self.tx.savepoint(), changes: self.changes }
    }

    /// Begins a nested transaction: its changes are kept together ([`end_nested`](Self::end_nested)), or
    /// taken back together. A change of it that fails takes all of it back and ends it; so does
    /// [`rollback_to`](Self::rollback_to) with its beginning, which is returned. A nested transaction that
    /// was open before ends, and its changes are kept.
    ///
    /// It has one undo point, where changes outside of one have one each; in maps that keep versions it costs
    /// as much as a [`savepoint`](Self::savepoint).
    ///
    /// ```
    /// # fn main() -> Result<(), tembo::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
    /// let accounts = pool.open_map("accounts")?;
    /// let mut batch = pool.batch()?;
    /// batch.put(&accounts, b"alice", b"70")?;
    /// batch.begin_nested();
    /// batch.put(&accounts, b"bob", b"30")?;
    /// let too_long = vec![b'k'; tembo::MAX_KEY_BYTES as usize + 1];
    /// assert!(batch.put(&accounts, &too_long, b"").is_err());
    /// assert_eq!(batch.get(&accounts, b"bob")?, None);
    /// assert_eq!(batch.get(&accounts, b"alice")?, Some(&b"70"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_nested(&mut self) -> Savepoint {
        let begin = self.savepoint();
        self.nested = Some(begin);
        begin
    }

    /// Ends the nested transaction that is open, and keeps its changes.
    pub fn end_nested(&mut self) {
        self.nested = None;
    }

    /// Takes back everything since the savepoint, which must be of this batch. A nested transaction ends.
    pub fn rollback_to(&mut self, to: Savepoint) {
        self.nested = None;
        let taken_back = self.parts.for_each(|part| {
            part.roll_back_to(to.changes + 1);
            Ok::<(), std::convert::Infallible>(())
        });
        match taken_back {
            Ok(()) => self.tx.rollback_to(to.tx),
        }
        // The batch can roll back to the savepoint again.
        self.changes += 1;
        *self.savepoint.get_mut() = self.changes + 1;
    }

    /// The rough size of this batch's record so far, in words. Beyond about a thousand, it pays to commit and
    /// begin another batch.
    pub fn pending_words(&self) -> usize {
        self.tx.pending_words() + self.parts.pending_words()
    }

    /// Makes the changes durable, then visible.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if the record of a large group finds no room, and then nothing is
    /// changed; [`Error::Pool`](crate::Error::Pool) if the device fails.
    pub fn commit(self) -> Result<()> {
        // Dropped in this order: after a failure the transaction is taken back before other threads may write
        // to the maps.
        let Batch { mut parts, mut tx, shared, writers, held: _held, .. } = self;
        let made = parts.for_each(|part| part.finish(&mut tx)).and_then(|()| Ok(writers.commit(tx)?));
        if let Err(e) = made {
            let e = e.into();
            if matches!(e, Error::Full { .. }) {
                shared.note_starved();
            }
            return Err(e);
        }
        // All changes are durable; readers see one map after the other.
        while let Some(part) = parts.0.take() {
            let Part { part, next, .. } = *part;
            part.show();
            parts = next;
        }
        Ok(())
    }
}
