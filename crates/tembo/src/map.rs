//! An ordered map.

use crate::dropping::Plain;
use crate::open::Once;
use crate::records::{CursorKind, EntryKind, IterKind, ValueKind};
use crate::{Cursor, Entry, Iter, Pool, Result, Value};
use std::ops::RangeBounds;
use tembo_index::{Beside, CddsTree, WbTree};
use tembo_pool::Tx;

/// An ordered map from byte strings to byte strings, kept in a [`Pool`]. Cheap to clone; all clones are the same
/// map.
///
/// Keys have up to 64 KiB, values up to 512 MiB. Readers see only what is durable, and read keys and values in
/// place; but for [`scan`](Self::scan), they never wait. Every write is durable, in the pool's domain, when its call
/// returns; to share a fence between many, use a [`Batch`](crate::Batch).
///
/// Any number of threads may write. Changes of single keys go on at the same time, as if they were made one after the
/// other: they wait only for those in the same few keys, or for each other where keys have to be arranged anew, which is
/// about every 14th insertion. [`clear`](Self::clear), [`pop_first`](Self::pop_first), [`pop_last`](Self::pop_last),
/// [`remove_range`](Self::remove_range) and batches wait until they are alone, and all others wait for them. Threads that often meet
/// take more of the pool's lanes, up to one per processor, half of the pool's, or 16.
///
/// A map that was created [with versions](crate::MapOptions::versioned) has all of this too, and [snapshots](Self::snapshot). It has one writer at a
/// time: every change makes a version of the map, and those of threads that wait become one version, with one fence. All that a walk, a
/// [`scan`](Self::scan) or [`len`](Self::len) tells is of one version, and none of them is ever begun anew. Its values are durable when they
/// are seen, as in the other kind.
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

/// What a thread asks for that changes a map.
const TURN: &str = "the turn to change a map";

/// What a map is made of.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Plain(Plain),
    Versioned(Once<CddsTree>),
}

impl Map {
    /// The pool that the map is kept in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether the map keeps the versions that snapshots hold ([`MapOptions::versioned`](crate::MapOptions::versioned)).
    pub fn is_versioned(&self) -> bool {
        matches!(self.tree, Tree::Versioned(_))
    }

    /// The value of `key`, in place. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged. So for all reads.
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
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged or its device failed. After a failure of the device
    /// the outcome is unknown until the pool is opened again; otherwise nothing was changed. [`Error::WouldWait`](crate::Error::WouldWait)
    /// in a thread that would wait for itself: since it has a [`Batch`](crate::Batch) that holds the map, or is in a closure that
    /// [`modify`](Self::modify) calls. So for all changes.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.pool.shared.with_room(|| {
            Ok(match &self.tree {
                Tree::Plain(tree) => self.beside(tree)?.put(key, &[value])?,
                Tree::Versioned(tree) => tree.put(key, value)?,
            })
        })
    }

    /// Gives `key` a value if it has none; returns whether that was so. If not, it costs no more than a
    /// [`get`](Self::get), apart from waiting for the turn to write.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.pool.shared.with_room(|| {
            Ok(match &self.tree {
                Tree::Plain(tree) => self.beside(tree)?.insert(key, value)?,
                Tree::Versioned(tree) => tree.insert(key, value)?,
            })
        })
    }

    /// Gives `key` another value if it has one; returns whether that was so.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.pool.shared.with_room(|| {
            Ok(match &self.tree {
                Tree::Plain(tree) => self.beside(tree)?.update(key, value)?,
                Tree::Versioned(tree) => tree.update(key, value)?,
            })
        })
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
        let key = key.as_ref();
        self.pool.shared.with_room(|| {
            Ok(match &self.tree {
                Tree::Plain(tree) => self.beside(tree)?.compare_and_swap(key, expected, new)?,
                Tree::Versioned(tree) => tree.compare_and_swap(key, expected, new)?,
            })
        })
    }

    /// Gives `key` the value that `change` makes of the one it has; returns whether it had one. `None` stands for no
    /// record: given, `key` is absent, and returned, it is removed, or stays absent. Nobody else writes to the key in between.
    ///
    /// `change` is called exactly once, as a writer of the pool: it may read. If it writes to a [`Map`], begins a batch or makes a map of the pool,
    /// that is refused with [`Error::WouldWait`](crate::Error::WouldWait); of a map that keeps versions, if it writes to the same one. If it panics, nothing has changed. A value that stays the same
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
        Ok(match &self.tree {
            Tree::Plain(tree) => self.beside(tree)?.modify(key.as_ref(), change)?,
            Tree::Versioned(tree) => tree.modify(key.as_ref(), change)?,
        })
    }

    /// Removes `key`; returns whether it was there. It works in a full pool too: a 64th of the pool, and at most 2 MiB, is kept for changes that
    /// give space back, and nothing else finds room there. So for all removals. (In a map that keeps versions a snapshot may hold what is
    /// removed. Removals go on until half of that is used up; giving up the snapshot, and [`collect`](Self::collect), always work.)
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), and [`Error::Pool`](crate::Error::Pool) as for [`put`](Self::put).
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(match &self.tree {
            Tree::Plain(tree) => self.beside(tree)?.remove(key.as_ref())?,
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
            Tree::Plain(tree) => self.alone(|tx| tree.pop_first(tx)),
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
            Tree::Plain(tree) => self.alone(|tx| tree.pop_last(tx)),
            Tree::Versioned(tree) => Ok(tree.pop_last()?),
        }
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
        Ok(match &self.tree {
            Tree::Plain(tree) => {
                let writers = self.pool.shared.writers()?;
                writers.expect_other(TURN).map_err(tembo_index::Error::from)?;
                tree.remove_range_in_groups(bounds, || writers.begin())?
            }
            Tree::Versioned(tree) => tree.remove_range_in_groups(bounds)?,
        })
    }

    /// Removes everything, at once for readers and for crashes; the space is given back bit by bit by later
    /// writes, as far as no snapshot needs it.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    pub fn clear(&self) -> Result<()> {
        match &self.tree {
            Tree::Plain(tree) => self.alone(|tx| tree.clear(tx)),
            Tree::Versioned(tree) => Ok(tree.clear()?),
        }
    }

    /// The map for changes of one record.
    #[inline]
    fn beside<'m>(&'m self, tree: &'m WbTree) -> Result<Beside<'m>> {
        Ok(tree.beside(self.pool.shared.writers()?))
    }

    /// Makes a change while nobody else writes.
    #[inline]
    fn alone<T>(&self, change: impl FnOnce(&mut Tx<'_>) -> tembo_index::Result<T>) -> Result<T> {
        let mut tx = self.pool.shared.begin(TURN)?;
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
        Ok(match &self.tree {
            Tree::Plain(tree) => tree.len()?,
            Tree::Versioned(tree) => {
                self.pool.shared.pool.check_process()?;
                tree.len()
            }
        })
    }

    /// Whether there are none.
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

    /// The records whose keys lie in `bounds`, in order, from both ends. Weakly consistent: a record that is
    /// there all the while is met exactly once, one that comes or goes meanwhile is met or not. In a map that keeps versions,
    /// all of them are of the version that was the newest when the walk began.
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

    /// The first `limit` records whose keys lie in `bounds`, in order, copied as they were at one moment: of every change and
    /// of every [`Batch`](crate::Batch) there is all or nothing.
    ///
    /// It starts again when something in these records' leaves changed meanwhile, or a batch was being committed, and waits for
    /// the commit that way. When that has happened some times, nobody begins to write before it has ended. In the middle
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

    /// A cursor before the first record, which can be moved anywhere, in both directions.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor(match &self.tree {
            Tree::Plain(tree) => CursorKind::Plain(tree.cursor()),
            Tree::Versioned(tree) => CursorKind::Versioned(tree.cursor()),
        })
    }
}
