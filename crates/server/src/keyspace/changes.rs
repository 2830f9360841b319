//! The changes of a batch, for walks that see them.

use std::collections::BTreeSet;

use super::format::DATABASES;

/// The changes of the batch since it began.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Whether all committed keys of each database were removed.
    pub(super) cleared: [bool; DATABASES],
    /// The places of keys that the batch has written or removed.
    pub(super) keys: [BTreeSet<Vec<u8>>; DATABASES],
}

impl Changes {
    pub(super) fn note(&mut self, database: usize, key: &[u8]) {
        if !self.keys[database].contains(key) {
            self.keys[database].insert(key.to_vec());
        }
    }

    /// Notes that two databases have each other's keys.
    pub(super) fn swap(&mut self, a: usize, b: usize) {
        self.cleared.swap(a, b);
        self.keys.swap(a, b);
    }

    pub(super) fn note_cleared(&mut self, database: usize) {
        self.cleared[database] = true;
        self.keys[database].clear();
    }
}

#[inline(always)]
pub(in crate::keyspace) fn note(changes: &mut Option<Box<Changes>>, database: usize, place: &[u8]) {
    if let Some(changes) = changes {
        changes.note(database, place);
    }
}
