//! Where the blocks of a large transaction lie.

use crate::alloc::{Block, Home};
use crate::layout::TAGGED_GROUP;
use std::collections::BTreeMap;
use std::ops::Range;
use tembo_pmem::LINE_BYTES;

/// Blocks of a span.
const SPAN_BLOCKS: u64 = 64;

/// Blocks with smaller numbers have entries of their own, which cost less where they are no neighbours.
const SINGLE: usize = if cfg!(test) { 64 } else { 4096 };

/// From offsets to the numbers of blocks. Beyond the first ones, neighbours in a slab are in one span, so
/// that the tree has few entries, and adding a block mostly stores one number.
#[derive(Debug, Default)]
pub(super) struct FreshIndex {
    /// From the starts of the first blocks to their numbers.
    single: BTreeMap<u64, u32>,
    spans: BTreeMap<u64, Box<Span>>,
}

/// Neighbours in a slab, from its block 64 i on; or an extent.
#[derive(Debug)]
struct Span {
    stride: Stride,
    /// How many of its blocks are in the index.
    count: u32,
    /// For each block its number, plus one; 0 if it is not in the index.
    numbers: [u32; SPAN_BLOCKS as usize],
}

/// The distances of blocks.
#[derive(Debug, Clone, Copy)]
enum Stride {
    Bytes(u64),
    /// Tagged lines: a line of tags follows each group.
    Tagged,
    /// An extent is alone.
    None,
}

impl Stride {
    /// The position in a span of the block that may hold the byte this far behind the span's start.
    #[inline(always)]
    fn position(self, past: u64) -> u64 {
        match self {
            Stride::Bytes(bytes) => past / bytes,
            Stride::Tagged => {
                let lines = past / LINE_BYTES;
                lines / (TAGGED_GROUP + 1) * TAGGED_GROUP + lines % (TAGGED_GROUP + 1)
            }
            Stride::None => 0,
        }
    }
}

/// The start of a block's span, its distances, and the block's position there.
#[inline(always)]
fn place_of(block: &Block) -> (u64, Stride, usize) {
    match &block.home {
        Home::Slab(slab, index) => {
            let stride =
                if slab.class.is_tagged { Stride::Tagged } else { Stride::Bytes(slab.class.block_bytes) };
            let position = index % SPAN_BLOCKS;
            (slab.block_off(index - position), stride, position as usize)
        }
        Home::Extent { .. } => (block.off, Stride::None, 0),
    }
}

impl FreshIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.single.is_empty() && self.spans.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.single.clear();
        self.spans.clear();
    }

    pub(super) fn insert(&mut self, block: &Block, number: usize) {
        if number < SINGLE {
            self.single.insert(block.off, number as u32);
        } else {
            self.insert_in_span(block, number);
        }
    }

    fn insert_in_span(&mut self, block: &Block, number: usize) {
        let (start, stride, position) = place_of(block);
        let new = || Box::new(Span { stride, count: 0, numbers: [0; SPAN_BLOCKS as usize] });
        let span = self.spans.entry(start).or_insert_with(new);
        span.count += u32::from(span.numbers[position] == 0);
        span.numbers[position] = number as u32 + 1;
    }

    /// Forgets a block. A span without blocks is gone: other blocks may lie there later.
    pub(super) fn remove(&mut self, block: &Block) {
        if self.single.remove(&block.off).is_some() {
            return;
        }
        let (start, _, position) = place_of(block);
        let Some(span) = self.spans.get_mut(&start) else { return };
        span.count -= u32::from(std::mem::take(&mut span.numbers[position]) != 0);
        if span.count == 0 {
            self.spans.remove(&start);
        }
    }

    /// The number of the block that holds an offset, among the two that may be it.
    #[inline]
    pub(super) fn find(&self, off: u64, holds: impl Fn(usize) -> bool) -> Option<usize> {
        let single = self.single.range(..=off).next_back().map(|(_, number)| *number as usize);
        single
            .filter(|number| holds(*number))
            .or_else(|| self.find_in_span(off).filter(|number| holds(*number)))
    }

    fn find_in_span(&self, off: u64) -> Option<usize> {
        let (start, span) = self.spans.range(..=off).next_back()?;
        let number = span.numbers.get(span.stride.position(off - start) as usize)?;
        Some(number.checked_sub(1)? as usize)
    }

    /// The numbers of the blocks in a range, which holds whole spans.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = usize> {
        let single = self.single.range(range.clone()).map(|(_, number)| *number as usize);
        let numbers = self.spans.range(range).flat_map(|(_, span)| &span.numbers);
        single.chain(numbers.filter_map(|number| Some(number.checked_sub(1)? as usize)))
    }
}
