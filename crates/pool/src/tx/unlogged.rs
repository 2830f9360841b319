//! Commits without records: for measuring what records cost.

use super::Tx;
use super::commit::{release_and_finish, store_homes};
use super::slabs::write_slab_head;
use crate::log::lane::Lane;
use crate::pool::PoolInner;
use crate::{Done, Result};

impl Tx<'_> {
    /// From now on commits of this lane write no records, and flush and fence nothing: they only store. What they do is isolated as ever,
    /// but not durable, and no crash is recovered from. For measuring what records cost.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    #[doc(hidden)]
    pub fn leave_log_out(&mut self) -> Result<()> {
        let Lane { pool, number, leaves_log_out, .. } = &mut *self.lane;
        // No record of the lane is live from here on, so that what is freed waits for readers only.
        pool.inner.lanes[*number as usize].settle(&pool.inner)?;
        *leaves_log_out = true;
        Ok(())
    }
}

/// What is left of a commit without a record ([`Tx::leave_log_out`]).
#[cold]
pub(super) fn commit(lane: &mut Lane) -> Done {
    let Lane { pool, number, work, .. } = &mut *lane;
    let inner: &PoolInner = &pool.inner;
    for slab in &work.new_slabs {
        write_slab_head(inner, work, slab)?;
    }
    let alone = !inner.touches.is_on();
    store_homes(inner, work, alone)?;
    if !work.freed.is_empty() {
        let slot = &inner.lanes[*number as usize];
        slot.retire(inner, &mut slot.lock(), &mut work.freed, alone);
    }
    release_and_finish(lane, None)
}
