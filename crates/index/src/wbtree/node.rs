//! Nodes, records and separator blocks on media, for reading. This file has the only unsafe code of the tree.
//!
//! Immutable media (records, separator blocks, and inner nodes except for the words named in [`Inner`]) is
//! borrowed in place; words that change are loaded one by one through a [`View`].

use super::layout::{
    FANOUT, INNER_BYTES, LEAF_BYTES, LEAF_SLOTS, LeafState, NodeKind, PmEntry, SEPARATOR_HEAD_BYTES,
    SeparatorWord, field,
};
use super::separator::Separator;
use crate::error::{Result, corrupt};
use crate::key_prefix::prefix8;
use crate::record::{RECORD_HEAD_BYTES, ValuePlace};
use tembo_pmem::{LINE_BYTES, Region};
use tembo_pool::TxView;

/// How changing words are loaded: a reader loads them from media, the writer with its own pending stores.
pub(crate) trait View<'m>: Copy {
    fn region(self) -> &'m Region;
    fn load(self, off: u64) -> Result<u64>;
}

/// The view of readers. Whoever makes it holds a pin, or the pool's writer, as long as the view and
/// everything borrowed through it lives.
#[derive(Clone, Copy)]
pub(crate) struct Media<'m>(pub(crate) &'m Region);

impl<'m> View<'m> for Media<'m> {
    #[inline(always)]
    fn region(self) -> &'m Region {
        self.0
    }

    #[inline(always)]
    fn load(self, off: u64) -> Result<u64> {
        Ok(self.0.load_u64(off)?)
    }
}

/// The view of a writer with an open transaction.
#[derive(Clone, Copy)]
pub(crate) struct Pending<'m, 't> {
    pub(crate) region: &'m Region,
    pub(crate) words: TxView<'t>,
}

impl<'m> View<'m> for Pending<'m, '_> {
    #[inline(always)]
    fn region(self) -> &'m Region {
        self.region
    }

    #[inline(always)]
    fn load(self, off: u64) -> Result<u64> {
        Ok(self.words.load(off)?)
    }
}

/// The offset of a field. The object's offset was read from media and may have any value.
#[inline(always)]
fn within(off: u64, field: u64) -> u64 {
    off.saturating_add(field)
}

/// Prefetches all lines of a node that a search reads, at once.
#[inline(always)]
pub(crate) fn prefetch_node(region: &Region, off: u64, level: usize) {
    const LEAF_LINES: usize = LEAF_BYTES.div_ceil(LINE_BYTES) as usize;
    const INNER_LINES: usize = field!(PmInner.separators).div_ceil(LINE_BYTES) as usize;
    if level == 0 {
        region.prefetch_lines::<LEAF_LINES>(off);
    } else {
        region.prefetch_lines::<INNER_LINES>(off);
    }
}

/// As [`prefetch_node`], and asks for its pages, where they may be on a disk only: for a node that is needed
/// after others.
#[inline(always)]
pub(crate) fn ask_for_node(region: &Region, off: u64, level: usize) {
    region.ask_for(off, if level == 0 { LEAF_BYTES } else { INNER_BYTES });
    prefetch_node(region, off, level);
}

/// A record: its key, borrowed in place, and the place of its value. The value is borrowed only on request:
/// the owner of an unnamed tree may change words of it (I4).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'m> {
    region: &'m Region,
    pub(crate) key: &'m [u8],
    place: ValuePlace,
}

impl<'m> Record<'m> {
    #[inline(always)]
    pub(crate) fn read(region: &'m Region, off: u64) -> Result<Record<'m>> {
        let (key_bytes, value_bytes) = Self::lengths(region, off)?;
        let body = within(off, RECORD_HEAD_BYTES);
        // SAFETY: a record is written before the commit that links it and never stored to afterwards. Its
        // block is not reused while a pin from before its removal is held (readers), or before the
        // transaction that frees it ends (the writer), and no borrow lasts longer.
        let key = unsafe { region.bytes(body, key_bytes)? };
        let place = ValuePlace { off: body + key_bytes, bytes: value_bytes };
        region.check_bytes(place.off, value_bytes)?;
        Ok(Record { region, key, place })
    }

    /// The value. Not for a record whose words another thread may change in place.
    #[inline(always)]
    pub(crate) fn value(&self) -> &'m [u8] {
        let ValuePlace { off, bytes } = self.place;
        // SAFETY: as for the key; see above.
        let value = unsafe { self.region.bytes(off, bytes) };
        value.expect("`read` has found the place in bounds")
    }

    /// Where the value lies.
    #[inline(always)]
    pub(crate) fn place(&self) -> ValuePlace {
        self.place
    }

    /// Lengths of key and value in bytes.
    #[inline(always)]
    fn lengths(region: &Region, off: u64) -> Result<(u64, u64)> {
        let lengths = region.load_u64(off)?;
        Ok((lengths & 0xFFFF_FFFF, lengths >> 32))
    }

    /// Bytes of the whole record on media.
    pub(crate) fn media_bytes(&self) -> u64 {
        RECORD_HEAD_BYTES + self.key.len() as u64 + self.place.bytes
    }
}

/// The bytes of a separator block.
pub(crate) fn separator_bytes(region: &Region, off: u64) -> Result<&[u8]> {
    let bytes = region.load_u64(off)?;
    // SAFETY: as for a record: it is written before the commit that links it, never stored to afterwards, and
    // freed with the node that owns it.
    Ok(unsafe { region.bytes(within(off, SEPARATOR_HEAD_BYTES), bytes)? })
}

/// The part of a key after the first `skip` bytes, by which a node tells keys apart.
#[inline(always)]
pub(crate) fn after(key: &[u8], skip: usize, node: u64) -> Result<&[u8]> {
    key.get(skip..).ok_or_else(|| {
        corrupt(
            "a node",
            node,
            format!("only keys of at least {skip} bytes"),
            format!("one of {}", key.len()),
        )
    })
}

/// An inner node. `tally`, `next_doomed` and the child words change, so they are never borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Inner<'m> {
    region: &'m Region,
    pub(crate) off: u64,
    pub(crate) kind: NodeKind,
    /// The prefixes, then the separator words.
    words: &'m [[u8; 8]; 2 * SEPARATORS],
}

const SEPARATORS: usize = FANOUT - 1;

impl<'m> Inner<'m> {
    #[inline(always)]
    pub(crate) fn open(region: &'m Region, off: u64, level: usize) -> Result<Inner<'m>> {
        let kind = NodeKind(region.load_u64(within(off, field!(PmInner.kind)))?);
        if !kind.fits(level) {
            return Err(wrong_kind(off, level, kind));
        }
        const FIRST: u64 = field!(PmInner.prefixes);
        const BYTES: u64 = field!(PmInner.children) - FIRST;
        // SAFETY: prefixes and separator words are written before the commit that links the node and never
        // stored to afterwards; the block is not reused while borrowed, as for a record.
        let bytes = unsafe { region.bytes(within(off, FIRST), BYTES)? };
        let (words, _) = bytes.as_chunks::<8>();
        let words = words.first_chunk().expect("as many words as were borrowed");
        Ok(Inner { region, off, kind, words })
    }

    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.kind.count()
    }

    /// The number of separators with prefixes of at most `prefix`.
    #[inline(always)]
    pub(crate) fn count_up_to(&self, prefix: u64) -> usize {
        count_up_to(self.words, self.count() - 1, prefix)
    }

    pub(crate) fn prefix(&self, i: usize) -> u64 {
        u64::from_ne_bytes(self.words[i])
    }

    pub(crate) fn separator_word(&self, i: usize) -> u64 {
        u64::from_ne_bytes(self.words[SEPARATORS + i])
    }

    /// Decodes separator word `i`.
    pub(crate) fn separator_place(&self, i: usize) -> Result<SeparatorWord> {
        let word = self.separator_word(i);
        SeparatorWord::decode(word).ok_or_else(|| {
            corrupt(
                "a separator of an inner node",
                self.off,
                "a length up to 8 or a block",
                format!("{word:#x}"),
            )
        })
    }

    /// The offset of the word of child `i`. Cannot overflow, since the node begins inside the region.
    #[inline(always)]
    pub(crate) fn child_off(&self, i: usize) -> u64 {
        debug_assert!(i < FANOUT);
        self.off + field!(PmInner.children) + 8 * i as u64
    }

    /// The offset of the block with the common bytes, or 0.
    pub(crate) fn common_block(&self) -> Result<u64> {
        Ok(self.region.load_u64(self.off + field!(PmInner.common))?)
    }

    /// The `base` bytes with which all separators begin, if there are more of them than all keys share.
    pub(crate) fn common(&self) -> Result<&'m [u8]> {
        let block = self.common_block()?;
        let base = self.kind.base();
        separator_bytes(self.region, block)?.get(..base).ok_or_else(|| {
            corrupt("the common bytes of an inner node", block, format!("at least {base} bytes"), "fewer")
        })
    }

    /// Separator `i` in full. `key` is any key that belongs to this node.
    pub(crate) fn separator<'a>(&self, i: usize, key: &'a [u8]) -> Result<Separator<'a>>
    where
        'm: 'a,
    {
        match self.separator_place(i)? {
            SeparatorWord::Block(block) => {
                Ok(Separator::in_block(separator_bytes(self.region, block)?, block))
            }
            SeparatorWord::Inline(bytes) => {
                Ok(Separator::inline(self.shared_head(key)?, self.prefix(i), bytes))
            }
        }
    }

    /// The `base` bytes with which all separators begin.
    pub(crate) fn shared_head<'a>(&self, key: &'a [u8]) -> Result<&'a [u8]>
    where
        'm: 'a,
    {
        let (skip, base) = (self.kind.skip(), self.kind.base());
        if base > skip {
            return self.common();
        }
        after(key, skip, self.off)?;
        Ok(&key[..skip])
    }
}

/// The number of words among the first `count` that are at most `prefix`. The words ascend; `count` is 1 to
/// 63.
#[inline(always)]
fn count_up_to(words: &[[u8; 8]; 2 * SEPARATORS], count: usize, prefix: u64) -> usize {
    // The mask changes nothing; it tells the compiler that the index is in bounds.
    let is_up_to = |i: usize| u64::from_ne_bytes(words[i & 63]) <= prefix;
    let (mut start, mut left) = (0, count);
    while left > 1 {
        let half = left / 2;
        start = core::hint::select_unpredictable(is_up_to(start + half), start + half, start);
        left -= half;
    }
    start + usize::from(is_up_to(start))
}

#[cold]
fn wrong_kind(off: u64, level: usize, found: NodeKind) -> crate::Error {
    let expected = if level == 0 { "a leaf".to_owned() } else { format!("an inner node of level {level}") };
    corrupt("a tree node", off, expected, format!("kind word {:#x}", found.0))
}

/// A leaf. Everything but its kind changes, so nothing is borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaf {
    pub(crate) off: u64,
    pub(crate) kind: NodeKind,
}

impl Leaf {
    #[inline(always)]
    pub(crate) fn open(region: &Region, off: u64) -> Result<Leaf> {
        let kind = NodeKind(region.load_u64(within(off, field!(PmLeaf.kind)))?);
        if !kind.fits(0) {
            return Err(wrong_kind(off, 0, kind));
        }
        Ok(Leaf { off, kind })
    }

    #[inline(always)]
    pub(crate) fn skip(&self) -> usize {
        self.kind.skip()
    }

    #[inline(always)]
    pub(crate) fn state<'m>(&self, view: impl View<'m>) -> Result<LeafState> {
        Ok(LeafState(view.load(self.off)?))
    }

    /// The offset of an entry. Cannot overflow, since the leaf begins inside the region.
    #[inline(always)]
    fn entry_off(&self, slot: usize) -> u64 {
        debug_assert!(slot < LEAF_SLOTS);
        self.off + field!(PmLeaf.entries) + (slot * size_of::<PmEntry>()) as u64
    }

    #[inline(always)]
    pub(crate) fn prefix_off(&self, slot: usize) -> u64 {
        self.entry_off(slot)
    }

    #[inline(always)]
    pub(crate) fn record_off(&self, slot: usize) -> u64 {
        self.entry_off(slot) + field!(PmEntry.record)
    }

    /// The offset of the word with this slot's fingerprint, and the fingerprint's shift in it in bits.
    pub(crate) fn fingerprint_place(&self, slot: usize) -> (u64, u32) {
        let byte = field!(PmLeaf.fingerprints) + slot as u64;
        // The first byte in memory is the lowest one of the word on little-endian machines.
        let shift = if cfg!(target_endian = "little") { byte % 8 * 8 } else { (7 - byte % 8) * 8 };
        (self.off + byte / 8 * 8, shift as u32)
    }

    #[inline(always)]
    pub(crate) fn fingerprints<'m>(&self, view: impl View<'m>) -> Result<[u64; 4]> {
        let first = self.off + field!(PmLeaf.fingerprints);
        Ok([view.load(first)?, view.load(first + 8)?, view.load(first + 16)?, view.load(first + 24)?])
    }

    /// The 8 bytes by which this leaf orders `key`.
    #[inline(always)]
    pub(crate) fn prefix_of(&self, key: &[u8]) -> Result<u64> {
        Ok(prefix8(after(key, self.skip(), self.off)?))
    }
}

/// The bytes, of 32, that equal `byte`: bit `i` stands for byte `i` in memory.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn matches(words: [u64; 4], byte: u8) -> u32 {
    use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: SSE2 is part of the x86-64 baseline.
    unsafe {
        let wanted = _mm_set1_epi8(byte as i8);
        let half = |low: u64, high: u64| {
            let bytes = _mm_set_epi64x(high as i64, low as i64);
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)) as u32
        };
        half(words[0], words[1]) | half(words[2], words[3]) << 16
    }
}

/// The bytes, of 32, that equal `byte`: bit `i` stands for byte `i` in memory.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn matches(words: [u64; 4], byte: u8) -> u32 {
    matches_portable(words, byte)
}

/// [`matches`] without special instructions.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn matches_portable(words: [u64; 4], byte: u8) -> u32 {
    const LOW_BITS: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let wanted = u64::from_ne_bytes([byte; 8]);
    words.iter().enumerate().fold(0, |mask, (i, word)| {
        // A byte of `differing` is zero where the bytes are equal; the sum then leaves its top bit clear.
        let differing = u64::from_le_bytes(word.to_ne_bytes()) ^ wanted;
        let equal = !(((differing & LOW_BITS) + LOW_BITS) | differing | LOW_BITS);
        let bits = (equal >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask | (bits as u32) << (8 * i)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_prefixes_agrees_with_a_linear_count() {
        for count in 1..FANOUT {
            let words = std::array::from_fn(|i| (i as u64 / 2 * 10 + 5).to_ne_bytes());
            for wanted in 0..count as u64 * 6 + 10 {
                let linear = words[..count].iter().filter(|p| u64::from_ne_bytes(**p) <= wanted).count();
                assert_eq!(count_up_to(&words, count, wanted), linear, "{wanted} among {count}");
            }
        }
    }

    #[test]
    fn both_ways_of_matching_fingerprints_find_exactly_the_equal_bytes() {
        let mut bytes = [0u8; 32];
        for round in 0..1000usize {
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = [0, 1, 0x7F, 0x80, 0xFF][(round * 31 + i * i * (round % 7 + 1)) % 5];
            }
            let words = std::array::from_fn(|i| u64::from_ne_bytes(*bytes[i * 8..].first_chunk().unwrap()));
            for wanted in [0, 1, 0x7F, 0x80, 0xFF, 0x42] {
                let expected = (0..32).filter(|i| bytes[*i] == wanted).fold(0, |mask, i| mask | 1 << i);
                assert_eq!(matches(words, wanted), expected);
                assert_eq!(matches_portable(words, wanted), expected);
            }
        }
    }
}
