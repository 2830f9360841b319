//! Sparse slabs: which of them a compaction empties, and how nobody allocates from them meanwhile.
//!
//! A closed slab is *held*, as one is that a lane allocates from, so no release puts it into a partial list.
//! Nothing of that is on media. When the compaction ends, or when a pool is found full, closed slabs go back
//! to the lists. Empty ones stay closed until then: if their chunks were used again, new blocks would lie
//! where the compaction still looks for old ones, and it would move them for ever.

use super::allocator::{Allocator, Shared};
use super::slab::Slab;
use crate::Result;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tembo_pmem::Region;

/// From so many bytes in holes on, and so many for a hundred that are in use, the pool is compacted.
pub(crate) const WASTE_BYTES: u64 = 16 << 20;
pub(crate) const WASTE_PERCENT: u64 = 25;
/// A slab of which more is in use is not worth emptying.
const CLOSED_AT_MOST_PERCENT: u64 = 75;
/// The share of the other slabs' free blocks that the blocks of closed ones may fill.
const FILLED_AT_MOST_PERCENT: u64 = 90;

impl Allocator {
    /// Closes the emptiest slabs of each class whose blocks find room in the fuller ones. Returns where they
    /// lie, in ascending order; `None` if another compaction is under way.
    pub(crate) fn close_sparse(&self, region: &Region) -> Result<Option<Vec<Range<u64>>>> {
        let mut shared = self.shared.lock();
        if shared.is_compacting {
            return Ok(None);
        }
        self.read_all(&mut shared, region)?;
        shared.is_compacting = true;
        let mut spans = Vec::new();
        let Shared { partial, closed, .. } = &mut *shared;
        // Nobody moves tagged lines.
        let tagged = self.classes.tagged();
        for (_, list) in partial.iter_mut().enumerate().filter(|(class, _)| *class != tagged) {
            let closing = choose(list);
            spans.extend(closing.iter().map(|slab| slab.blocks_span()));
            closed.extend(closing);
        }
        spans.sort_unstable_by_key(|span| span.start);
        // ORDER: the flag is for the thread that compacts, and its allocations take the lock after this.
        self.has_closed.store(!spans.is_empty(), Ordering::Relaxed);
        Ok(Some(spans))
    }

    /// Allows allocations from closed slabs again.
    pub(crate) fn open_closed(&self) {
        let mut shared = self.shared.lock();
        // ORDER: before anybody can allocate from these slabs.
        self.has_closed.store(false, Ordering::Release);
        for slab in std::mem::take(&mut shared.closed) {
            shared.partial[slab.class_number].push_back(slab);
        }
    }

    /// Whether nobody allocates from the slabs that were closed last.
    pub(crate) fn has_closed(&self) -> bool {
        self.has_closed.load(Ordering::Acquire)
    }

    /// Ends a compaction.
    pub(crate) fn end_compaction(&self) {
        self.open_closed();
        self.shared.lock().is_compacting = false;
    }

    /// Bytes of free blocks in the slabs that are known and that no lane holds.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.shared.lock().spare_bytes()
    }

    /// Notes that the pool has grown, if it was for want of a compaction.
    pub(super) fn note_growth(&self, shared: &Shared, bytes_before: u64) {
        let spare = shared.spare_bytes();
        if spare >= WASTE_BYTES && spare >= (bytes_before - spare.min(bytes_before)) / 100 * WASTE_PERCENT {
            self.has_outgrown_waste.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the pool has grown since the last call while a compaction could have made room.
    pub(crate) fn take_outgrown_waste(&self) -> bool {
        self.has_outgrown_waste.load(Ordering::Relaxed)
            && self.has_outgrown_waste.swap(false, Ordering::Relaxed)
    }
}

impl Shared {
    fn spare_bytes(&self) -> u64 {
        let slabs = self.partial.iter().flatten().chain(&self.closed);
        slabs.map(|slab| slab.free_blocks() * slab.class.block_bytes).sum()
    }
}

/// Takes the slabs to empty out of a list, and puts the fullest of the others first.
fn choose(list: &mut VecDeque<Arc<Slab>>) -> Vec<Arc<Slab>> {
    let mut slabs: Vec<(u64, Arc<Slab>)> = list.drain(..).map(|slab| (slab.free_blocks(), slab)).collect();
    slabs.sort_by_key(|(free, _)| *free);
    let mut room: u64 = slabs.iter().map(|(free, _)| free).sum();
    let (mut moving, mut closing) = (0, Vec::new());
    while let Some((free, slab)) = slabs.last() {
        let (free, used) = (*free, slab.class.blocks - free);
        let fits = (moving + used) * 100 <= (room - free) * FILLED_AT_MOST_PERCENT;
        if !fits || used * 100 > slab.class.blocks * CLOSED_AT_MOST_PERCENT || !slab.is_published() {
            break;
        }
        (room, moving) = (room - free, moving + used);
        closing.extend(slabs.pop().map(|(_, slab)| slab));
    }
    list.extend(slabs.into_iter().map(|(_, slab)| slab));
    closing
}
