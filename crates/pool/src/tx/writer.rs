//! The beginning of transactions: by the owner of a lane, and by threads that share one by turns.

use super::Tx;
use super::lane::{Lane, LaneHold};
use parking_lot::Mutex;

impl Lane {
    /// Begins a transaction.
    pub fn begin(&mut self) -> Tx<'_> {
        Tx::new(LaneHold::Borrowed(self))
    }

    /// As [`begin`](Self::begin), for a caller that keeps the lane in its transactions: one follows the other
    /// by [`commit_and_begin`](Tx::commit_and_begin) or [`roll_back`](Tx::roll_back).
    pub fn into_tx(self) -> Tx<'static> {
        Tx::new(LaneHold::Owned(Box::new(self)))
    }
}

/// A lane that threads take turns to write with.
#[derive(Debug)]
pub struct Writer {
    lane: Mutex<Lane>,
}

impl Writer {
    /// Makes a lane shared.
    pub fn new(lane: Lane) -> Writer {
        Writer { lane: Mutex::new(lane) }
    }

    /// Waits for its turn and begins a transaction; the turn ends with the transaction.
    pub fn begin(&self) -> Tx<'_> {
        Tx::new(LaneHold::Locked(self.lane.lock()))
    }

    /// Begins a transaction if no thread has the turn.
    #[inline]
    pub fn try_begin(&self) -> Option<Tx<'_>> {
        Some(Tx::new(LaneHold::Locked(self.lane.try_lock()?)))
    }

    /// As [`begin`](Self::begin), and keeps the turns of `others` too, which are asked for when this writer's
    /// has come: as long as the transaction lasts, no thread begins one with any of them. All callers name
    /// the writers in one order.
    pub fn begin_before<'l, I: Iterator<Item = &'l Writer>>(&'l self, others: impl FnOnce() -> I) -> Tx<'l> {
        let lane = self.lane.lock();
        let others: Vec<_> = others().map(|other| other.lane.lock()).collect();
        if others.is_empty() {
            return Tx::new(LaneHold::Locked(lane));
        }
        Tx::new(LaneHold::WithOthers(Box::new((lane, others))))
    }
}
