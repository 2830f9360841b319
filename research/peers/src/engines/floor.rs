//! The floor: the least that a store of records does for the same promise, one fence for each change, in a
//! file mapped into memory.
//!
//! Records lie in slots of one size, each with a checksum, and a hash table in DRAM leads to them. There is
//! no order, no version, no other thread, and what a crash leaves could be found by reading the whole file
//! only.

use super::{Engine, Kind, Result, Setup};
use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use tembo_pmem::{Access, Durability, LINE_BYTES, Region, RegionOptions};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub(super) const KIND: Kind = Kind {
    id: "floor",
    name: "Floor: slots behind a hash table in DRAM",
    version: || env!("CARGO_PKG_VERSION"),
    is_ours: false,
    fits: |key_bytes, _| key_bytes <= KEY_MAX,
    open,
};

/// A record's head is a line: its checksum, or 0 where there is no record, and its key.
const KEY_OFF: usize = 8;
const KEY_MAX: usize = LINE_BYTES as usize - KEY_OFF;

/// Keys of the table are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

struct Slots {
    region: Region,
    key_bytes: usize,
    value_bytes: usize,
    /// The record of a key, by its hash.
    records: HashMap<u64, u64, BuildHasherDefault<AsItIs>>,
    /// Slots of records that were removed.
    free: Vec<u64>,
    /// Where slots begin that were never used.
    unused: u64,
}

fn open(setup: &Setup<'_>) -> Result<Box<dyn Engine>> {
    let path = setup.folder.join("floor");
    let file = File::create_new(path)?;
    file.set_len(setup.capacity_bytes)?;
    let options = RegionOptions { durability: Durability::Emulated, ..RegionOptions::default() };
    let region = Region::map_file(file, setup.capacity_bytes, &options, Access::ReadWrite)?;
    let &Setup { key_bytes, value_bytes, .. } = setup;
    Ok(Box::new(Slots {
        region,
        key_bytes,
        value_bytes,
        records: HashMap::default(),
        free: Vec::new(),
        unused: 0,
    }))
}

impl Slots {
    fn slot_bytes(&self) -> u64 {
        LINE_BYTES + (self.value_bytes as u64).next_multiple_of(LINE_BYTES)
    }
}

impl Engine for Slots {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if (key.len(), value.len()) != (self.key_bytes, self.value_bytes) {
            return Err("a key or a value of another length".into());
        }
        let hash = xxh3_64(key);
        let slot = self.free.pop().unwrap_or(self.unused);
        if self.records.insert(hash, slot).is_some() {
            return Err("a key that is there, or two with one hash".into());
        }
        self.unused = self.unused.max(slot + self.slot_bytes());
        let mut head = [0; LINE_BYTES as usize];
        head[KEY_OFF..][..key.len()].copy_from_slice(key);
        let sum = xxh3_64_with_seed(value, xxh3_64(&head[KEY_OFF..])) | 1;
        head[..KEY_OFF].copy_from_slice(&sum.to_le_bytes());
        // SAFETY: nobody else uses the file.
        unsafe {
            self.region.write_and_flush(slot + LINE_BYTES, value)?;
            self.region.write_and_flush(slot, &head)?;
        }
        // PERSIST: the record is complete when its checksum is right; durable from here on.
        self.region.fence()?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        let slot = self.records.remove(&xxh3_64(key)).ok_or("no such key")?;
        self.region.store_u64(slot, 0)?;
        self.region.flush(slot, 8);
        // PERSIST: the record has no checksum from here on, for good.
        self.region.fence()?;
        self.free.push(slot);
        Ok(())
    }

    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(slot) = self.records.get(&xxh3_64(key)) else { return Ok(false) };
        // SAFETY: nobody else uses the file, and this thread does not write meanwhile.
        let record = unsafe { self.region.bytes(*slot, LINE_BYTES + self.value_bytes as u64)? };
        let is_it = record[KEY_OFF..].starts_with(key);
        if is_it {
            look(&record[LINE_BYTES as usize..]);
        }
        Ok(is_it)
    }

    fn scan(&mut self, _: &[u8], limit: usize, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        // There is no order, so that this can only say whether there is anything.
        if self.records.is_empty() || limit == 0 { Ok(0) } else { Err("it has no order".into()) }
    }

    fn settings(&self) -> String {
        let instruction = self.region.flush_instruction().map_or("none".to_owned(), |i| i.to_string());
        format!(
            "{instruction}, one fence for each change; no order, no versions, one thread; after a crash the whole file would be read"
        )
    }
}
