//! Blocks, and requests for them.

use super::slab::{Slab, SlabRef};
use crate::Result;
use crate::layout::{TAG_BYTES, tag_off};
use std::ptr::NonNull;
use std::sync::Arc;

/// A block that a transaction holds or freed.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub off: u64,
    pub bytes: u64,
    pub home: Home,
    /// Whether its memory reads as zero on media, because it was never handed out before (I7).
    pub is_zero: bool,
}

/// A request for a block.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// A block of at least this many bytes, at a multiple of 16.
    Bytes(u64),
    /// A block of at least this many bytes, at a multiple of 8.
    Words(u64),
    /// A line with a tag.
    Tagged,
}

/// The space that a lane may take.
pub(crate) struct Room<'r> {
    /// Makes the pool longer: to the second length if possible, else to the first.
    pub grow: &'r dyn Fn(u64, u64) -> Result<()>,
    /// Chunks that are left for transactions that free something (`Allocator::kept_chunks`).
    pub kept_chunks: u64,
}

/// The slab or extent that a block is part of.
#[derive(Debug, Clone)]
pub(crate) enum Home {
    /// A slab, and the number of the block in it.
    Slab(SlabRef, u64),
    Extent {
        zone: u64,
        chunk: u64,
        chunks: u64,
    },
}

impl Block {
    /// The number of the block in the slab, if it lies there.
    pub(crate) fn index_in(&self, slab: &SlabRef) -> Option<u64> {
        match &self.home {
            Home::Slab(home, index) if home.is(slab) => Some(*index),
            _ => None,
        }
    }

    /// Offset and length of the block, and those of its tag if it has one.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (u64, u64)> {
        [(self.off, self.bytes)].into_iter().chain(self.tag_off().map(|off| (off, TAG_BYTES)))
    }

    /// Where its tag lies, if it has one.
    pub(crate) fn tag_off(&self) -> Option<u64> {
        match &self.home {
            Home::Slab(slab, _) if slab.class.is_tagged => Some(tag_off(self.off)),
            _ => None,
        }
    }

    /// Withdraws the claim on a block: it stays allocated.
    pub(crate) fn unclaim(&self) {
        if let Home::Slab(slab, index) = &self.home {
            slab.unclaim(slab.bit(*index));
        }
    }

    pub(super) fn in_slab(slab: SlabRef, index: u64, is_zero: bool) -> Block {
        let (off, bytes) = (slab.block_off(index), slab.class.usable_bytes());
        Block { off, bytes, home: Home::Slab(slab, index), is_zero }
    }

    /// The block of a slab with this number. The caller has taken it.
    pub(super) fn of_slab(slab: &Arc<Slab>, index: u64, is_zero: bool) -> Block {
        let counted = NonNull::new(Arc::as_ptr(slab).cast_mut()).expect("not null");
        // SAFETY: slabs come from the table. The caller has taken the block, so no other code releases it;
        // the reference is part of the block.
        Block::in_slab(unsafe { SlabRef::new(counted) }, index, is_zero)
    }
}
