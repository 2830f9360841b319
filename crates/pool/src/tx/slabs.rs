//! What a commit does to slabs: the bits that it changes, and the heads of those that are new.

use super::{SEARCH_MAX, TxWork};
use crate::alloc::slab::{BitPlace, SlabRef};
use crate::log::record::Change;
use crate::pool::PoolInner;
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

/// Writes the head of a new slab.
pub(super) fn write_slab_head(inner: &PoolInner, work: &TxWork, slab: &SlabRef) -> Result<()> {
    // L4: the record covers the head, so the bits of this transaction's blocks are set in it from the start.
    let head = slab.new_head(work.fresh_in(slab));
    // SAFETY: media does not name the slab, so that its head is this lane's alone.
    unsafe { inner.region.write(slab.off, &head)? };
    Ok(())
}

/// Notes that new slabs are on media, with the transaction's blocks in them.
pub(super) fn note_published(work: &mut TxWork) {
    for slab in &work.new_slabs {
        for index in work.fresh_in(slab) {
            slab.note_allocated(slab.bit(index));
        }
        slab.set_published();
    }
    work.new_slabs.clear();
}

impl TxWork {
    /// The numbers of the transaction's own blocks in a slab, but for those that it gave back. Takes time that follows how many these are.
    fn fresh_in(&self, slab: &SlabRef) -> impl Iterator<Item = u64> {
        let is_indexed = self.fresh.len() > SEARCH_MAX;
        let indexed = is_indexed.then(|| self.fresh_index.range(slab.blocks_span()));
        let indexed = indexed.into_iter().flatten().map(|(_, number)| &self.fresh[*number as usize]);
        let searched = if is_indexed { &[] } else { &self.fresh[..] };
        let kept = indexed.chain(searched).filter(|f| !f.cancelled);
        kept.filter_map(|f| f.block.index_in(slab))
    }
}
