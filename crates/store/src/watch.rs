//! Watching a key or a prefix: the receiver of what commits hand over (`watches.rs`).

use crate::error::{Error, Result};
use crate::handle::{Store, StoreInner};
use crate::keyspace::Keyspace;
use crate::watches::{Buffer, Event, Watcher};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stream of the changes of a key, or of all keys with a prefix, that were committed since it was made, in
/// the order of the commits ([`Store::watch`]). Keeps the store open.
///
/// It keeps 4096 changes, or 16 MiB of them. If nobody takes them in time, they are lost, and
/// [`Event::Lagged`] says so. Commits never wait for it.
pub struct Watch {
    store: Arc<StoreInner>,
    keyspace: Keyspace,
    watcher: Arc<Watcher>,
    from: u64,
}

impl Store {
    /// Watches a key: what is committed from now on.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`], [`Error::KeyspaceDropped`].
    pub fn watch(&self, keyspace: &Keyspace, key: impl Into<Vec<u8>>) -> Result<Watch> {
        self.watch_as(keyspace, key.into(), false)
    }

    /// As [`watch`](Self::watch), all keys that begin with `prefix`.
    ///
    /// # Errors
    ///
    /// As for [`watch`](Self::watch).
    pub fn watch_prefix(&self, keyspace: &Keyspace, prefix: impl Into<Vec<u8>>) -> Result<Watch> {
        self.watch_as(keyspace, prefix.into(), true)
    }

    fn watch_as(&self, keyspace: &Keyspace, key: Vec<u8>, is_prefix: bool) -> Result<Watch> {
        keyspace.check_store(&self.inner)?;
        let watcher = Arc::new(Watcher::new(keyspace.inner.id, key, is_prefix));
        // Under the lock of commits, so that each commit is in the snapshot `from` or in the stream.
        let _lead = self.inner.commits.hold();
        self.inner.history.watches.add(&watcher);
        let from = self.inner.active.current_alone();
        Ok(Watch { store: self.inner.clone(), keyspace: keyspace.clone(), watcher, from })
    }
}

impl Watch {
    /// The snapshot that was current when the watch was made: it tells of all later commits.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Waits for the next event.
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`], when all events before that were taken.
    pub fn recv(&self) -> Result<Event> {
        loop {
            if let Some(event) = self.recv_until(None)? {
                return Ok(event);
            }
        }
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn try_recv(&self) -> Result<Option<Event>> {
        self.pop(&mut self.watcher.buffer.lock())
    }

    /// Waits for the next event, for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Event>> {
        self.recv_until(Instant::now().checked_add(timeout))
    }

    fn recv_until(&self, deadline: Option<Instant>) -> Result<Option<Event>> {
        let mut buffer = self.watcher.buffer.lock();
        loop {
            if let Some(event) = self.pop(&mut buffer)? {
                return Ok(Some(event));
            }
            match deadline {
                None => self.watcher.has_more.wait(&mut buffer),
                Some(deadline) => {
                    if self.watcher.has_more.wait_until(&mut buffer, deadline).timed_out() {
                        return self.pop(&mut buffer);
                    }
                }
            }
        }
    }

    fn pop(&self, buffer: &mut MutexGuard<'_, Buffer>) -> Result<Option<Event>> {
        match buffer.pop(self.store.active.current()) {
            Some(event) => Ok(Some(event)),
            None if self.keyspace.inner.check_there().is_err() => {
                Err(Error::KeyspaceDropped { name: self.keyspace.name().to_owned() })
            }
            None => Ok(None),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.store.history.watches.take_out();
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("keyspace", &self.keyspace)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}
