//! Nodes on media, for reading.
//!
//! A node's entries change under readers, so they are loaded word by word; its fences never change once
//! they are published, and are borrowed.

use super::super::layout::{Form, StartWord};
use super::layout::{
    FIRST_ENTRY_WORD, FencesWord, Field, INNER_WORDS, KindWord, NO_END, NODE_LINES, NODE_WORDS, SLOTS, at,
    entry_word, node_bytes, stamp_off,
};
use crate::error::{Result, corrupt};
use crate::key_prefix::prefix8;
use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pmem::{LINE_BYTES, Region};

pub(crate) const BIRTH_WORD: usize = (at!(PmVersionedNode.birth) / 8) as usize;
pub(crate) const RESERVED_WORD: usize = (at!(PmVersionedNode.reserved) / 8) as usize;
pub(crate) const FENCES_WORD: usize = (at!(PmVersionedNode.fences) / 8) as usize;
pub(crate) const PRINTS_WORD: usize = (at!(PmVersionedNode.fingerprints) / 8) as usize;

/// A node on media. As long as the borrow lasts, its owner reads a held version or is the tree's writer.
#[derive(Clone, Copy)]
pub(crate) struct Node<'m> {
    region: &'m Region,
    pub(crate) off: u64,
    pub(crate) kind: KindWord,
    words: &'m [AtomicU64; NODE_WORDS],
}

impl<'m> Node<'m> {
    /// Opens a node of this level.
    #[inline(always)]
    pub(crate) fn open(region: &'m Region, off: u64, level: usize) -> Result<Node<'m>> {
        let node = Node::open_any(region, off)?;
        if node.level() != level {
            return Err(wrong_level(off, level, node.kind));
        }
        Ok(node)
    }

    /// Opens a node of any level.
    #[inline(always)]
    pub(crate) fn open_any(region: &'m Region, off: u64) -> Result<Node<'m>> {
        let words = region.words(off, NODE_WORDS as u64)?;
        let kind = KindWord(words[0].load(Ordering::Relaxed));
        match words.first_chunk() {
            Some(words) if kind.is_node() => Ok(Node { region, off, kind, words }),
            _ => Err(wrong_kind(off, "a node", kind)),
        }
    }

    /// ORDER: acquire, so that a place's end is loaded before its other words (I4), and all words after the
    /// reader has chosen its version.
    #[inline(always)]
    pub(crate) fn word(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Acquire)
    }

    /// Copies a node for the writer, which alone stores to it.
    pub(crate) fn copy_to(&self, copy: &mut [u64; INNER_WORDS]) -> Result<()> {
        // SAFETY: both have at least this many aligned words. Readers load from the node meanwhile; only the
        // caller stores to it.
        unsafe { self.words.as_ptr().cast::<u64>().copy_to_nonoverlapping(copy.as_mut_ptr(), NODE_WORDS) };
        if self.level() > 0 {
            for (slot, stamp) in copy[NODE_WORDS..].iter_mut().enumerate() {
                *stamp = self.stamp(slot)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn level(&self) -> usize {
        self.kind.level()
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> usize {
        self.kind.shared()
    }

    pub(crate) fn birth(&self) -> u64 {
        self.word(BIRTH_WORD)
    }

    /// The stamp of a place of an inner node.
    ///
    /// ORDER: acquire, as for all words of a node; a comparison that has found the later version sees the
    /// words stored for it.
    #[inline]
    pub(crate) fn stamp(&self, slot: usize) -> Result<u64> {
        Ok(self.region.load_u64(stamp_off(self.off, slot))?)
    }

    /// The last version that changed something in the node or below it, according to the node's own words.
    pub(crate) fn last_change(&self) -> Result<u64> {
        let mut last = self.birth();
        for slot in 0..SLOTS {
            let end = Some(self.field(slot, Field::End)).filter(|end| *end != NO_END);
            let stamp = if self.level() > 0 { self.stamp(slot)? } else { 0 };
            last = last.max(self.start(slot).version()).max(end.unwrap_or(0)).max(stamp);
        }
        Ok(last)
    }

    #[inline(always)]
    pub(crate) fn field(&self, slot: usize, field: Field) -> u64 {
        self.word(entry_word(self.level(), slot, field))
    }

    /// As [`field`](Self::field), for a node that the caller knows to be a leaf.
    #[inline(always)]
    pub(crate) fn leaf_field(&self, slot: usize, field: Field) -> u64 {
        debug_assert_eq!(self.level(), 0);
        self.word(entry_word(0, slot, field))
    }

    /// The four arrays of an inner node: its starts, keys, values and ends.
    #[inline(always)]
    fn columns(&self) -> [&'m [AtomicU64; SLOTS]; 4] {
        let (columns, _) = self.words[FIRST_ENTRY_WORD..].as_chunks();
        [&columns[0], &columns[1], &columns[2], &columns[3]]
    }

    /// The entry of an inner node with the greatest key up to `wanted`, among those in a version, and that
    /// key. `None` if these words alone do not decide.
    ///
    /// Has no branches that depend on the order of the keys, because the processor would mispredict them.
    #[inline]
    pub(crate) fn greatest_up_to(&self, mut wanted: u64, version: u64) -> Option<(u64, usize)> {
        let [starts, keys, _, ends] = self.columns();
        loop {
            let (best, mut equal) = greatest_key(keys, wanted);
            let mut found = None;
            while equal != 0 {
                let slot = equal.trailing_zeros() as usize;
                equal &= equal - 1;
                // ORDER: the end is loaded before the start, as in `is_in`.
                let end = ends[slot].load(Ordering::Acquire);
                let start = StartWord(starts[slot].load(Ordering::Acquire)).version();
                if end > version && start <= version && found.replace((best, slot)).is_some() {
                    return None;
                }
            }
            if found.is_some() || best == 0 {
                return found;
            }
            // The entry is not in this version. Entries of this version do not change, so none of them lies
            // between it and `wanted`.
            wanted = best - 1;
        }
    }

    #[inline(always)]
    pub(crate) fn start(&self, slot: usize) -> StartWord {
        StartWord(self.field(slot, Field::Start))
    }

    /// Whether an entry is in a version, which is held.
    ///
    /// The end is loaded first. A place is reused only if no held version has its entry, and it gets a start
    /// later than all held versions before it gets another end. If the loaded end is the old one, it is
    /// either too early for this version, or the start loaded next, old or new, is too late. If it is the new
    /// end, the start is new too and too late.
    #[inline(always)]
    pub(crate) fn is_in(&self, slot: usize, version: u64) -> bool {
        self.field(slot, Field::End) > version && self.start(slot).version() <= version
    }

    pub(crate) fn fences(&self) -> FencesWord {
        FencesWord(self.word(FENCES_WORD))
    }

    /// The lower fence: the least key that may be in the node.
    pub(crate) fn low(&self) -> Result<&'m [u8]> {
        self.bound(0, self.fences().low_bytes())
    }

    /// The upper fence, if there is one: keys are less.
    pub(crate) fn high(&self) -> Result<Option<&'m [u8]>> {
        let fences = self.fences();
        fences.high_bytes().map(|bytes| self.bound(fences.low_bytes(), bytes)).transpose()
    }

    fn bound(&self, at: u64, bytes: u64) -> Result<&'m [u8]> {
        // SAFETY: fences are written before the commit that publishes the node, and never stored to
        // afterwards. The node's block is not reused while a version that has it is held, nor before the
        // writer's transaction ends.
        Ok(unsafe { self.region.bytes(self.off.saturating_add(node_bytes(self.level()) + at), bytes)? })
    }

    /// The 8 bytes by which the node orders a key.
    #[inline(always)]
    pub(crate) fn prefix_of(&self, key: &[u8]) -> Result<u64> {
        Ok(prefix8(after(key, self.shared(), self.off)?))
    }

    /// The bytes with which all keys of the node begin.
    pub(crate) fn shared_bytes(&self) -> Result<&'m [u8]> {
        let low = self.low()?;
        low.get(..self.shared()).ok_or_else(|| {
            let expected = format!("a lower fence of at least {} bytes", self.shared());
            corrupt("a tree node", self.off, expected, format!("one of {}", low.len()))
        })
    }

    #[inline(always)]
    pub(crate) fn fingerprints(&self) -> [u64; 4] {
        std::array::from_fn(|i| self.word(PRINTS_WORD + i))
    }

    /// The hash byte of an entry.
    pub(crate) fn fingerprint(&self, slot: usize) -> u8 {
        self.word(PRINTS_WORD + slot / 8).to_ne_bytes()[slot % 8]
    }

    /// The form of an entry's key and value.
    #[inline(always)]
    pub(crate) fn form(&self, slot: usize) -> Result<Form> {
        self.start(slot).form().ok_or_else(|| {
            let word = format!("{:#x}", self.field(slot, Field::Start));
            corrupt("an entry's start word", self.off, "a known form", word)
        })
    }

    /// The value that lies in an entry of a leaf.
    #[inline]
    pub(crate) fn inline_value(&self, slot: usize, bytes: u8) -> Result<&'m [u8]> {
        let off = self.off.saturating_add(8 * entry_word(0, slot, Field::Value) as u64);
        // SAFETY: the entry is in a held version, or in the newest one if the writer calls. Its value word is
        // not stored to before that version is given up (I4), and the borrow ends earlier.
        Ok(unsafe { self.region.bytes(off, u64::from(bytes.min(8)))? })
    }

    /// The lower fence of the child that an entry leads to.
    pub(crate) fn child_low(&self, slot: usize) -> Result<&'m [u8]> {
        self.child(slot)?.low()
    }

    /// The child that an entry of an inner node leads to.
    #[inline]
    pub(crate) fn child(&self, slot: usize) -> Result<Node<'m>> {
        let level =
            self.level().checked_sub(1).ok_or_else(|| wrong_kind(self.off, "an inner node", self.kind))?;
        Node::open(self.region, self.field(slot, Field::Value), level)
    }

    /// Prefetches all lines of a node at once, not each when it is found to be needed.
    #[inline]
    pub(crate) fn prefetch(region: &Region, off: u64) {
        for line in 0..NODE_LINES as u64 {
            region.prefetch(off.wrapping_add(line * LINE_BYTES));
        }
    }

    /// As [`prefetch`](Self::prefetch), with the stamps.
    pub(crate) fn prefetch_with_stamps(region: &Region, off: u64, level: usize) {
        for line in 0..node_bytes(level).div_ceil(LINE_BYTES) {
            region.prefetch(off.wrapping_add(line * LINE_BYTES));
        }
    }

    /// The places whose entries are in a version, which is held.
    pub(crate) fn slots_in(self, version: u64) -> impl Iterator<Item = usize> {
        (0..SLOTS).filter(move |slot| self.is_in(*slot, version))
    }

    pub(crate) fn region(&self) -> &'m Region {
        self.region
    }
}

/// The greatest key up to `wanted`, 0 if there is none, and the places that have it, by bit.
#[inline(always)]
fn greatest_key(keys: &[AtomicU64; SLOTS], wanted: u64) -> (u64, u32) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { greatest_key_avx2(keys, wanted) };
    }
    greatest_key_portable(keys, wanted)
}

/// [`greatest_key`] without special instructions.
fn greatest_key_portable(keys: &[AtomicU64; SLOTS], wanted: u64) -> (u64, u32) {
    let keys = keys.each_ref().map(|key| key.load(Ordering::Acquire));
    let best = keys.iter().fold(0, |best, key| best.max(select_unpredictable(*key <= wanted, *key, 0)));
    let equal = keys.iter().enumerate().fold(0, |equal, (slot, key)| equal | u32::from(*key == best) << slot);
    (best, equal)
}

/// # Safety
///
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn greatest_key_avx2(keys: &[AtomicU64; SLOTS], wanted: u64) -> (u64, u32) {
    use core::arch::x86_64::*;
    // The instruction compares signed numbers; this offset maps unsigned numbers to signed ones in the same
    // order.
    let least = _mm256_set1_epi64x(i64::MIN);
    let wanted = _mm256_xor_si256(_mm256_set1_epi64x(wanted as i64), least);
    let max = |a, b| _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(b, a));
    let (fours, _) = keys.as_chunks::<4>();
    let mut loaded = [least; SLOTS / 4];
    let mut best = least;
    for (four, to) in fours.iter().zip(&mut loaded) {
        let words: __m256i;
        // SAFETY: reads the 32 bytes of four words. The writer may store to them meanwhile; assembly reads
        // them, which is no data race in the language's sense.
        //
        // ORDER: acquire, as all loads are on this processor. The assembly is not marked as leaving memory
        // alone, so the compiler moves no access across it.
        unsafe {
            core::arch::asm!(
                "vmovdqu {words}, [{four}]",
                words = out(ymm_reg) words,
                four = in(reg) four.as_ptr(),
                options(nostack, preserves_flags),
            );
        }
        *to = _mm256_xor_si256(words, least);
        best = max(best, _mm256_blendv_epi8(*to, least, _mm256_cmpgt_epi64(*to, wanted)));
    }
    best = max(best, _mm256_permute4x64_epi64::<0b01_00_11_10>(best));
    best = max(best, _mm256_shuffle_epi32::<0b01_00_11_10>(best));
    let mut equal = 0;
    for (i, four) in loaded.into_iter().enumerate() {
        let of_four = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(four, best)));
        equal |= (of_four as u32) << (4 * i);
    }
    (_mm256_extract_epi64::<0>(best) as u64 ^ 1 << 63, equal)
}

/// The rest of a key after the bytes that the keys of a node share.
#[inline(always)]
pub(crate) fn after(key: &[u8], shared: usize, node: u64) -> Result<&[u8]> {
    key.get(shared..).ok_or_else(|| {
        let expected = format!("only keys of at least {shared} bytes");
        corrupt("a tree node", node, expected, format!("one of {}", key.len()))
    })
}

#[cold]
fn wrong_level(off: u64, expected: usize, found: KindWord) -> crate::Error {
    wrong_kind(off, &format!("a node of level {expected}"), found)
}

#[cold]
fn wrong_kind(off: u64, expected: &str, found: KindWord) -> crate::Error {
    corrupt("a tree node", off, expected, format!("kind word {:#x}", found.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_key_is_found_alike_with_and_without_special_instructions() {
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            seed >> 33
        };
        let far = [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, (1 << 63) + 1];
        for _ in 0..20_000 {
            let few = 1 + next() as usize % far.len();
            let keys: [AtomicU64; SLOTS] =
                std::array::from_fn(|_| AtomicU64::new(far[next() as usize % few].wrapping_add(next() % 3)));
            let wanted = far[next() as usize % far.len()].wrapping_add(next() % 3);
            assert_eq!(
                greatest_key(&keys, wanted),
                greatest_key_portable(&keys, wanted),
                "{keys:?} up to {wanted}"
            );
        }
    }
}
