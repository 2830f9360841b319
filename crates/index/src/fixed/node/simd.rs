//! Searches of many words or bytes, at once where the processor can.
//!
//! What the processor can is found out when a tree is opened. Each operation is compiled as a whole for each way to search, so that nothing
//! is called on its way.

use crate::fixed::fingerprints::{NIBBLE_WORDS, WORDS};
use crate::fixed::group::{Group, Leads, signed};
use crate::fixed::inner::GROUPS;
use crate::fixed::layout::SLOTS;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pmem::Region;

/// A way to search.
pub(in crate::fixed) trait Search: Copy {
    /// Whether it is for regions that [report loads](Region::reports_loads), too.
    const REPORTS: bool;

    /// The last of words in order, [`signed`], that is at most `key`, which is not the largest number; 0 if there is none.
    fn last_first(self, words: &[AtomicU64; GROUPS], key: u64) -> usize;

    /// As [`Group::position`], of one of the groups.
    fn last_separator<W: Leads>(self, groups: &[Group<W>; GROUPS], at: usize, key: u64) -> usize;

    /// The bytes that equal `byte`, a bit each. What was stored before a byte that is found is seen.
    fn equal_bytes(self, words: &[AtomicU64; WORDS], byte: u8) -> u128;

    /// The nibbles that equal that of `nibbles`, a bit each: first the lower ones of all bytes, then the upper ones.
    fn equal_nibbles(self, words: &[AtomicU64; NIBBLE_WORDS], nibbles: u8) -> u128;

    /// The keys that are at least as high as a bound, a bit each.
    fn at_least(self, keys: &[u64; SLOTS], bound: u64) -> u128;
}

/// An operation that searches.
pub(in crate::fixed) trait Operation {
    type Outcome;

    /// Always inlined, so that it is compiled for what the processor can.
    fn run_by<S: Search>(self, search: S) -> Self::Outcome;
}

/// The best way to search that there is here.
#[derive(Debug, Clone, Copy)]
pub(in crate::fixed) enum Best {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Portable,
    #[cfg(all(test, target_arch = "x86_64"))]
    Avx512Reporting(Avx512),
    #[cfg(all(test, target_arch = "x86_64"))]
    Avx2Reporting(Avx2),
}

impl Best {
    /// For a tree in this region.
    #[cfg(all(not(test), target_arch = "x86_64"))]
    pub(in crate::fixed) fn find(region: &Region) -> Best {
        if region.reports_loads() {
            return Best::Portable;
        }
        let narrow = || Avx2::detect().map_or(Best::Portable, Best::Avx2);
        Avx512::detect().map_or_else(narrow, Best::Avx512)
    }

    /// In tests each way that there is gets its turn, tree by tree of a thread.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(in crate::fixed) fn find(region: &Region) -> Best {
        thread_local!(static TURN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });
        let turn = TURN.replace(TURN.get() + 1);
        let way = match (turn % 3, region.reports_loads()) {
            (0, false) => Avx512::detect().map(Best::Avx512),
            (0, true) => Avx512::detect().map(Best::Avx512Reporting),
            (1, false) => Avx2::detect().map(Best::Avx2),
            (1, true) => Avx2::detect().map(Best::Avx2Reporting),
            _ => None,
        };
        way.unwrap_or(Best::Portable)
    }

    /// As above, where there is one.
    #[cfg(not(target_arch = "x86_64"))]
    pub(in crate::fixed) fn find(_: &Region) -> Best {
        Best::Portable
    }

    #[inline(always)]
    pub(in crate::fixed) fn run<O: Operation>(self, operation: O) -> O::Outcome {
        match self {
            // SAFETY: the processor can, as `avx512` says.
            #[cfg(target_arch = "x86_64")]
            Best::Avx512(avx512) => unsafe { avx512::run(avx512, operation) },
            // SAFETY: as above, `avx2`.
            #[cfg(target_arch = "x86_64")]
            Best::Avx2(avx2) => unsafe { avx2::run(avx2, operation) },
            Best::Portable => run_portable(operation),
            #[cfg(all(test, target_arch = "x86_64"))]
            Best::Avx512Reporting(avx512) => operation.run_by(reporting::Reporting(avx512)),
            #[cfg(all(test, target_arch = "x86_64"))]
            Best::Avx2Reporting(avx2) => operation.run_by(reporting::Reporting(avx2)),
        }
    }
}

/// A way to search for regions that report loads, so that tests can stop it at any of them.
#[cfg(all(test, target_arch = "x86_64"))]
mod reporting {
    use super::{AtomicU64, GROUPS, Group, Leads, NIBBLE_WORDS, SLOTS, Search, WORDS};

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
}

#[cfg_attr(target_arch = "x86_64", cold)]
fn run_portable<O: Operation>(operation: O) -> O::Outcome {
    operation.run_by(Portable)
}

/// A word at a time.
#[derive(Debug, Clone, Copy)]
pub(in crate::fixed) struct Portable;

/// A one in each byte, and seven.
const LOW: u64 = 0x0101_0101_0101_0101;
const SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;

/// The bytes of a word that are zero, a bit each.
fn zero_bytes(word: u64) -> u64 {
    // The high bit of each, exactly.
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

#[cfg(target_arch = "x86_64")]
use {avx2::Avx2, avx512::Avx512};

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{AtomicU64, GROUPS, Group, Leads, NIBBLE_WORDS, Operation, SLOTS, Search, WORDS, signed};
    use crate::fixed::group::GROUP;
    use core::arch::x86_64::*;

    /// 32 bytes at a time. There is one only where the processor has AVX2, BMI1, BMI2, LZCNT and POPCNT.
    #[derive(Debug, Clone, Copy)]
    pub(in crate::fixed) struct Avx2(());

    impl Avx2 {
        /// The way, if the processor can.
        pub(in crate::fixed) fn detect() -> Option<Avx2> {
            let can = std::is_x86_feature_detected!("avx2")
                && std::is_x86_feature_detected!("bmi1")
                && std::is_x86_feature_detected!("bmi2")
                && std::is_x86_feature_detected!("lzcnt")
                && std::is_x86_feature_detected!("popcnt");
            can.then_some(Avx2(()))
        }
    }

    /// Runs an operation with all that [`Avx2`] stands for.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(in crate::fixed) fn run<O: Operation>(avx2: Avx2, operation: O) -> O::Outcome {
        operation.run_by(avx2)
    }

    impl Search for Avx2 {
        const REPORTS: bool = false;

        #[inline(always)]
        fn last_first(self, words: &[AtomicU64; GROUPS], key: u64) -> usize {
            // SAFETY: the processor can, as `self` says. So below.
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

    /// What words have to be lower than to be at most `key`, in each place.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn above(key: u64) -> __m256i {
        // Is not more than the largest number, since the key is another.
        _mm256_set1_epi64x(signed(key.wrapping_add(1)) as i64)
    }

    #[target_feature(enable = "avx2,popcnt")]
    #[inline]
    fn last_first(words: &[AtomicU64; GROUPS], key: u64) -> usize {
        const { assert!(GROUPS == 16) };
        let above = above(key);
        let (a, b, c, d): (__m256i, __m256i, __m256i, __m256i);
        // SAFETY: reads the 128 bytes of the words. Other threads may store to them meanwhile; the reads are the processor's, not
        // the language's, so that this is no data race in its sense.
        //
        // ORDER: acquire, as all loads are to this processor; and the compiler, which is not told that no memory is written, moves no
        // access across.
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
        // Two bytes for each word, in no order: as they are in order themselves, only their number counts. Words that are seen as they were before
        // they fell make that lower.
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
        // A half that is the one sought is zero now.
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
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::avx2::at_least;
    use super::{AtomicU64, GROUPS, Group, Leads, NIBBLE_WORDS, Operation, SLOTS, Search, WORDS, signed};
    use crate::fixed::group::GROUP;
    use core::arch::x86_64::*;

    /// 64 bytes at a time. There is one only where the processor has what [`Avx2`](super::Avx2) stands for, and AVX-512 with its
    /// instructions for bytes.
    #[derive(Debug, Clone, Copy)]
    pub(in crate::fixed) struct Avx512(());

    impl Avx512 {
        /// The way, if the processor can, and does not run slower for it: the first ones with AVX-512 did, and had no VBMI2.
        pub(in crate::fixed) fn detect() -> Option<Avx512> {
            let can = super::Avx2::detect().is_some()
                && std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512vbmi2");
            can.then_some(Avx512(()))
        }
    }

    /// Runs an operation with all that [`Avx512`] stands for.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw")]
    pub(in crate::fixed) fn run<O: Operation>(avx512: Avx512, operation: O) -> O::Outcome {
        operation.run_by(avx512)
    }

    impl Search for Avx512 {
        const REPORTS: bool = false;

        #[inline(always)]
        fn last_first(self, words: &[AtomicU64; GROUPS], key: u64) -> usize {
            // SAFETY: the processor can, as `self` says. So below.
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

    /// As in AVX2, for these.
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
        // SAFETY: reads the 128 bytes of the words. Other threads may store to them meanwhile; the reads are the processor's, not
        // the language's, so that this is no data race in its sense.
        //
        // ORDER: acquire, as all loads are to this processor; and the compiler, which is not told that no memory is written, moves no
        // access across.
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
        // They are in order, so that only their number counts, but for the first. Words that are seen as they were before they fell make that lower.
        (up_to >> 1).count_ones() as usize
    }

    #[target_feature(enable = "avx512f,avx512bw,popcnt")]
    #[inline]
    fn last_separator<W: Leads>(groups: &[Group<W>; GROUPS], at: usize, key: u64) -> usize {
        const { assert!(GROUP == 8 && Group::<W>::separator_place(0) == 0) };
        assert!(at < GROUPS, "there is no such group");
        let up_to: u32;
        // SAFETY: reads the 64 bytes of the group's eight separators, which come first in it; as above. Without a pointer to them, which would be
        // an instruction more.
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
}

/// What the processor says of the upper halves of its vector registers.
#[cfg(all(test, target_arch = "x86_64", not(miri)))]
pub(in crate::fixed) mod upper_halves {
    use std::arch::x86_64::{__cpuid_count, _mm256_zeroupper, _xgetbv};

    const AVX_STATE: u64 = 4;

    /// Whether it says anything.
    pub(in crate::fixed) fn are_known() -> bool {
        std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("xsave")
            && __cpuid_count(0xD, 1).eax & 4 != 0
    }

    /// Whether they are in use, where that is known.
    pub(in crate::fixed) fn are_used() -> bool {
        assert!(are_known());
        // SAFETY: the processor has the instruction, and this register of it.
        unsafe { _xgetbv(1) & AVX_STATE != 0 }
    }

    /// Uses one, where that is known.
    pub(in crate::fixed) fn make_used() {
        assert!(are_known());
        // SAFETY: the processor has AVX2, and the register is said to be changed.
        unsafe { std::arch::asm!("vpcmpeqb ymm0, ymm0, ymm0", out("xmm0") _, options(nostack)) };
    }

    /// Clears them, where that is known.
    pub(in crate::fixed) fn clear() {
        assert!(are_known());
        // SAFETY: the processor has AVX, as it has AVX2.
        unsafe { _mm256_zeroupper() };
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::fixed::node::{Link, Word};

    #[test]
    fn searches_find_what_they_should() {
        finds_what_it_should(Portable);
        // Where the processor has them.
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
            // Many keys that are equal, or few; low and high ones.
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
            let equal =
                (0..8 * WORDS).filter(|at| bytes[*at] == byte).fold(0, |found, at| found | 1_u128 << at);
            assert_eq!(search.equal_bytes(&words, byte), equal);

            let equal = (0..8 * WORDS)
                .filter(|at| (bytes[at % 64] ^ byte) & 0xF << (4 * (at / 64)) == 0)
                .fold(0, |found, at| found | 1_u128 << at);
            assert_eq!(search.equal_nibbles(words.first_chunk().unwrap(), byte), equal);
        }
    }
}
