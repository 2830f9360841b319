//! Loading sorted keys, many of them with each commit.

use crate::error::{Error, Result};
use crate::handle::Store;
use crate::keyspace::Keyspace;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;

/// Keys of one commit, at most.
const GROUP_KEYS: u64 = 256;
/// Bytes of keys and values after which a commit is made, even if they are fewer.
const GROUP_BYTES: usize = 512 << 10;
/// Bytes of a key that an error shows.
const SHOWN_KEY_BYTES: usize = 64;

/// A bulk load that is under way: many keys with each commit, and no more memory than one commit needs.
///
/// It is not one transaction: others see what is loaded part by part, and a load that fails or is dropped
/// leaves the parts before. Each part is a transaction at the snapshot at which the load began. So a key that
/// somebody else has written since is a conflict, which is not tried again.
#[derive(Debug)]
pub struct BulkLoad {
    store: Store,
    keyspace: Keyspace,
    begin: Snapshot,
    tx: Transaction,
    last: Option<Vec<u8>>,
    /// Keys and bytes in the transaction.
    keys: u64,
    bytes: usize,
    loaded: u64,
    number: u64,
}

impl Store {
    /// Puts pairs into a keyspace whose keys ascend; returns how many. See [`BulkLoad`].
    ///
    /// # Errors
    ///
    /// As for [`BulkLoad::put`].
    pub fn bulk_load<K: Into<Vec<u8>>, V: Into<Vec<u8>>>(
        &self,
        keyspace: &Keyspace,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        let mut load = self.begin_bulk_load(keyspace)?;
        for (key, value) in pairs {
            load.put(key, value)?;
        }
        load.finish()?;
        Ok(load.loaded)
    }

    /// Begins a [bulk load](BulkLoad), for pairs that come one by one.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`], [`Error::KeyspaceDropped`].
    pub fn begin_bulk_load(&self, keyspace: &Keyspace) -> Result<BulkLoad> {
        keyspace.check_store(&self.inner)?;
        let begin = self.snapshot();
        let (tx, number) = (self.begin_at(&begin)?, begin.number());
        let (store, keyspace) = (self.clone(), keyspace.clone());
        Ok(BulkLoad { store, keyspace, begin, tx, last: None, keys: 0, bytes: 0, loaded: 0, number })
    }
}

impl BulkLoad {
    /// Gives a key a value. The key must be higher than the one before it.
    ///
    /// # Errors
    ///
    /// [`Error::NotSorted`]; [`Error::Conflict`] if somebody has written one of the keys since the load
    /// began; as for [`Transaction::put`] and [`Transaction::commit`]. The keys [before](Self::loaded) stay
    /// loaded.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            let shown = key[..key.len().min(SHOWN_KEY_BYTES)].to_vec();
            return Err(Error::NotSorted { key: shown, loaded: self.loaded });
        }
        self.keys += 1;
        self.bytes += key.len() + value.len();
        self.tx.put(&self.keyspace, key.clone(), value)?;
        self.last = Some(key);
        if self.keys >= GROUP_KEYS || self.bytes >= GROUP_BYTES {
            self.finish()?;
        }
        Ok(())
    }

    /// Commits the last part; returns the number of the commit. More can follow.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn finish(&mut self) -> Result<u64> {
        let next = self.store.begin_at(&self.begin)?;
        let tx = std::mem::replace(&mut self.tx, next);
        let keys = std::mem::take(&mut self.keys);
        self.bytes = 0;
        if keys > 0 {
            self.number = tx.commit()?;
            self.loaded += keys;
        }
        Ok(self.number)
    }

    /// How many keys are loaded: durable, and visible.
    pub fn loaded(&self) -> u64 {
        self.loaded
    }
}
