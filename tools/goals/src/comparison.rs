//! Two maps side by side in one run, by turns: what the machine does to one it does to the other.

use crate::Error;
use crate::clock::ThreadTime;
use crate::goals::Value;
use std::collections::BTreeMap;
use std::hint::black_box;

/// Operations that one side does before it is the other's turn.
const TURN: usize = 10_000;
/// Entries of a scan.
pub(crate) const SCAN_LENGTH: usize = 100;

/// A map that takes part. A key is never inserted twice.
pub(crate) trait Contender<K> {
    /// Adds a key; durable when it returns, where that means something.
    fn insert(&mut self, key: &K, value: u64) -> Result<(), Error>;
    /// The value of a key.
    fn lookup(&self, key: &K) -> Result<Option<u64>, Error>;
    /// Removes a key; whether it was there.
    fn delete(&mut self, key: &K) -> Result<bool, Error>;
    /// The sum of up to [`SCAN_LENGTH`] values from a key on, wrapping.
    fn scan(&self, from: &K) -> Result<u64, Error>;
}

impl<K: Ord + Clone> Contender<K> for BTreeMap<K, u64> {
    #[inline(always)]
    fn insert(&mut self, key: &K, value: u64) -> Result<(), Error> {
        BTreeMap::insert(self, key.clone(), value);
        Ok(())
    }

    #[inline(always)]
    fn lookup(&self, key: &K) -> Result<Option<u64>, Error> {
        Ok(self.get(key).copied())
    }

    #[inline(always)]
    fn delete(&mut self, key: &K) -> Result<bool, Error> {
        Ok(self.remove(key).is_some())
    }

    #[inline(always)]
    fn scan(&self, from: &K) -> Result<u64, Error> {
        let values = self.range(from..).take(SCAN_LENGTH);
        Ok(values.fold(0, |sum, (_, value)| sum.wrapping_add(*value)))
    }
}

/// Nanoseconds of both sides.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Times {
    ours_ns: u64,
    theirs_ns: u64,
}

impl Times {
    pub(crate) fn per_operation(self, operations: usize) -> Value {
        Value {
            value: self.ours_ns as f64 / operations as f64,
            ratio: self.ours_ns as f64 / self.theirs_ns as f64,
        }
    }
}

/// The outcome of comparing two maps: nanoseconds, and the ratio to the other map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comparison {
    pub(crate) insert: Value,
    pub(crate) lookup: Value,
    pub(crate) scan: Value,
    pub(crate) delete: Value,
}

/// Fills two empty maps with `keys` in their order, and looks up, scans and deletes in the order of `others`,
/// which are the same keys.
///
/// # Errors
///
/// When a map fails.
///
/// # Panics
///
/// When the maps disagree.
pub(crate) fn compare<K>(
    ours: &mut impl Contender<K>,
    theirs: &mut impl Contender<K>,
    keys: &[K],
    others: &[K],
) -> Result<Comparison, Error> {
    let insert = by_turns(
        ours,
        theirs,
        keys,
        |side, turn| turn.iter().zip(0..).try_for_each(|(key, value)| side.insert(key, value)),
        |side, turn| turn.iter().zip(0..).try_for_each(|(key, value)| side.insert(key, value)),
    )?;
    let (mut our_sum, mut their_sum) = (0u64, 0u64);
    let lookup = by_turns(
        ours,
        theirs,
        others,
        |side, turn| turn.iter().try_for_each(|key| add(&mut our_sum, side.lookup(key)?.unwrap_or(u64::MAX))),
        |side, turn| {
            turn.iter().try_for_each(|key| add(&mut their_sum, side.lookup(key)?.unwrap_or(u64::MAX)))
        },
    )?;
    let starts = &others[..others.len() / 10];
    let scan = by_turns(
        ours,
        theirs,
        starts,
        |side, turn| turn.iter().try_for_each(|key| add(&mut our_sum, side.scan(key)?)),
        |side, turn| turn.iter().try_for_each(|key| add(&mut their_sum, side.scan(key)?)),
    )?;
    let delete = by_turns(
        ours,
        theirs,
        others,
        |side, turn| turn.iter().try_for_each(|key| add(&mut our_sum, u64::from(side.delete(key)?))),
        |side, turn| turn.iter().try_for_each(|key| add(&mut their_sum, u64::from(side.delete(key)?))),
    )?;
    assert_eq!(our_sum, their_sum, "the maps disagree");
    Ok(Comparison {
        insert: insert.per_operation(keys.len()),
        lookup: lookup.per_operation(others.len()),
        scan: scan.per_operation(starts.len()),
        delete: delete.per_operation(others.len()),
    })
}

#[inline(always)]
fn add(sum: &mut u64, value: u64) -> Result<(), Error> {
    *sum = sum.wrapping_add(black_box(value));
    Ok(())
}

/// Lets both sides do their part of every turn, the order changing from turn to turn.
pub(crate) fn by_turns<K, A, B>(
    ours: &mut A,
    theirs: &mut B,
    keys: &[K],
    mut our_part: impl FnMut(&mut A, &[K]) -> Result<(), Error>,
    mut their_part: impl FnMut(&mut B, &[K]) -> Result<(), Error>,
) -> Result<Times, Error> {
    let mut times = Times::default();
    for (number, turn) in keys.chunks(TURN).enumerate() {
        for first in [true, false] {
            let start = ThreadTime::now();
            if (number % 2 == 0) == first {
                our_part(ours, turn)?;
                times.ours_ns += start.elapsed_ns();
            } else {
                their_part(theirs, turn)?;
                times.theirs_ns += start.elapsed_ns();
            }
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_maps_agree_and_are_both_emptied() {
        let keys: Vec<u64> = (0..25_000).map(|i| i * 7919 % 25_000).collect();
        let others: Vec<u64> = (0..25_000).rev().collect();
        let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
        let comparison = compare(&mut a, &mut b, &keys, &others).unwrap();
        assert!(a.is_empty() && b.is_empty());
        assert!(comparison.insert.value > 0.0 && comparison.scan.ratio > 0.0);
    }

    #[test]
    #[should_panic(expected = "disagree")]
    fn different_maps_are_noticed() {
        let mut theirs = BTreeMap::from([(9u64, 9u64)]);
        compare(&mut BTreeMap::new(), &mut theirs, &[1, 2], &[1, 9]).unwrap();
    }
}
