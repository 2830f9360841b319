//! The beginning of transactions: by the owner of a lane, and by threads that share one by turns.

use super::Tx;
use super::lane::{Lane, LaneHold};
use parking_lot::Mutex;

impl Lane {
    /// Begins a transaction.
    pub fn begin(&mut self) -> Tx<'_> {
        Tx::new(LaneHold::Borrowed(self))
    }

    /// As [`begin`](Self::begin), but the transaction owns the lane.
    /// [`commit_and_begin`](Tx::commit_and_begin) and [`roll_back`](Tx::roll_back) start the next one.
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

    /// As [`begin`](Self::begin), and takes the turns of `others` too: while the transaction lasts, no thread
    /// begins one with any of them. `others` is called once this writer's turn has come. All callers name the
    /// writers in the same order.
    pub fn begin_before<'l, I: Iterator<Item = &'l Writer>>(&'l self, others: impl FnOnce() -> I) -> Tx<'l> {
        let lane = self.lane.lock();
        let mut others: Vec<_> = others().map(|other| other.lane.lock()).collect();
        others.iter_mut().for_each(|other| other.answer_recall());
        if others.is_empty() {
            return Tx::new(LaneHold::Locked(lane));
        }
        Tx::new(LaneHold::WithOthers(Box::new((lane, others))))
    }
}
