//! The numbers of members of sorted sets that do not count themselves.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// The most sorted sets whose numbers of members are remembered.
const COUNTS_MAX: usize = 1 << 14;

/// The numbers of members of large sorted sets, by their ids, as the batch sees them. Forgotten whenever
/// changes are taken back.
#[derive(Default)]
pub(in crate::keyspace) struct Counts(pub(super) HashMap<u64, u64, RandomState>);

impl Counts {
    pub(super) fn note(&mut self, id: u64, count: u64) {
        if self.0.len() >= COUNTS_MAX && !self.0.contains_key(&id) {
            self.0.clear();
        }
        self.0.insert(id, count);
    }

    pub(in crate::keyspace) fn clear(&mut self) {
        self.0.clear();
    }
}
