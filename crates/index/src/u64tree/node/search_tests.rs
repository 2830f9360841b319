//! All searches give the same results.

use super::avx2::Avx2;
use super::avx512::Avx512;
use super::simd::{GROUPS, Portable, Search, WORDS};
use crate::u64tree::group::{Group, signed};
use crate::u64tree::layout::SLOTS;
use crate::u64tree::node::{Link, Word};
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn searches_find_what_they_should() {
    finds_what_it_should(Portable);
    // Tested if the processor has the instructions.
    Avx2::detect().into_iter().for_each(finds_what_it_should);
    Avx512::detect().into_iter().for_each(finds_what_it_should);
}

fn finds_what_it_should(search: impl Search) {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    };
    for round in 0..2000_u32 {
        // Many or few equal keys, low and high ones.
        let shift = round % 64;
        let mut keys: [u64; SLOTS] = std::array::from_fn(|_| random() >> shift);
        let bound = if round % 3 == 0 { keys[round as usize % SLOTS] } else { random() >> shift };
        let slots = (0..SLOTS).filter(|slot| keys[*slot] >= bound);
        assert_eq!(search.at_least(&keys, bound), slots.fold(0, |slots, slot| slots | 1 << slot));

        keys.sort_unstable();
        let (key, count) = (bound.min(u64::MAX - 1), 1 + round as usize % GROUPS);
        let firsts = std::array::from_fn(|i| {
            AtomicU64::new(signed(keys[..count].get(i).copied().unwrap_or(u64::MAX)))
        });
        let last = keys[..count].partition_point(|first| *first <= key).saturating_sub(1);
        assert_eq!(search.last_first(&firsts, key), last);

        let groups = std::array::from_fn(|_| Group::new(|| Word::new(Link::NONE)));
        let at = round as usize % GROUPS;
        (0..count.min(8)).for_each(|i| groups[at].set(i, keys[i], Link::NONE, 0));
        let last = keys[..count.min(8)].partition_point(|separator| *separator <= key).saturating_sub(1);
        assert_eq!(search.last_separator(&groups, at, key), last);

        let words: [AtomicU64; WORDS] = std::array::from_fn(|_| AtomicU64::new(random() & random()));
        let byte = (random() >> 24) as u8 & random() as u8;
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let equal = (0..8 * WORDS).filter(|at| bytes[*at] == byte).fold(0, |found, at| found | 1_u128 << at);
        assert_eq!(search.equal_bytes(&words, byte), equal);

        let equal = (0..8 * WORDS)
            .filter(|at| (bytes[at % 64] ^ byte) & 0xF << (4 * (at / 64)) == 0)
            .fold(0, |found, at| found | 1_u128 << at);
        assert_eq!(search.equal_nibbles(words.first_chunk().unwrap(), byte), equal);
    }
}
