//! Snapshots: the contents of the store after a commit.

use crate::active::Registration;
use crate::error::{Error, Result};
use crate::handle::StoreInner;
use crate::keyspace::Keyspace;
use crate::retention::steady_unix_ns;
use crate::versions::read_value;
use std::sync::Arc;

/// The contents of the store after a commit. They never change, whatever is committed meanwhile, and their
/// values are kept as long as it lives.
///
/// Owned, cheap to clone, and free to be sent and shared.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) store: Arc<StoreInner>,
    registration: Arc<Registration>,
    /// When it was opened, of one that was not needed before, so that keyspaces have it only if they retain
    /// it.
    retained_at: Option<u64>,
}

/// A snapshot that is kept in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub number: u64,
    /// Its name; `None` if it is kept by its number alone.
    pub name: Option<String>,
}

impl Snapshot {
    pub(crate) fn current(store: &Arc<StoreInner>) -> Snapshot {
        let registration = Arc::new(Registration::current(&store.active));
        Snapshot { store: store.clone(), registration, retained_at: None }
    }

    /// Opens a number that is kept or registered. The caller keeps all lanes from committing.
    pub(crate) fn of(store: &Arc<StoreInner>, number: u64) -> Snapshot {
        let registration = Arc::new(Registration::of(&store.active, number));
        Snapshot { store: store.clone(), registration, retained_at: None }
    }

    /// Opens a number that keyspaces may retain. The caller keeps all lanes from committing.
    pub(crate) fn retained(store: &Arc<StoreInner>, number: u64) -> Snapshot {
        let registration = Arc::new(Registration::partly(&store.active, number));
        Snapshot { store: store.clone(), registration, retained_at: Some(steady_unix_ns()) }
    }

    /// Refuses a keyspace that does not retain the snapshot.
    pub(crate) fn check_retained(&self, keyspace: &Keyspace) -> Result<()> {
        match self.retained_at {
            Some(at) if !keyspace.inner.retains(self.number(), at) => {
                Err(Error::NotRetained { number: self.number(), keyspace: keyspace.name().to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Refuses what was read of a snapshot that was revoked, in a keyspace that does not retain it either. To
    /// be called after reading: what was collected before is found by then.
    #[inline]
    pub(crate) fn check_there(&self, keyspace: &Keyspace) -> Result<()> {
        let active = &self.store.active;
        if !active.is_revoked(self.number()) || keyspace.inner.retains(self.number(), steady_unix_ns()) {
            return Ok(());
        }
        Err(Error::SnapshotGone { number: self.number(), current: active.current() })
    }

    /// Keeps the versions of the snapshot, without the store.
    pub(crate) fn into_registration(self) -> Arc<Registration> {
        self.registration
    }

    /// Its number: that of the commit that made it, which is the time of the commit in nanoseconds since
    /// 1970, or one more than the number before it; 0 for the empty store.
    pub fn number(&self) -> u64 {
        self.registration.number
    }

    /// The value of a key, if it has one. Never waits. O(log n), and O(log v) for v versions of the key.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`], [`Error::KeyspaceDropped`], [`Error::NotRetained`], [`Error::SnapshotGone`] if
    /// the snapshot was revoked ([`Limits`](crate::Limits)), and [`Error::Pool`] when the store is damaged.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        keyspace.check_store(&self.store)?;
        self.value(keyspace, key.as_ref())
    }

    pub(crate) fn value(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let outcome = self.look_up(keyspace, key);
        self.check_there(keyspace)?;
        outcome
    }

    fn look_up(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_retained(keyspace)?;
        let pool = &self.store.pool;
        let pin = pool.pin_briefly();
        // After the pin: what is freed from here on stays readable.
        keyspace.inner.check_there()?;
        let Some(table) = keyspace.inner.table(&pin, key)? else { return Ok(None) };
        match table.find(pool.region(), self.number())?.version {
            Some(version) => read_value(pool.region(), version.value, table.off),
            None => Ok(None),
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("number", &self.number()).finish_non_exhaustive()
    }
}
