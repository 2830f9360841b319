//! Tembo's map of byte strings.

use super::{Engine, Kind, Result, Setup, fits_all};
use tembo::{Durability, Map, Options, Pool};

pub(super) const KIND: Kind = Kind {
    id: "tembo",
    name: "Tembo, map of byte strings",
    version: || env!("CARGO_PKG_VERSION"),
    is_ours: true,
    fits: fits_all,
    open,
};

struct TemboMap {
    pool: Pool,
    map: Map,
    durability: Durability,
}

fn open(setup: &Setup<'_>) -> Result<Box<dyn Engine>> {
    let pool =
        Options::new().create(true).durability(setup.durability).open(setup.folder.join("peers.pool"))?;
    let map = pool.open_map("peers")?;
    Ok(Box::new(TemboMap { pool, map, durability: setup.durability }))
}

impl Engine for TemboMap {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.map.put(key, value)?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        match self.map.remove(key)? {
            true => Ok(()),
            false => Err("no such key".into()),
        }
    }

    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.map.get(key)?;
        if let Some(value) = &value {
            look(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], limit: usize, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut met = 0;
        for entry in self.map.range(from..).take(limit) {
            let entry = entry?;
            look(entry.key(), entry.value());
            met += 1;
        }
        Ok(met)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.pool.make_durable()?)
    }

    fn settings(&self) -> String {
        let instruction = self.pool.flush_instruction().map_or("none".to_owned(), |i| format!("{i:?}"));
        format!("durability {}, flush instruction {instruction}; other options by default", self.durability)
    }
}
