//! Snapshots of a store of another process, and its keyspaces.

use super::entries::RemoteEntries;
use super::link::{Link, Opened, value_of};
use super::message::{Reply, Request};
use crate::check::SnapshotReport;
use crate::error::{Error, Result};
use crate::retention::Retention;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A keyspace of a [`RemoteStore`](super::RemoteStore). Cheap to clone.
#[derive(Clone)]
pub struct RemoteKeyspace {
    pub(super) link: Arc<Link>,
    pub(super) name: Arc<str>,
    pub(super) id: u64,
    pub(super) retention: Retention,
}

/// The contents of a [`RemoteStore`](super::RemoteStore) after a commit. The owner keeps them as long as this
/// lives, and the connection does. Cheap to clone.
#[derive(Clone)]
pub struct RemoteSnapshot {
    pub(super) opened: Arc<Opened>,
}

impl RemoteKeyspace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id, which no other keyspace of the store has or had.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Which versions it retained when it was opened here.
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Refuses a keyspace of another connection.
    pub(super) fn check(&self, link: &Arc<Link>) -> Result<()> {
        if Arc::ptr_eq(&self.link, link) {
            return Ok(());
        }
        Err(Error::OtherStore { name: self.name.to_string() })
    }
}

impl RemoteSnapshot {
    /// Its number, as [`Snapshot::number`](crate::Snapshot::number).
    pub fn number(&self) -> u64 {
        self.opened.number
    }

    /// The value of a key, if it has one.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::get`](crate::Snapshot::get), and [`Error::Disconnected`].
    pub fn get(&self, keyspace: &RemoteKeyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        keyspace.check(&self.opened.link)?;
        self.opened.get(keyspace.id, key.as_ref())
    }

    /// The keys in `bounds` that have a value, in their order, from both ends. The first page is fetched by
    /// the first step.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`]; the walk gives the others.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &RemoteKeyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<RemoteEntries> {
        keyspace.check(&self.opened.link)?;
        Ok(RemoteEntries::new(self.opened.clone(), keyspace.id, owned(&bounds), Vec::new()))
    }

    /// All keys that have a value, in their order.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range).
    pub fn iter(&self, keyspace: &RemoteKeyspace) -> Result<RemoteEntries> {
        self.range::<Vec<u8>>(keyspace, ..)
    }

    /// Has the owner read all of it and look every key up, as [`Snapshot::check`](crate::Snapshot::check)
    /// does. The connection answers nothing else meanwhile.
    ///
    /// # Errors
    ///
    /// As there; damage comes as [`Error::Remote`].
    pub fn check(&self) -> Result<SnapshotReport> {
        let request = Request::Check { open: self.opened.id };
        value_of!(self.opened.link.ask(&request), Reply::Checked(report) => report)
    }
}

/// Bounds that own their keys.
pub(super) fn owned<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (owned(bounds.start_bound()), owned(bounds.end_bound()))
}

impl std::fmt::Debug for RemoteKeyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteKeyspace").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RemoteSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteSnapshot").field("number", &self.number()).finish_non_exhaustive()
    }
}
