//! The heads of new slabs, which a commit writes.

use super::write_set::WriteSet;
use crate::Result;
use tembo_pmem::Region;

/// Writes the heads of new slabs.
pub(super) fn write_slab_heads(region: &Region, writes: &WriteSet) -> Result<()> {
    for slab in &writes.gathered.new_slabs {
        // L4: the record covers the head and must not change it, so the bits of this transaction's blocks are
        // set in it from the start.
        let head = slab.new_head(writes.fresh.in_slab(slab));
        // SAFETY: media does not name the slab, so its head belongs to this lane alone.
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
