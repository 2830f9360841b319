//! A tree's part of a transaction over several structures.

use super::super::layout::at;
use super::super::map::Writing;
use super::super::old_scan::OldScan;
use super::super::queue::QueueWords;
use super::super::shared::Shared;
use super::super::version::Version;
use super::super::view::region;
use super::VersionedTree;
use super::ordered::{TreeBuilder, TreeStructure};
use super::range::End;
use super::scan::Rest;
use crate::error::{Error, Result};
use crate::key_edit::KeyEdit;
use crate::record::check_lengths;
use parking_lot::{ArcMutexGuard, RawMutex};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tembo_pool::Tx;

/// The part of a transaction over several structures that changes one tree: it makes a version, which becomes
/// durable with the transaction's commit. The tree's other writers wait as long as the part lives.
///
/// Every call gets the same transaction. Call [`finish`](Self::finish) before its commit, and
/// [`show`](Self::show) after it. If either the part or the transaction is dropped earlier, both must be.
///
/// A failed change leaves part and transaction unchanged. Each change gets the number of the last savepoint,
/// which rises, so that a rollback of the transaction can undo the part's changes too: see
/// [`roll_back_to`](Self::roll_back_to).
///
/// ```
/// # fn main() -> Result<(), tembo_index::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = tembo_pool::Options::new();
/// # options.create = true;
/// # let pool = tembo_pool::Pool::open(dir.path().join("example.pool"), &options)?;
/// use tembo_index::VersionedTree;
/// let (from, to) = (VersionedTree::create(&pool, "from")?, VersionedTree::create(&pool, "to")?);
/// from.put(b"coin", b"1")?;
/// let mut lane = pool.lane()?;
/// let mut tx = lane.begin();
/// let (mut of_from, mut of_to) = (from.part()?, to.part()?);
/// of_from.remove(&mut tx, 0, b"coin")?;
/// of_to.put(&mut tx, 0, b"coin", &[b"1"])?;
/// of_from.finish(&mut tx)?;
/// of_to.finish(&mut tx)?;
/// tx.commit()?;
/// of_from.show();
/// of_to.show();
/// assert_eq!((from.get(b"coin")?, to.get(b"coin")?), (None, Some(b"1".to_vec())));
/// # Ok(())
/// # }
/// ```
pub struct VersionedPart {
    shared: Arc<Shared>,
    writing: ArcMutexGuard<RawMutex, Writing<TreeStructure>>,
    builder: Option<Box<TreeBuilder>>,
    /// The finished version, and its builder.
    finished: Option<(Version, Box<TreeBuilder>)>,
}

impl VersionedTree {
    /// Waits for the tree's writer, and begins a part.
    ///
    /// Threads that wait for several trees, or for other writers, must all do so in the same order.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool is open for reading only, or the head of the tree is damaged.
    pub fn part(&self) -> Result<VersionedPart> {
        self.begin_part(0)
    }

    /// As [`part`](Self::part), for a batch of the thread `holder`
    /// ([`HeldHere::thread`](crate::HeldHere::thread)). Until the part is dropped, that thread gets an error
    /// if it asks for the tree's writer in any other way.
    ///
    /// # Errors
    ///
    /// As for [`part`](Self::part), and [`Error::WouldWait`].
    #[doc(hidden)]
    pub fn part_of_batch(&self, holder: usize) -> Result<VersionedPart> {
        self.begin_part(holder)
    }

    fn begin_part(&self, holder: usize) -> Result<VersionedPart> {
        self.expect_other()?;
        let shared = self.shared.clone();
        let mut writing = self.writer.lock_arc();
        if writing.lane.is_none() {
            return Err(tembo_pool::ErrorKind::ReadOnly.into());
        }
        let builder = Some(TreeBuilder::begin(&shared, &mut writing.spare)?);
        shared.batch_thread.store(holder, Ordering::Relaxed);
        Ok(VersionedPart { shared, writing, builder, finished: None })
    }
}

impl VersionedPart {
    /// Whether this is a part of the tree.
    #[inline]
    pub fn is_of(&self, tree: &VersionedTree) -> bool {
        Arc::ptr_eq(&self.shared, &tree.shared)
    }

    fn builder(&self) -> Result<&TreeBuilder> {
        self.builder.as_deref().ok_or(Error::Abandoned)
    }

    fn change<T>(
        &mut self,
        tx: &mut Tx<'_>,
        savepoint: u64,
        body: impl FnOnce(&mut TreeBuilder, &mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.builder.as_mut().ok_or(Error::Abandoned)?.attempt(tx, savepoint, body)
    }

    /// The value of a key, with the changes so far. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the tree is damaged on the path to the key; [`Error::Abandoned`] after
    /// [`finish`](Self::finish). The same holds for all methods below.
    pub fn get<'t>(&'t self, tx: &'t Tx<'_>, key: &[u8]) -> Result<Option<&'t [u8]>> {
        self.builder()?.value_of(tx, key)
    }

    /// How many keys there are, with the changes so far. O(1).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn len(&self) -> Result<u64> {
        Ok(self.builder()?.length)
    }

    /// Whether there are no keys, with the changes so far. O(1).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Puts a key, with a value in parts that are written one after the other; returns whether it was
    /// there. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::Pool`] when the pool is full. The same holds
    /// for all changes.
    pub fn put(&mut self, tx: &mut Tx<'_>, savepoint: u64, key: &[u8], value: &[&[u8]]) -> Result<bool> {
        let joined;
        let value = match value {
            [only] => only,
            parts => {
                joined = parts.concat();
                &joined[..]
            }
        };
        check_lengths(key, &[value])?;
        self.change(tx, savepoint, |builder, tx| builder.put(tx, key, value))
    }

    /// Puts a key if it is absent; returns whether it was. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn insert(&mut self, tx: &mut Tx<'_>, savepoint: u64, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(tx, savepoint, |builder, tx| builder.insert(tx, key, value))
    }

    /// Replaces the value of a key if the key exists; returns whether it does. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update(&mut self, tx: &mut Tx<'_>, savepoint: u64, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(tx, savepoint, |builder, tx| builder.update(tx, key, value))
    }

    /// Replaces the value of a key by `new` if it is `expected`; returns whether it was. `None` stands for an
    /// absent key. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn compare_and_swap(
        &mut self,
        tx: &mut Tx<'_>,
        savepoint: u64,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.change(tx, savepoint, |builder, tx| builder.compare_and_swap(tx, key, expected, new))
    }

    /// Replaces the value of a key by the result of `change`, which gets the present value; returns whether
    /// the key was there. `None` stands for an absent key. If `change` panics, nothing has changed. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn modify<V: AsRef<[u8]>>(
        &mut self,
        tx: &mut Tx<'_>,
        savepoint: u64,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<bool> {
        // `change` may panic, so it is called before anything is changed.
        let fate = change(self.builder()?.value_of(tx, key)?).map_or(KeyEdit::Remove, KeyEdit::Put);
        self.change(tx, savepoint, |builder, tx| builder.decide(tx, key, |_| fate))
    }

    /// Removes a key; returns whether it was there. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove(&mut self, tx: &mut Tx<'_>, savepoint: u64, key: &[u8]) -> Result<bool> {
        self.change(tx, savepoint, |builder, tx| builder.remove(tx, key))
    }

    /// Removes the least key; returns it with its value. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn pop_first(&mut self, tx: &mut Tx<'_>, savepoint: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.change(tx, savepoint, |builder, tx| builder.pop(tx, End::First))
    }

    /// Removes the greatest key; returns it with its value. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn pop_last(&mut self, tx: &mut Tx<'_>, savepoint: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.change(tx, savepoint, |builder, tx| builder.pop(tx, End::Last))
    }

    /// Removes the keys in a range; returns how many.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove_range<K: AsRef<[u8]>>(
        &mut self,
        tx: &mut Tx<'_>,
        savepoint: u64,
        range: impl RangeBounds<K>,
    ) -> Result<u64> {
        let Some(rest) = Rest::of(range) else { return Ok(0) };
        let (removed, _) =
            self.change(tx, savepoint, |builder, tx| builder.remove_some(tx, rest, usize::MAX))?;
        Ok(removed)
    }

    /// Removes everything, in time that does not depend on the size of the tree.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn clear(&mut self, tx: &mut Tx<'_>, savepoint: u64) -> Result<()> {
        self.change(tx, savepoint, |builder, tx| builder.clear(tx))
    }

    /// Makes the version look at `steps` more dead blocks and free those that no held version needs; returns
    /// whether there are more.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn reclaim(&mut self, tx: &mut Tx<'_>, savepoint: u64, steps: usize) -> Result<bool> {
        let young = QueueWords::load(region(tx), self.shared.header + at!(PmVersionedHead.young))?;
        self.change(tx, savepoint, |builder, _| {
            builder.more_steps = builder.more_steps.saturating_add(steps);
            Ok((builder.more_steps as u64) < young.count)
        })
    }

    /// Roughly the number of words that this part takes in the transaction's redo record.
    pub fn pending_words(&self) -> usize {
        self.builder.as_ref().map_or(0, |builder| {
            8 * builder.drafts.nodes.len() + 2 * builder.drafts.touched.len() + 3 * builder.dead.len()
        })
    }

    /// Undoes all changes since a savepoint: those that got its number or a greater one. The caller rolls
    /// back the transaction itself.
    pub fn roll_back_to(&mut self, savepoint: u64) {
        if let Some(builder) = &mut self.builder {
            builder.roll_back_to(savepoint);
        }
    }

    /// Makes the version part of the transaction. No changes are possible afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool is full or damaged. The transaction must then be dropped, and before the
    /// part, which keeps other writers away.
    pub fn finish(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        debug_assert!(std::ptr::eq(region(tx), self.shared.region()), "a transaction of another pool");
        let mut builder = self.builder.take().ok_or(Error::Abandoned)?;
        let scan: &mut OldScan = &mut self.writing.scan;
        self.finished = builder.finish(tx, scan)?.map(|version| (version, builder));
        Ok(())
    }

    /// Makes the version the newest one, and lets other writers go on. The version is durable.
    pub fn show(mut self) {
        if let Some((version, builder)) = self.finished.take() {
            self.shared.show(version, &builder.deferred);
            builder.leave(&mut self.writing.spare);
        }
    }
}

impl Drop for VersionedPart {
    fn drop(&mut self) {
        // Other writers get the lock when the fields are dropped, so this store comes first.
        self.shared.batch_thread.store(0, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for VersionedPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionedPart").field("header", &self.shared.header).finish_non_exhaustive()
    }
}
