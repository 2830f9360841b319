//! Searches that compare 32 bytes at a time.

use super::search::{GROUPS, NIBBLE_WORDS, Operation, Search, WORDS};
use crate::u64tree::group::{GROUP, Group, Leads, signed};
use crate::u64tree::layout::SLOTS;
use core::arch::x86_64::*;
use std::sync::atomic::AtomicU64;

/// The search with 32 bytes at a time. A value exists only if the processor has AVX2, BMI1, BMI2, LZCNT and
/// POPCNT.
#[derive(Debug, Clone, Copy)]
pub(in crate::u64tree) struct Avx2(());

impl Avx2 {
    /// The search, if the processor has the instructions.
    pub(in crate::u64tree) fn detect() -> Option<Avx2> {
        let can = std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("lzcnt")
            && std::is_x86_feature_detected!("popcnt");
        can.then_some(Avx2(()))
    }
}

/// Runs an operation compiled for the instructions that [`Avx2`] stands for.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(in crate::u64tree) fn run<O: Operation>(avx2: Avx2, operation: O) -> O::Outcome {
    operation.run_by(avx2)
}

impl Search for Avx2 {
    const REPORTS: bool = false;

    #[inline(always)]
    fn last_first(self, words: &[AtomicU64; GROUPS], key: u64) -> usize {
        // SAFETY: `self` proves that the processor has the instructions. The same holds below.
        unsafe { last_first(words, key) }
    }

    #[inline(always)]
    fn last_separator<W: Leads>(self, groups: &[Group<W>; GROUPS], at: usize, key: u64) -> usize {
        // SAFETY: as above.
        unsafe { last_separator(groups, at, key) }
    }

    #[inline(always)]
    fn equal_bytes(self, words: &[AtomicU64; WORDS], byte: u8) -> u128 {
        // SAFETY: as above.
        unsafe { equal_bytes(words, byte) }
    }

    #[inline(always)]
    fn equal_nibbles(self, words: &[AtomicU64; NIBBLE_WORDS], nibbles: u8) -> u128 {
        // SAFETY: as above.
        unsafe { equal_nibbles(words, nibbles) }
    }

    #[inline(always)]
    fn at_least(self, keys: &[u64; SLOTS], bound: u64) -> u128 {
        // SAFETY: as above.
        unsafe { at_least(keys, bound) }
    }
}

/// The least word above `key`, in each element of the vector.
#[target_feature(enable = "avx2")]
#[inline]
fn above(key: u64) -> __m256i {
    // This does not overflow: the key is not the largest number.
    _mm256_set1_epi64x(signed(key.wrapping_add(1)) as i64)
}

#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn last_first(words: &[AtomicU64; GROUPS], key: u64) -> usize {
    const { assert!(GROUPS == 16) };
    let above = above(key);
    let (a, b, c, d): (__m256i, __m256i, __m256i, __m256i);
    // SAFETY: reads the 128 bytes of the words. Other threads may store to them meanwhile; assembly reads
    // them, which is no data race in the language's sense.
    //
    // ORDER: acquire, as all loads are on this processor. The assembly is not marked as leaving memory alone,
    // so the compiler moves no access across it.
    unsafe {
        core::arch::asm!(
            "vpcmpgtq {a}, {above}, [{words}]",
            "vpcmpgtq {b}, {above}, [{words} + 32]",
            "vpcmpgtq {c}, {above}, [{words} + 64]",
            "vpcmpgtq {d}, {above}, [{words} + 96]",
            a = out(ymm_reg) a,
            b = out(ymm_reg) b,
            c = out(ymm_reg) c,
            d = out(ymm_reg) d,
            above = in(ymm_reg) above,
            words = in(reg) words.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
    // Two bytes for each word, in any order: the words are sorted, so only the count matters. Words that are
    // seen before they fell make it lower.
    let low = _mm256_packs_epi32(a, b);
    let high = _mm256_packs_epi32(c, d);
    let bytes = _mm256_movemask_epi8(_mm256_packs_epi16(low, high)) as u32;
    (bytes.count_ones() as usize / 2).saturating_sub(1)
}

#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn last_separator<W: Leads>(groups: &[Group<W>; GROUPS], at: usize, key: u64) -> usize {
    const { assert!(GROUP == 8) };
    let above = above(key);
    let (low, high): (__m256i, __m256i);
    // SAFETY: reads the 64 bytes of the eight words; as above.
    //
    // ORDER: as above.
    unsafe {
        core::arch::asm!(
            "vpcmpgtq {low}, {above}, [{words}]",
            "vpcmpgtq {high}, {above}, [{words} + 32]",
            low = out(ymm_reg) low,
            high = out(ymm_reg) high,
            above = in(ymm_reg) above,
            words = in(reg) groups[at].separators().as_ptr(),
            options(nostack, preserves_flags),
        );
    }
    let low = _mm256_movemask_pd(_mm256_castsi256_pd(low)) as u32;
    let high = _mm256_movemask_pd(_mm256_castsi256_pd(high)) as u32;
    ((low | high << 4) >> 1).count_ones() as usize
}

#[target_feature(enable = "avx2")]
#[inline]
fn equal_bytes(words: &[AtomicU64; WORDS], byte: u8) -> u128 {
    const { assert!(WORDS == 16) };
    let wanted = _mm256_set1_epi8(byte as i8);
    let (m0, m1, m2, m3): (__m256i, __m256i, __m256i, __m256i);
    // SAFETY: reads the 128 bytes of the words; as above.
    //
    // ORDER: as above.
    unsafe {
        core::arch::asm!(
            "vpcmpeqb {m0}, {wanted}, [{words}]",
            "vpcmpeqb {m1}, {wanted}, [{words} + 32]",
            "vpcmpeqb {m2}, {wanted}, [{words} + 64]",
            "vpcmpeqb {m3}, {wanted}, [{words} + 96]",
            m0 = out(ymm_reg) m0,
            m1 = out(ymm_reg) m1,
            m2 = out(ymm_reg) m2,
            m3 = out(ymm_reg) m3,
            wanted = in(ymm_reg) wanted,
            words = in(reg) words.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
    let [m0, m1, m2, m3] = [
        _mm256_movemask_epi8(m0) as u32,
        _mm256_movemask_epi8(m1) as u32,
        _mm256_movemask_epi8(m2) as u32,
        _mm256_movemask_epi8(m3) as u32,
    ];
    let low = u64::from(m0) | u64::from(m1) << 32;
    let high = u64::from(m2) | u64::from(m3) << 32;
    u128::from(low) | u128::from(high) << 64
}

#[target_feature(enable = "avx2")]
#[inline]
fn equal_nibbles(words: &[AtomicU64; NIBBLE_WORDS], nibbles: u8) -> u128 {
    const { assert!(NIBBLE_WORDS == 8) };
    let lower = _mm256_set1_epi8(0xF);
    let (a, b): (__m256i, __m256i);
    // SAFETY: reads the 64 bytes of the words; as above.
    //
    // ORDER: as above.
    unsafe {
        core::arch::asm!(
            "vpxor {a}, {both}, [{words}]",
            "vpxor {b}, {both}, [{words} + 32]",
            a = out(ymm_reg) a,
            b = out(ymm_reg) b,
            both = in(ymm_reg) _mm256_set1_epi8(nibbles as i8),
            words = in(reg) words.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
    let zero = _mm256_setzero_si256();
    // A half that equals the one sought is zero now.
    let bits = |halves| u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(halves, zero)) as u32);
    let low = bits(_mm256_and_si256(a, lower)) | bits(_mm256_and_si256(b, lower)) << 32;
    let high = bits(_mm256_andnot_si256(lower, a)) | bits(_mm256_andnot_si256(lower, b)) << 32;
    u128::from(low) | u128::from(high) << 64
}

#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn at_least(keys: &[u64; SLOTS], bound: u64) -> u128 {
    let signs = _mm256_set1_epi64x(signed(0) as i64);
    let bound = _mm256_set1_epi64x(signed(bound) as i64);
    let (fours, []) = keys.as_chunks::<4>() else { unreachable!("whole fours") };
    let mut halves = [0; 2];
    for (i, four) in fours.iter().enumerate() {
        // SAFETY: reads the four.
        let four = unsafe { _mm256_loadu_si256(four.as_ptr().cast()) };
        let below = _mm256_cmpgt_epi64(bound, _mm256_xor_si256(four, signs));
        let at_least = !_mm256_movemask_pd(_mm256_castsi256_pd(below)) & 0xF;
        halves[i / 16] |= (at_least as u64) << (4 * (i % 16));
    }
    u128::from(halves[0]) | u128::from(halves[1]) << 64
}
