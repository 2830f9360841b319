//! Snapshots: versions of a map that a program or a name holds.

use crate::map::Tree;
use crate::open_trees::TreeHandle;
use crate::records::{EntryKind, IterKind, ValueKind};
use crate::{Change, Entry, Error, Iter, KeptSnapshot, Map, Result, Value, VersionsStats};
use std::ops::RangeBounds;
use tembo_index::{VersionedSnapshot, VersionedTree};

/// A version of a [`Map`], readable as long as this, or a clone of it, lives; and, after
/// [`keep`](Self::keep), by its name until that is [dropped](Map::drop_snapshot). No thread waits for it, and
/// reading it never waits. It is taken in constant time.
///
/// Records that the map replaces or removes stay in the pool as long as a snapshot has them. Later changes,
/// and [`Map::collect`], free the space.
///
/// ```
/// # fn main() -> Result<(), tembo::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("a.pool");
/// use tembo::{MapOptions, Options};
///
/// let pool = Options::new().create(true).open(&path)?;
/// let stock = pool.open_map_with("stock", MapOptions::new().versioned(true))?;
/// stock.put("apples", "7")?;
/// stock.snapshot()?.keep("monday")?;
/// stock.put("apples", "5")?;
/// stock.put("pears", "12")?;
/// drop((stock, pool));
///
/// let pool = Options::new().open(&path)?;
/// let stock = pool.open_map("stock")?;
/// let (monday, now) = (stock.open_snapshot("monday")?, stock.snapshot()?);
/// assert_eq!(monday.get("apples")?.as_deref(), Some(&b"7"[..]));
/// assert_eq!((monday.len(), now.len()), (1, 2));
/// for change in monday.diff(&now)? {
///     println!("{}: {:?} became {:?}", change.key.escape_ascii(), change.before, change.after);
/// }
/// stock.rollback_to(&monday)?;
/// assert!(!stock.contains_key("pears")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    // The fields are dropped in this order: the tree stays open as long as its version is held.
    snapshot: VersionedSnapshot,
    tree: TreeHandle<VersionedTree>,
}

impl Map {
    /// Holds the map as it is now. O(1), no store to the pool.
    ///
    /// # Errors
    ///
    /// [`Error::NotVersioned`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        let tree = self.versioned()?;
        Ok(Snapshot { snapshot: tree.snapshot(), tree: tree.clone() })
    }

    /// Holds a version by its number: the newest, or one that another snapshot holds already.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] with [`NoSuchVersion`](crate::IndexError::NoSuchVersion) if none does.
    pub fn snapshot_at(&self, version: u64) -> Result<Snapshot> {
        let tree = self.versioned()?;
        Ok(Snapshot { snapshot: tree.snapshot_at(version)?, tree: tree.clone() })
    }

    /// The number of the newest version. Every change, or group of changes that became durable together, adds
    /// 1.
    ///
    /// # Errors
    ///
    /// [`Error::NotVersioned`].
    pub fn version(&self) -> Result<u64> {
        Ok(self.versioned()?.version())
    }

    /// The snapshots that have names, in the order in which they were kept.
    ///
    /// # Errors
    ///
    /// [`Error::NotVersioned`].
    pub fn snapshots(&self) -> Result<Vec<KeptSnapshot>> {
        Ok(self.versioned()?.kept())
    }

    /// Opens the snapshot of this name. It stays readable when its name is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSnapshot`], [`Error::NotVersioned`].
    pub fn open_snapshot(&self, name: &str) -> Result<Snapshot> {
        let tree = self.versioned()?;
        match tree.kept_snapshot(name) {
            Some(snapshot) => Ok(Snapshot { snapshot, tree: tree.clone() }),
            None => Err(Error::NoSuchSnapshot { name: name.to_owned() }),
        }
    }

    /// Drops the snapshot of this name, durably; returns whether there was one. One fence.
    ///
    /// # Errors
    ///
    /// [`Error::NotVersioned`], and as for [`put`](Self::put).
    pub fn drop_snapshot(&self, name: &str) -> Result<bool> {
        Ok(self.versioned()?.drop_kept(name)?)
    }

    /// Gives the map the contents of a snapshot, atomically for readers and crashes; returns the number of
    /// the new version. It is a change like others: snapshots of the versions in between stay as they are.
    ///
    /// Takes time proportional to the number of keys that changed since: it reads about ten nodes for each of
    /// few keys far apart, and the whole map at most. All of it is one transaction, and the pool holds both
    /// states until it is durable. Writers of the map wait meanwhile, and so does a batch that uses it, with
    /// all threads that wait for the batch. In a full pool it has room for few changes besides removals.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignSnapshot`] and [`Error::NotVersioned`], and as for [`put`](Self::put). Nothing has
    /// changed then.
    pub fn rollback_to(&self, snapshot: &Snapshot) -> Result<u64> {
        let tree = self.versioned()?;
        snapshot.expect_of(tree)?;
        Ok(tree.rollback_to(snapshot.version())?)
    }

    /// Looks at up to about `budget` dead blocks and frees those that no snapshot has; returns whether there
    /// is more to do. Changes free the records that they replace; this is for the records of dropped
    /// snapshots and of a [cleared](Self::clear) map. Costs one fence for each 32 blocks. Other writers get
    /// their turns in between, so that a thread may call it in a loop:
    ///
    /// ```
    /// # fn main() -> Result<(), tembo::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
    /// # let map = pool.open_map_with("stock", tembo::MapOptions::new().versioned(true))?;
    /// while map.collect(1000)? {
    ///     std::thread::yield_now();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotVersioned`], and as for [`remove`](Self::remove). Blocks that were freed by then stay
    /// free.
    pub fn collect(&self, budget: usize) -> Result<bool> {
        Ok(self.versioned()?.collect(budget)?)
    }

    /// The versions that are held, and the space that waits for them.
    ///
    /// # Errors
    ///
    /// [`Error::NotVersioned`]; [`Error::Pool`] if the pool is damaged.
    pub fn version_stats(&self) -> Result<VersionsStats> {
        Ok(self.versioned()?.stats()?)
    }

    fn versioned(&self) -> Result<&TreeHandle<VersionedTree>> {
        match &self.tree {
            Tree::Versioned(tree) => {
                self.pool.shared.pool.check_process()?;
                Ok(tree)
            }
            Tree::Plain(_) => Err(Error::NotVersioned),
        }
    }
}

impl Snapshot {
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

    /// The value of `key`, in place. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged. The same holds for all reads.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        Ok(self.snapshot.get(key.as_ref())?.map(|value| Value(ValueKind::Held(value))))
    }

    /// Whether the snapshot has `key`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The record with the smallest key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn first(&self) -> Result<Option<Entry<'_>>> {
        Ok(self.snapshot.iter().next().transpose()?.map(|entry| Entry(EntryKind::Held(entry))))
    }

    /// The record with the largest key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn last(&self) -> Result<Option<Entry<'_>>> {
        Ok(self.snapshot.iter().next_back().transpose()?.map(|entry| Entry(EntryKind::Held(entry))))
    }

    /// All records in order of their keys, from both ends.
    pub fn iter(&self) -> Iter<'_> {
        Iter(IterKind::Held(self.snapshot.iter()))
    }

    /// The records whose keys lie in `bounds`, in order, from both ends.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Iter<'_> {
        Iter(IterKind::Held(self.snapshot.range(bounds)))
    }

    /// The records whose keys begin with `prefix`, in order, from both ends.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter<'_> {
        Iter(IterKind::Held(self.snapshot.prefix(prefix.as_ref())))
    }

    /// Gives the snapshot a name (1 to 255 bytes). It then outlives this process, until
    /// [`Map::drop_snapshot`]. Durable on return; one fence.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] with [`Exists`](crate::IndexError::Exists) if the map has a snapshot of this name, or
    /// with [`SnapshotName`](crate::IndexError::SnapshotName); [`Error::Full`], [`Error::ReadOnly`], and
    /// [`Error::Pool`] as for [`Map::put`].
    pub fn keep(&self, name: &str) -> Result<()> {
        Ok(self.tree.keep(&self.snapshot, name)?)
    }

    /// The keys that differ between this snapshot and another of the same map, in order, with both values.
    /// Either may be the later one. Takes time proportional to the number of keys that changed in between: it
    /// reads about ten nodes for each of few keys far apart, and the whole map at most.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignSnapshot`], and as for [`get`](Self::get).
    pub fn diff(&self, to: &Snapshot) -> Result<Vec<Change>> {
        to.expect_of(&self.tree)?;
        Ok(self.tree.diff(self.version(), to.version())?)
    }

    fn expect_of(&self, tree: &TreeHandle<VersionedTree>) -> Result<()> {
        if self.tree.is_same(tree) { Ok(()) } else { Err(Error::ForeignSnapshot) }
    }
}
