//! fjall: a log-structured merge tree whose journal is synced at each write.

#[cfg(peer = "leveldb")]
use super::shared::{EngineHand, Hand, Shared, SharedKind};
use super::{Engine, Kind, Result, Setup, fits_all};
use fjall::config::{BlockSizePolicy, CompressionPolicy, HashRatioPolicy, PinningPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

pub(super) const KIND: Kind = Kind {
    id: "fjall",
    name: "fjall",
    version: || env!("PEERS_FJALL"),
    is_ours: false,
    fits: fits_all,
    open,
};

const CACHE_BYTES: u64 = 2 << 30;
const WRITE_BUFFER_BYTES: u64 = 64 << 20;

#[cfg(peer = "leveldb")]
pub(super) const SHARED_KIND: SharedKind =
    SharedKind { name: KIND.name, open: |setup| Ok(Box::new(create(setup)?)) };

#[derive(Clone)]
struct Fjall {
    db: Database,
    keyspace: Keyspace,
}

fn keyspace_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(WRITE_BUFFER_BYTES)
        .data_block_compression_policy(CompressionPolicy::disabled())
        .data_block_size_policy(BlockSizePolicy::all(4096))
        .data_block_hash_ratio_policy(HashRatioPolicy::all(0.75))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .manual_journal_persist(true)
}

fn create(setup: &Setup<'_>) -> Result<Fjall> {
    let db = Database::builder(setup.folder).cache_size(CACHE_BYTES).open()?;
    let keyspace = db.keyspace("peers", keyspace_options)?;
    Ok(Fjall { db, keyspace })
}

fn open(setup: &Setup<'_>) -> Result<Box<dyn Engine>> {
    Ok(Box::new(create(setup)?))
}

#[cfg(peer = "leveldb")]
impl Shared for Fjall {
    fn hand(&self) -> Result<Box<dyn Hand + Send + '_>> {
        Ok(Box::new(EngineHand(self.clone())))
    }
}

impl Engine for Fjall {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value)?;
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key)?;
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key)?;
        if let Some(value) = &value {
            look(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], limit: usize, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut met = 0;
        for record in self.keyspace.range(from..).take(limit) {
            let (key, value) = record.into_inner()?;
            look(&key, &value);
            met += 1;
        }
        Ok(met)
    }

    fn settle(&mut self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        Ok(self.keyspace.major_compact()?)
    }

    fn settings(&self) -> String {
        "journal synced (fdatasync) at each write; 64 MiB write buffer, 2 GiB cache, default filters, filters and \
         indexes pinned, hash index in blocks, no compression; compacted wholly between the inserts and the reads"
            .to_owned()
    }
}
