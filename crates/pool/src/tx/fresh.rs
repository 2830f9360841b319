//! The blocks that a transaction has allocated, and where they lie.

use super::fresh_index::FreshIndex;
use crate::alloc::Block;
use crate::alloc::slab::SlabRef;
use crate::layout::TAG_BYTES;
use crate::{Error, Result};
use std::vec::Drain;
use tembo_sync::hash_u64_to_bits;

/// Up to this many blocks are searched one by one; beyond, an index is kept.
const SEARCH_MAX: usize = 16;
/// More blocks than this are filtered before they are searched.
const FILTER_MIN: usize = 3;

/// A block allocated in the transaction.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) block: Block,
    /// Whether it was freed again in the same transaction.
    pub(super) cancelled: bool,
    /// The written range: covered by the record, or fenced before it.
    pub(super) written: (u64, u64),
    /// The part of `written` that is not flushed yet.
    pub(super) unflushed: (u64, u64),
}

impl Fresh {
    /// Extends the written range, in whole words (a word lies in one line). A gap between two writes is
    /// covered as well, and therefore has to be flushed.
    pub(super) fn note_written(&mut self, start: u64, end: u64) {
        if start == end {
            return;
        }
        let (start, end) = (start & !7, end.next_multiple_of(8));
        let (old_start, old_end) = self.written;
        if old_start != old_end {
            let gap = if start > old_end { (old_end, start) } else { (end, old_start) };
            if gap.0 < gap.1 {
                self.unflushed = union(self.unflushed, gap);
            }
        }
        self.written = union(self.written, (start, end));
    }

    /// Notes that a range was written and has to be flushed by the commit.
    pub(super) fn note_unflushed(&mut self, start: u64, end: u64) {
        self.unflushed = union(self.unflushed, (start, end));
    }
}

fn union(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    if a.0 == a.1 { b } else { (a.0.min(b.0), a.1.max(b.1)) }
}

#[cold]
pub(super) fn not_fresh(off: u64) -> Error {
    Error::internal("a write", off, "words of a block that this transaction has allocated", "other memory")
}

/// A filter with a bit per hashed 512 bytes. A clear bit means that the offset lies in no block of the
/// transaction.
#[derive(Debug)]
struct FreshFilter {
    bits: [u64; 64],
    used: bool,
}

impl Default for FreshFilter {
    fn default() -> Self {
        FreshFilter { bits: [0; 64], used: false }
    }
}

impl FreshFilter {
    const UNIT_SHIFT: u32 = 9;

    fn bit_of(unit: u64) -> (usize, u64) {
        let hash = hash_u64_to_bits(unit, 12);
        ((hash / 64) as usize, 1 << (hash % 64))
    }

    fn add(&mut self, off: u64, bytes: u64) {
        self.used = true;
        let units = off >> Self::UNIT_SHIFT..=(off + bytes - 1) >> Self::UNIT_SHIFT;
        if units.end() - units.start() >= 4096 {
            self.bits = [u64::MAX; 64];
            return;
        }
        for unit in units {
            let (word, bit) = Self::bit_of(unit);
            self.bits[word] |= bit;
        }
    }

    #[inline]
    fn may_have(&self, off: u64) -> bool {
        let (word, bit) = Self::bit_of(off >> Self::UNIT_SHIFT);
        self.bits[word] & bit != 0
    }

    /// Forgets everything.
    #[cold]
    fn clear(&mut self) {
        *self = FreshFilter::default();
    }
}

/// The blocks of a transaction, in the order of their allocation.
#[derive(Debug, Default)]
pub(super) struct FreshBlocks {
    list: Vec<Fresh>,
    /// Complete only beyond [`SEARCH_MAX`] blocks.
    index: FreshIndex,
    filter: FreshFilter,
}

impl FreshBlocks {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the state is that of a new list, with no trace of rolled-back blocks.
    #[inline]
    pub(super) fn is_as_new(&self) -> bool {
        self.list.is_empty() && !self.filter.used
    }

    /// Adds a block. Returns its offset.
    #[inline(always)]
    pub(super) fn add(&mut self, block: Block) -> u64 {
        let (off, bytes) = (block.off, block.bytes);
        self.list.push(Fresh { block, cancelled: false, written: (0, 0), unflushed: (0, 0) });
        if self.list.len() > FILTER_MIN {
            self.index_last(off, bytes);
        }
        off
    }

    /// Adds the last block to the index, if there are many blocks.
    #[cold]
    fn index_last(&mut self, off: u64, bytes: u64) {
        let number = self.list.len() - 1;
        if number == FILTER_MIN {
            self.list.iter().for_each(|f| self.filter.add(f.block.off, f.block.bytes));
        } else {
            self.filter.add(off, bytes);
        }
        if number == SEARCH_MAX {
            self.index.clear();
            self.list.iter().enumerate().for_each(|(i, fresh)| self.index.insert(&fresh.block, i));
        } else if number > SEARCH_MAX {
            self.index.insert(&self.list[number].block, number);
        }
    }

    /// Forgets all blocks. Stores no value that is already there: after a commit, stores wait for its fence.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        if !self.list.is_empty() {
            self.list.clear();
        }
        if self.filter.used {
            self.filter.clear();
        }
        if !self.index.is_empty() {
            self.index.clear();
        }
    }

    /// Removes all blocks but the first `kept`.
    pub(super) fn drain_from(&mut self, kept: usize) -> impl Iterator<Item = Block> {
        let kept = kept.min(self.list.len());
        let drained: Drain<'_, Fresh> = self.list.drain(kept..);
        let index = &mut self.index;
        drained.map(move |fresh| {
            index.remove(&fresh.block);
            fresh.block
        })
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: usize) -> &mut Fresh {
        &mut self.list[number]
    }

    #[inline]
    pub(super) fn last(&self) -> Option<&Fresh> {
        self.list.last()
    }

    #[inline]
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Fresh> {
        self.list.iter()
    }

    /// The blocks that were not freed again.
    #[inline]
    pub(super) fn kept(&self) -> impl Iterator<Item = &Fresh> {
        self.list.iter().filter(|fresh| !fresh.cancelled)
    }

    /// The block that holds a range.
    #[inline]
    pub(super) fn with(&mut self, off: u64, end: u64) -> Result<&mut Fresh> {
        let number = self.at(off);
        let fresh = number.map(|n| &mut self.list[n]).filter(|f| end <= f.block.off + f.block.bytes);
        fresh.ok_or_else(|| not_fresh(off))
    }

    /// The number of the block that holds `off`.
    #[inline]
    pub(super) fn at(&self, off: u64) -> Option<usize> {
        let holds = |f: &Fresh| f.block.off <= off && off < f.block.off + f.block.bytes;
        // Writes mostly go to the block that was allocated last; stores mostly go to none of the blocks.
        let last = self.list.len().checked_sub(1)?;
        if holds(&self.list[last]) {
            return Some(last);
        }
        if self.list.len() > FILTER_MIN && !self.filter.may_have(off) {
            return None;
        }
        if self.list.len() > SEARCH_MAX {
            return self.index.find(off, |number| holds(&self.list[number]));
        }
        self.list.iter().position(holds)
    }

    /// Whether a word belongs to the tag of one of the lines.
    pub(super) fn has_tag_at(&self, off: u64) -> bool {
        let tags = self.list.iter().filter_map(|fresh| fresh.block.tag_off());
        tags.into_iter().any(|tag| off.wrapping_sub(tag) < TAG_BYTES)
    }

    /// The numbers within a slab of the blocks that lie there and were not freed again. Takes time in
    /// proportion to their number.
    pub(super) fn in_slab(&self, slab: &SlabRef) -> impl Iterator<Item = u64> {
        let is_indexed = self.list.len() > SEARCH_MAX;
        let indexed = is_indexed.then(|| self.index.within(slab.blocks_span()));
        let indexed = indexed.into_iter().flatten().map(|number| &self.list[number]);
        let searched = if is_indexed { &[] } else { &self.list[..] };
        let kept = indexed.chain(searched).filter(|f| !f.cancelled);
        kept.filter_map(|f| f.block.index_in(slab))
    }
}
