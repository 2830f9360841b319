//! The interface that every way to search has.

use crate::u64tree::group::{Group, Leads};
use crate::u64tree::layout::SLOTS;
use std::sync::atomic::AtomicU64;

/// Words of fingerprints' bytes, one byte for each slot of a leaf, and of their nibbles.
pub(in crate::u64tree) const WORDS: usize = 16;
pub(in crate::u64tree) const NIBBLE_WORDS: usize = WORDS / 2;
/// Groups of children.
pub(in crate::u64tree) const GROUPS: usize = 16;

/// A way to search.
pub(in crate::u64tree) trait Search: Copy {
    /// Whether it is for regions that [report loads](Region::reports_loads), too.
    const REPORTS: bool;

    /// The last of words in order, [`signed`], that is at most `key`, which is not the largest number; 0 if
    /// there is none.
    fn last_first(self, words: &[AtomicU64; GROUPS], key: u64) -> usize;

    /// As [`Group::position`], of one of the groups.
    fn last_separator<W: Leads>(self, groups: &[Group<W>; GROUPS], at: usize, key: u64) -> usize;

    /// The bytes that equal `byte`, a bit each. Stores before that of a byte that is found are visible.
    fn equal_bytes(self, words: &[AtomicU64; WORDS], byte: u8) -> u128;

    /// The nibbles that equal that of `nibbles`, a bit each: first the lower ones of all bytes, then the
    /// upper ones.
    fn equal_nibbles(self, words: &[AtomicU64; NIBBLE_WORDS], nibbles: u8) -> u128;

    /// The keys that are at least as high as a bound, a bit each.
    fn at_least(self, keys: &[u64; SLOTS], bound: u64) -> u128;
}

/// An operation that searches.
pub(in crate::u64tree) trait Operation {
    type Outcome;

    /// Always inlined, so that it is compiled for what the processor can.
    fn run_by<S: Search>(self, search: S) -> Self::Outcome;
}
