//! An ordered map.

use crate::open_trees::TreeHandle;
use crate::plain_maps::Plain;
use crate::records::{CursorKind, EntryKind, IterKind, ValueKind};
use crate::{Cursor, Entry, Iter, Pool, Result, Value};
use std::ops::RangeBounds;
use tembo_index::{CompactionStep, ConcurrentWriter, Counting, VersionedTree, WbTree};
use tembo_pool::Tx;

/// An ordered map from byte strings to byte strings, kept in a [`Pool`]. Cheap to clone; all clones are the
/// same map.
///
/// Keys have up to 64 KiB, values up to 512 MiB. Readers see only durable changes, and read keys and values
/// in place; except for [`scan`](Self::scan), they never wait. Every write is durable, in the pool's domain,
/// when its call returns; to share a fence between many, use a [`Batch`](crate::Batch).
///
/// Any number of threads may write. Changes of single keys run concurrently, and take effect as if made one
/// after another. They wait only for changes in the same leaf of the tree, or where leaves are split or
/// joined, which about every 14th insertion does. [`clear`](Self::clear), [`pop_first`](Self::pop_first),
/// [`pop_last`](Self::pop_last), [`remove_range`](Self::remove_range) and batches exclude all other changes.
/// Threads that often contend take more of the pool's lanes: up to one per processor, half of the pool's, or
/// 16.
///
/// A map that was created [with versions](crate::MapOptions::versioned) has the same operations, and
/// [snapshots](Self::snapshot). It has one writer at a time: every change makes a version of the map, and the
/// changes of waiting threads become one version, with one fence. A walk, a [`scan`](Self::scan) or
/// [`len`](Self::len) reads one version and never starts again. Readers see only durable values, as in the
/// other kind.
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
    pub(crate) tree: Tree,
    pub(crate) pool: Pool,
}

/// The name, in errors, for the right to change a map.
const TURN: &str = "the turn to change a map";

/// The tree of a map.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Plain(Plain),
    Versioned(TreeHandle<VersionedTree>),
}

impl Map {
    /// The pool that the map is kept in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether both are handles of one map. Constant time.
    pub fn is_same(&self, other: &Map) -> bool {
        match (&self.tree, &other.tree) {
            (Tree::Plain(one), Tree::Plain(other)) => one.is_same(other),
            (Tree::Versioned(one), Tree::Versioned(other)) => one.is_same(other),
            _ => false,
        }
    }

    /// Whether the map keeps the versions that snapshots hold
    /// ([`MapOptions::versioned`](crate::MapOptions::versioned)).
    pub fn is_versioned(&self) -> bool {
        matches!(self.tree, Tree::Versioned(_))
    }

    /// The value of `key`, in place. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged. The same holds for all reads.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        Ok(match &self.tree {
            Tree::Plain(tree) => tree.get_pinned(key.as_ref())?.map(|value| Value(ValueKind::Plain(value))),
            Tree::Versioned(tree) => {
                tree.get_pinned(key.as_ref())?.map(|value| Value(ValueKind::Newest(value)))
            }
        })
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
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged or its device failed. After a failure of
    /// the device the outcome is unknown until the pool is opened again; otherwise nothing was changed.
    /// [`Error::WouldWait`](crate::Error::WouldWait) in a thread that would wait for itself: it has a
    /// [`Batch`](crate::Batch) that holds the map, or is in a closure that [`modify`](Self::modify) calls.
    /// The same holds for all changes.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.pool.with_room(|| {
            Ok(match &self.tree {
                Tree::Plain(tree) => self.concurrent(tree)?.put(key, &[value])?,
                Tree::Versioned(tree) => tree.put(key, value)?,
            })
        })
    }

    /// Gives `key` a value if it has none; returns whether it did. If not, it costs no more than a
    /// [`get`](Self::get), apart from waiting for the turn to write.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.pool.with_room(|| {
            Ok(match &self.tree {
                Tree::Plain(tree) => self.concurrent(tree)?.insert(key, value)?,
                Tree::Versioned(tree) => tree.insert(key, value)?,
            })
        })
    }

    /// Gives `key` another value if it has one; returns whether it did.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.pool.with_room(|| {
            Ok(match &self.tree {
                Tree::Plain(tree) => self.concurrent(tree)?.update(key, value)?,
                Tree::Versioned(tree) => tree.update(key, value)?,
            })
        })
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
        self.pool.with_room(|| {
            Ok(match &self.tree {
                Tree::Plain(tree) => self.concurrent(tree)?.compare_and_swap(key, expected, new)?,
                Tree::Versioned(tree) => tree.compare_and_swap(key, expected, new)?,
            })
        })
    }

    /// Gives `key` the value that `change` returns for its present one; returns whether it had one. `None`
    /// stands for no record: `change` gets it if `key` is absent, and returns it to remove `key` or leave it
    /// absent. No other thread writes to the key in between.
    ///
    /// `change` is called exactly once. It may read from the pool. If it writes to a [`Map`], begins a batch
    /// or creates a map of the pool, that fails with [`Error::WouldWait`](crate::Error::WouldWait); in a map
    /// that keeps versions, only writes to the same map do. If it panics, nothing has changed. A value that
    /// stays the same is not written again.
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
        Ok(match &self.tree {
            Tree::Plain(tree) => self.concurrent(tree)?.modify(key.as_ref(), change)?,
            Tree::Versioned(tree) => tree.modify(key.as_ref(), change)?,
        })
    }

    /// Removes `key`; returns whether it was there. All removals work in a full pool too: a 64th of the pool,
    /// at most 2 MiB, is reserved for changes that free space. In a map that keeps versions, a snapshot may
    /// hold the removed records: then removals work until half of the reserve is used up. Dropping the
    /// snapshot, and [`collect`](Self::collect), always work.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), and [`Error::Pool`](crate::Error::Pool) as for
    /// [`put`](Self::put).
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(match &self.tree {
            Tree::Plain(tree) => self.concurrent(tree)?.remove(key.as_ref())?,
            Tree::Versioned(tree) => tree.remove(key.as_ref())?,
        })
    }

    /// Removes the record with the smallest key; returns its key and value.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    pub fn pop_first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match &self.tree {
            Tree::Plain(tree) => self.exclusively(|tx| tree.pop_first(tx)),
            Tree::Versioned(tree) => Ok(tree.pop_first()?),
        }
    }

    /// Removes the record with the largest key; returns its key and value.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    pub fn pop_last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match &self.tree {
            Tree::Plain(tree) => self.exclusively(|tx| tree.pop_last(tx)),
            Tree::Versioned(tree) => Ok(tree.pop_last()?),
        }
    }

    /// Removes the records whose keys lie in `bounds`; returns how many.
    ///
    /// They are removed in the order of their keys, in groups of some dozens, each by a transaction of its
    /// own. The range may have any size, and the whole is **not** atomic: after a crash or an error the
    /// records up to some key are removed, and all others are still present. When this returns, all are
    /// durably removed. Other threads may write between two groups; records that they put into the range may
    /// or may not be removed. [`Batch::remove_range`](crate::Batch::remove_range) is atomic, and
    /// [`clear`](Self::clear) removes everything at once.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove); some records may have been removed by then.
    pub fn remove_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<u64> {
        Ok(match &self.tree {
            Tree::Plain(tree) => {
                let writers = self.pool.shared.writers()?;
                writers.expect_other(TURN).map_err(tembo_index::Error::from)?;
                tree.remove_range_in_groups(bounds, || writers.begin())?
            }
            Tree::Versioned(tree) => tree.remove_range_in_groups(bounds)?,
        })
    }

    /// Removes everything, atomically for readers and crashes. Later writes free the space step by step,
    /// except for records that a snapshot holds.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    pub fn clear(&self) -> Result<()> {
        match &self.tree {
            Tree::Plain(tree) => self.exclusively(|tx| tree.clear(tx)),
            Tree::Versioned(tree) => Ok(tree.clear()?),
        }
    }

    /// One step of a compaction, from the leaf of `from` on.
    pub(crate) fn compact_at(&self, chosen: &tembo_pool::Compaction, from: &[u8]) -> Result<CompactionStep> {
        match &self.tree {
            Tree::Plain(tree) => self.exclusively(|tx| tree.compact_at(tx, chosen, from)),
            Tree::Versioned(tree) => Ok(tree.compact_at(chosen, from)?),
        }
    }

    /// After the last step: frees the old blocks of moved records, as far as some are left; returns whether
    /// to go on.
    pub(crate) fn collect_moved(&self) -> Result<bool> {
        match &self.tree {
            Tree::Plain(_) => Ok(false),
            Tree::Versioned(tree) => Ok(tree.collect_moved()?),
        }
    }

    /// The sums that the map keeps.
    pub fn counting(&self) -> Counting {
        match &self.tree {
            Tree::Plain(tree) => tree.counting(),
            Tree::Versioned(_) => Counting::Nothing,
        }
    }

    /// The map for changes of one record.
    #[inline]
    fn concurrent<'m>(&'m self, tree: &'m WbTree) -> Result<ConcurrentWriter<'m>> {
        Ok(tree.concurrent(self.pool.shared.writers()?))
    }

    /// Makes a change while no other thread writes.
    #[inline]
    fn exclusively<T>(&self, change: impl FnOnce(&mut Tx<'_>) -> tembo_index::Result<T>) -> Result<T> {
        let mut tx = self.pool.shared.begin(TURN)?;
        let outcome = change(&mut tx)?;
        tx.commit()?;
        Ok(outcome)
    }

    /// The number of records. O(1).
    ///
    /// Concurrent changes are counted or not, each by itself, so the number may be one that the map never
    /// had. Without concurrent changes it is exact.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn len(&self) -> Result<u64> {
        Ok(match &self.tree {
            Tree::Plain(tree) => tree.len()?,
            Tree::Versioned(tree) => {
                self.pool.shared.pool.check_process()?;
                tree.len()
            }
        })
    }

    /// Whether there are no records.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(match &self.tree {
            Tree::Plain(tree) => tree.is_empty()?,
            Tree::Versioned(_) => self.len()? == 0,
        })
    }

    /// The record with the smallest key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn first(&self) -> Result<Option<Entry<'_>>> {
        match &self.tree {
            Tree::Plain(tree) => Ok(tree.first()?.map(|entry| Entry(EntryKind::Plain(entry)))),
            Tree::Versioned(_) => self.iter().next().transpose(),
        }
    }

    /// The record with the largest key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn last(&self) -> Result<Option<Entry<'_>>> {
        match &self.tree {
            Tree::Plain(tree) => Ok(tree.last()?.map(|entry| Entry(EntryKind::Plain(entry)))),
            Tree::Versioned(_) => self.iter().next_back().transpose(),
        }
    }

    /// All records in order of their keys, from both ends.
    pub fn iter(&self) -> Iter<'_> {
        self.range::<&[u8]>(..)
    }

    /// The records whose keys lie in `bounds`, in order, from both ends. Weakly consistent: a record that
    /// exists during the whole walk is met exactly once; one that is added or removed meanwhile is met or
    /// not. In a map that keeps versions, all records are of the version that was the newest when the walk
    /// began.
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
        Iter(match &self.tree {
            Tree::Plain(tree) => IterKind::Plain(tree.range(bounds)),
            Tree::Versioned(tree) => IterKind::Newest(tree.range(bounds)),
        })
    }

    /// The records whose keys begin with `prefix`, in order, from both ends.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter<'_> {
        Iter(match &self.tree {
            Tree::Plain(tree) => IterKind::Plain(tree.prefix(prefix.as_ref())),
            Tree::Versioned(tree) => IterKind::Newest(tree.prefix(prefix.as_ref())),
        })
    }

    /// The first `limit` records whose keys lie in `bounds`, in order, copied as they were at one moment:
    /// each change and each [`Batch`](crate::Batch) is seen in full or not at all.
    ///
    /// The scan starts again if the records' leaves changed meanwhile or a batch was being committed. After
    /// several attempts it makes writers wait until it has ended. Inside [`modify`](Self::modify) too, it
    /// ends after at most one more change by each of the other threads.
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
    /// As for [`get`](Self::get); before the first write also as for [`put`](Self::put), as the scan then
    /// takes a lane of the pool.
    pub fn scan<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let tree = match &self.tree {
            Tree::Plain(tree) => tree,
            Tree::Versioned(tree) => {
                let records = tree.range(bounds).take(limit);
                return records
                    .map(|entry| Ok(entry.map(|e| (e.key().to_vec(), e.value().to_vec()))?))
                    .collect();
            }
        };
        let writers =
            if self.pool.shared.pool.is_read_only() { None } else { Some(self.pool.shared.writers()?) };
        Ok(tree.scan(writers, bounds, limit)?)
    }

    /// A cursor, at first before the first record, that moves in both directions.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor(match &self.tree {
            Tree::Plain(tree) => CursorKind::Plain(tree.cursor()),
            Tree::Versioned(tree) => CursorKind::Versioned(tree.cursor()),
        })
    }
}
