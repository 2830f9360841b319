//! An unordered map.

use crate::open_trees::TreeHandle;
use crate::records::{EntryKind, ValueKind};
use crate::{Change, Entry, Error, KeptSnapshot, Pool, PoolErrorKind, Result, Value, VersionsStats};
use std::iter::FusedIterator;
use tembo_index::{
    Error as IndexError, HashStructure, VersionedBatch, VersionedHash, VersionedHashIter, VersionedSnapshot,
};

/// An unordered map from byte strings to byte strings, kept in a [`Pool`], with snapshots. Cheap to clone;
/// all clones are the same table.
///
/// Keys have up to 64 KiB, values up to 512 MiB. Every change is durable, in the pool's domain, when its call
/// returns. There is one writer at a time: every change makes a version of the table, and the changes of
/// waiting threads become one version, with one fence. Readers take no lock and never wait.
///
/// A lookup takes fewer steps than in a [`Map`](crate::Map) and compares no keys on the way down. A change
/// copies all nodes on the way down, and so writes more. For an order, ranges, or one [`Batch`](crate::Batch)
/// over several maps, use a map that [keeps versions](crate::MapOptions::versioned).
///
/// ```
/// # fn main() -> Result<(), tembo::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
/// let sessions = pool.open_hash_table("sessions")?;
/// sessions.put("4711", "logged in")?;
/// let before = sessions.snapshot();
/// sessions.batch(|batch| {
///     batch.put("4711", "logged out")?;
///     batch.put("4712", "logged in")
/// })?;
/// assert_eq!(sessions.get("4711")?.as_deref(), Some(&b"logged out"[..]));
/// assert_eq!(before.get("4711")?.as_deref(), Some(&b"logged in"[..]));
/// for entry in sessions.snapshot().iter() {
///     let entry = entry?;
///     println!("{} is {}", entry.key().escape_ascii(), entry.value().escape_ascii());
/// }
/// sessions.rollback_to(&before)?;
/// assert_eq!(sessions.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HashTable {
    pub(crate) table: TreeHandle<VersionedHash>,
}

/// A version of a [`HashTable`], readable as long as this, or a clone of it, lives; and, after
/// [`keep`](Self::keep), by its name until that is [dropped](HashTable::drop_snapshot). It is taken in
/// constant time, and holds space as a [`Snapshot`](crate::Snapshot) does.
#[derive(Clone, Debug)]
pub struct TableSnapshot {
    // The fields are dropped in this order: the table stays open as long as its version is held.
    snapshot: VersionedSnapshot<HashStructure>,
    table: TreeHandle<VersionedHash>,
}

/// Changes of a [`HashTable`] that become one version ([`HashTable::batch`]).
#[derive(Debug)]
pub struct TableBatch<'b, 'w, 'l>(&'b mut VersionedBatch<'w, 'l, HashStructure>);

/// The records of a [`TableSnapshot`], in an arbitrary order. It ends after an error.
pub struct TableIter<'s>(VersionedHashIter<'s>);

impl HashTable {
    /// The pool that the table is kept in.
    pub fn pool(&self) -> &Pool {
        self.table.pool()
    }

    /// The value of `key`. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged. The same holds for all reads.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        Ok(self.table.get_pinned(key.as_ref())?.map(|value| Value(ValueKind::Newest(value))))
    }

    /// Whether the table has `key`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The number of records. O(1).
    pub fn len(&self) -> u64 {
        self.table.len()
    }

    /// Whether there are no records. O(1).
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Gives `key` a value; returns whether it had one before.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::ReadOnly`], and
    /// [`Error::Pool`] if the pool is damaged or its device failed. After a failure of the device the outcome
    /// is unknown until the pool is opened again; otherwise nothing was changed.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.pool().with_room(|| Ok(self.table.put(key, value)?))
    }

    /// Gives `key` a value if it has none; returns whether it did.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.pool().with_room(|| Ok(self.table.insert(key, value)?))
    }

    /// Gives `key` another value if it has one; returns whether it did.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.pool().with_room(|| Ok(self.table.update(key, value)?))
    }

    /// Gives `key` the value `new` if it has the value `expected`; returns whether it did. `None` stands for
    /// no record: as `expected` it makes this an insertion, as `new` a removal.
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
        let key = key.as_ref();
        self.pool().with_room(|| Ok(self.table.compare_and_swap(key, expected, new)?))
    }

    /// Gives `key` the value that `change` returns for its present one, where `None` stands for no record;
    /// returns whether it had one.
    ///
    /// `change` is called exactly once. It may read. If it writes to the table, that fails with
    /// [`Error::WouldWait`]. If it panics, nothing has changed.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn modify<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<bool> {
        Ok(self.table.modify(key.as_ref(), change)?)
    }

    /// Removes `key`; returns whether it was there. It works in a full pool too, as
    /// [`Map::remove`](crate::Map::remove) says.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.table.remove(key.as_ref())?)
    }

    /// Removes everything, atomically for readers and crashes. Later changes free the space step by step,
    /// except for records that a snapshot holds.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn clear(&self) -> Result<()> {
        Ok(self.table.clear()?)
    }

    /// Makes the changes of `body` one version: all of them are durable when this returns, with one fence
    /// (two for more than 2 KiB of new data), or none of them is made. Other writers wait meanwhile. Changes
    /// that `body` makes to the table without the batch fail with [`Error::WouldWait`].
    ///
    /// # Errors
    ///
    /// The error of `body`, after which nothing has changed; and as for [`put`](Self::put).
    pub fn batch<T>(&self, body: impl FnOnce(&mut TableBatch<'_, '_, '_>) -> Result<T>) -> Result<T> {
        let mut failure = None;
        let outcome = self.table.batch(|batch| {
            body(&mut TableBatch(batch)).map_err(|error| {
                // If there was no space, dead blocks are freed for the next batch.
                let reason = match &error {
                    Error::Full { needed_bytes, why } => {
                        PoolErrorKind::Full { needed_bytes: *needed_bytes, why: why.clone() }.into()
                    }
                    _ => IndexError::Abandoned,
                };
                failure = Some(error);
                reason
            })
        });
        outcome.map_err(|error| failure.unwrap_or_else(|| error.into()))
    }

    /// Holds the table as it is now. O(1), no store to the pool.
    pub fn snapshot(&self) -> TableSnapshot {
        self.held(self.table.snapshot())
    }

    /// Holds a version by its number: the newest, or one that another snapshot holds already.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] with [`NoSuchVersion`](crate::IndexError::NoSuchVersion) if none does.
    pub fn snapshot_at(&self, version: u64) -> Result<TableSnapshot> {
        Ok(self.held(self.table.snapshot_at(version)?))
    }

    fn held(&self, snapshot: VersionedSnapshot<HashStructure>) -> TableSnapshot {
        TableSnapshot { snapshot, table: self.table.clone() }
    }

    /// The number of the newest version. Every change, or group of changes that became durable together, adds
    /// 1.
    pub fn version(&self) -> u64 {
        self.table.version()
    }

    /// The snapshots that have names, in the order in which they were kept.
    pub fn snapshots(&self) -> Vec<KeptSnapshot> {
        self.table.kept()
    }

    /// Opens the snapshot of this name. It stays readable when its name is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSnapshot`].
    pub fn open_snapshot(&self, name: &str) -> Result<TableSnapshot> {
        match self.table.kept_snapshot(name) {
            Some(snapshot) => Ok(self.held(snapshot)),
            None => Err(Error::NoSuchSnapshot { name: name.to_owned() }),
        }
    }

    /// Drops the snapshot of this name, durably; returns whether there was one. One fence.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn drop_snapshot(&self, name: &str) -> Result<bool> {
        Ok(self.table.drop_kept(name)?)
    }

    /// Gives the table the contents of a snapshot, atomically for readers and crashes; returns the number of
    /// the new version. As [`Map::rollback_to`](crate::Map::rollback_to).
    ///
    /// # Errors
    ///
    /// [`Error::ForeignSnapshot`], and as for [`put`](Self::put). Nothing has changed then.
    pub fn rollback_to(&self, snapshot: &TableSnapshot) -> Result<u64> {
        snapshot.expect_of(&self.table)?;
        Ok(self.table.rollback_to(snapshot.version())?)
    }

    /// Looks at up to about `budget` dead blocks and frees those that no snapshot has; returns whether there
    /// is more to do. As [`Map::collect`](crate::Map::collect).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put). Blocks that were freed by then stay free.
    pub fn collect(&self, budget: usize) -> Result<bool> {
        Ok(self.table.collect(budget)?)
    }

    /// The versions that are held, and the space that waits for them.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn version_stats(&self) -> Result<VersionsStats> {
        Ok(self.table.stats()?)
    }
}

impl TableSnapshot {
    /// The number of the version.
    pub fn version(&self) -> u64 {
        self.snapshot.version()
    }

    /// The number of records. O(1).
    pub fn len(&self) -> u64 {
        self.snapshot.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.snapshot.is_empty()
    }

    /// The value of `key`. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`HashTable::get`]. The same holds for all reads.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        Ok(self.snapshot.get(key.as_ref())?.map(|value| Value(ValueKind::Held(value))))
    }

    /// Whether the snapshot has `key`.
    ///
    /// # Errors
    ///
    /// As for [`HashTable::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// All records, in an arbitrary order. Versions of one table with the same keys have the same order,
    /// except for keys of equal hash.
    pub fn iter(&self) -> TableIter<'_> {
        TableIter(self.snapshot.iter())
    }

    /// Gives the snapshot a name (1 to 255 bytes). It then outlives this process, until
    /// [`HashTable::drop_snapshot`]. Durable on return; one fence.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::keep`](crate::Snapshot::keep).
    pub fn keep(&self, name: &str) -> Result<()> {
        Ok(self.table.keep(&self.snapshot, name)?)
    }

    /// The keys that differ between this snapshot and another of the same table, with both values. Either may
    /// be the later one. Takes time proportional to the number of keys that changed in between.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignSnapshot`], and as for [`HashTable::get`].
    pub fn diff(&self, to: &TableSnapshot) -> Result<Vec<Change>> {
        to.expect_of(&self.table)?;
        Ok(self.table.diff(self.version(), to.version())?)
    }

    fn expect_of(&self, table: &TreeHandle<VersionedHash>) -> Result<()> {
        if self.table.is_same(table) { Ok(()) } else { Err(Error::ForeignSnapshot) }
    }
}

impl TableBatch<'_, '_, '_> {
    /// Gives `key` a value; returns whether it had one.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`] and [`Error::ValueTooLong`], after which the batch can go on; and as for
    /// [`HashTable::put`], after which the batch cannot commit.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.0.put(key.as_ref(), value.as_ref())?)
    }

    /// Removes `key`; returns whether it was there.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.0.remove(key.as_ref())?)
    }

    /// Removes everything, in constant time.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn clear(&mut self) -> Result<()> {
        Ok(self.0.clear()?)
    }

    /// The value of `key`, with the changes of the batch so far.
    ///
    /// # Errors
    ///
    /// As for [`HashTable::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key.as_ref())?)
    }

    /// The number of records, with the changes of the batch so far.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are no records, with the changes of the batch so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'s> Iterator for TableIter<'s> {
    type Item = Result<Entry<'s>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.0.next()?;
        Some(entry.map(|entry| Entry(EntryKind::Held(entry))).map_err(Into::into))
    }
}

impl FusedIterator for TableIter<'_> {}

impl std::fmt::Debug for TableIter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableIter").finish_non_exhaustive()
    }
}
