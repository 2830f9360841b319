//! Tembo's CDDS tree: with flushes and fences, and without.

use super::{Engine, Kind, Result, Setup, fits_all};
use tembo_index::VersionedTree;
use tembo_pmem::Durability;
use tembo_pool::{Options, Pool};

pub(super) const KIND: Kind = Kind {
    id: "tembo-cdds",
    name: "Tembo, CDDS tree",
    version: || env!("CARGO_PKG_VERSION"),
    is_ours: true,
    fits: fits_all,
    open: |setup| open(setup, Durability::Emulated),
};

/// The same code in a domain in which flushes and fences do nothing. What the records of its commits hold is
/// written all the same.
pub(super) const VOLATILE_KIND: Kind = Kind {
    id: "tembo-cdds-volatile",
    name: "Tembo, CDDS tree, no flushes",
    open: |setup| open(setup, Durability::PageCache),
    ..KIND
};

struct Tree {
    pool: Pool,
    tree: VersionedTree,
}

fn open(setup: &Setup<'_>, durability: Durability) -> Result<Box<dyn Engine>> {
    let mut options = Options::new().durability(durability);
    options.create = true;
    let pool = Pool::open(setup.folder.join("peers.pool"), &options)?;
    let tree = match VersionedTree::open(&pool, "peers")? {
        Some(tree) => tree,
        None => VersionedTree::create(&pool, "peers")?,
    };
    Ok(Box::new(Tree { pool, tree }))
}

impl Engine for Tree {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.tree.put(key, value)?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        match self.tree.remove(key)? {
            true => Ok(()),
            false => Err("no such key".into()),
        }
    }

    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let reader = self.tree.reader();
        let value = reader.get(key)?;
        if let Some(value) = &value {
            look(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], limit: usize, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut met = 0;
        for entry in self.tree.reader().range(from..).take(limit) {
            let entry = entry?;
            look(entry.key(), entry.value());
            met += 1;
        }
        Ok(met)
    }

    fn settings(&self) -> String {
        let instruction = self.pool.region().flush_instruction().map_or("none".to_owned(), |i| i.to_string());
        format!("flush instruction: {instruction}; other options by default")
    }
}
