//! An ordered map of 8-byte keys and values.

use crate::open_trees::{OpenEntry, TreeHandle};
use crate::{Pool, Result};
use std::ops::RangeBounds;
use std::sync::Arc;
use tembo_index::{Records, U64Range, U64Tree};

/// An ordered map from `u64` to `u64`, kept in a [`Pool`], for any number of readers and writers at once.
/// Cheap to clone; all clones are the same map.
///
/// Every change is durable, in the pool's domain, when its call returns, and costs one cache line and one
/// fence. A [`Batch`](crate::Batch) cannot include it: it groups changes of [`Map`](crate::Map)s only.
/// Readers see nothing that a crash could take back. All keys and values are allowed, including zero and
/// [`u64::MAX`].
///
/// Lookups never wait. [`scan`](Self::scan), [`range`](Self::range), [`first`](Self::first),
/// [`last`](Self::last) and [`count`](Self::count) read groups of records as of one moment, and read a group
/// again if writers changed it meanwhile. After several attempts they make writers wait, and wait for changes
/// under way.
///
/// A change takes effect between its call and its return, and a thread that synchronises with its thread
/// after the call sees it. But if two threads each change one key and then read the other's, both may find
/// the old value, unless a lock, a message, or a sequentially consistent fence in both orders them.
///
/// Keys are in the order of integers; other keys of 8 bytes keep theirs as [`u64::from_be_bytes`].
///
/// ```
/// # fn main() -> Result<(), tembo::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
/// let squares = pool.open_fixed_map("squares")?;
/// std::thread::scope(|scope| {
///     for start in [0, 1] {
///         let squares = &squares;
///         scope.spawn(move || (start..100).step_by(2).try_for_each(|i| squares.put(i, i * i).map(drop)));
///     }
/// });
/// assert_eq!(squares.get(12)?, Some(144));
/// assert!(!squares.insert(12, 0)?, "present already");
/// assert_eq!(squares.compare_and_swap(12, 144, 145)?, Some(144));
/// assert_eq!(squares.range(12..14).collect::<Result<Vec<_>, _>>()?, [(12, 145), (13, 169)]);
/// assert_eq!(squares.remove(12)?, Some(145));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FixedMap {
    pub(crate) tree: TreeHandle<U64Tree>,
}

impl FixedMap {
    /// The pool that the map is kept in.
    pub fn pool(&self) -> &Pool {
        self.tree.pool()
    }

    /// The value of `key`. O(log n), and no store to memory that other threads see.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged, or its device failed. The same holds for
    /// all reads.
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.tree.get(key)?)
    }

    /// Whether the map has `key`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn contains_key(&self, key: u64) -> Result<bool> {
        Ok(self.tree.contains(key)?)
    }

    /// Gives `key` a value; returns the previous value.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full), [`Error::ReadOnly`](crate::Error::ReadOnly), and
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged or its device failed. After a failure of
    /// the device the outcome is unknown until the pool is opened again; otherwise nothing was changed.
    #[inline]
    pub fn put(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.tree.pool().with_room(|| Ok(self.tree.put(key, value)?))
    }

    /// Gives `key` a value if it has none; returns whether it did.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    #[inline]
    pub fn insert(&self, key: u64, value: u64) -> Result<bool> {
        self.tree.pool().with_room(|| Ok(self.tree.insert(key, value)?))
    }

    /// Gives `key` another value if it has one; returns the previous value.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    #[inline]
    pub fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        Ok(self.tree.update(key, value)?)
    }

    /// Gives `key` another value if it has the value `expected`; returns the previous value. The exchange was
    /// made if that is `Some(expected)`.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    #[inline]
    pub fn compare_and_swap(&self, key: u64, expected: u64, value: u64) -> Result<Option<u64>> {
        Ok(self.tree.compare_and_swap(key, expected, value)?)
    }

    /// Removes `key`; returns its value.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    #[inline]
    pub fn remove(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.tree.remove(key)?)
    }

    /// Removes the records whose keys lie in `bounds`, one by one, each durably; returns how many.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put); some records may have been removed by then.
    pub fn remove_range(&self, bounds: impl RangeBounds<u64>) -> Result<u64> {
        Ok(self.tree.remove_range(bounds)?)
    }

    /// Appends the first `limit` records from the key `from` on, in ascending order, all as of one moment. A
    /// scan that writers keep disturbing makes them wait, and waits for changes under way. That rarely
    /// happens to [`range`](Self::range), which reads as of one moment only some dozens of records at a time.
    ///
    /// The records go into a vector, or into any [`Records`], such as a buffer of the caller.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get); [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the process has no
    /// memory for them. Nothing is appended then.
    pub fn scan(&self, from: u64, limit: usize, records: &mut impl Records) -> Result<()> {
        Ok(self.tree.scan(from, limit, records)?)
    }

    /// As [`scan`](Self::scan), in descending order.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn scan_back(&self, from: u64, limit: usize, records: &mut impl Records) -> Result<()> {
        Ok(self.tree.scan_back(from, limit, records)?)
    }

    /// The records whose keys lie in `bounds`, in order, from both ends. They are fetched some dozens at a
    /// time, each group as it was at one moment.
    pub fn range(&self, bounds: impl RangeBounds<u64>) -> FixedIter {
        FixedIter { range: self.tree.range(bounds), _entry: self.tree.entry().clone() }
    }

    /// All records in order of their keys, from both ends.
    pub fn iter(&self) -> FixedIter {
        FixedIter { range: self.tree.iter(), _entry: self.tree.entry().clone() }
    }

    /// The record with the smallest key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn first(&self) -> Result<Option<(u64, u64)>> {
        Ok(self.tree.first()?)
    }

    /// The record with the largest key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn last(&self) -> Result<Option<(u64, u64)>> {
        Ok(self.tree.last()?)
    }

    /// The number of records. Reads the whole map.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn count(&self) -> Result<u64> {
        Ok(self.tree.count()?)
    }
}

/// Records of a [`FixedMap`] in order of their keys, from both ends.
#[derive(Debug)]
pub struct FixedIter {
    // The fields are dropped in this order, as in `FixedMap`.
    range: U64Range,
    _entry: Arc<OpenEntry<U64Tree>>,
}

impl Iterator for FixedIter {
    type Item = Result<(u64, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.range.next().map(|record| Ok(record?))
    }
}

impl DoubleEndedIterator for FixedIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_back().map(|record| Ok(record?))
    }
}

impl std::iter::FusedIterator for FixedIter {}
