//! The volatile state of a transaction: everything that its commit will do.

use super::bits::BitChange;
use super::fresh::FreshBlocks;
use super::steps::Steps;
use crate::alloc::Block;
use crate::alloc::slab::SlabRef;
use crate::log::lines::StoredLines;
use crate::log::record::Change;
use crate::{ErrorKind, Result};
use tembo_pmem::{LINE_BYTES, size_of};

/// Blocks from this size on get room for their lines before the commit, because the commit cannot fail for
/// lack of memory.
pub(super) const LARGE_BYTES: u64 = 1 << 20;
/// A longer list of lines is not kept for the lane's next transaction.
const OWNED_KEPT: usize = 1 << 16;

/// The writes of a transaction. Kept in the lane, so that its buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    /// Logged words, and everything else that a rollback to a savepoint undoes.
    pub(super) steps: Steps,
    pub(super) fresh: FreshBlocks,
    pub(super) freed: Vec<Block>,
    /// Words that are stored by line, without a step for each.
    pub(super) lines: StoredLines,
    pub(crate) gathered: Gathered,
}

/// The work of a commit, gathered from the writes.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// Lines of new data that are not flushed yet.
    pub(super) fresh_lines: Vec<u64>,
    /// Lines of the words that the record changes.
    pub(super) home_lines: Vec<u64>,
    /// Lines that the lane is going to own.
    pub(super) owned_lines: Vec<u64>,
    pub(super) bits: Vec<BitChange>,
    pub(crate) new_slabs: Vec<SlabRef>,
    pub(super) homes: Vec<(u64, Change)>,
}

impl Gathered {
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.homes.clear();
        self.bits.clear();
        self.new_slabs.clear();
        self.fresh_lines.clear();
        self.owned_lines.clear();
        self.home_lines.clear();
    }

    /// Frees the memory of a long list of lines.
    #[inline(always)]
    pub(super) fn trim(&mut self) {
        if self.owned_lines.len() > OWNED_KEPT {
            self.owned_lines = Vec::new();
        }
    }
}

impl WriteSet {
    #[inline]
    pub(super) fn is_untouched(&self) -> bool {
        self.only_stores_lines() && self.lines.is_empty()
    }

    /// Whether the state is that of a new transaction, with no trace of rolled-back writes.
    #[inline]
    pub(super) fn is_as_new(&self) -> bool {
        self.is_untouched() && self.steps.is_as_new() && self.fresh.is_as_new()
    }

    /// Whether it has done nothing but store words by line.
    #[inline]
    pub(super) fn only_stores_lines(&self) -> bool {
        self.steps.is_empty() && self.fresh.is_empty() && self.freed.is_empty()
    }

    /// Makes room for the lines of large blocks, which a commit lists, and some more for all other lines.
    #[cold]
    pub(super) fn reserve_lines(&mut self) -> Result<()> {
        const MORE: usize = 1024;
        let blocks = self.fresh.iter().map(|fresh| &fresh.block).chain(&self.freed);
        let large = blocks.map(|block| block.bytes).filter(|bytes| *bytes >= LARGE_BYTES);
        let lines = large.map(|bytes| bytes / LINE_BYTES + 2).sum::<u64>() as usize + MORE;
        let bytes = (lines * size_of::<u64>()) as u64;
        self.gathered.owned_lines.try_reserve(lines).map_err(|_| ErrorKind::OutOfMemory { bytes }.into())
    }

    /// Forgets steps and blocks.
    #[inline(always)]
    pub(super) fn clear_blocks(&mut self) {
        self.steps.clear();
        self.fresh.clear();
        if !self.freed.is_empty() {
            self.freed.clear();
        }
    }
}
