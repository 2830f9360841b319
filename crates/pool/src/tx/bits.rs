//! Bits of slabs' bitmaps that a commit changes.

use crate::alloc::slab::{BitPlace, SlabRef};
use crate::log::record::Change;
use crate::{Error, Result};

/// Bits of one word of a slab's bitmap that a commit changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitChange {
    pub(super) place: BitPlace,
    pub(super) set: bool,
    pub(super) slab: SlabRef,
}

impl BitChange {
    #[inline]
    pub(super) fn entry(&self) -> (u64, Change) {
        let BitPlace { word_off, mask, .. } = self.place;
        (word_off, if self.set { Change::SetBits(mask) } else { Change::ClearBits(mask) })
    }
}

/// Adds a change. Neighbours are mostly allocated one after the other, and their bits join at once.
#[inline(always)]
pub(super) fn add_bit(bits: &mut Vec<BitChange>, change: BitChange) {
    let place = change.place;
    match bits.last_mut() {
        Some(last)
            if (last.place.word_off, last.set) == (place.word_off, change.set)
                && last.place.mask & place.mask == 0 =>
        {
            last.place.mask |= place.mask;
        }
        _ => bits.push(change),
    }
}

/// Merges all changes of one word's bits into one.
#[inline]
pub(super) fn merge_bits(bits: &mut Vec<BitChange>) -> Result<()> {
    if bits.len() < 2 {
        return Ok(());
    }
    bits.sort_unstable_by_key(|change| (change.place.word_off, change.set));
    let mut twice = None;
    bits.dedup_by(|next, kept| {
        let joins = (next.place.word_off, next.set) == (kept.place.word_off, kept.set);
        if joins {
            if kept.place.mask & next.place.mask != 0 {
                twice = Some(kept.place.word_off);
            }
            kept.place.mask |= next.place.mask;
        }
        joins
    });
    twice.map_or(Ok(()), |off| Err(freed_twice(off)))
}

/// The error for a block that is freed twice in one transaction: a damaged structure refers to it twice.
#[cold]
pub(super) fn freed_twice(off: u64) -> Error {
    Error::corrupt("a block of the pool", off, "freed once in a transaction", "freed twice")
}
