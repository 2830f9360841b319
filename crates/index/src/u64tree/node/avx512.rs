//! Searches that compare 64 bytes at a time.

use super::avx2::at_least;
use super::search::{GROUPS, NIBBLE_WORDS, Operation, Search, WORDS};
use crate::u64tree::group::{GROUP, Group, Leads, signed};
use crate::u64tree::layout::SLOTS;
use core::arch::x86_64::*;
use std::sync::atomic::AtomicU64;

/// The search with 64 bytes at a time. A value exists only if the processor has the instructions that
/// [`Avx2`](super::avx2::Avx2) stands for, and AVX-512 with its instructions for bytes.
#[derive(Debug, Clone, Copy)]
pub(in crate::u64tree) struct Avx512(());

impl Avx512 {
    /// The search, if the processor has the instructions and does not slow down when it uses them. The first
    /// processors with AVX-512 did; they lack VBMI2.
    pub(in crate::u64tree) fn detect() -> Option<Avx512> {
        let can = super::avx2::Avx2::detect().is_some()
            && std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vbmi2");
        can.then_some(Avx512(()))
    }
}

/// Runs an operation compiled for the instructions that [`Avx512`] stands for.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw")]
pub(in crate::u64tree) fn run<O: Operation>(avx512: Avx512, operation: O) -> O::Outcome {
    operation.run_by(avx512)
}

impl Search for Avx512 {
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

/// As in `avx2.rs`, for wider vectors.
#[target_feature(enable = "avx512f")]
#[inline]
fn above(key: u64) -> __m512i {
    _mm512_set1_epi64(signed(key.wrapping_add(1)) as i64)
}

#[target_feature(enable = "avx512f,avx512bw,popcnt")]
#[inline]
fn last_first(words: &[AtomicU64; GROUPS], key: u64) -> usize {
    const { assert!(GROUPS == 16) };
    let up_to: u32;
    // SAFETY: reads the 128 bytes of the words. Other threads may store to them meanwhile; assembly reads
    // them, which is no data race in the language's sense.
    //
    // ORDER: acquire, as all loads are on this processor. The assembly is not marked as leaving memory alone,
    // so the compiler moves no access across it.
    unsafe {
        core::arch::asm!(
            "vpcmpgtq {low}, {above}, [{words}]",
            "vpcmpgtq {high}, {above}, [{words} + 64]",
            "kunpckbw {low}, {high}, {low}",
            low = out(kreg) up_to,
            high = out(kreg) _,
            above = in(zmm_reg) above(key),
            words = in(reg) words.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: sixteen bits of a mask were made.
    unsafe { core::hint::assert_unchecked(up_to < 1 << GROUPS) };
    // The words are sorted, so only the count matters, without the first. Words that are seen before they
    // fell make it lower.
    (up_to >> 1).count_ones() as usize
}

#[target_feature(enable = "avx512f,avx512bw,popcnt")]
#[inline]
fn last_separator<W: Leads>(groups: &[Group<W>; GROUPS], at: usize, key: u64) -> usize {
    const { assert!(GROUP == 8 && Group::<W>::separator_place(0) == 0) };
    assert!(at < GROUPS, "there is no such group");
    let up_to: u32;
    // SAFETY: reads the 64 bytes of the group's eight separators, which come first in it; as above. (A
    // pointer to the group's own separators would cost an instruction.)
    //
    // ORDER: as above.
    unsafe {
        core::arch::asm!(
            "vpcmpgtq {up_to}, {above}, [{groups} + {at}]",
            up_to = out(kreg) up_to,
            above = in(zmm_reg) above(key),
            groups = in(reg) groups.as_ptr(),
            at = in(reg) at * size_of::<Group<W>>(),
            options(nostack, preserves_flags),
        );
        // A comparison of eight makes eight bits.
        core::hint::assert_unchecked(up_to < 1 << GROUP);
    }
    (up_to >> 1).count_ones() as usize
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn equal_bytes(words: &[AtomicU64; WORDS], byte: u8) -> u128 {
    const { assert!(WORDS == 16) };
    let (low, high): (u64, u64);
    // SAFETY: reads the 128 bytes of the words; as above.
    //
    // ORDER: as above.
    unsafe {
        core::arch::asm!(
            "vpcmpeqb {low}, {wanted}, [{words}]",
            "vpcmpeqb {high}, {wanted}, [{words} + 64]",
            low = out(kreg) low,
            high = out(kreg) high,
            wanted = in(zmm_reg) _mm512_set1_epi8(byte as i8),
            words = in(reg) words.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
    u128::from(low) | u128::from(high) << 64
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn equal_nibbles(words: &[AtomicU64; NIBBLE_WORDS], nibbles: u8) -> u128 {
    const { assert!(NIBBLE_WORDS == 8) };
    let differences: __m512i;
    // SAFETY: reads the 64 bytes of the words; as above.
    //
    // ORDER: as above.
    unsafe {
        core::arch::asm!(
            "vpxorq {differences}, {both}, [{words}]",
            differences = out(zmm_reg) differences,
            both = in(zmm_reg) _mm512_set1_epi8(nibbles as i8),
            words = in(reg) words.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
    let low = _mm512_testn_epi8_mask(differences, _mm512_set1_epi8(0xF));
    let high = _mm512_testn_epi8_mask(differences, _mm512_set1_epi8(0xF0_u8 as i8));
    u128::from(low) | u128::from(high) << 64
}
