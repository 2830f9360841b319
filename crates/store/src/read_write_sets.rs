//! The writes and the reads of a transaction, as a commit gets them.

use crate::error::{Error, Result};
use crate::keyspace::{Keyspace, KeyspaceInner};
use crate::versions::{Table, Version};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tembo_pool::Tx;

/// Bytes of a key that an error shows.
const SHOWN_KEY_BYTES: usize = 64;

/// The writes of a transaction in one keyspace: a value for each key, or none for a deletion.
pub(crate) struct Writes {
    pub(crate) keyspace: Keyspace,
    pub(crate) changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// A key that a transaction gives a value, or takes it off.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) keyspace: &'a Keyspace,
    pub(crate) key: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
}

/// The changes of a transaction.
pub(crate) type Changes<'a> = SmallVec<[Change<'a>; 2]>;

/// The changes of a transaction's writes.
pub(crate) fn changes(writes: &[Writes]) -> Changes<'_> {
    let mut all = Changes::new();
    for Writes { keyspace, changes } in writes {
        all.extend(changes.iter().map(|(key, value)| Change { keyspace, key, value: value.as_deref() }));
    }
    all
}

/// Whether a transaction only takes values off keys, and frees space in the end.
pub(crate) fn only_deletes(changes: &[Change<'_>]) -> bool {
    changes.iter().all(|change| change.value.is_none())
}

/// The keys and ranges that a serializable transaction has read from its snapshot.
#[derive(Default)]
pub(crate) struct Reads {
    /// By the id of the keyspace.
    pub(crate) keys: BTreeMap<u64, (Keyspace, BTreeSet<Vec<u8>>)>,
    pub(crate) ranges: Vec<(Keyspace, (Bound<Vec<u8>>, Bound<Vec<u8>>))>,
}

impl Reads {
    /// Refuses reads that would show something else now. A key that was deleted since is found by its
    /// tombstone, which is there as long as the transaction is registered.
    pub(crate) fn validate(&self, tx: &Tx<'_>, begin: u64) -> Result<()> {
        for (keyspace, keys) in self.keys.values() {
            keyspace.inner.check_there()?;
            for key in keys {
                let table = keyspace.inner.table_in(tx, key)?;
                let last = table.map(|table| table.load(tx)).transpose()?.and_then(|loaded| loaded.last());
                check_conflict(&keyspace.inner, key, last, begin)?;
            }
        }
        for (keyspace, bounds) in &self.ranges {
            keyspace.inner.check_there()?;
            let mut walk = keyspace.inner.index.range(bounds.clone());
            while let Some((key, place)) = walk.advance_place()? {
                let last = Table::at(place)?.load(tx)?.last();
                check_conflict(&keyspace.inner, key, last, begin)?;
            }
        }
        Ok(())
    }
}

/// Refuses a key that was written after a snapshot.
pub(crate) fn check_conflict(
    keyspace: &KeyspaceInner,
    key: &[u8],
    last: Option<Version>,
    begin: u64,
) -> Result<()> {
    match last {
        Some(last) if last.number > begin => {
            let key = key[..key.len().min(SHOWN_KEY_BYTES)].to_vec();
            Err(Error::Conflict { keyspace: keyspace.name.clone(), key, by: last.number, snapshot: begin })
        }
        _ => Ok(()),
    }
}
