//! Scans: the records of a range as of one moment, with concurrent writers.
//!
//! A scan reads leaf after leaf as a walk does, and notes for each:
//!
//! * which leaf it is, and the node above it, which is built anew when the fences of a leaf change;
//! * the leaf's state, which changes when a record is put or removed;
//! * its records, since a new value changes nothing but the word that leads to one.
//!
//! Then it descends to every leaf again. If everything noted is unchanged, no leaf changed between its two
//! visits, so all leaves were in this state when the first pass ended: that is the moment. A noted value
//! cannot change and come back: under the scan's pin the memory of nodes and records is not reused, and a
//! state has a version. If anything changed, the scan starts again; after some tries it keeps writers from
//! beginning.

use super::WbTree;
use super::Writers;
use super::layout::{LEAF_BYTES, LeafState};
use super::node::{Media, Record};
use super::scan::{
    beyond, descend_fenced, goal_from, is_above, is_below, is_left_of, key_of, owned_bounds, snapshot,
};
use crate::direction::Direction;
use crate::error::{Result, corrupt};
use std::ops::{Bound, RangeBounds};

/// The number of tries without making writers wait.
const FREE_TRIES: usize = 16;

/// A record, copied out.
pub type OwnedRecord = (Vec<u8>, Vec<u8>);

/// A leaf as a scan found it.
#[derive(PartialEq, Eq)]
pub(crate) struct ScannedLeaf {
    parent: u64,
    leaf: u64,
    state: LeafState,
    /// The records, in the order of their keys.
    records: Vec<u64>,
    /// The fence at which the next leaf begins.
    pub(crate) fence: Option<Vec<u8>>,
}

impl WbTree {
    /// The first `limit` records whose keys lie in `bounds`, in order, as of one moment. Single changes, and
    /// transactions that [`Writers::commit`] committed, are seen in full or not at all.
    ///
    /// Starts again if something changed meanwhile, and hence waits while [`Writers::commit`] commits a
    /// transaction. After some tries it keeps writers from beginning; it then ends after at most one more
    /// change of each thread that had begun one. This holds also for a thread that has a transaction of these
    /// writers, or is called by [`ConcurrentWriter::modify`](super::ConcurrentWriter::modify). All writers of
    /// the tree use `writers`, which is `None` if there are none. O(log n) per leaf of 28 records.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the tree is damaged on the way.
    pub fn scan<K: AsRef<[u8]>>(
        &self,
        writers: Option<&Writers>,
        bounds: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<OwnedRecord>> {
        self.pool().check_process()?;
        let (lower, upper) = owned_bounds(bounds);
        let mut held_back = None;
        for tries in 1.. {
            // The pin lasts for one try only, since blocks that writers free wait for it.
            let pin = self.pool().pin();
            if let Some(records) = self.try_scan(writers, &lower, &upper, limit)? {
                return Ok(records);
            }
            drop(pin);
            if tries >= FREE_TRIES && held_back.is_none() {
                held_back = writers.map(Writers::hold_back);
            }
            std::thread::yield_now();
        }
        unreachable!("it tries until it has succeeded")
    }

    /// Scans once; `None` if something changed meanwhile.
    fn try_scan(
        &self,
        writers: Option<&Writers>,
        lower: &Bound<Vec<u8>>,
        upper: &Bound<Vec<u8>>,
        limit: usize,
    ) -> Result<Option<Vec<OwnedRecord>>> {
        let Some(commits) = writers.map_or(Some(0), Writers::commits) else { return Ok(None) };
        let mut records = Vec::new();
        let mut seen: Vec<(Bound<Vec<u8>>, Option<ScannedLeaf>)> = Vec::new();
        let mut from = Some(lower.clone());
        while let Some(bound) = from.take().filter(|_| records.len() < limit) {
            let found = self.look(&bound)?;
            if let Some(found) = &found {
                self.copy(found, &bound, upper, limit, &mut records)?;
                let fence = found.fence.clone().filter(|fence| is_below(fence, upper));
                from = fence.map(|fence| beyond(Direction::Up, fence));
            }
            seen.push((bound, found));
            if seen.len() as u64 > self.region().len() / LEAF_BYTES {
                let (expected, found) =
                    ("fewer than the pool has room for", format!("{} or more", seen.len()));
                return Err(corrupt("the leaves of a tree", self.header_off(), expected, found));
            }
        }
        for (bound, found) in &seen {
            if self.look(bound)? != *found {
                return Ok(None);
            }
        }
        let is_unchanged = writers.map_or(Some(0), Writers::commits) == Some(commits);
        Ok(is_unchanged.then_some(records))
    }

    /// The leaf to which a bound belongs, in its present state; `None` in an empty tree.
    pub(crate) fn look(&self, bound: &Bound<Vec<u8>>) -> Result<Option<ScannedLeaf>> {
        let view = Media(self.region());
        let root = self.root(view)?;
        if root.is_empty() {
            return Ok(None);
        }
        let place = descend_fenced(view, root, goal_from(Direction::Up, bound))?;
        let fence = place.fence_at(Direction::Up, key_of(bound))?;
        let (state, items) = snapshot(view, &place.leaf)?;
        let records = items.as_slice().iter().map(|item| item.record).collect();
        Ok(Some(ScannedLeaf { parent: place.parent, leaf: place.leaf.off, state, records, fence }))
    }

    /// Appends the records of a leaf between `from` and `upper`, until there are `limit`.
    pub(crate) fn copy(
        &self,
        found: &ScannedLeaf,
        from: &Bound<Vec<u8>>,
        upper: &Bound<Vec<u8>>,
        limit: usize,
        records: &mut Vec<OwnedRecord>,
    ) -> Result<()> {
        found.records.iter().for_each(|record| self.region().prefetch(*record));
        for record in &found.records {
            let read = Record::read(self.region(), *record)?;
            let (key, value) = (read.key, read.value());
            let belongs =
                is_above(key, from) && is_below(key, upper) && is_left_of(key, found.fence.as_deref());
            if belongs && records.len() < limit {
                records.push((key.to_vec(), value.to_vec()));
            }
        }
        Ok(())
    }
}
