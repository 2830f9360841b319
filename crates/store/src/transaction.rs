//! Transactions: Echo's local stores. Writes lie in memory until the commit.

use crate::commit::{Commit, Unit};
use crate::entries::Entries;
use crate::error::Result;
use crate::handle::StoreInner;
use crate::keyspace::Keyspace;
use crate::read_write_sets::{Reads, Writes};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Instant;

/// A transaction: reads one snapshot, with its own writes among what it reads, and commits all of its writes
/// or none.
///
/// The snapshot is the current one at the first operation, or the one that it was [begun
/// at](crate::Store::begin_at). Dropping it takes everything back, at no cost. `Send`, so that it can be
/// passed on; one thread at a time uses it.
pub struct Transaction {
    store: Arc<StoreInner>,
    snapshot: Option<Snapshot>,
    writes: BTreeMap<u64, Writes>,
    /// The entries that writes replaced, since the first savepoint.
    undo: Option<Vec<(u64, Vec<u8>, Replaced)>>,
    /// Its reads, if it is serializable.
    reads: Option<Reads>,
    /// Bytes of the keys and values that it was given.
    bytes: u64,
    /// When its snapshot was fixed, if that matters.
    begun: Option<Instant>,
}

/// The earlier write of a transaction to a key: none, a deletion, or a value.
pub(crate) type Replaced = Option<Option<Vec<u8>>>;

/// A point in a transaction to which it can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint(pub(crate) usize);

impl Transaction {
    pub(crate) fn new(store: &Arc<StoreInner>, snapshot: Option<Snapshot>) -> Transaction {
        Transaction {
            store: store.clone(),
            snapshot,
            writes: BTreeMap::new(),
            undo: None,
            reads: None,
            bytes: 0,
            begun: store.history.limits.begin(),
        }
    }

    pub(crate) fn serializable(store: &Arc<StoreInner>) -> Transaction {
        Transaction { reads: Some(Reads::default()), ..Transaction::new(store, None) }
    }

    /// The snapshot that it reads. Fixes it, if that has not been done.
    pub fn snapshot(&mut self) -> &Snapshot {
        let Transaction { store, snapshot, .. } = self;
        snapshot.get_or_insert_with(|| Snapshot::current(store))
    }

    /// The value of a key, as the transaction has written it, or as its snapshot has it. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`](crate::Error::OtherStore), and [`Error::Pool`](crate::Error::Pool) when the
    /// store is damaged.
    pub fn get(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        keyspace.check_store(&self.store)?;
        self.store.history.limits.check_age(self.begun)?;
        let key = key.as_ref();
        let own = self.writes.get(&keyspace.inner.id).and_then(|writes| writes.changes.get(key));
        if let Some(own) = own {
            return Ok(own.clone());
        }
        if let Some(reads) = &mut self.reads {
            let (_, keys) =
                reads.keys.entry(keyspace.inner.id).or_insert_with(|| (keyspace.clone(), BTreeSet::new()));
            keys.insert(key.to_vec());
        }
        self.snapshot().value(keyspace, key)
    }

    /// Gives a key a value.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`](crate::Error::OtherStore), and [`Error::Index`](crate::Error::Index) when the
    /// key or the value is too long.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        self.write(keyspace, key, Some(value))
    }

    /// Takes the value off a key. To delete a key that has no value at the commit changes nothing, and
    /// conflicts with nobody.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl Into<Vec<u8>>) -> Result<()> {
        self.write(keyspace, key.into(), None)
    }

    /// Deletes all keys in `bounds` that have a value in the transaction's view; returns how many.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get). What was deleted before the error stays so in the transaction.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<u64> {
        let mut count = 0;
        for entry in self.range(keyspace, bounds)? {
            self.write(keyspace, entry?.0, None)?;
            count += 1;
        }
        Ok(count)
    }

    /// The keys in `bounds` that have a value in the transaction's view, in their order, from both ends. What
    /// the transaction writes after this is not seen by the walk.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`](crate::Error::OtherStore).
    pub fn range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<Entries> {
        keyspace.check_store(&self.store)?;
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let bounds = (owned(bounds.start_bound()), owned(bounds.end_bound()));
        let own = match self.writes.get(&keyspace.inner.id) {
            Some(writes) if !crosses(&bounds) => writes
                .changes
                .range(bounds.clone())
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            _ => Vec::new(),
        };
        if let Some(reads) = &mut self.reads {
            reads.ranges.push((keyspace.clone(), bounds.clone()));
        }
        let snapshot = self.snapshot().clone();
        snapshot.check_retained(keyspace)?;
        Ok(Entries::new(snapshot, keyspace.clone(), bounds, own))
    }

    fn write(&mut self, keyspace: &Keyspace, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<()> {
        keyspace.check_store(&self.store)?;
        self.store.check_writable()?;
        check_lengths(&key, value.as_deref())?;
        let limits = &self.store.history.limits;
        limits.check_age(self.begun)?;
        let written = self.bytes + (key.len() + value.as_ref().map_or(0, Vec::len)) as u64;
        limits.check_bytes(written)?;
        // A transaction conflicts with what was committed since its first operation.
        self.snapshot().check_retained(keyspace)?;
        let writes = self
            .writes
            .entry(keyspace.inner.id)
            .or_insert_with(|| Writes { keyspace: keyspace.clone(), changes: BTreeMap::new() });
        match &mut self.undo {
            Some(undo) => {
                let before = writes.changes.insert(key.clone(), value);
                undo.push((keyspace.inner.id, key, before));
            }
            None => _ = writes.changes.insert(key, value),
        }
        self.bytes = written;
        Ok(())
    }

    /// Makes all writes durable, then visible, as the next snapshot; returns its number. A transaction that
    /// has written nothing returns the number of the snapshot that it read, and costs nothing. Otherwise one
    /// fence, shared with those who commit at the same time; two, with more than 2 KiB of new data.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`](crate::Error::Conflict) if a key that it writes was written after its snapshot;
    /// [`Error::Pool`](crate::Error::Pool) if the pool is full, damaged, or its device is. Then nothing of it
    /// was done.
    pub fn commit(mut self) -> Result<u64> {
        let begin = self.snapshot().number();
        if self.writes.is_empty() {
            return Ok(begin);
        }
        self.store.history.limits.check_age(self.begun)?;
        let unit = self.unit();
        self.store.commits.commit(&self.store, unit)
    }

    /// As [`commit`](Self::commit), but returns at once: what it returns is to be waited for, or polled.
    /// Commits that are asked for so share a fence.
    ///
    /// A transaction that begins before that has happened does not see this one, and conflicts with it if
    /// both write one key.
    pub fn commit_async(mut self) -> Commit {
        let unit = self.unit();
        self.store.commits.commit_async(&self.store, unit)
    }

    /// Takes out what is to be committed.
    fn unit(&mut self) -> Unit {
        let snapshot = self.snapshot.take().unwrap_or_else(|| Snapshot::current(&self.store));
        let writes = std::mem::take(&mut self.writes).into_values().collect();
        Unit { snapshot, writes, reads: self.reads.take() }
    }

    /// Takes everything back, as dropping it does.
    pub fn abort(self) {}

    /// A point to which [`rollback_to`](Self::rollback_to) goes back. From the first one on, each write keeps
    /// what it replaces.
    pub fn savepoint(&mut self) -> Savepoint {
        Savepoint(self.undo.get_or_insert_default().len())
    }

    /// Takes back what was written since the savepoint, which must be of this transaction. Those that were
    /// made after it are void then.
    ///
    /// # Panics
    ///
    /// If the savepoint is void.
    pub fn rollback_to(&mut self, to: Savepoint) {
        let undo = self.undo.get_or_insert_default();
        assert!(to.0 <= undo.len(), "a savepoint that is void, or of another transaction");
        for (id, key, before) in undo.drain(to.0..).rev() {
            let Some(writes) = self.writes.get_mut(&id) else { continue };
            let key_bytes = key.len();
            let taken_back = match before {
                Some(value) => writes.changes.insert(key, value),
                None => writes.changes.remove(&key),
            };
            self.bytes -= (key_bytes + taken_back.flatten().map_or(0, |value| value.len())) as u64;
            if writes.changes.is_empty() {
                self.writes.remove(&id);
            }
        }
    }

    /// Gives a key a value if it has none in the transaction's view; returns whether that was so.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get) and [`put`](Self::put).
    pub fn insert(
        &mut self,
        keyspace: &Keyspace,
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
        keyspace: &Keyspace,
        key: impl Into<Vec<u8>>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let key = key.into();
        let is_expected = self.get(keyspace, &key)?.as_deref() == expected;
        match new {
            Some(new) if is_expected => self.put(keyspace, key, new)?,
            None if is_expected => self.delete(keyspace, key)?,
            _ => {}
        }
        Ok(is_expected)
    }
}

/// Refuses keys and values that are too long.
#[inline]
pub(crate) fn check_lengths(key: &[u8], value: Option<&[u8]>) -> Result<()> {
    let (bytes, max_bytes) = (key.len() as u64, tembo_index::MAX_KEY_BYTES);
    if bytes > max_bytes {
        return Err(tembo_index::Error::KeyTooLong { bytes, max_bytes }.into());
    }
    let (bytes, max_bytes) = (value.map_or(0, |value| value.len() as u64), tembo_index::MAX_VALUE_BYTES);
    if bytes > max_bytes {
        return Err(tembo_index::Error::ValueTooLong { bytes, max_bytes }.into());
    }
    Ok(())
}

/// Whether bounds are in the wrong order, which a map's range does not take.
fn crosses((lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match (lower, upper) {
        (Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
            low > high
        }
        _ => false,
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let writes: usize = self.writes.values().map(|writes| writes.changes.len()).sum();
        f.debug_struct("Transaction").field("snapshot", &self.snapshot).field("writes", &writes).finish()
    }
}
