//! A pass of collection over the old queue.

use super::readers::Retained;

/// The progress of a pass over the old queue. It exists in memory only: after a crash a pass begins anew.
#[derive(Debug, Default)]
pub(crate) struct OldScan {
    has_begun: bool,
    /// Items that the pass has yet to look at.
    pub(super) left: u64,
    /// The versions, in order, for which items may wait: those that were held when an item was found to be
    /// needed.
    watched: Vec<u64>,
}

impl OldScan {
    /// Notes that items were found to be needed while these versions were held.
    pub(super) fn watch(&mut self, retained: &Retained, newest: u64) {
        // A dead block is not in the newest version, so no item waits for that version.
        self.watched.extend(retained.versions().iter().filter(|version| **version < newest));
        self.watched.sort_unstable();
        self.watched.dedup();
    }

    /// Begins a pass if a version for which items may wait was given up.
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
