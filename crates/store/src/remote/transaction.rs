//! Transactions of a client: their writes lie in its memory until the commit.

use super::FRAME_BYTES_MAX;
use super::entries::RemoteEntries;
use super::link::{Link, Opened, value_of};
use super::message::{Reply, Request};
use super::snapshot::{RemoteKeyspace, RemoteSnapshot, owned};
use crate::entries::is_empty;
use crate::error::{Error, Result};
use crate::transaction::{Replaced, Savepoint, check_lengths};
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

/// Bytes of a commit beside those of keys and values, for each change.
const CHANGE_BYTES: u64 = 9;

/// A value for each key that was written, or none for a deletion.
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A transaction of a [`RemoteStore`](super::RemoteStore), as [`Transaction`](crate::Transaction) is one of a
/// store. What it writes has to fit a message ([`FRAME_BYTES_MAX`]).
pub struct RemoteTransaction {
    link: Arc<Link>,
    /// The snapshot that it was begun at.
    at: Option<RemoteSnapshot>,
    is_serializable: bool,
    /// From its first operation on.
    opened: Option<Arc<Opened>>,
    writes: BTreeMap<u64, Changes>,
    /// The entries that writes replaced, since the first savepoint.
    undo: Option<Vec<(u64, Vec<u8>, Replaced)>>,
    bytes: u64,
}

impl RemoteTransaction {
    pub(super) fn new(link: &Arc<Link>, at: Option<RemoteSnapshot>, is_serializable: bool) -> Self {
        let (link, writes) = (link.clone(), BTreeMap::new());
        RemoteTransaction { link, at, is_serializable, opened: None, writes, undo: None, bytes: 0 }
    }

    /// The transaction at the owner's; begins it, if that has not been done.
    fn opened(&mut self) -> Result<&Arc<Opened>> {
        if self.opened.is_none() {
            let at = self.at.as_ref().map(|snapshot| snapshot.opened.id);
            let request = Request::Begin { at, is_serializable: self.is_serializable };
            self.opened = Some(Opened::ask(&self.link, &request)?);
        }
        self.opened.as_ref().ok_or_else(super::link::other_reply)
    }

    /// The number of the snapshot that it reads. Fixes it, if that has not been done.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if this connection has too many open, and [`Error::Disconnected`].
    pub fn number(&mut self) -> Result<u64> {
        Ok(self.opened()?.number)
    }

    /// The value of a key, as the transaction has written it, or as its snapshot has it.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::get`](crate::Transaction::get), and [`Error::Disconnected`].
    pub fn get(&mut self, keyspace: &RemoteKeyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        keyspace.check(&self.link)?;
        let key = key.as_ref();
        if let Some(own) = self.writes.get(&keyspace.id).and_then(|changes| changes.get(key)) {
            return Ok(own.clone());
        }
        self.opened()?.get(keyspace.id, key)
    }

    /// Gives a key a value.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`](crate::Transaction::put), [`Error::TransactionTooLarge`] when the writes
    /// do not fit a message, and [`Error::Disconnected`].
    pub fn put(
        &mut self,
        keyspace: &RemoteKeyspace,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        self.write(keyspace, key, Some(value))
    }

    /// Takes the value off a key.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn delete(&mut self, keyspace: &RemoteKeyspace, key: impl Into<Vec<u8>>) -> Result<()> {
        self.write(keyspace, key.into(), None)
    }

    /// Deletes all keys in `bounds` that have a value in the transaction's view; returns how many.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get). What was deleted before the error stays so in the transaction.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &RemoteKeyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<u64> {
        let mut count = 0;
        for entry in self.range(keyspace, bounds)? {
            self.write(keyspace, entry?.0, None)?;
            count += 1;
        }
        Ok(count)
    }

    /// The keys in `bounds` that have a value in the transaction's view, in their order, from both ends.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &RemoteKeyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<RemoteEntries> {
        keyspace.check(&self.link)?;
        let bounds = owned(&bounds);
        let own = match self.writes.get(&keyspace.id) {
            Some(changes) if !is_empty(&bounds) => {
                changes.range(bounds.clone()).map(|(key, value)| (key.clone(), value.clone())).collect()
            }
            _ => Vec::new(),
        };
        let mut entries = RemoteEntries::new(self.opened()?.clone(), keyspace.id, bounds, own);
        if self.is_serializable {
            entries.begin()?;
        }
        Ok(entries)
    }

    /// Gives a key a value if it has none in the transaction's view; returns whether that was so.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get) and [`put`](Self::put).
    pub fn insert(
        &mut self,
        keyspace: &RemoteKeyspace,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<bool> {
        let key = key.into();
        let is_new = self.get(keyspace, &key)?.is_none();
        if is_new {
            self.put(keyspace, key, value)?;
        }
        Ok(is_new)
    }

    /// Makes the value of a key `new` if it is `expected` in the transaction's view, where none stands for no
    /// value; returns whether it was.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get) and [`put`](Self::put).
    pub fn compare_and_swap(
        &mut self,
        keyspace: &RemoteKeyspace,
        key: impl Into<Vec<u8>>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let key = key.into();
        let is_expected = self.get(keyspace, &key)?.as_deref() == expected;
        if is_expected {
            self.write(keyspace, key, new.map(<[u8]>::to_vec))?;
        }
        Ok(is_expected)
    }

    fn write(&mut self, keyspace: &RemoteKeyspace, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<()> {
        keyspace.check(&self.link)?;
        check_lengths(&key, value.as_deref())?;
        let added = (key.len() + value.as_ref().map_or(0, Vec::len)) as u64 + CHANGE_BYTES;
        let (bytes, max_bytes) = (self.bytes + added, FRAME_BYTES_MAX);
        if bytes > max_bytes {
            return Err(Error::TransactionTooLarge { bytes, max_bytes });
        }
        // A transaction conflicts with what was committed since its first operation.
        self.opened()?;
        let changes = self.writes.entry(keyspace.id).or_default();
        match &mut self.undo {
            Some(undo) => {
                let replaced = changes.insert(key.clone(), value);
                undo.push((keyspace.id, key, replaced));
            }
            None => _ = changes.insert(key, value),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// A point to which [`rollback_to`](Self::rollback_to) goes back. From the first one on, each write keeps
    /// what it replaces. The owner hears nothing of it.
    pub fn savepoint(&mut self) -> Savepoint {
        Savepoint(self.undo.get_or_insert_default().len())
    }

    /// Takes back what was written since the savepoint, as
    /// [`Transaction::rollback_to`](crate::Transaction::rollback_to).
    ///
    /// # Panics
    ///
    /// If the savepoint is void.
    pub fn rollback_to(&mut self, to: Savepoint) {
        let undo = self.undo.get_or_insert_default();
        assert!(to.0 <= undo.len(), "a savepoint that is void, or of another transaction");
        for (id, key, before) in undo.drain(to.0..).rev() {
            let Some(changes) = self.writes.get_mut(&id) else { continue };
            let key_bytes = key.len() as u64;
            let taken_back = match before {
                Some(value) => changes.insert(key, value),
                None => changes.remove(&key),
            };
            self.bytes -=
                key_bytes + taken_back.flatten().map_or(0, |value| value.len() as u64) + CHANGE_BYTES;
            if changes.is_empty() {
                self.writes.remove(&id);
            }
        }
    }

    /// Makes all writes durable, then visible, as the next snapshot; returns its number. A transaction that
    /// has written nothing returns the number of the snapshot that it read.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::commit`](crate::Transaction::commit). After [`Error::Disconnected`], all of it
    /// was committed or nothing: a program that has to know reads what it wrote, or a key that it writes with
    /// each transaction for this.
    pub fn commit(mut self) -> Result<u64> {
        let opened = self.opened()?.clone();
        if self.writes.is_empty() {
            return Ok(opened.number);
        }
        let writes = self.writes.iter().map(|(keyspace, written)| {
            (*keyspace, written.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect())
        });
        let request = Request::Commit { open: opened.id, writes: writes.collect() };
        value_of!(self.link.ask(&request), Reply::Number(number) => number)
    }

    /// Takes everything back, as dropping it does.
    pub fn abort(self) {}
}

impl std::fmt::Debug for RemoteTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let writes: usize = self.writes.values().map(BTreeMap::len).sum();
        f.debug_struct("RemoteTransaction").field("writes", &writes).finish_non_exhaustive()
    }
}
