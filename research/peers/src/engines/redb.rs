//! redb: copy-on-write B+-trees in a file.

#[cfg(peer = "leveldb")]
use super::shared::{EngineHand, Hand, Shared, SharedKind};
use super::{Engine, Kind, Result, Setup, array};
use redb::{AccessGuard, Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, TableError};
use std::sync::Arc;

pub(super) const KIND: Kind = Kind {
    id: "redb",
    name: "redb",
    version: || env!("PEERS_REDB"),
    is_ours: false,
    fits: |key_bytes, value_bytes| {
        matches!((key_bytes, value_bytes), (8, 8) | (20, 8) | (20, 100) | (8, 1024))
    },
    open,
};

const CACHE_BYTES: usize = 2 << 30;

/// Arrays as keys and values: redb stores what has a fixed length without its length.
struct Redb<const K: usize, const V: usize> {
    db: Arc<Database>,
    /// Read by all lookups, if they share one.
    snapshot: Option<ReadOnlyTable<&'static [u8; K], &'static [u8; V]>>,
}

/// A process in a small control group is told how much it may use.
fn cache_bytes() -> Result<usize> {
    std::env::var("PEERS_CACHE_BYTES").map_or(Ok(CACHE_BYTES), |bytes| Ok(bytes.parse()?))
}

fn create(setup: &Setup<'_>) -> Result<Arc<Database>> {
    let builder = &mut Database::builder();
    Ok(Arc::new(builder.set_cache_size(cache_bytes()?).create(setup.folder.join("peers.redb"))?))
}

/// A database for keys of 8 bytes and values of 1 KiB.
#[cfg(peer = "leveldb")]
struct SharedRedb(Arc<Database>);

#[cfg(peer = "leveldb")]
pub(super) const SHARED_KIND: SharedKind =
    SharedKind { name: KIND.name, open: |setup| Ok(Box::new(SharedRedb(create(setup)?))) };

#[cfg(peer = "leveldb")]
impl Shared for SharedRedb {
    fn hand(&self) -> Result<Box<dyn Hand + Send + '_>> {
        Ok(Box::new(EngineHand(Redb::<8, 1024> { db: self.0.clone(), snapshot: None })))
    }
}

fn open(setup: &Setup<'_>) -> Result<Box<dyn Engine>> {
    let db = create(setup)?;
    Ok(match (setup.key_bytes, setup.value_bytes) {
        (8, 8) => Box::new(Redb::<8, 8> { db, snapshot: None }),
        (20, 8) => Box::new(Redb::<20, 8> { db, snapshot: None }),
        (20, 100) => Box::new(Redb::<20, 100> { db, snapshot: None }),
        (8, 1024) => Box::new(Redb::<8, 1024> { db, snapshot: None }),
        (key, value) => return Err(format!("no table for keys of {key} and values of {value} bytes").into()),
    })
}

impl<const K: usize, const V: usize> Redb<K, V> {
    const TABLE: TableDefinition<'static, &'static [u8; K], &'static [u8; V]> = TableDefinition::new("peers");

    fn snapshot(&self) -> Result<Option<ReadOnlyTable<&'static [u8; K], &'static [u8; V]>>> {
        match self.db.begin_read()?.open_table(Self::TABLE) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn value_of(&self, key: &[u8; K]) -> Result<Option<AccessGuard<'static, &'static [u8; V]>>> {
        match &self.snapshot {
            Some(table) => Ok(table.get(key)?),
            None => match self.snapshot()? {
                Some(table) => Ok(table.get(key)?),
                None => Ok(None),
            },
        }
    }
}

impl<const K: usize, const V: usize> Engine for Redb<K, V> {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.snapshot = None;
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.open_table(Self::TABLE)?.insert(array::<K>(key)?, array::<V>(value)?)?;
        Ok(transaction.commit()?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.snapshot = None;
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.open_table(Self::TABLE)?.remove(array::<K>(key)?)?;
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.value_of(array::<K>(key)?)?;
        if let Some(value) = &value {
            look(value.value());
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], limit: usize, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let Some(table) = self.snapshot()? else { return Ok(0) };
        let mut met = 0;
        for record in table.range::<&[u8; K]>(array::<K>(from)?..)?.take(limit) {
            let (key, value) = record?;
            look(key.value(), value.value());
            met += 1;
        }
        Ok(met)
    }

    fn share_snapshot(&mut self) -> bool {
        self.snapshot = self.snapshot().ok().flatten();
        self.snapshot.is_some()
    }

    fn settings(&self) -> String {
        "Durability::Immediate, one-phase commits, 2 GiB cache, keys and values of fixed length; read transaction \
         and table opened for each lookup"
            .to_owned()
    }
}
