//! The blocks that a step of a compaction moves.

use tembo_pool::Compaction;

/// A step stops after the node with which it has copied this many bytes, or blocks.
const BYTES_PER_STEP: u64 = 128 << 10;
const BLOCKS_PER_STEP: usize = 128;

/// The moves of a step.
#[doc(hidden)]
pub struct Moves<'c> {
    compaction: &'c Compaction,
    /// The newest version that a snapshot holds, or 0.
    newest_held: u64,
    pub(super) bytes: u64,
    blocks: usize,
}

impl<'c> Moves<'c> {
    /// None yet. `newest_held` is the newest version that a snapshot holds, or 0.
    pub(super) fn new(compaction: &'c Compaction, newest_held: u64) -> Moves<'c> {
        Moves { compaction, newest_held, bytes: 0, blocks: 0 }
    }

    /// Whether a block of the newest version that was made in version `birth` is to be moved.
    pub(super) fn wants(&self, off: u64, birth: u64) -> bool {
        let is_in_closed = self.compaction.has(off);
        if is_in_closed && birth <= self.newest_held {
            self.compaction.note_held();
        }
        is_in_closed && birth > self.newest_held
    }

    pub(super) fn note(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.blocks += 1;
    }

    /// Whether the step has done enough.
    pub(super) fn is_enough(&self) -> bool {
        self.bytes >= BYTES_PER_STEP || self.blocks >= BLOCKS_PER_STEP
    }
}
