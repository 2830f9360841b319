//! The kinds of values in files of Redis, and how many there are of each.

use std::fmt;

use crate::keyspace::format::Kind;

/// The keys of a file that are read, by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Strings.
    pub strings: u64,
    /// Lists.
    pub lists: u64,
    /// Sets.
    pub sets: u64,
    /// Hashes.
    pub hashes: u64,
    /// Sorted sets.
    pub sorted_sets: u64,
}

impl KindCounts {
    pub(crate) fn add(&mut self, kind: tembo_rdb::Kind) {
        *match kind {
            tembo_rdb::Kind::String => &mut self.strings,
            tembo_rdb::Kind::List => &mut self.lists,
            tembo_rdb::Kind::Set => &mut self.sets,
            tembo_rdb::Kind::Hash => &mut self.hashes,
            tembo_rdb::Kind::SortedSet => &mut self.sorted_sets,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.strings + self.lists + self.sets + self.hashes + self.sorted_sets
    }
}

impl fmt::Display for KindCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KindCounts { strings, lists, sets, hashes, sorted_sets } = self;
        write!(f, "{strings} strings, {lists} lists, {sets} sets, {hashes} hashes, {sorted_sets} sorted sets")
    }
}

pub(crate) fn rdb_kind(kind: Kind) -> tembo_rdb::Kind {
    match kind {
        Kind::String => tembo_rdb::Kind::String,
        Kind::List => tembo_rdb::Kind::List,
        Kind::Set => tembo_rdb::Kind::Set,
        Kind::Hash => tembo_rdb::Kind::Hash,
        Kind::SortedSet => tembo_rdb::Kind::SortedSet,
    }
}
