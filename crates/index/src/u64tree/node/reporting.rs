//! A search for regions that report loads, so that tests can stop it at any load.

use super::search::{GROUPS, NIBBLE_WORDS, Search, WORDS};
use crate::u64tree::group::{Group, Leads};
use crate::u64tree::layout::SLOTS;
use std::sync::atomic::AtomicU64;

#[derive(Debug, Clone, Copy)]
pub(super) struct Reporting<S>(pub(super) S);

impl<S: Search> Search for Reporting<S> {
    const REPORTS: bool = true;

    fn last_first(self, words: &[AtomicU64; GROUPS], key: u64) -> usize {
        self.0.last_first(words, key)
    }

    fn last_separator<W: Leads>(self, groups: &[Group<W>; GROUPS], at: usize, key: u64) -> usize {
        self.0.last_separator(groups, at, key)
    }

    fn equal_bytes(self, words: &[AtomicU64; WORDS], byte: u8) -> u128 {
        self.0.equal_bytes(words, byte)
    }

    fn equal_nibbles(self, words: &[AtomicU64; NIBBLE_WORDS], nibbles: u8) -> u128 {
        self.0.equal_nibbles(words, nibbles)
    }

    fn at_least(self, keys: &[u64; SLOTS], bound: u64) -> u128 {
        self.0.at_least(keys, bound)
    }
}
