//! Commits without records: for measuring the cost of records.

use super::Tx;
use crate::Result;

impl Tx<'_> {
    /// From now on commits of this lane only store: they write no records, and flush and fence nothing. Their
    /// changes are isolated as always, but not durable, and the pool does not survive a crash. For measuring
    /// the cost of records.
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
