//! Searches that compare a word at a time, for every processor.

use super::search::{GROUPS, NIBBLE_WORDS, Search, WORDS};
use crate::u64tree::group::{Group, Leads, signed};
use crate::u64tree::layout::SLOTS;
use std::sync::atomic::{AtomicU64, Ordering};

/// The search with a word at a time.
#[derive(Debug, Clone, Copy)]
pub(in crate::u64tree) struct Portable;

/// The word whose bytes are all 1. `SEVEN` has the seven lower bits of each byte set.
const LOW: u64 = 0x0101_0101_0101_0101;
const SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;

/// The bytes of a word that are zero, a bit each.
fn zero_bytes(word: u64) -> u64 {
    // The high bit of each byte that is zero, and no other bit.
    let zeros = !((word & SEVEN).wrapping_add(SEVEN) | word | SEVEN);
    (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Search for Portable {
    const REPORTS: bool = true;

    #[inline(always)]
    fn last_first(self, words: &[AtomicU64; GROUPS], key: u64) -> usize {
        const { assert!(GROUPS.is_power_of_two()) };
        let key = signed(key) as i64;
        let (mut last, mut half) = (0, GROUPS / 2);
        while half > 0 {
            let next = last + half;
            last = core::hint::select_unpredictable(
                words[next].load(Ordering::Acquire) as i64 <= key,
                next,
                last,
            );
            half /= 2;
        }
        last
    }

    #[inline(always)]
    fn last_separator<W: Leads>(self, groups: &[Group<W>; GROUPS], at: usize, key: u64) -> usize {
        groups[at].position(key)
    }

    fn equal_bytes(self, words: &[AtomicU64; WORDS], byte: u8) -> u128 {
        let wanted = LOW * u64::from(byte);
        words.iter().enumerate().fold(0, |found, (i, word)| {
            found | u128::from(zero_bytes(word.load(Ordering::Acquire) ^ wanted)) << (8 * i)
        })
    }

    fn equal_nibbles(self, words: &[AtomicU64; NIBBLE_WORDS], nibbles: u8) -> u128 {
        let wanted = LOW * u64::from(nibbles);
        words.iter().enumerate().fold(0, |found, (i, word)| {
            let differences = word.load(Ordering::Acquire) ^ wanted;
            let [low, high] = [0xF, 0xF0].map(|half| u128::from(zero_bytes(differences & (half * LOW))));
            found | (low | high << 64) << (8 * i)
        })
    }

    fn at_least(self, keys: &[u64; SLOTS], bound: u64) -> u128 {
        let half = |keys: &[u64]| {
            keys.iter().enumerate().fold(0u64, |slots, (slot, key)| slots | u64::from(*key >= bound) << slot)
        };
        u128::from(half(&keys[..64])) | u128::from(half(&keys[64..])) << 64
    }
}
