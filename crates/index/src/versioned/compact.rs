//! Moves nodes and records to other blocks, for a compaction of the pool.
//!
//! A step makes a version with the contents of the one before, in which nodes and records that lay in sparse
//! slabs are copies. The old ones die with it, and are freed as all dead blocks are: when no held version has
//! them. A crash leaves the version before or the new one.
//!
//! An entry keeps the version that put it, so a comparison of versions reports nothing. Its record may then
//! be younger than the entry says; the record's item in a queue has the entry's start as its birth, and waits
//! at most longer than it must (I3).
//!
//! A block that a snapshot holds stays where it is, because its copy would take space and free none. Queues,
//! named snapshots and the head stay, too.

use super::builder::BuildVersion;
use super::map::VersionedMap;
use super::moves::Moves;
use super::structure::VersionedStructure;
use crate::error::Result;
use crate::wbtree::CompactionStep;
use tembo_pool::{Compaction, KeptSpace};

/// Items of the queues that a step looks at.
const ITEMS_PER_STEP: usize = 1024;

impl<S: VersionedStructure> VersionedMap<S> {
    /// Moves nodes and records that lie in the compaction's slabs, from `from` on, where the first step
    /// begins with no bytes, and says where to go on. The contents do not change; what moves makes a version.
    /// Copies up to 128 KiB, and one node with its records. Other writers wait meanwhile, readers never.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put). Everything then is where it was before the step.
    ///
    /// # Panics
    ///
    /// If the compaction is one of another pool.
    pub fn compact_at(&self, compaction: &Compaction, from: &[u8]) -> Result<CompactionStep> {
        assert!(compaction.is_of(self.pool()), "a compaction of another pool");
        self.write_alone(|builder, tx| {
            let held = self.shared.held.lock().keys().next_back().copied();
            let kept = self.shared.kept.lock().iter().map(|kept| kept.version.number).max();
            let newest_held = held.max(kept).unwrap_or(0);
            tx.use_kept_space(KeptSpace::Half);
            let mut moves = Moves::new(compaction, newest_held);
            let next = <S as BuildVersion>::compact(builder, tx, &mut moves, from)?;
            Ok(CompactionStep { moved_bytes: moves.bytes, next })
        })
    }

    /// After the last step: frees blocks that are dead since they were moved, as [`collect`](Self::collect)
    /// does; returns whether to go on. The last call gives up the slabs that the map allocates from.
    ///
    /// # Errors
    ///
    /// As for [`collect`](Self::collect).
    pub fn collect_moved(&self) -> Result<bool> {
        let has_more = self.collect(ITEMS_PER_STEP)?;
        if !has_more && let Some(lane) = &mut self.lock_writer()?.lane {
            lane.give_up_slabs();
        }
        Ok(has_more)
    }
}
