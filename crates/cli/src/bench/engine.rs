//! The ordered maps that are measured: the standard library's and ours, behind one face.

use crate::args::PoolChoices;
use crate::failure::{Failure, Outcome};
use std::collections::BTreeMap;
use std::path::Path;
use tembo::{Durability, Map, MapOptions, Pool};

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 20;
/// A key.
pub(super) type Key = [u8; KEY_BYTES];

/// An ordered map from keys to numbers. If an engine is durable at all, every `put` and `remove` is durable
/// when it returns.
pub(super) trait Engine {
    fn put(&mut self, key: &Key, value: u64) -> Outcome;
    /// Puts several entries that become durable together.
    fn put_together(&mut self, entries: &[(Key, u64)]) -> Outcome;
    fn get(&self, key: &Key) -> Outcome<Option<u64>>;
    /// Whether the key was there.
    fn remove(&mut self, key: &Key) -> Outcome<bool>;
    /// Visits all entries in order; the sum of their values.
    fn scan(&self) -> Outcome<u64>;
}

/// The map of programs that need no durability.
#[derive(Default)]
pub(super) struct StandardMap {
    map: BTreeMap<Vec<u8>, u64>,
}

impl Engine for StandardMap {
    fn put(&mut self, key: &Key, value: u64) -> Outcome {
        self.map.insert(key.to_vec(), value);
        Ok(())
    }

    fn put_together(&mut self, entries: &[(Key, u64)]) -> Outcome {
        entries.iter().try_for_each(|(key, value)| self.put(key, *value))
    }

    fn get(&self, key: &Key) -> Outcome<Option<u64>> {
        Ok(self.map.get(&key[..]).copied())
    }

    fn remove(&mut self, key: &Key) -> Outcome<bool> {
        Ok(self.map.remove(&key[..]).is_some())
    }

    fn scan(&self) -> Outcome<u64> {
        Ok(self.map.values().fold(0, |sum, value| sum.wrapping_add(*value)))
    }
}

/// A map in a pool.
pub(super) struct PoolMap {
    pool: Pool,
    map: Map,
}

impl PoolMap {
    /// A new pool at `path`.
    pub(super) fn create(
        path: &Path,
        choices: &PoolChoices,
        durability: Durability,
        kind: MapOptions,
        count: bool,
    ) -> Outcome<PoolMap> {
        let pool = choices.options().durability(durability).count(count).create_new(true).open(path)?;
        let map = pool.open_map_with("bench", kind)?;
        Ok(PoolMap { pool, map })
    }
}

impl Engine for PoolMap {
    fn put(&mut self, key: &Key, value: u64) -> Outcome {
        self.map.put(key, value.to_le_bytes())?;
        Ok(())
    }

    fn put_together(&mut self, entries: &[(Key, u64)]) -> Outcome {
        let mut batch = self.pool.batch()?;
        for (key, value) in entries {
            batch.put(&self.map, key, &value.to_le_bytes())?;
        }
        Ok(batch.commit()?)
    }

    fn get(&self, key: &Key) -> Outcome<Option<u64>> {
        self.map.get(key)?.map(|value| number(&value)).transpose()
    }

    fn remove(&mut self, key: &Key) -> Outcome<bool> {
        Ok(self.map.remove(key)?)
    }

    fn scan(&self) -> Outcome<u64> {
        let mut sum = 0_u64;
        for entry in self.map.iter() {
            sum = sum.wrapping_add(number(entry?.value())?);
        }
        Ok(sum)
    }
}

fn number(value: &[u8]) -> Outcome<u64> {
    let bytes =
        value.try_into().map_err(|_| Failure::Failed("a value came back with another length".to_owned()))?;
    Ok(u64::from_le_bytes(bytes))
}
