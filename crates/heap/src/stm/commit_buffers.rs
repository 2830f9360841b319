//! Buffers of commits, kept from one transaction to the next.

use crate::objects::layout::{Counts, Kind};
use crate::objects::type_info::PointerKind;
use tembo_sync::SmallMap;

/// The counts of an object that was there before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewCounts {
    pub kind: Kind,
    pub old: Counts,
    pub new: Counts,
    /// It is freed, so that nothing of it is to be written.
    pub is_freed: bool,
}

/// Buffers of commits, kept in the session.
#[derive(Debug, Default)]
pub(crate) struct CommitBuffers {
    /// Count records that are owned.
    pub locks: Vec<u32>,
    pub counts: SmallMap<NewCounts>,
    pub deaths: Vec<u64>,
    pub pointers: Vec<(u64, PointerKind)>,
    /// Dying objects all of whose pointers are released.
    pub finished: Vec<u64>,
    /// All dead objects whose pointers are released: when that has been done for all of them, they are freed, or are shells.
    pub ended: Vec<(u64, Kind)>,
    /// Orphans that nobody holds any more.
    pub abandoned: Vec<u64>,
    /// Changes of the orphan slots: objects that are to get one, and that are to lose theirs.
    pub orphaned: Vec<NewOrphan>,
    /// Slots that are to be kept for objects that are held.
    pub spare: Vec<NewOrphan>,
    pub adopted: Vec<u64>,
    /// Slots of a block that this commit makes.
    pub new_slots: Vec<u64>,
}

/// An object that becomes an orphan, or may later. Nobody else is to know before that is committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewOrphan {
    pub object: u64,
    pub slot: u64,
    /// Whether the slot is in a block that the commit makes.
    pub is_new_slot: bool,
}

impl CommitBuffers {
    /// Most of them are empty anyway, and storing that would wait for the commit's fence.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        fn clear<T>(list: &mut Vec<T>) {
            if !list.is_empty() {
                list.clear();
            }
        }
        clear(&mut self.locks);
        self.counts.clear();
        clear(&mut self.deaths);
        clear(&mut self.pointers);
        clear(&mut self.finished);
        clear(&mut self.ended);
        clear(&mut self.abandoned);
        clear(&mut self.orphaned);
        clear(&mut self.spare);
        clear(&mut self.adopted);
        clear(&mut self.new_slots);
    }
}
