//! Limbo: freed blocks that a live record or a reader may still look at (L2).

use crate::alloc::Block;
use std::collections::VecDeque;
use tembo_sync::Epochs;

/// The lane switches halves once this many freed bytes wait, so that large blocks become available again
/// soon.
pub(super) const LIMBO_BYTES_MAX: u64 = 1 << 20;
/// The most blocks that leave limbo at a time, unless an eighth of limbo, or twice as many as the commit
/// frees, is more. The commit releases them itself, so there should not be many.
const LEAVING_MAX: usize = 64;
/// The oldest pin is looked up once this many blocks wait, besides those that readers held at the last look.
/// A look costs a barrier that interrupts all running threads, even if no pin has ended since.
const BATCH_MAX: usize = 1024;
/// This many blocks suffice once the bytes in limbo exceed a thousandth of the pool.
const BATCH_MIN: usize = 64;

/// The freed blocks of a lane.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    /// Blocks retired before this epoch have no readers, as of the last look at the pins.
    safe_before: u64,
    /// Blocks in limbo after that look, if a reader still held the first of them; else 0.
    left_blocks: usize,
    left_bytes: u64,
}

#[derive(Debug)]
struct Waiting {
    commit: u64,
    epoch: u64,
    block: Block,
}

/// The state of the log that decides which blocks may leave.
#[derive(Clone, Copy)]
pub(crate) struct LeaveRule<'e> {
    /// Commits of the lane up to this one have no live record.
    pub dead_to: u64,
    pub epochs: &'e Epochs,
    pub pool_bytes: u64,
}

impl Limbo {
    #[inline(always)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves the blocks that a commit freed into limbo, and puts blocks that may be released into the emptied
    /// list.
    #[inline(always)]
    pub(crate) fn retire(
        &mut self,
        (commit, epoch): (u64, u64),
        blocks: &mut Vec<Block>,
        rule: LeaveRule<'_>,
    ) {
        let freed = blocks.len();
        while let Some(block) = blocks.pop() {
            self.bytes += block.bytes;
            self.waiting.push_back(Waiting { commit, epoch, block });
        }
        let is_safe = self.waiting.front().is_some_and(|next| next.epoch < self.safe_before);
        let is_much = self.bytes >= self.left_bytes + (rule.pool_bytes >> 10);
        let batch = if is_safe {
            LEAVING_MAX
        } else if is_much {
            BATCH_MIN
        } else {
            BATCH_MAX
        };
        let are_many = self.waiting.len() >= self.left_blocks + batch
            || self.bytes >= (self.left_bytes + LIMBO_BYTES_MAX / 4).max(LIMBO_BYTES_MAX);
        if are_many && self.waiting.front().is_some_and(|next| next.commit <= rule.dead_to) {
            let most = LEAVING_MAX.max(2 * freed).max(self.waiting.len() / 8);
            self.leave(rule, blocks, most);
        }
    }

    /// Moves up to `count` blocks out of limbo that no reader and no live record of this lane can look at.
    #[inline(never)]
    pub(crate) fn leave(&mut self, rule: LeaveRule<'_>, blocks: &mut Vec<Block>, count: usize) {
        let Limbo { waiting, bytes, safe_before, .. } = &mut *self;
        let Some(first) = waiting.front().filter(|next| next.commit <= rule.dead_to) else { return };
        let asks = first.epoch >= *safe_before;
        if asks {
            *safe_before = rule.epochs.safe_before();
        }
        let leaving = std::iter::from_fn(|| {
            let next = waiting.front()?;
            if next.epoch >= *safe_before || next.commit > rule.dead_to {
                return None;
            }
            *bytes -= next.block.bytes;
            waiting.pop_front().map(|waiting| waiting.block)
        });
        blocks.extend(leaving.take(count));
        let waits_for_readers =
            asks && self.waiting.front().is_some_and(|next| next.epoch >= self.safe_before);
        (self.left_blocks, self.left_bytes) =
            if waits_for_readers { (self.waiting.len(), self.bytes) } else { (0, 0) };
    }

    /// Makes the next call look at the pins again: some may have ended since the last look.
    pub(crate) fn ask_readers_again(&mut self) {
        self.safe_before = 0;
    }

    /// Moves the blocks that the last commit freed to a later epoch.
    pub(crate) fn defer(&mut self, commit: u64, epoch: u64) {
        let last = self.waiting.iter_mut().rev().take_while(|waiting| waiting.commit == commit);
        last.for_each(|waiting| waiting.epoch = epoch);
    }
}
