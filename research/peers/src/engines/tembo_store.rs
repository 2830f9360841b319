//! Tembo's versioned store, a transaction for each write.

use super::{Engine, Kind, Result, Setup, fits_all};
use tembo_pmem::Durability;
use tembo_pool::{Options, Pool};
use tembo_store::{Keyspace, Snapshot, Store};

pub(super) const KIND: Kind = Kind {
    id: "tembo-store",
    name: "Tembo, versioned store",
    version: || env!("CARGO_PKG_VERSION"),
    is_ours: true,
    fits: fits_all,
    open,
};

struct TemboStore {
    pool: Pool,
    store: Store,
    keyspace: Keyspace,
    durability: Durability,
    /// For lookups, once they may share one.
    shared: Option<Snapshot>,
}

fn open(setup: &Setup<'_>) -> Result<Box<dyn Engine>> {
    let mut options = Options::new().durability(setup.durability);
    options.create = true;
    let pool = Pool::open(setup.folder.join("peers.pool"), &options)?;
    let store = Store::open(&pool, "peers")?;
    let keyspace = store.keyspace("peers")?;
    Ok(Box::new(TemboStore { pool, store, keyspace, durability: setup.durability, shared: None }))
}

impl Engine for TemboStore {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.shared = None;
        self.store.put(&self.keyspace, key, value)?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.shared = None;
        self.store.delete(&self.keyspace, key)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = match &self.shared {
            Some(snapshot) => snapshot.get(&self.keyspace, key)?,
            None => self.store.get(&self.keyspace, key)?,
        };
        if let Some(value) = &value {
            look(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], limit: usize, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut entries = self.store.snapshot().range(&self.keyspace, from..)?;
        let mut met = 0;
        while met < limit {
            let Some((key, value)) = entries.advance()? else { break };
            look(key, value);
            met += 1;
        }
        Ok(met)
    }

    fn share_snapshot(&mut self) -> bool {
        self.shared = Some(self.store.snapshot());
        true
    }

    fn settings(&self) -> String {
        let instruction =
            self.pool.region().flush_instruction().map_or("none".to_owned(), |i| format!("{i:?}"));
        format!(
            "durability {}, flush instruction {instruction}; a transaction for each write",
            self.durability
        )
    }
}
