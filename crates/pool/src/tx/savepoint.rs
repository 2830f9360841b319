//! Rollback of a transaction: of all its writes, or of those since a savepoint.

use super::Tx;
use super::lane::Lane;
use super::steps::Step;
use crate::inner::PoolInner;

/// A state of a transaction to which it can be rolled back.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    steps: usize,
    fresh: usize,
    freed: usize,
}

impl Tx<'_> {
    /// The present state, for [`rollback_to`](Self::rollback_to).
    pub fn savepoint(&self) -> Savepoint {
        let writes = &self.lane.writes;
        Savepoint { steps: writes.steps.len(), fresh: writes.fresh.len(), freed: writes.freed.len() }
    }

    /// Undoes everything since the savepoint, which must be of this transaction. Exceptions are words stored
    /// by line, and bytes that [`write_fresh`](Self::write_fresh) wrote into a block from before the
    /// savepoint.
    pub fn rollback_to(&mut self, to: Savepoint) {
        let Lane { pool, arena, writes, .. } = &mut *self.lane;
        let inner: &PoolInner = &pool.inner;
        while writes.steps.len() > to.steps {
            match writes.steps.pop() {
                Some(Step::Redo { .. }) => {}
                Some(Step::Direct { off, old }) => {
                    inner.log.region.store_u64(off, old).expect("a word that was stored before");
                }
                Some(Step::Cancel { fresh }) => writes.fresh.get_mut(fresh).cancelled = false,
                None => break,
            }
        }
        let undone = writes.fresh.drain_from(to.fresh);
        // After the device failed, the record may be durable, so its blocks must not be overwritten.
        if inner.log.has_failed() {
            drop(undone);
        } else {
            inner.alloc.release(undone, Some(arena));
        }
        let kept = to.freed.min(writes.freed.len());
        writes.freed.drain(kept..).for_each(|block| block.unclaim());
    }

    /// Undoes everything: the transaction is as if it had just begun.
    pub fn roll_back(&mut self) {
        self.take_back();
    }

    #[inline(always)]
    pub(super) fn take_back(&mut self) {
        let lane: &Lane = &self.lane;
        if !(lane.writes.is_as_new() && lane.arena.has_none_pending()) {
            self.take_back_writes();
        }
    }

    #[inline(never)]
    fn take_back_writes(&mut self) {
        if self.lane.pool.was_left_behind() {
            return;
        }
        // A failed commit may have left these. They must not be used once their blocks are released.
        self.lane.writes.gathered.new_slabs.clear();
        if !self.lane.writes.is_untouched() {
            self.rollback_to(Savepoint { steps: 0, fresh: 0, freed: 0 });
            self.lane.writes.lines.clear();
        }
        let Lane { pool, arena, writes, .. } = &mut *self.lane;
        writes.clear_blocks();
        pool.inner.alloc.put_pending(arena);
    }
}
