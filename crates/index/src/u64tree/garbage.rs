//! Values in DRAM that have left the tree and wait until no reader can look at them.

use parking_lot::Mutex;
use tembo_pool::OpenGuard;

/// A value that is dropped later: a node, a leaf's order, or a record.
pub(super) type Waste = Box<dyn Send>;

/// The number of values from which on the list is searched for some that can be dropped.
const BATCH: usize = 64;

#[derive(Default)]
pub(super) struct Garbage {
    waste: Mutex<Vec<(u64, Waste)>>,
}

impl Garbage {
    /// Drops `waste`, which is unreachable, some time after all present pins have ended.
    pub(super) fn add(&self, claim: &OpenGuard, waste: Waste) {
        let epoch = claim.end_epoch();
        let mut list = self.waste.lock();
        list.push((epoch, waste));
        if list.len() >= BATCH {
            let oldest = claim.oldest_pin();
            list.retain(|(epoch, _)| *epoch >= oldest);
        }
    }
}
