//! The part of a commit that concerns slabs: bits of their bitmaps, and the heads of new ones.

use super::write_set::WriteSet;
use crate::alloc::slab::{BitPlace, SlabRef};
use crate::log::record::Change;
use crate::{Error, Result};
use tembo_pmem::Region;

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

/// Joins the changes of one word's bits into one.
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

/// Two references to one block in damaged structures make their owner free it twice in one transaction.
#[cold]
pub(super) fn freed_twice(off: u64) -> Error {
    Error::corrupt("a block of the pool", off, "freed once in a transaction", "freed twice")
}

/// Writes the heads of new slabs.
pub(super) fn write_slab_heads(region: &Region, writes: &WriteSet) -> Result<()> {
    for slab in &writes.gathered.new_slabs {
        // L4: the record covers the head, so the bits of this transaction's blocks are set in it from the start.
        let head = slab.new_head(writes.fresh.in_slab(slab));
        // SAFETY: media does not name the slab, so that its head is this lane's alone.
        unsafe { region.write(slab.off, &head)? };
    }
    Ok(())
}

/// Notes that new slabs are on media, with the transaction's blocks in them.
pub(super) fn note_published(writes: &mut WriteSet) {
    for slab in &writes.gathered.new_slabs {
        for index in writes.fresh.in_slab(slab) {
            slab.note_allocated(slab.bit(index));
        }
        slab.set_published();
    }
    writes.gathered.new_slabs.clear();
}
