//! Removing all records between two keys, leaf by leaf in the order of keys.

use super::WbTree;
use super::layout::LEAF_SLOTS;
use super::node::{Record, View};
use super::scan::{descend_fenced, goal_from, is_above, is_below, key_of, owned_bounds};
use crate::direction::Direction;
use crate::error::Result;
use std::ops::{Bound, RangeBounds};
use tembo_pool::{Geometry, Tx};

/// The keys that were not looked at yet.
#[derive(Clone)]
struct Rest {
    /// None when all were.
    lower: Option<Bound<Vec<u8>>>,
    upper: Bound<Vec<u8>>,
}

impl Rest {
    fn of<K: AsRef<[u8]>>(bounds: impl RangeBounds<K>) -> Rest {
        let (lower, upper) = owned_bounds(bounds);
        Rest { lower: Some(lower), upper }
    }
}

/// The number of records that one transaction removes. A removal changes at most two words, which take 32
/// bytes of the redo record. Two such redo records must fit into half a lane: if only one did, the next would
/// need space elsewhere.
fn group_records(geometry: &Geometry) -> u64 {
    u64::from(geometry.lane_bytes / 128).saturating_sub(6).max(1)
}

impl WbTree {
    /// Removes the records whose keys lie in `bounds`; returns how many. O(log n) per leaf of 28 records.
    ///
    /// The transaction needs memory, and until its end space in the pool, in proportion to the number of
    /// records. [`remove_range_in_groups`](Self::remove_range_in_groups) does not.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is damaged. The transaction is then unchanged, and
    /// can go on.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn remove_range<K: AsRef<[u8]>>(&self, tx: &mut Tx<'_>, bounds: impl RangeBounds<K>) -> Result<u64> {
        self.assert_writes(tx);
        let rest = Rest::of(bounds);
        self.change(tx, |tx| self.sweep(tx, &mut rest.clone(), u64::MAX))
    }

    /// Removes the records whose keys lie in `bounds`, in the order of their keys, some dozens in each of the
    /// transactions that `begin` makes; returns how many. After a crash or a failure the records up to some
    /// key are removed. Needs little memory and no space in a full pool, however many records there are.
    ///
    /// Records that other threads put between the transactions may or may not be removed.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is damaged, or its device fails.
    ///
    /// # Panics
    ///
    /// If a transaction is not of this tree's pool.
    pub fn remove_range_in_groups<'l, K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        mut begin: impl FnMut() -> Tx<'l>,
    ) -> Result<u64> {
        let most = group_records(self.pool().geometry());
        let (mut rest, mut limit, mut total) = (Rest::of(bounds), most, 0);
        while rest.lower.is_some() {
            let mut tx = begin();
            self.assert_writes(&tx);
            let mut after = rest.clone();
            let removed = self.change(&mut tx, |tx| {
                after = rest.clone();
                self.sweep(tx, &mut after, limit)
            })?;
            match tx.commit() {
                Ok(()) => {}
                // The redo record of this group found no space in the lane or outside of it. The record of a
                // single removal may.
                Err(e) if e.is_full() && limit > 1 => {
                    limit = 1;
                    continue;
                }
                Err(e) => return Err(e.into()),
            }
            rest = after;
            total += removed;
            limit = (2 * limit).min(most);
        }
        Ok(total)
    }

    /// Removes up to `limit` records from the front of the rest; returns how many.
    fn sweep(&self, tx: &mut Tx<'_>, rest: &mut Rest, limit: u64) -> Result<u64> {
        let mut removed = 0;
        while removed < limit
            && let Some(lower) = &rest.lower
        {
            let (count, next) = self.sweep_leaf(tx, lower, &rest.upper, limit - removed)?;
            removed += count;
            rest.lower = next;
        }
        Ok(removed)
    }

    /// Removes up to `limit` records from the leaf to which `lower` belongs; returns how many, and where the
    /// rest begins.
    fn sweep_leaf(
        &self,
        tx: &mut Tx<'_>,
        lower: &Bound<Vec<u8>>,
        upper: &Bound<Vec<u8>>,
        limit: u64,
    ) -> Result<(u64, Option<Bound<Vec<u8>>>)> {
        let view = self.pending(tx);
        let tree = self.root(view)?;
        if tree.is_empty() {
            return Ok((0, None));
        }
        let place = descend_fenced(view, tree, goal_from(Direction::Up, lower))?;
        let fence = place.fence_at(Direction::Up, key_of(lower))?;
        let state = place.leaf.state(view)?;
        let mut records = [(0, 0); LEAF_SLOTS];
        let live = (0..LEAF_SLOTS).filter(|slot| state.bitmap() >> slot & 1 == 1);
        for (entry, slot) in records.iter_mut().zip(live) {
            *entry = (slot, view.load(place.leaf.record_off(slot))?);
            self.region().prefetch(entry.1);
        }
        let mut doomed = Vec::with_capacity(LEAF_SLOTS);
        for entry in &records[..state.count()] {
            let key = Record::read(self.region(), entry.1)?.key;
            if is_above(key, lower) && is_below(key, upper) {
                doomed.push((key, *entry));
            }
        }
        doomed.sort_unstable();
        let mut next = fence.filter(|fence| is_below(fence, upper)).map(Bound::Included);
        if doomed.len() as u64 > limit {
            doomed.truncate(limit as usize);
            next = doomed.last().map(|(key, _)| Bound::Excluded(key.to_vec()));
        }
        if let Some((key, _)) = doomed.first() {
            let entries: Vec<(usize, u64)> = doomed.iter().map(|(_, entry)| *entry).collect();
            self.remove_entries(tx, (tree, None), &(place.leaf, state), key, &entries)?;
        }
        Ok((doomed.len() as u64, next))
    }
}
