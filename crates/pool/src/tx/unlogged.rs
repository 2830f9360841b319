//! Commits without records: for measuring the cost of records.

use super::Tx;
use super::commit::{release_and_finish, store_homes};
use super::lane::Lane;
use super::slabs::write_slab_heads;
use crate::Result;
use crate::error::Done;
use crate::log::handle::Log;

impl Tx<'_> {
    /// From now on commits of this lane write no records, and flush and fence nothing: they only store. Their changes
    /// are isolated as ever, but not durable, and no crash is recovered from. For measuring the cost of records.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    #[doc(hidden)]
    pub fn leave_log_out(&mut self) -> Result<()> {
        // No record of the lane is live from here on, so that freed blocks wait for readers only.
        self.lane.pool.inner.log.checkpoint(self.lane.number)?;
        self.lane.leaves_log_out = true;
        Ok(())
    }
}

/// The rest of a commit without a record ([`Tx::leave_log_out`]).
#[cold]
pub(super) fn commit(lane: &mut Lane) -> Done {
    let Lane { pool, number, writes, .. } = &mut *lane;
    let log: &Log = &pool.inner.log;
    write_slab_heads(&log.region, writes)?;
    let is_only_lane = !log.line_owners.is_on();
    store_homes(&log.region, writes, is_only_lane)?;
    if !writes.freed.is_empty() {
        let slot = log.slot(*number);
        log.retire(slot, &mut slot.lock(), &mut writes.freed, is_only_lane);
    }
    release_and_finish(lane, None)
}
