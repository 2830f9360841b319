//! Freed blocks on their way through limbo back to the allocator.

use super::handle::Log;
use super::lane::{LaneSlot, LaneState};
use super::limbo::LeaveRule;
use crate::Result;
use crate::alloc::{Allocator, Arena, Block};

impl Log {
    #[inline(always)]
    fn leave_rule(&self, slot: &LaneSlot) -> LeaveRule<'_> {
        LeaveRule { dead_to: slot.dead_to(), epochs: &self.epochs, pool_bytes: self.region.len() }
    }

    /// Moves the blocks that the last commit freed into limbo, and puts blocks that may be
    /// [released](Self::release) into the emptied list. The caller releases them after the lane's lock.
    #[inline(always)]
    pub(crate) fn retire(
        &self,
        slot: &LaneSlot,
        state: &mut LaneState,
        blocks: &mut Vec<Block>,
        is_only_lane: bool,
    ) {
        let freed_by = (state.commits, self.epochs.retire(is_only_lane));
        state.limbo.retire(freed_by, blocks, self.leave_rule(slot));
    }

    /// Makes blocks that have left limbo available. If that fails, they are lost until the pool is opened
    /// again.
    ///
    /// A transaction of another lane may have stored to a block: it had begun when this lane freed the block,
    /// and committed afterwards. It was pinned, so it is over by now. Its lane owns the line, and its record
    /// is dead after this call (L2). The caller holds no lane's lock, because this takes the locks of other
    /// lanes.
    pub(crate) fn release(
        &self,
        alloc: &Allocator,
        lane: u32,
        blocks: &mut Vec<Block>,
        arena: Option<&Arena>,
    ) -> Result<()> {
        blocks.iter().for_each(|block| alloc.prefetch_for_release(block));
        let checkpointed = blocks.iter().flat_map(Block::spans).try_for_each(|(off, bytes)| {
            self.line_owners.checkpoint_others_in(self.lanes(), lane, off, bytes)
        });
        match checkpointed {
            Ok(()) => alloc.release(blocks.drain(..), arena),
            Err(_) => blocks.clear(),
        }
        checkpointed
    }

    /// Checkpoints the lane and releases the blocks of its limbo. Used when space runs out.
    pub(crate) fn reclaim(&self, alloc: &Allocator, lane: u32) -> Result<()> {
        let slot = self.slot(lane);
        self.checkpoint(lane)?;
        let mut blocks = Vec::new();
        let mut state = slot.lock();
        state.limbo.ask_readers_again();
        state.limbo.leave(self.leave_rule(slot), &mut blocks, usize::MAX);
        drop(state);
        self.release(alloc, lane, &mut blocks, None)
    }

    /// Gives the chain blocks of the half back that the lane's next records do not lie in, once its records
    /// are dead: no recovery needs a payload there, and the half is written from its start. Only the lane's
    /// owner calls this, between two transactions.
    pub(crate) fn release_chains(&self, alloc: &Allocator, lane: u32) -> Result<()> {
        let slot = self.slot(lane);
        if slot.lock().has_idle_chains() {
            self.checkpoint(lane)?;
            let idle = slot.lock().take_idle_chains();
            alloc.release(idle.into_iter().flatten(), None);
        }
        Ok(())
    }

    /// Takes back the blocks in the limbos of all lanes, as far as readers allow.
    pub(crate) fn reclaim_all(&self, alloc: &Allocator) -> Result<()> {
        self.slots.iter().try_for_each(|slot| self.reclaim(alloc, slot.number))
    }

    /// Makes the blocks that the lane's last commit freed wait for all readers that are pinned now.
    pub(crate) fn defer_frees_to_current_epoch(&self, lane: u32) {
        let mut state = self.slot(lane).lock();
        let (commit, epoch) = (state.commits, self.epochs.retire(false));
        state.limbo.defer(commit, epoch);
    }

    /// Bytes of freed blocks that wait in limbo.
    pub(crate) fn limbo_bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.lock().limbo.bytes()).sum()
    }
}
