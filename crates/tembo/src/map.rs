//! An ordered map.

use crate::{Pool, Result};
use std::ops::RangeBounds;
use tembo_index::{Beside, Entry, Range, Value, WbTree};
use tembo_pool::Tx;

/// An ordered map from byte strings to byte strings, kept in a [`Pool`]. Cheap to clone; all clones are the same
/// map.
///
/// Keys have up to 64 KiB, values up to 512 MiB. Readers never wait, see only what is durable, and read keys
/// and values in place. Every write is durable, in the pool's domain, when its call returns; to share a fence
/// between many, use a [`Batch`](crate::Batch).
///
/// Any number of threads may write. Changes of single keys go on at the same time, as if they were made one after the
/// other: they wait only for those in the same few keys, or for each other where keys have to be arranged anew, which is
/// about every 14th insertion. [`clear`](Self::clear), [`pop_first`](Self::pop_first), [`pop_last`](Self::pop_last),
/// [`remove_range`](Self::remove_range) and batches wait until they are alone, and all others wait for them. Threads that often meet
/// take more of the pool's lanes, up to one per processor, half of the pool's, or 16.
///
/// ```
/// # fn main() -> Result<(), tembo::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
/// let stock = pool.open_map("stock")?;
/// assert!(stock.insert("apples", "12")?);
/// assert!(!stock.insert("apples", "0")?, "present already");
/// assert!(stock.compare_and_swap("apples", Some(b"12"), Some(b"11"))?);
/// stock.modify("pears", |old| Some([old.unwrap_or_default(), b"I"].concat()))?;
///
/// let mut cursor = stock.cursor();
/// assert!(cursor.seek("b")?);
/// assert_eq!((cursor.key(), cursor.value()), (Some(&b"pears"[..]), Some(&b"I"[..])));
/// assert!(cursor.prev()?);
/// assert_eq!(cursor.key(), Some(&b"apples"[..]));
/// assert_eq!(stock.remove_range("a".."b")?, 1);
/// assert_eq!(stock.pop_last()?, Some((b"pears".to_vec(), b"I".to_vec())));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Map {
    pub(crate) tree: WbTree,
    pub(crate) pool: Pool,
}

impl Map {
    /// The value of `key`, in place. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged. So for all reads.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        Ok(self.tree.get_pinned(key.as_ref())?)
    }

    /// Whether the map has `key`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Gives `key` a value; returns whether it had one before.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full), [`Error::KeyTooLong`](crate::Error::KeyTooLong),
    /// [`Error::ValueTooLong`](crate::Error::ValueTooLong), [`Error::ReadOnly`](crate::Error::ReadOnly), and
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged or its device failed. After a failure of the device
    /// the outcome is unknown until the pool is opened again; otherwise nothing was changed.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.beside()?.put(key.as_ref(), &[value.as_ref()])?)
    }

    /// Gives `key` a value if it has none; returns whether that was so. If not, it costs no more than a
    /// [`get`](Self::get), apart from waiting for the turn to write.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.beside()?.insert(key.as_ref(), value.as_ref())?)
    }

    /// Gives `key` another value if it has one; returns whether that was so.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.beside()?.update(key.as_ref(), value.as_ref())?)
    }

    /// Gives `key` the value `new` if it has the `expected` one; returns whether that was so. `None` stands for no record:
    /// expected, it makes this an insertion, and new, a removal.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        Ok(self.beside()?.compare_and_swap(key.as_ref(), expected, new)?)
    }

    /// Gives `key` the value that `change` makes of the one it has; returns whether it had one. `None` stands for no
    /// record: given, `key` is absent, and returned, it is removed, or stays absent. Nobody else writes to the key in between.
    ///
    /// `change` is called exactly once, as a writer of the pool: it may read, but must not write to a [`Map`], begin a batch or
    /// open a map of the pool, which could wait forever. If it panics, nothing has changed. A value that stays the same
    /// is not written again.
    ///
    /// ```
    /// # fn main() -> Result<(), tembo::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
    /// let visits = pool.open_map("visits")?;
    /// for name in ["alice", "bob", "alice"] {
    ///     visits.modify(name, |count| {
    ///         let count = count.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    ///         Some((count + 1).to_le_bytes())
    ///     })?;
    /// }
    /// assert_eq!(visits.get("alice")?.as_deref(), Some(&2u64.to_le_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn modify<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<bool> {
        Ok(self.beside()?.modify(key.as_ref(), change)?)
    }

    /// Removes `key`; returns whether it was there. Needs no space: it works in a full pool too. So for all removals.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), and [`Error::Pool`](crate::Error::Pool) as for [`put`](Self::put).
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.beside()?.remove(key.as_ref())?)
    }

    /// Removes the record with the smallest key; returns its key and value.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    pub fn pop_first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.alone(|tx| self.tree.pop_first(tx))
    }

    /// Removes the record with the largest key; returns its key and value.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    pub fn pop_last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.alone(|tx| self.tree.pop_last(tx))
    }

    /// Removes the records whose keys lie in `bounds`; returns how many.
    ///
    /// They are removed in the order of their keys, in groups of some dozens, each by a transaction of its own. So the
    /// range may have any size, and the whole is **not** atomic: after a crash or an error the records up to some key are
    /// gone, and those from there on are all there. All are gone, durably, when this returns. Others may write between two
    /// groups, and what they put into the range is removed or not. [`Batch::remove_range`](crate::Batch::remove_range) is
    /// atomic, and [`clear`](Self::clear) removes everything at once.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove); some records may have been removed by then.
    pub fn remove_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<u64> {
        let writers = self.pool.shared.writers()?;
        Ok(self.tree.remove_range_in_groups(bounds, || writers.begin())?)
    }

    /// Removes everything, at once for readers and for crashes; the space is given back bit by bit by later
    /// writes.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    pub fn clear(&self) -> Result<()> {
        self.alone(|tx| self.tree.clear(tx))
    }

    /// The map for changes of one record.
    #[inline]
    fn beside(&self) -> Result<Beside<'_>> {
        Ok(self.tree.beside(self.pool.shared.writers()?))
    }

    /// Makes a change while nobody else writes.
    #[inline]
    fn alone<T>(&self, change: impl FnOnce(&mut Tx<'_>) -> tembo_index::Result<T>) -> Result<T> {
        let mut tx = self.pool.shared.writers()?.begin();
        let outcome = change(&mut tx)?;
        tx.commit()?;
        Ok(outcome)
    }

    /// How many records there are. O(1).
    ///
    /// Records that several threads put and remove at this moment count or not, each by itself, so that the number may be one
    /// that never was; otherwise it is exact.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn len(&self) -> Result<u64> {
        Ok(self.tree.len()?)
    }

    /// Whether there are none.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.tree.is_empty()?)
    }

    /// The record with the smallest key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn first(&self) -> Result<Option<Entry<'_>>> {
        Ok(self.tree.first()?)
    }

    /// The record with the largest key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn last(&self) -> Result<Option<Entry<'_>>> {
        Ok(self.tree.last()?)
    }

    /// All records in order of their keys, from both ends.
    pub fn iter(&self) -> Iter<'_> {
        Iter { range: self.tree.iter() }
    }

    /// The records whose keys lie in `bounds`, in order, from both ends. Weakly consistent: a record that is
    /// there all the while is met exactly once, one that comes or goes meanwhile is met or not.
    ///
    /// ```
    /// # fn main() -> Result<(), tembo::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
    /// let map = pool.open_map("fruit")?;
    /// for fruit in ["apple", "banana", "cherry"] {
    ///     map.put(fruit, "")?;
    /// }
    /// let last = map.range("b"..).next_back().unwrap()?;
    /// assert_eq!(last.key(), b"cherry");
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Iter<'_> {
        Iter { range: self.tree.range(bounds) }
    }

    /// The records whose keys begin with `prefix`, in order, from both ends.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter<'_> {
        Iter { range: self.tree.prefix(prefix.as_ref()) }
    }

    /// The first `limit` records whose keys lie in `bounds`, in order, copied as they were at one moment: of every change and
    /// of every [`Batch`](crate::Batch) there is all or nothing.
    ///
    /// It waits for nobody, and starts again when something in these records' leaves, or a batch, changed meanwhile. When that
    /// has happened some times, it makes the writers wait for one more try. In the middle
    /// of [`modify`](Self::modify), too, it ends after at most one more change by each of the other threads.
    ///
    /// ```
    /// # fn main() -> Result<(), tembo::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
    /// let map = pool.open_map("fruit")?;
    /// for fruit in ["apple", "banana", "cherry"] {
    ///     map.put(fruit, "1")?;
    /// }
    /// assert_eq!(map.scan("b".., 1)?, [(b"banana".to_vec(), b"1".to_vec())]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get); and, where nothing was written yet, as for the first write: it takes a lane of the pool.
    pub fn scan<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let writers =
            if self.pool.shared.pool.is_read_only() { None } else { Some(self.pool.shared.writers()?) };
        Ok(self.tree.scan(writers, bounds, limit)?)
    }

    /// A cursor before the first record, which can be moved anywhere, in both directions.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { cursor: self.tree.cursor() }
    }
}

/// Records in order of their keys, from both ends.
pub struct Iter<'m> {
    range: Range<'m>,
}

impl<'m> Iterator for Iter<'m> {
    type Item = Result<Entry<'m>>;
    fn next(&mut self) -> Option<Self::Item> {
        self.range.next().map(|entry| Ok(entry?))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_back().map(|entry| Ok(entry?))
    }
}

/// A place among the records of a [`Map`]: at one of them, before the first, or after the last.
///
/// It sees the records of some dozens of neighbouring keys as they were when it came to them, and steps among these cost
/// next to nothing; other moves are O(log n). A record that is there all the while is not stepped over, one that comes or
/// goes meanwhile is met or not, and one that is removed stays readable while the cursor is at it.
///
/// At a record, it keeps memory that is freed meanwhile from being reused, so it should not rest there for long.
#[derive(Debug)]
pub struct Cursor<'m> {
    cursor: tembo_index::Cursor<'m>,
}

impl Cursor<'_> {
    /// Moves to the first record whose key is at least `key`, or after the last record; returns whether it is at a record.
    ///
    /// # Errors
    ///
    /// As for [`Map::get`]; the cursor is then at no record. So for all moves.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.cursor.seek(key.as_ref())?)
    }

    /// Moves to the last record whose key is at most `key`, or before the first record; returns whether it is at a record.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.cursor.seek_back(key.as_ref())?)
    }

    /// Moves to the first record; returns whether there is one.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_first(&mut self) -> Result<bool> {
        Ok(self.cursor.seek_first()?)
    }

    /// Moves to the last record; returns whether there is one.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_last(&mut self) -> Result<bool> {
        Ok(self.cursor.seek_last()?)
    }

    /// Moves to the next record, from before the first to the first, and from the last to after the last; returns whether it
    /// is at a record.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    #[expect(clippy::should_implement_trait, reason = "it goes back as well, and lends its records")]
    pub fn next(&mut self) -> Result<bool> {
        Ok(self.cursor.next()?)
    }

    /// Moves to the record before this one, from after the last to the last, and from the first to before the first; returns
    /// whether it is at a record.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn prev(&mut self) -> Result<bool> {
        Ok(self.cursor.prev()?)
    }

    /// The key of the record at which the cursor is.
    pub fn key(&self) -> Option<&[u8]> {
        self.cursor.key()
    }

    /// The value of the record at which the cursor is.
    pub fn value(&self) -> Option<&[u8]> {
        self.cursor.value()
    }
}
