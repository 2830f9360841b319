//! Buffers of commits, kept from one transaction to the next.

use crate::layout::{Counts, Kind};
use crate::objects::type_info::PointerKind;
use tembo_sync::SmallMap;

/// The counts of an older object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewCounts {
    pub kind: Kind,
    pub old: Counts,
    pub new: Counts,
    /// The commit frees the object, and writes nothing of it.
    pub is_freed: bool,
}

/// The buffers of a writer's commits.
#[derive(Debug, Default)]
pub(crate) struct CommitBuffers {
    /// Count records that are owned.
    pub locks: Vec<u32>,
    pub counts: SmallMap<NewCounts>,
    pub deaths: Vec<u64>,
    pub pointers: Vec<(u64, PointerKind)>,
    /// Dying objects all of whose pointers are released.
    pub finished: Vec<u64>,
    /// Dead objects whose pointers are released. After all of them are, each is freed or becomes a shell.
    pub ended: Vec<(u64, Kind)>,
    /// Orphans without a handle.
    pub abandoned: Vec<u64>,
    /// Objects that get an orphan slot.
    pub orphaned: Vec<NewOrphan>,
    /// Slots that are kept for held objects.
    pub spare: Vec<NewOrphan>,
    pub adopted: Vec<u64>,
    /// Free slots of a block that this commit makes.
    pub new_slots: Vec<u64>,
}

/// An object that becomes an orphan, or may become one. Other threads learn of it when it is committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewOrphan {
    pub object: u64,
    pub slot: u64,
    /// Whether the commit makes the block of the slot.
    pub is_new_slot: bool,
}

impl CommitBuffers {
    /// Stores to nonempty lists only: most are empty, and a store would wait for the commit's fence.
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
