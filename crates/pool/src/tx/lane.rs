//! A writer's context: its lane, and the state that its transactions share.

use super::write_set::WriteSet;
use crate::alloc::Arena;
use crate::inner::{Pool, PoolInner};
use crate::log::image::RecordImage;
use crate::log::lane::Tail;
use parking_lot::MutexGuard;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

/// How much of the kept space a transaction may use ([`Tx::use_kept_space`](crate::Tx::use_kept_space)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeptSpace {
    /// None of the kept space.
    #[default]
    None,
    /// Half of it: for a transaction that frees space eventually, though not with its own commit.
    Half,
    /// All of the kept space: for a transaction that frees more than it takes.
    All,
}

/// A writer's context in a pool. It has at most one open transaction.
///
/// Dropping it makes the lane available to others. Committed changes stay as durable as they are.
pub struct Lane {
    pub(crate) pool: Pool,
    pub(crate) number: u32,
    pub(super) arena: Arena,
    pub(crate) writes: WriteSet,
    pub(super) image: RecordImage,
    /// As in the lane's state.
    pub(super) tail: Tail,
    /// How much of the kept space the lane's transaction may use.
    pub(super) kept_space: KeptSpace,
    /// Whether the lane's commits write no records (`unlogged.rs`).
    #[cfg(feature = "research")]
    pub(super) leaves_log_out: bool,
}

impl Lane {
    pub(crate) fn new(pool: Pool, number: u32) -> Lane {
        let tail = pool.inner.log.slot(number).lock().tail;
        let (arena, writes, image) = (Arena::default(), WriteSet::default(), RecordImage::default());
        Lane {
            pool,
            number,
            arena,
            writes,
            image,
            tail,
            kept_space: KeptSpace::None,
            #[cfg(feature = "research")]
            leaves_log_out: false,
        }
    }

    /// Makes the blocks that the last commit freed wait for all readers that are pinned now. For structures
    /// whose readers find blocks by words in DRAM, which change only after the commit.
    ///
    /// The caller holds a pin from before the commit until this returns, so that no such block is reused in
    /// between.
    pub fn defer_frees_to_current_epoch(&mut self) {
        self.pool.inner.log.defer_frees_to_current_epoch(self.number);
    }

    /// Prefetches the allocator's words for the block at `off`, which the lane's next transaction is going to
    /// free. They then arrive together with the block's own lines. A wrong offset is harmless.
    pub fn prefetch_for_free(&self, off: u64) {
        let inner: &PoolInner = &self.pool.inner;
        inner.alloc.prefetch_for_free(&inner.log.region, off);
    }

    /// Gives up the slabs that it allocates from, and space for long records, so that the next compaction can
    /// close them. Its next transaction finds others.
    #[cold]
    pub fn give_up_slabs(&mut self) {
        let inner: &PoolInner = &self.pool.inner;
        inner.alloc.answer_recall(&mut self.arena);
        // After a failure the blocks stay, and every later commit reports the failure.
        let _ = inner.log.release_chains(&inner.alloc, self.number);
    }

    /// As [`give_up_slabs`](Self::give_up_slabs), if a compaction has asked for that. No transaction is open.
    #[inline(always)]
    pub(super) fn answer_recall(&mut self) {
        if self.pool.inner.alloc.is_recalled(&self.arena) {
            self.give_up_slabs();
        }
    }

    /// The pool that the lane belongs to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.pool.was_left_behind() {
            return;
        }
        self.pool.inner.alloc.put_arena(&mut self.arena);
        self.pool.inner.alloc.put_pending(&mut self.arena);
        self.pool.inner.log.slot(self.number).in_use.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("number", &self.number).finish_non_exhaustive()
    }
}

/// How a transaction holds its lane.
pub(crate) enum LaneHold<'l> {
    Borrowed(&'l mut Lane),
    Owned(Box<Lane>),
    Locked(MutexGuard<'l, Lane>),
    /// The lane, and other lanes with which no thread may write meanwhile. Boxed, because every transaction
    /// moves its `LaneHold`.
    WithOthers(Box<(MutexGuard<'l, Lane>, Vec<MutexGuard<'l, Lane>>)>),
}

impl Deref for LaneHold<'_> {
    type Target = Lane;
    #[inline(always)]
    fn deref(&self) -> &Lane {
        match self {
            LaneHold::Borrowed(lane) => lane,
            LaneHold::Owned(lane) => lane,
            LaneHold::Locked(lane) => lane,
            LaneHold::WithOthers(lanes) => &lanes.0,
        }
    }
}

impl DerefMut for LaneHold<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Lane {
        match self {
            LaneHold::Borrowed(lane) => lane,
            LaneHold::Owned(lane) => lane,
            LaneHold::Locked(lane) => lane,
            LaneHold::WithOthers(lanes) => &mut lanes.0,
        }
    }
}
