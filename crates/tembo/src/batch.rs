//! Groups of changes that become durable together.

use crate::{Map, Result};
use std::ops::RangeBounds;
use tembo_index::Writers;
use tembo_pool::{Savepoint, Tx};

/// A group of changes to any maps of a pool: after a crash all of them are there or none, and they share a
/// fence.
///
/// A batch is alone with the pool's [`Map`]s as long as it lives: others who write to them wait. It sees its own changes;
/// others see them after the commit. Dropping it takes them back.
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
    pub(crate) tx: Tx<'p>,
    pub(crate) writers: &'p Writers,
}

impl Batch<'_> {
    /// The value of `key` as this batch sees it.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    #[inline]
    pub fn get<'b>(&'b self, map: &'b Map, key: &[u8]) -> Result<Option<&'b [u8]>> {
        Ok(map.tree.get_in(&self.tx, key)?)
    }

    /// A hint that `keys` will be read or written soon: asks the memory for what that will touch, for all of them
    /// at once. Pays for maps that are larger than the processor's cache, from a few keys on. At most
    /// [`PREFETCH_KEYS_MAX`](crate::PREFETCH_KEYS_MAX) keys are looked at.
    #[inline]
    pub fn prefetch<'k>(&self, map: &Map, keys: impl IntoIterator<Item = &'k [u8]>) {
        map.tree.prefetch(&self.tx, keys);
    }

    /// Gives `key` a value; returns whether it had one before. A failure leaves the batch as it was.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`].
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
        Ok(map.tree.put(&mut self.tx, key, value)?)
    }

    /// Gives `key` a value if it has none; returns whether that was so. A failure leaves the batch as it was.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`].
    pub fn insert(&mut self, map: &Map, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(map.tree.insert(&mut self.tx, key, value)?)
    }

    /// Gives `key` another value if it has one; returns whether that was so. A failure leaves the batch as it was.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`].
    pub fn update(&mut self, map: &Map, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(map.tree.update(&mut self.tx, key, value)?)
    }

    /// As [`Map::compare_and_swap`]. A failure leaves the batch as it was.
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
        Ok(map.tree.compare_and_swap(&mut self.tx, key, expected, new)?)
    }

    /// As [`Map::modify`]. A failure, or a panic of `change`, leaves the batch as it was.
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
        Ok(map.tree.modify(&mut self.tx, key, change)?)
    }

    /// Removes `key`; returns whether it was there. A failure leaves the batch as it was.
    ///
    /// # Errors
    ///
    /// As for [`Map::remove`].
    pub fn remove(&mut self, map: &Map, key: &[u8]) -> Result<bool> {
        Ok(map.tree.remove(&mut self.tx, key)?)
    }

    /// Removes the record with the smallest key; returns its key and value. A failure leaves the batch as it was.
    ///
    /// # Errors
    ///
    /// As for [`Map::remove`].
    pub fn pop_first(&mut self, map: &Map) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        Ok(map.tree.pop_first(&mut self.tx)?)
    }

    /// Removes the record with the largest key; returns its key and value. A failure leaves the batch as it was.
    ///
    /// # Errors
    ///
    /// As for [`Map::remove`].
    pub fn pop_last(&mut self, map: &Map) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        Ok(map.tree.pop_last(&mut self.tx)?)
    }

    /// Removes the records whose keys lie in `bounds`; returns how many. All of them are part of the batch, whose
    /// record grows with them: [`Map::remove_range`] is for ranges of any size. A failure leaves the batch as it was.
    ///
    /// # Errors
    ///
    /// As for [`Map::remove`].
    pub fn remove_range<K: AsRef<[u8]>>(&mut self, map: &Map, bounds: impl RangeBounds<K>) -> Result<u64> {
        Ok(map.tree.remove_range(&mut self.tx, bounds)?)
    }

    /// Removes everything from the map.
    ///
    /// # Errors
    ///
    /// As for [`Map::clear`].
    pub fn clear(&mut self, map: &Map) -> Result<()> {
        Ok(map.tree.clear(&mut self.tx)?)
    }

    /// Frees some of the space of what was cleared from the map, in up to `steps` small steps; returns whether
    /// there is more to free.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn reclaim(&mut self, map: &Map, steps: usize) -> Result<bool> {
        Ok(map.tree.reclaim(&mut self.tx, steps)?)
    }

    /// How many records the map has, as this batch sees it.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn len(&self, map: &Map) -> Result<u64> {
        Ok(map.tree.len_in(&self.tx)?)
    }

    /// A point to which [`rollback_to`](Self::rollback_to) goes back.
    pub fn savepoint(&self) -> Savepoint {
        self.tx.savepoint()
    }

    /// Takes back everything since the savepoint, which must be of this batch.
    pub fn rollback_to(&mut self, to: Savepoint) {
        self.tx.rollback_to(to);
    }

    /// How many words the record of this batch will hold so far, roughly. Beyond about a thousand, it pays to
    /// commit and begin another.
    pub fn pending_words(&self) -> usize {
        self.tx.pending_words()
    }

    /// Makes the changes durable, then visible.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if a large group finds no room for its record (nothing is changed
    /// then); [`Error::Pool`](crate::Error::Pool) if the device fails.
    pub fn commit(self) -> Result<()> {
        Ok(self.writers.commit(self.tx)?)
    }
}
