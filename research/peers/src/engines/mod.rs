//! The engines under comparison, behind one trait.

mod cdds;
mod fjall;
mod floor;
pub(crate) mod native;
mod redb;
#[cfg(peer = "leveldb")]
pub(crate) mod shared;
mod tembo;
mod tembo_fixed;
mod tembo_store;
mod ticker;

use crate::workload::Workload;
use std::ops::Range;
use std::path::Path;
use tembo_pmem::Durability;

/// The result of an engine; a run ends with the first error.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The settings with which an engine is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup<'a> {
    /// Exists; empty unless a database is reopened.
    pub(crate) folder: &'a Path,
    /// The length of every key.
    pub(crate) key_bytes: usize,
    /// The length of every value.
    pub(crate) value_bytes: usize,
    /// More than the data will take, for engines that must know it beforehand.
    pub(crate) capacity_bytes: u64,
    /// When a write of ours is durable; the others sync.
    pub(crate) durability: Durability,
}

/// An open database. Keys are ordered as byte strings. A write that returned is as durable as
/// [`Setup::folder`]'s file system allows; a lookup sees every write that returned before it.
pub(crate) trait Engine {
    /// Writes a record whose key is new. Those of [`relaxed`] replace the value of a key that is there.
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a record that is there.
    fn remove(&mut self, key: &[u8]) -> Result<()>;

    /// Shows the value of `key` to `look`, in place if the engine can; returns whether there is one.
    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows up to `limit` records to `look`, in order, from the first whose key is at least `from`; returns
    /// how many.
    fn scan(&mut self, from: &[u8], limit: usize, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;

    /// Writes records whose keys are new, in batches if the engine gains by them.
    fn fill(&mut self, workload: &mut Workload, indexes: Range<u64>) -> Result<()> {
        for index in indexes {
            let (key, value) = workload.record(index);
            self.insert(key, value)?;
        }
        Ok(())
    }

    /// Makes every write that returned durable, where a write does not wait for that.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    /// Does, outside the measured time, what a patient operator would let the engine do before reading.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// From now on lets lookups share one snapshot, which is fresh as long as nobody writes; returns whether
    /// the engine has such a thing.
    fn share_snapshot(&mut self) -> bool {
        false
    }

    /// The settings that this program asked for, and those that it got.
    fn settings(&self) -> String;
}

/// An engine by name.
pub(crate) struct Kind {
    /// By which the command line calls it.
    pub(crate) id: &'static str,
    /// As it stands in tables.
    pub(crate) name: &'static str,
    /// The version of its library.
    pub(crate) version: fn() -> &'static str,
    /// Whether it is Tembo.
    pub(crate) is_ours: bool,
    /// Whether it can have keys and values of these lengths.
    pub(crate) fits: fn(key_bytes: usize, value_bytes: usize) -> bool,
    /// Opens or creates a database.
    pub(crate) open: fn(&Setup<'_>) -> Result<Box<dyn Engine>>,
}

/// Every engine that this program was built with, ours first: the first of ours that fits is what ratios
/// refer to.
pub(crate) fn all() -> Vec<Kind> {
    let mut kinds = vec![tembo_fixed::KIND, tembo::KIND, tembo_store::KIND, cdds::KIND];
    kinds.extend(native::kinds());
    kinds.extend([redb::KIND, fjall::KIND]);
    kinds
}

/// The engines whose writes do not wait for a disk, and are synchronised with it in intervals: that of
/// [`Setup::durability`], which is [`Durability::Relaxed`].
pub(crate) fn relaxed() -> Vec<Kind> {
    let mut kinds = vec![tembo::KIND];
    kinds.extend(native::relaxed_kinds());
    kinds.push(redb::RELAXED_KIND);
    kinds
}

/// For the figure of the CDDS tree: engines in other ways, with other settings and without durability, and
/// the floor.
pub(crate) fn others() -> Vec<Kind> {
    let mut kinds = vec![cdds::VOLATILE_KIND, floor::KIND];
    kinds.extend(native::other_kinds());
    kinds
}

/// The Debian packages of engines that this program was built without.
pub(crate) fn missing() -> Vec<&'static str> {
    env!("PEERS_MISSING").split_whitespace().collect()
}

/// For engines that take any keys and values.
fn fits_all(_key_bytes: usize, _value_bytes: usize) -> bool {
    true
}

/// For scans of engines whose keys a library orders: `key` as an array.
fn array<const N: usize>(key: &[u8]) -> Result<&[u8; N]> {
    key.try_into().map_err(|_| format!("{} bytes where {N} were promised", key.len()).into())
}
