//! The cost of changes in the compared trees: counted in words, lines and fences, and timed on this machine.

use super::sides::{Side, SideKind};
use crate::counts::Metrics;
use crate::mem::RealMem;
use crate::runs::GROUPS;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_goals::Error;
use tembo_goals::clock::ThreadTime;
use tembo_goals::stats::median;
use tembo_pmem::{Durability, Region, snapshot};

/// Averages of a tree's operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// [`SideKind::name`].
    pub name: &'static str,
    /// Putting new keys.
    pub put: Metrics,
    /// Putting keys that are there.
    pub replace: Metrics,
    /// Deleting keys.
    pub delete: Metrics,
}

/// Nanoseconds of a tree's operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// Putting new keys.
    pub put: f64,
    /// Getting them.
    pub get: f64,
    /// Putting keys that are there.
    pub replace: f64,
    /// Deleting them.
    pub delete: f64,
}

/// A key whose order has nothing to do with its number.
fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The keys of so many numbers, in random order.
fn shuffled(count: usize, seed: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..count as u64).map(key).collect();
    keys.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    keys
}

fn with_value(keys: &[u64], value: u64) -> Vec<(u64, u64)> {
    keys.iter().map(|key| (*key, value)).collect()
}

/// Counts what it costs to put `keys` keys, to put them again, and to delete them, each time in another
/// random order.
///
/// # Errors
///
/// When there is no room.
pub fn count(keys: usize, seed: u64) -> Result<Vec<Row>, Error> {
    SideKind::ALL.into_iter().map(|kind| count_one(kind, keys, seed)).collect()
}

fn count_one(kind: SideKind, keys: usize, seed: u64) -> Result<Row, Error> {
    let bytes = SideKind::room(keys);
    let mut side = kind.create(Region::simulated(&vec![0; bytes as usize], bytes, None)?)?;
    let cost = |work: &mut dyn FnMut() -> Result<(), Error>| {
        let before = snapshot();
        work()?;
        let cost = snapshot() - before;
        let each = |sum: u64| sum as f64 / keys as f64;
        Ok::<_, Error>(Metrics {
            words: each(cost.words),
            lines: each(cost.lines),
            fences: each(cost.fences),
        })
    };
    let order = |turn| shuffled(keys, seed + turn);
    let put = cost(&mut || side.put(&with_value(&order(0), 1)))?;
    let replace = cost(&mut || side.put(&with_value(&order(1), 2)))?;
    let delete = cost(&mut || side.delete(&order(2)))?;
    Ok(Row { name: kind.name(), put, replace, delete })
}

/// Times the same and gets between, with the flushes and fences of persistent memory; medians of groups,
/// processor time.
///
/// # Errors
///
/// When there is no room.
pub fn time(kind: SideKind, keys: usize, seed: u64) -> Result<Times, Error> {
    let region = RealMem::anonymous(SideKind::room(keys), Durability::Emulated, false)?.into_region();
    let mut side = kind.create(region)?;
    let order = |turn| shuffled(keys, seed + turn);
    let put = timed(&with_value(&order(0), 1), |group| side.put(group))?;
    let get = timed(&order(1), |group| {
        group.iter().try_for_each(|key| match side.get(*key)? {
            Some(1) => Ok(()),
            other => Err(format!("the value of {key} is {other:?}").into()),
        })
    })?;
    let replace = timed(&with_value(&order(2), 2), |group| side.put(group))?;
    let delete = timed(&order(3), |group| side.delete(group))?;
    Ok(Times { put, get, replace, delete })
}

fn timed<T>(all: &[T], mut work: impl FnMut(&[T]) -> Result<(), Error>) -> Result<f64, Error> {
    let mut times = Vec::new();
    for group in all.chunks(all.len().div_ceil(GROUPS)) {
        let start = ThreadTime::now();
        work(group)?;
        times.push(start.elapsed_ns() as f64 / group.len() as f64);
    }
    Ok(median(times.into_iter()))
}

/// Puts keys of a tree that was just made, for what is measured after that.
///
/// # Errors
///
/// When there is no room.
pub fn load(side: &mut dyn Side, keys: usize, seed: u64) -> Result<Vec<u64>, Error> {
    let keys = shuffled(keys, seed);
    side.put(&with_value(&keys, 1))?;
    Ok(keys)
}
