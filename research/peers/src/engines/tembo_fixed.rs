//! Tembo's map of 8-byte keys and values.

use super::{Engine, Kind, Result, Setup, array};
use tembo::{Durability, FixedMap, Options, Pool};

pub(super) const KIND: Kind = Kind {
    id: "tembo-fixed",
    name: "Tembo, map of 8-byte keys",
    version: || env!("CARGO_PKG_VERSION"),
    is_ours: true,
    fits: |key_bytes, value_bytes| (key_bytes, value_bytes) == (8, 8),
    open,
};

struct TemboFixed {
    pool: Pool,
    map: FixedMap,
    durability: Durability,
    records: Vec<(u64, u64)>,
}

fn open(setup: &Setup<'_>) -> Result<Box<dyn Engine>> {
    let pool =
        Options::new().create(true).durability(setup.durability).open(setup.folder.join("peers.pool"))?;
    let map = pool.open_fixed_map("peers")?;
    Ok(Box::new(TemboFixed { pool, map, durability: setup.durability, records: Vec::new() }))
}

/// Byte strings of 8 bytes are in the order of the numbers that they are in big-endian.
fn key_of(key: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(*array(key)?))
}

impl Engine for TemboFixed {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.map.put(key_of(key)?, u64::from_ne_bytes(*array(value)?))?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.map.remove(key_of(key)?)?.map(drop).ok_or_else(|| "no such key".into())
    }

    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.map.get(key_of(key)?)?;
        if let Some(value) = value {
            look(&value.to_ne_bytes());
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], limit: usize, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        self.records.clear();
        self.map.scan(key_of(from)?, limit, &mut self.records)?;
        for (key, value) in &self.records {
            look(&key.to_be_bytes(), &value.to_ne_bytes());
        }
        Ok(self.records.len())
    }

    fn settings(&self) -> String {
        let instruction = self.pool.flush_instruction().map_or("none".to_owned(), |i| format!("{i:?}"));
        format!("durability {}, flush instruction {instruction}; other options by default", self.durability)
    }
}
