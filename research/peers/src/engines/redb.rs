//! redb: copy-on-write B+-trees in a file.

#[cfg(peer = "leveldb")]
use super::shared::{EngineHand, Hand, Shared, SharedKind};
use super::ticker::{Ticker, interval};
use super::{Engine, Kind, Result, Setup, array};
use crate::workload::Workload;
use redb::{AccessGuard, Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, TableError};
use std::ops::Range;
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

/// Commits that do not wait for the device, and one that does in each interval.
pub(super) const RELAXED_KIND: Kind = Kind {
    fits: |key_bytes, value_bytes| matches!((key_bytes, value_bytes), (8, 1024)),
    open: open_relaxed,
    ..KIND
};

const CACHE_BYTES: usize = 2 << 30;
/// Records of a transaction of those that fill a database.
const BATCH: usize = 1000;

/// Arrays as keys and values: redb stores what has a fixed length without its length.
struct Redb<const K: usize, const V: usize> {
    db: Arc<Database>,
    /// Makes an empty commit that waits in each interval, where the others do not.
    ticker: Option<Ticker>,
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
        Ok(Box::new(EngineHand(Redb::<8, 1024>::new(self.0.clone()))))
    }
}

fn open(setup: &Setup<'_>) -> Result<Box<dyn Engine>> {
    let db = create(setup)?;
    Ok(match (setup.key_bytes, setup.value_bytes) {
        (8, 8) => Box::new(Redb::<8, 8>::new(db)),
        (20, 8) => Box::new(Redb::<20, 8>::new(db)),
        (20, 100) => Box::new(Redb::<20, 100>::new(db)),
        (8, 1024) => Box::new(Redb::<8, 1024>::new(db)),
        (key, value) => return Err(format!("no table for keys of {key} and values of {value} bytes").into()),
    })
}

fn open_relaxed(setup: &Setup<'_>) -> Result<Box<dyn Engine>> {
    let db = create(setup)?;
    let synced = db.clone();
    let ticker = Ticker::start(interval(setup)?, move || commit_nothing(&synced))?;
    Ok(Box::new(Redb::<8, 1024> { ticker: Some(ticker), ..Redb::new(db) }))
}

/// Makes all commits before this one durable.
fn commit_nothing(db: &Database) -> Result<()> {
    let mut transaction = db.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    Ok(transaction.commit()?)
}

impl<const K: usize, const V: usize> Redb<K, V> {
    const TABLE: TableDefinition<'static, &'static [u8; K], &'static [u8; V]> = TableDefinition::new("peers");

    fn new(db: Arc<Database>) -> Redb<K, V> {
        Redb { db, ticker: None, snapshot: None }
    }

    /// The durability of commits of one record.
    fn durability(&self) -> Durability {
        if self.ticker.is_some() { Durability::None } else { Durability::Immediate }
    }

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
        transaction.set_durability(self.durability())?;
        transaction.open_table(Self::TABLE)?.insert(array::<K>(key)?, array::<V>(value)?)?;
        Ok(transaction.commit()?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.snapshot = None;
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(self.durability())?;
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

    fn fill(&mut self, workload: &mut Workload, indexes: Range<u64>) -> Result<()> {
        self.snapshot = None;
        let mut indexes = indexes.peekable();
        while indexes.peek().is_some() {
            let transaction = self.db.begin_write()?;
            let mut table = transaction.open_table(Self::TABLE)?;
            for index in indexes.by_ref().take(BATCH) {
                let (key, value) = workload.record(index);
                table.insert(array::<K>(key)?, array::<V>(value)?)?;
            }
            drop(table);
            transaction.commit()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        match &self.ticker {
            None => Ok(()),
            Some(ticker) => ticker.check().and_then(|()| commit_nothing(&self.db)),
        }
    }

    fn settings(&self) -> String {
        if self.ticker.is_some() {
            return "Durability::None, an empty commit with Durability::Immediate by a thread in each interval, 2 GiB \
                    cache, keys and values of fixed length"
                .to_owned();
        }
        "Durability::Immediate, one-phase commits, 2 GiB cache, keys and values of fixed length; read transaction \
         and table opened for each lookup"
            .to_owned()
    }
}
