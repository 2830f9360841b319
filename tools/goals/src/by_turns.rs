//! Trees of byte strings, with puts, gets and deletes by turns: the cost of versions, and of durability.

use crate::Error;
use crate::clock::ThreadTime;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::hint::black_box;
use tembo_index::{VersionedTree, WbTree};
use tembo_pmem::Durability;
use tembo_pool::{Lane, Options, Pool};

/// Bytes of a key, as in the paper.
pub const KEY_BYTES: usize = 25;
/// Operations that one tree does before it is the next one's turn.
const TURN: usize = 5_000;
/// Long values begin anywhere in so many random bytes.
const NOISE_BYTES: usize = 1 << 16;

/// A key.
pub type Key = [u8; KEY_BYTES];

/// A tree that takes part.
pub trait Bytes {
    /// Puts a new key.
    ///
    /// # Errors
    ///
    /// When there is no room.
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Error>;

    /// Shows the value of a key that is there.
    ///
    /// # Errors
    ///
    /// When it is not there.
    fn get(&self, key: &Key, look: &mut dyn FnMut(&[u8])) -> Result<(), Error>;

    /// Deletes a key that is there.
    ///
    /// # Errors
    ///
    /// When it is not there.
    fn delete(&mut self, key: &Key) -> Result<(), Error>;
}

/// The error of a side that lost a key.
pub fn absent() -> Error {
    "a key that was put is not there".into()
}

fn pool(durability: Durability) -> Result<Pool, Error> {
    let shared = std::path::Path::new("/dev/shm");
    let folder = if shared.is_dir() { tempfile::tempdir_in(shared)? } else { tempfile::tempdir()? };
    let mut options = Options::new().durability(durability);
    options.create_new = true;
    Ok(Pool::open(folder.path().join("bytes.pool"), &options)?)
}

/// The CDDS tree.
///
/// # Errors
///
/// When no pool can be made.
pub fn cdds(durability: Durability) -> Result<Box<dyn Bytes>, Error> {
    Ok(Box::new(VersionedTree::create(&pool(durability)?, "bytes")?))
}

/// The wB+-Tree of byte strings.
///
/// # Errors
///
/// When no pool can be made.
pub fn wbtree(durability: Durability) -> Result<Box<dyn Bytes>, Error> {
    let pool = pool(durability)?;
    let mut lane = pool.lane()?;
    let mut tx = lane.begin();
    let map = WbTree::create(&mut tx, "bytes")?;
    tx.commit()?;
    Ok(Box::new(WbMap { map, lane }))
}

impl Bytes for VersionedTree {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Error> {
        VersionedTree::put(self, key, value)?;
        Ok(())
    }

    fn get(&self, key: &Key, look: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let reader = self.reader();
        look(&reader.get(key)?.ok_or_else(absent)?);
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<(), Error> {
        if self.remove(key)? { Ok(()) } else { Err(absent()) }
    }
}

struct WbMap {
    map: WbTree,
    lane: Lane,
}

impl Bytes for WbMap {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Error> {
        let mut tx = self.lane.begin();
        self.map.put(&mut tx, key, &[value])?;
        Ok(tx.commit()?)
    }

    fn get(&self, key: &Key, look: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        look(&self.map.get_pinned(key)?.ok_or_else(absent)?);
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<(), Error> {
        let mut tx = self.lane.begin();
        if !self.map.remove(&mut tx, key)? {
            return Err(absent());
        }
        Ok(tx.commit()?)
    }
}

/// The three operations, in the order of results.
pub const OPERATIONS: [&str; 3] = ["put", "get", "delete"];

/// Nanoseconds of each of [`OPERATIONS`] for each tree: `keys` random keys with values of `value_bytes` are
/// put, got and deleted, each time in another order; processor time. A get reads a byte of each line of the
/// value.
///
/// # Errors
///
/// When a tree fails or loses something.
pub fn by_turns(
    sides: &mut [Box<dyn Bytes>],
    keys: usize,
    value_bytes: usize,
    seed: u64,
) -> Result<Vec<[f64; 3]>, Error> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut noise = vec![0; NOISE_BYTES + value_bytes];
    random.fill(&mut noise[..]);
    let value = |key: &Key| {
        let start = usize::from(u16::from_be_bytes([key[2], key[3]]));
        &noise[start..start + value_bytes]
    };
    let mut order: Vec<Key> = (0..keys as u64).map(key).collect();
    let mut results = vec![[0.0; 3]; sides.len()];
    for (operation, _) in OPERATIONS.iter().enumerate() {
        order.shuffle(&mut random);
        for (number, turn) in order.chunks(TURN).enumerate() {
            for place in 0..sides.len() {
                // Another one is the first in each turn.
                let at = (number + place) % sides.len();
                let side = &mut *sides[at];
                let start = ThreadTime::now();
                match operation {
                    0 => turn.iter().try_for_each(|key| side.put(key, value(key)))?,
                    1 => turn.iter().try_for_each(|key| look_up(side, key, value(key)))?,
                    _ => turn.iter().try_for_each(|key| side.delete(key))?,
                }
                results[at][operation] += start.elapsed_ns() as f64 / keys as f64;
            }
        }
    }
    Ok(results)
}

fn look_up(side: &dyn Bytes, key: &Key, value: &[u8]) -> Result<(), Error> {
    let mut found = None;
    side.get(key, &mut |bytes| {
        found = Some((bytes.len(), bytes[0]));
        black_box(bytes.iter().step_by(64).fold(0, |sum, byte| sum ^ byte));
    })?;
    if found == Some((value.len(), value[0])) { Ok(()) } else { Err("a key has another value".into()) }
}

/// A key whose order has nothing to do with its number: hexadecimal digits.
pub fn key(number: u64) -> Key {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    std::array::from_fn(|at| match at {
        0..16 => b"0123456789abcdef"[(mixed >> (60 - 4 * at)) as usize & 15],
        _ => b"0123456789abcdef"[(number >> (4 * (at - 16))) as usize & 15],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That keys and values are right, and are gone, is part of the run.
    #[test]
    fn all_trees_run_by_turns() {
        let mut sides = vec![
            cdds(Durability::Emulated).unwrap(),
            cdds(Durability::PageCache).unwrap(),
            wbtree(Durability::Emulated).unwrap(),
        ];
        for value_bytes in [8, 2048] {
            let results = by_turns(&mut sides, 6_000, value_bytes, 1).unwrap();
            assert!(results.iter().flatten().all(|ns| *ns > 0.0));
            for side in &sides {
                assert!(side.get(&key(5), &mut |_| ()).is_err());
            }
        }
    }
}
