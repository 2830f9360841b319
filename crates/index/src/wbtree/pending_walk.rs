//! Walking a range as a transaction sees it, with its own changes.
//!
//! Other walks see committed records. The transaction of this walk has excluded all other writers, or they
//! change other leaves. A leaf is therefore copied once, through the transaction's view.

use super::WbTree;
use super::node::Record;
use super::scan::{End, is_above, is_below, owned_bounds};
use crate::direction::Direction;
use crate::error::Result;
use std::ops::{ControlFlow, RangeBounds};
use tembo_pool::Tx;

impl WbTree {
    /// Gives the records whose keys lie in `bounds`, as the transaction sees them, to `visit`, in order,
    /// until it breaks. The first record costs O(log n), the others O(1) on average.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the tree is damaged on the way. Some records may have been
    /// visited by then.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn walk_in<'t, K: AsRef<[u8]>>(
        &'t self,
        tx: &'t Tx<'_>,
        bounds: impl RangeBounds<K>,
        visit: impl FnMut(&'t [u8], &'t [u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.walk_towards(tx, Direction::Up, bounds, visit)
    }

    /// As [`walk_in`](Self::walk_in), from the last record of the range to the first.
    ///
    /// # Errors
    ///
    /// As for [`walk_in`](Self::walk_in).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn walk_back_in<'t, K: AsRef<[u8]>>(
        &'t self,
        tx: &'t Tx<'_>,
        bounds: impl RangeBounds<K>,
        visit: impl FnMut(&'t [u8], &'t [u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.walk_towards(tx, Direction::Down, bounds, visit)
    }

    fn walk_towards<'t, K: AsRef<[u8]>>(
        &'t self,
        tx: &'t Tx<'_>,
        direction: Direction,
        bounds: impl RangeBounds<K>,
        mut visit: impl FnMut(&'t [u8], &'t [u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.assert_writes(tx);
        let (lower, upper) = owned_bounds(bounds);
        let from = if direction == Direction::Up { &lower } else { &upper };
        let view = self.pending(tx);
        let mut end = End::new();
        loop {
            let next = match direction {
                Direction::Up => end.records.pop_front(),
                Direction::Down => end.records.pop_back(),
            };
            let Some(off) = next else {
                if end.is_last() {
                    return Ok(());
                }
                end.load_leaf(self, view, direction, from)?;
                continue;
            };
            let record = Record::read(self.region(), off)?;
            let (key, value) = (record.key, record.value());
            let is_inside = match direction {
                Direction::Up => is_below(key, &upper),
                Direction::Down => is_above(key, &lower),
            };
            if !is_inside || visit(key, value).is_break() {
                return Ok(());
            }
        }
    }
}
