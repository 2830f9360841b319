//! Snapshots: what the store held after a commit.

use crate::active::Slot;
use crate::entries::Entries;
use crate::error::Result;
use crate::keyspace::{Keyspace, table_at};
use crate::store::StoreInner;
use crate::versions::read_value;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// What the store held after a commit. It never changes, whatever is committed meanwhile, and its values are kept as long as it lives.
///
/// Owned, cheap to clone, and free to be sent and shared.
pub struct Snapshot {
    pub(crate) store: Arc<StoreInner>,
    number: u64,
    /// `None` only while it is taken apart.
    slot: Option<Slot>,
}

/// A snapshot that is kept in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub number: u64,
    /// Its name; `None` if it is kept by its number alone.
    pub name: Option<String>,
    /// When it was committed, in nanoseconds since 1970.
    pub time_unix_ns: u64,
}

impl Snapshot {
    pub(crate) fn current(store: &Arc<StoreInner>) -> Snapshot {
        let (number, slot) = store.active.register_current();
        Snapshot { store: store.clone(), number, slot: Some(slot) }
    }

    /// Of a number that is kept or registered, and stays so until this returns.
    pub(crate) fn of(store: &Arc<StoreInner>, number: u64) -> Snapshot {
        Snapshot { store: store.clone(), number, slot: Some(store.active.register(number)) }
    }

    /// Its place among those that are registered, which whoever takes it has to release.
    pub(crate) fn into_registered(mut self) -> (u64, Option<Slot>) {
        (self.number, self.slot.take())
    }

    /// Its number: that of the commit that made it; 0 for the empty store.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The value of a key, if it has one. Never waits. O(log n), and O(log v) for v versions of the key.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`](crate::Error::OtherStore), and [`Error::Pool`](crate::Error::Pool) when the store is damaged.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        keyspace.check_store(&self.store)?;
        self.value(keyspace, key.as_ref())
    }

    pub(crate) fn value(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let pool = &self.store.pool;
        let pin = pool.pin();
        // After the pin: what is freed from here on stays readable.
        keyspace.inner.check_there()?;
        let Some(table) = keyspace.inner.index.get(&pin, key)?.map(table_at).transpose()? else {
            return Ok(None);
        };
        match table.find(pool.region(), self.number)? {
            Some(version) => read_value(pool.region(), version.value, table.off),
            None => Ok(None),
        }
    }

    /// The keys in `bounds` that have a value, in their order, from both ends. The first step from each end costs O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`](crate::Error::OtherStore).
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, bounds: impl RangeBounds<K>) -> Result<Entries> {
        keyspace.check_store(&self.store)?;
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let bounds = (owned(bounds.start_bound()), owned(bounds.end_bound()));
        Ok(Entries::new(self.clone(), keyspace.clone(), bounds, Vec::new()))
    }

    /// All keys that have a value, in their order.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range).
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Entries> {
        self.range::<Vec<u8>>(keyspace, ..)
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Snapshot {
        Snapshot::of(&self.store, self.number)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.store.active.release(slot, self.number);
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("number", &self.number).finish_non_exhaustive()
    }
}
