//! A pass of collection over the queue of the old.

use super::readers::Retained;

/// How far the queue of the old was looked through. In memory only: a pass that a crash cuts off begins anew.
#[derive(Debug, Default)]
pub(crate) struct OldScan {
    has_begun: bool,
    /// Items left of the pass.
    pub(super) left: u64,
    /// The versions, in order, that items may wait for: those that were held when one was found to be needed.
    watched: Vec<u64>,
}

impl OldScan {
    /// Notes that items were found to be needed while these versions were held.
    pub(super) fn watch(&mut self, retained: &Retained, newest: u64) {
        // A dead block is not in the newest version, so that no item waits for that one.
        self.watched.extend(retained.versions().iter().filter(|version| **version < newest));
        self.watched.sort_unstable();
        self.watched.dedup();
    }

    /// Begins a pass if a version was given up that items may have waited for.
    pub(super) fn resume(&mut self, retained: &Retained, newest: u64, items: u64) {
        let is_held = |version: &u64| retained.versions().binary_search(version).is_ok();
        if !self.has_begun || !self.watched.iter().all(is_held) {
            self.has_begun = true;
            self.left = items;
            self.watched.clear();
        }
        self.watch(retained, newest);
        self.left = self.left.min(items);
    }
}
