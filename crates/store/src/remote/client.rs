//! The client's side: the connection, and what is reached through it.

use super::link::{Link, Opened, other_reply, value_of};
use super::message::{KeptAs, Reply, Request, Which};
use super::snapshot::{RemoteKeyspace, RemoteSnapshot};
use super::transaction::RemoteTransaction;
use crate::error::{Error, Result};
use crate::retention::{Retention, unix_ns};
use crate::retry::retry;
use crate::snapshot::Kept;
use crate::store::KeyVersion;
use crate::transaction::check_lengths;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// A store of another process, which serves it ([`Store::serve`](crate::Store::serve)). Cheap to clone; all
/// clones share one connection, which answers one request at a time.
#[derive(Clone)]
pub struct RemoteStore {
    pub(super) link: Arc<Link>,
}

impl RemoteStore {
    /// Connects to a store that its owner serves at a socket.
    ///
    /// # Errors
    ///
    /// [`Error::Disconnected`] if nobody listens there, or this user may not connect; [`Error::NoSuchStore`];
    /// [`Error::Refused`] if the owner takes no more clients, or speaks another version of the protocol.
    pub fn connect(path: impl AsRef<Path>, name: &str) -> Result<RemoteStore> {
        Ok(RemoteStore { link: Arc::new(Link::connect(path.as_ref(), name)?) })
    }

    /// The names of the stores that are served at a socket.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub fn names(path: impl AsRef<Path>) -> Result<Vec<String>> {
        let link = Link::connect(path.as_ref(), "")?;
        value_of!(link.ask(&Request::Stores), Reply::Names(names) => names)
    }

    /// The store's name.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// The process that owns the store.
    pub fn owner(&self) -> u32 {
        self.link.owner
    }

    /// Opens the keyspace of this name, or makes it.
    ///
    /// # Errors
    ///
    /// As for [`Store::keyspace`](crate::Store::keyspace), and [`Error::Disconnected`] as for every call.
    pub fn keyspace(&self, name: &str) -> Result<RemoteKeyspace> {
        self.keyspace_with(name, Retention::None)
    }

    /// As [`keyspace`](Self::keyspace); a new one retains versions as given.
    ///
    /// # Errors
    ///
    /// As for [`keyspace`](Self::keyspace).
    pub fn keyspace_with(&self, name: &str, retention: Retention) -> Result<RemoteKeyspace> {
        self.ask_keyspace(name, Some(retention.encode()))?.ok_or_else(other_reply)
    }

    /// The keyspace of this name, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`Store::find_keyspace`](crate::Store::find_keyspace).
    pub fn find_keyspace(&self, name: &str) -> Result<Option<RemoteKeyspace>> {
        self.ask_keyspace(name, None)
    }

    fn ask_keyspace(&self, name: &str, make: Option<u64>) -> Result<Option<RemoteKeyspace>> {
        let found = value_of!(self.ask(&Request::Keyspace { name, make }), Reply::Keyspace(found) => found)?;
        let Some((id, retention)) = found else { return Ok(None) };
        let retention = Retention::decode(retention).ok_or_else(other_reply)?;
        Ok(Some(RemoteKeyspace { link: self.link.clone(), name: name.into(), id, retention }))
    }

    /// Drops a keyspace, as [`Store::drop_keyspace`](crate::Store::drop_keyspace).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        value_of!(self.ask(&Request::DropKeyspace { name }), Reply::Flag(was_there) => was_there)
    }

    /// Chooses which versions a keyspace retains from now on.
    ///
    /// # Errors
    ///
    /// As for [`Store::set_retention`](crate::Store::set_retention).
    pub fn set_retention(&self, keyspace: &RemoteKeyspace, retention: Retention) -> Result<()> {
        keyspace.check(&self.link)?;
        let request = Request::Retain { keyspace: keyspace.id, retention: retention.encode() };
        value_of!(self.ask(&request), Reply::Done => ())
    }

    /// The names of all keyspaces, in their order.
    ///
    /// # Errors
    ///
    /// As for [`Store::keyspaces`](crate::Store::keyspaces).
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        value_of!(self.ask(&Request::Keyspaces), Reply::Names(names) => names)
    }

    /// The current snapshot.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if this connection has too many open, and [`Error::Disconnected`].
    pub fn snapshot(&self) -> Result<RemoteSnapshot> {
        self.open(Which::Current)
    }

    /// The store after the commit with this number, as [`Store::at`](crate::Store::at).
    ///
    /// # Errors
    ///
    /// As there, and as for [`snapshot`](Self::snapshot).
    pub fn at(&self, number: u64) -> Result<RemoteSnapshot> {
        self.open(Which::At(number))
    }

    /// The store as it was at a time, as [`Store::at_time`](crate::Store::at_time).
    ///
    /// # Errors
    ///
    /// As there, and as for [`snapshot`](Self::snapshot).
    pub fn at_time(&self, time: SystemTime) -> Result<RemoteSnapshot> {
        self.open(Which::AtTime(unix_ns(time)))
    }

    /// The snapshot that is kept under this name.
    ///
    /// # Errors
    ///
    /// As for [`Store::at_name`](crate::Store::at_name), and as for [`snapshot`](Self::snapshot).
    pub fn at_name(&self, name: &str) -> Result<RemoteSnapshot> {
        self.open(Which::AtName(name))
    }

    fn open(&self, which: Which<'_>) -> Result<RemoteSnapshot> {
        Ok(RemoteSnapshot { opened: Opened::ask(&self.link, &Request::Open(which))? })
    }

    /// Begins a transaction at the snapshot that is current at its first operation.
    pub fn begin(&self) -> RemoteTransaction {
        RemoteTransaction::new(&self.link, None, false)
    }

    /// Begins a serializable transaction, as [`Store::begin_serializable`](crate::Store::begin_serializable).
    /// The owner notes what it reads.
    pub fn begin_serializable(&self) -> RemoteTransaction {
        RemoteTransaction::new(&self.link, None, true)
    }

    /// Begins a transaction at an older snapshot.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`] if the snapshot is one of another connection.
    pub fn begin_at(&self, snapshot: &RemoteSnapshot) -> Result<RemoteTransaction> {
        if !Arc::ptr_eq(&snapshot.opened.link, &self.link) {
            return Err(Error::OtherStore { name: snapshot.opened.link.name.clone() });
        }
        Ok(RemoteTransaction::new(&self.link, Some(snapshot.clone()), false))
    }

    /// Runs `body` in a transaction and commits it, as [`Store::transact`](crate::Store::transact).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn transact<T>(&self, mut body: impl FnMut(&mut RemoteTransaction) -> Result<T>) -> Result<(T, u64)> {
        retry(|| {
            let mut tx = self.begin();
            let value = body(&mut tx)?;
            Ok((value, tx.commit()))
        })
    }

    /// The value of a key in the current snapshot.
    ///
    /// # Errors
    ///
    /// As for [`Store::get`](crate::Store::get).
    pub fn get(&self, keyspace: &RemoteKeyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        keyspace.check(&self.link)?;
        let request = Request::Get { open: None, keyspace: keyspace.id, key: key.as_ref() };
        value_of!(self.ask(&request), Reply::Value(value) => value)
    }

    /// Gives a key a value, by a transaction of its own; returns the number of the commit.
    ///
    /// # Errors
    ///
    /// As for [`Store::put`](crate::Store::put).
    pub fn put(
        &self,
        keyspace: &RemoteKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<u64> {
        self.change(keyspace, key.as_ref(), Some(value.as_ref()))
    }

    /// Takes the value off a key, by a transaction of its own; returns the number of the commit.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn delete(&self, keyspace: &RemoteKeyspace, key: impl AsRef<[u8]>) -> Result<u64> {
        self.change(keyspace, key.as_ref(), None)
    }

    fn change(&self, keyspace: &RemoteKeyspace, key: &[u8], value: Option<&[u8]>) -> Result<u64> {
        keyspace.check(&self.link)?;
        check_lengths(key, value)?;
        let request = Request::Change { keyspace: keyspace.id, change: (key, value) };
        value_of!(self.ask(&request), Reply::Number(number) => number)
    }

    /// Keeps a snapshot in the pool under a name, as [`Store::keep`](crate::Store::keep).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn keep(&self, number: u64, name: &str) -> Result<()> {
        value_of!(self.ask(&Request::Keep { number, name: Some(name) }), Reply::Done => ())
    }

    /// Keeps a snapshot by its number alone; returns whether that is new.
    ///
    /// # Errors
    ///
    /// As for [`keep`](Self::keep).
    pub fn keep_number(&self, number: u64) -> Result<bool> {
        value_of!(self.ask(&Request::Keep { number, name: None }), Reply::Flag(is_new) => is_new)
    }

    /// Deletes a kept snapshot.
    ///
    /// # Errors
    ///
    /// As for [`Store::delete_kept`](crate::Store::delete_kept).
    pub fn delete_kept(&self, name: &str) -> Result<()> {
        value_of!(self.ask(&Request::DeleteKept(KeptAs::Name(name))), Reply::Done => ())
    }

    /// Deletes a snapshot that is kept by its number alone; returns whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`Store::delete_number`](crate::Store::delete_number).
    pub fn delete_number(&self, number: u64) -> Result<bool> {
        value_of!(self.ask(&Request::DeleteKept(KeptAs::Number(number))), Reply::Flag(was_there) => was_there)
    }

    /// The kept snapshots, in the order of their names.
    ///
    /// # Errors
    ///
    /// As for [`Store::kept`](crate::Store::kept).
    pub fn kept(&self) -> Result<Vec<Kept>> {
        value_of!(self.ask(&Request::Kept), Reply::Kept(kept) => kept)
    }

    /// The versions of a key that are still there, from the newest to the oldest.
    ///
    /// # Errors
    ///
    /// As for [`Store::versions`](crate::Store::versions).
    pub fn versions(&self, keyspace: &RemoteKeyspace, key: impl AsRef<[u8]>) -> Result<Vec<KeyVersion>> {
        keyspace.check(&self.link)?;
        let request = Request::Versions { keyspace: keyspace.id, key: key.as_ref() };
        value_of!(self.ask(&request), Reply::Versions(versions) => versions)
    }

    /// Collects what nobody needs any more, in up to `tables` keys (1024 at most in one call); returns
    /// whether there is more to do.
    ///
    /// # Errors
    ///
    /// As for [`Store::collect`](crate::Store::collect).
    pub fn collect(&self, tables: usize) -> Result<bool> {
        let tables = u32::try_from(tables).unwrap_or(u32::MAX);
        value_of!(self.ask(&Request::Collect { tables }), Reply::Flag(has_more) => has_more)
    }

    fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        self.link.ask(request)
    }
}

impl std::fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteStore").field("name", &self.link.name).finish_non_exhaustive()
    }
}
