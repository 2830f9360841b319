//! The media format of the tree of 8-byte keys.

use tembo_pmem::{LINE_BYTES, WORD_BYTES, media_struct, offset_of, size_of};

/// Marks a root of the pool as such a tree.
pub(crate) const ROOT_KIND: u32 = u32::from_le_bytes(*b"wB+8");
/// Marks a header, and names the version of the format.
pub(crate) const FORMAT: u64 = u64::from_le_bytes(*b"wB+8 v1\n");
/// The first words of leaves and inner nodes.
pub(crate) const LEAF_KIND: u64 = u64::from_le_bytes(*b"wB+8leaf");
pub(crate) const INNER_KIND: u64 = u64::from_le_bytes(*b"wB+8node");

/// Records of a leaf, and children of an inner node.
pub(crate) const SLOTS: usize = 124;
/// No tree has more levels than this; a higher level on media is damage.
pub(crate) const MAX_LEVEL: u64 = 16;

media_struct! {
    /// The header of a tree of fixed-size keys: a line that redo records change, and a line for the largest
    /// key, whose complement marks an unused slot. The latter line is changed directly.
    pub(crate) struct PmU64Tree: 128 {
        /// `wB+8 v1\n`.
        0 => format: u64,
        /// The root node.
        8 => root: u64,
        /// In a dropped map: the head of the next dropped map, or 0.
        16 => next_dropped: u64,
        /// Zero.
        24 => reserved_a: [u64; 5],
        /// The value of key 2^64-1, if that is present.
        64 => last_value: u64,
        /// 1 if key 2^64-1 is present, else 0.
        72 => last_present: u64,
        /// Zero.
        80 => reserved_b: [u64; 6],
    }
}

media_struct! {
    /// A leaf: a line that records change, and 31 lines of four records each, which are changed directly.
    pub(crate) struct PmU64Leaf: 2048 {
        /// `wB+8leaf`.
        0 => kind: u64,
        /// The least key that may lie here. Never changes.
        8 => low: u64,
        /// The complement of the first key that may not lie here; 0 in the last leaf. A slot counts if its
        /// word is higher.
        16 => floor: u64,
        /// The next leaf; 0 in the last.
        24 => next: u64,
        /// Zero.
        32 => reserved: [u64; 4],
        /// The records.
        64 => lines: [PmU64Line; 31],
    }
}

media_struct! {
    /// Four records of a leaf.
    pub(crate) struct PmU64Line: 64 {
        /// The complements of the keys; 0 = unused.
        0 => keys: [u64; 4],
        /// The values.
        32 => values: [u64; 4],
    }
}

media_struct! {
    /// An inner node: children in no order. Changed by records only.
    pub(crate) struct PmU64Inner: 2048 {
        /// `wB+8node`.
        0 => kind: u64,
        /// 1 above the leaves, and so on.
        8 => level: u64,
        /// Zero.
        16 => reserved: [u64; 6],
        /// The children.
        64 => children: [PmU64Child; 124],
    }
}

media_struct! {
    /// A child of an inner node.
    pub(crate) struct PmU64Child: 16 {
        /// The least key below it.
        0 => separator: u64,
        /// The node; 0 = an unused slot.
        8 => node: u64,
    }
}

pub(crate) const NODE_BYTES: u64 = size_of::<PmU64Leaf>() as u64;
/// Words of a node.
pub(crate) const NODE_WORDS: u64 = NODE_BYTES / WORD_BYTES;
pub(crate) const HEADER_BYTES: u64 = size_of::<PmU64Tree>() as u64;
const _: () = assert!(size_of::<PmU64Inner>() as u64 == NODE_BYTES);
/// Words of a line.
pub(crate) const WORDS_PER_LINE: usize = (LINE_BYTES / WORD_BYTES) as usize;
/// Records of a line: their keys come first, and their values behind them.
pub(crate) const SLOTS_PER_LINE: usize = 4;
const _: () = assert!(offset_of!(PmU64Line, values) == SLOTS_PER_LINE * WORD_BYTES as usize);
const _: () = assert!(offset_of!(PmU64Leaf, lines) == LINE_BYTES as usize);
const _: () = assert!((NODE_BYTES / LINE_BYTES - 1) * SLOTS_PER_LINE as u64 == SLOTS as u64);

/// The reserved words of a header, of a leaf and of an inner node: where each run begins, and its length.
pub(super) const RESERVED_OF_HEADER: [(u64, u64); 2] =
    [(NEXT_DROPPED_AT, 6), (offset_of!(PmU64Tree, reserved_b) as u64, 6)];
/// The place, in the head of a dropped map, of the word that leads to the next. Zero in a map that is not
/// dropped, like the reserved words behind it.
pub(crate) const NEXT_DROPPED_AT: u64 = offset_of!(PmU64Tree, next_dropped) as u64;
pub(super) const RESERVED_OF_LEAF: [(u64, u64); 1] = [(offset_of!(PmU64Leaf, reserved) as u64, 4)];
pub(super) const RESERVED_OF_INNER: [(u64, u64); 1] = [(offset_of!(PmU64Inner, reserved) as u64, 6)];

/// Offsets of the fields of objects. The object's offset was read from media and may have any value.
pub(crate) const fn root_off(header: u64) -> u64 {
    header.saturating_add(offset_of!(PmU64Tree, root) as u64)
}

pub(crate) const fn last_value_off(header: u64) -> u64 {
    header.saturating_add(offset_of!(PmU64Tree, last_value) as u64)
}

pub(crate) const fn last_present_off(header: u64) -> u64 {
    header.saturating_add(offset_of!(PmU64Tree, last_present) as u64)
}

pub(crate) const fn low_off(leaf: u64) -> u64 {
    leaf.saturating_add(offset_of!(PmU64Leaf, low) as u64)
}

pub(crate) const fn floor_off(leaf: u64) -> u64 {
    leaf.saturating_add(offset_of!(PmU64Leaf, floor) as u64)
}

pub(crate) const fn next_off(leaf: u64) -> u64 {
    leaf.saturating_add(offset_of!(PmU64Leaf, next) as u64)
}

/// The offset of a slot's key word. The value lies in the same line, so that one flush is enough and the
/// value arrives first.
#[inline(always)]
pub(crate) const fn key_off(leaf: u64, slot: usize) -> u64 {
    leaf.saturating_add(WORD_BYTES * key_word(slot) as u64)
}

/// The numbers of the words of a leaf that have a slot's key, and its value.
#[inline(always)]
pub(crate) const fn key_word(slot: usize) -> usize {
    let (line, place) = (slot / SLOTS_PER_LINE, slot % SLOTS_PER_LINE);
    WORDS_PER_LINE + line * WORDS_PER_LINE + place
}

#[inline(always)]
pub(crate) const fn value_word(slot: usize) -> usize {
    key_word(slot) + SLOTS_PER_LINE
}

/// The offset of a line of records.
#[inline(always)]
pub(crate) const fn line_off(leaf: u64, line: usize) -> u64 {
    key_off(leaf, SLOTS_PER_LINE * line)
}

#[inline(always)]
pub(crate) const fn value_off(leaf: u64, slot: usize) -> u64 {
    key_off(leaf, slot).saturating_add(offset_of!(PmU64Line, values) as u64)
}

pub(crate) const fn level_off(inner: u64) -> u64 {
    inner.saturating_add(offset_of!(PmU64Inner, level) as u64)
}

pub(crate) const fn separator_off(inner: u64, slot: usize) -> u64 {
    inner.saturating_add((offset_of!(PmU64Inner, children) + 16 * slot) as u64)
}

pub(crate) const fn child_off(inner: u64, slot: usize) -> u64 {
    separator_off(inner, slot).saturating_add(offset_of!(PmU64Child, node) as u64)
}
