//! The interface of all searches.

use crate::u64tree::group::{Group, Leads};
use crate::u64tree::layout::SLOTS;
use std::sync::atomic::AtomicU64;

/// The number of words that hold the bytes of a leaf's fingerprints, one byte for each slot. `NIBBLE_WORDS`
/// hold their nibbles.
pub(in crate::u64tree) const WORDS: usize = 16;
pub(in crate::u64tree) const NIBBLE_WORDS: usize = WORDS / 2;
/// Groups of children in an inner node.
pub(in crate::u64tree) const GROUPS: usize = 16;

/// A set of search routines, written for one instruction set.
pub(in crate::u64tree) trait Search: Copy {
    /// Whether it may be used for regions that [report loads](Region::reports_loads).
    const REPORTS: bool;

    /// The index of the last of the words that is at most `key`; 0 if there is none. The words are sorted and
    /// [`signed`]; `key` is not the largest number.
    fn last_first(self, words: &[AtomicU64; GROUPS], key: u64) -> usize;

    /// As [`Group::position`], for one of the groups.
    fn last_separator<W: Leads>(self, groups: &[Group<W>; GROUPS], at: usize, key: u64) -> usize;

    /// The bytes that equal `byte`, a bit each. Stores from before that of a matching byte are visible
    /// afterwards.
    fn equal_bytes(self, words: &[AtomicU64; WORDS], byte: u8) -> u128;

    /// The nibbles that equal the corresponding one of `nibbles`, a bit each: first the lower nibbles of all
    /// bytes, then the upper ones.
    fn equal_nibbles(self, words: &[AtomicU64; NIBBLE_WORDS], nibbles: u8) -> u128;

    /// The keys that are at least `bound`, a bit each.
    fn at_least(self, keys: &[u64; SLOTS], bound: u64) -> u128;
}

/// An operation that searches.
pub(in crate::u64tree) trait Operation {
    type Outcome;

    /// Always inlined, so that it is compiled for the instruction set of the search.
    fn run_by<S: Search>(self, search: S) -> Self::Outcome;
}
