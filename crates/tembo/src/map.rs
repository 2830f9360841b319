//! An ordered map.

use crate::{Pool, Result};
use std::ops::RangeBounds;
use tembo_index::{Entry, Range, Value, WbTree};

/// An ordered map from byte strings to byte strings, kept in a [`Pool`]. Cheap to clone; all clones are the same
/// map.
///
/// Keys have up to 64 KiB, values up to 512 MiB. Readers never wait, see only what is durable, and read keys
/// and values in place. Every write is durable, in the pool's domain, when its call returns; to share a fence
/// between many, use a [`Batch`](crate::Batch).
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
    /// [`Error::ValueTooLong`](crate::Error::ValueTooLong), [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let mut tx = self.pool.shared.writer()?.begin();
        let replaced = self.tree.put(&mut tx, key.as_ref(), &[value.as_ref()])?;
        tx.commit()?;
        Ok(replaced)
    }

    /// Removes `key`; returns whether it was there.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), [`Error::Pool`](crate::Error::Pool).
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let mut tx = self.pool.shared.writer()?.begin();
        let removed = self.tree.remove(&mut tx, key.as_ref())?;
        tx.commit()?;
        Ok(removed)
    }

    /// Removes everything, at once for readers and for crashes; the space is given back bit by bit by later
    /// writes.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), [`Error::Pool`](crate::Error::Pool).
    pub fn clear(&self) -> Result<()> {
        let mut tx = self.pool.shared.writer()?.begin();
        self.tree.clear(&mut tx)?;
        Ok(tx.commit()?)
    }

    /// How many records there are. O(1).
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
        Ok(self.len()? == 0)
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
