//! Changes between two snapshots: a walk over the keys of a keyspace that compares what both have.

use crate::entries::is_empty;
use crate::error::{Error, Result};
use crate::handle::Store;
use crate::keyspace::Keyspace;
use crate::layout::ValueWord;
use crate::snapshot::Snapshot;
use crate::versions::{Table, Version, read_value};
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::Bound;
use std::sync::Arc;

/// Keys of the index that are looked at in one go, at most.
const BATCH: usize = 64;
/// A batch ends with the change that brings its keys and values to so many bytes.
const BATCH_BYTES: usize = 128 << 10;

/// A key that has another value in one snapshot than in another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// Its value in the first snapshot, if it had one.
    pub before: Option<Vec<u8>>,
    /// Its value in the second snapshot, if it had one.
    pub after: Option<Vec<u8>>,
}

/// The keys of a keyspace that differ between two snapshots, in their order ([`Store::changes`]). Owns both.
///
/// Looks at some 64 keys at a time, fewer if their values are long, so that it holds no memory of the store
/// between two steps. After an error it ends.
pub struct Changes {
    from: Snapshot,
    to: Snapshot,
    keyspace: Keyspace,
    /// The last key that was looked at.
    at: Bound<Vec<u8>>,
    is_read: bool,
    found: VecDeque<Change>,
}

impl Store {
    /// The keys of a keyspace whose values differ between two snapshots, in the order of the keys. A key that
    /// was written between them, and has the value that it had, is not among them. Either snapshot may be the
    /// older one.
    ///
    /// Looks at every key of the keyspace, and reads values only of those that were written between the
    /// snapshots.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`], [`Error::KeyspaceDropped`], and [`Error::NotRetained`] if the keyspace lacks a
    /// snapshot. While it walks, [`Error::SnapshotGone`] if one was revoked, and [`Error::Pool`] if the store
    /// is damaged.
    pub fn changes(&self, from: &Snapshot, to: &Snapshot, keyspace: &Keyspace) -> Result<Changes> {
        keyspace.check_store(&self.inner)?;
        for snapshot in [from, to] {
            if !Arc::ptr_eq(&snapshot.store, &self.inner) {
                return Err(Error::OtherStore { name: snapshot.store.name.clone() });
            }
            snapshot.check_retained(keyspace)?;
        }
        Ok(Changes {
            from: from.clone(),
            to: to.clone(),
            keyspace: keyspace.clone(),
            at: Bound::Unbounded,
            is_read: from.number() == to.number(),
            found: VecDeque::new(),
        })
    }
}

impl Changes {
    /// The two snapshots, as they were given.
    pub fn snapshots(&self) -> (&Snapshot, &Snapshot) {
        (&self.from, &self.to)
    }

    /// Goes on after a place that [`place`](Self::place) has given.
    pub(crate) fn after(self, place: Bound<Vec<u8>>) -> Changes {
        Changes { at: place, ..self }
    }

    /// The last key that was looked at; `None` at the end of the keyspace.
    pub(crate) fn place(&self) -> Option<&Bound<Vec<u8>>> {
        (!self.is_read).then_some(&self.at)
    }

    /// The changes among the next keys, of which there may be none.
    pub(crate) fn batch(&mut self) -> Result<impl Iterator<Item = Change> + '_> {
        if !self.is_read {
            let outcome = self.read_batch();
            // The result is right only if nothing of the snapshots had been given up by then.
            self.from.check_there(&self.keyspace)?;
            self.to.check_there(&self.keyspace)?;
            outcome?;
        }
        Ok(self.found.drain(..))
    }

    fn fill(&mut self) -> Result<()> {
        while !self.is_read && self.found.is_empty() {
            let found = self.batch()?.collect();
            self.found = found;
        }
        Ok(())
    }

    fn read_batch(&mut self) -> Result<()> {
        let Changes { from, to, keyspace, at, is_read, found } = self;
        let bounds = (at.clone(), Bound::Unbounded);
        if is_empty(&bounds) {
            *is_read = true;
            return Ok(());
        }
        let pool = from.store.pool.clone();
        let region = pool.region();
        // The pin of the walk keeps the tables, and what a drop of the keyspace frees after this look.
        let mut walk = keyspace.inner.index.range(bounds);
        keyspace.inner.check_there()?;
        let mut bytes = 0;
        for step in 1..=BATCH {
            let Some((key, place)) = walk.advance_place()? else {
                *is_read = true;
                return Ok(());
            };
            let table = Table::at(place)?;
            let versions = [from.number(), to.number()].map(|number| table.find(region, number));
            let [first, second] = versions;
            let versions = [first?.version, second?.version];
            if versions[0] != versions[1] {
                let read = |version: Option<Version>| match version {
                    None | Some(Version { value: ValueWord::Tombstone, .. }) => Ok(None),
                    Some(version) => read_value(region, version.value, table.off),
                };
                let (before, after) = (read(versions[0])?, read(versions[1])?);
                if before != after {
                    let values = [&before, &after].into_iter().flatten();
                    bytes += key.len() + values.map(Vec::len).sum::<usize>();
                    found.push_back(Change { key: key.to_vec(), before, after });
                }
            }
            if step == BATCH || bytes >= BATCH_BYTES {
                *at = Bound::Excluded(key.to_vec());
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Result<Change>> {
        match self.fill() {
            Ok(()) => self.found.pop_front().map(Ok),
            Err(e) => {
                self.is_read = true;
                self.found.clear();
                Some(Err(e))
            }
        }
    }
}

impl FusedIterator for Changes {}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}
