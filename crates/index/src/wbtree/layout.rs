//! The media format of the tree: the map header, leaves, inner nodes, records and separators.
//!
//! All words are in the byte order of the machine (opening refuses a pool of the other order). All references
//! are byte offsets from the start of the pool; 0 is none.

use crate::record::{MAX_KEY_BYTES, RECORD_HEAD_BYTES};
use tembo_pmem::media_struct;

/// The kind of a tree's root in the pool's root directory.
pub(crate) const ROOT_KIND: u32 = u32::from_le_bytes(*b"wB+1");
/// The first word of a map header: a magic and the format version.
pub(crate) const FORMAT: u64 = u64::from_le_bytes(*b"wBtree\x02\0");
/// The first word of a tree that counts.
pub(crate) const COUNTING_FORMAT: u64 = u64::from_le_bytes(*b"wBtree\x03\0");

/// Entries of a leaf.
pub(crate) const LEAF_SLOTS: usize = 28;
/// The most children of an inner node.
pub(crate) const FANOUT: usize = 42;
/// The greatest height, in inner nodes; 2^64 keys cannot make a higher tree.
pub(crate) const MAX_HEIGHT: usize = 32;
/// The most shared bytes that a node records for keys or separators: fewer than the longest key has.
pub(crate) const MAX_SHARED_BYTES: usize = MAX_KEY_BYTES as usize - 1;
/// Bytes of a separator that are kept in the inner node itself.
pub(crate) const INLINE_BYTES: usize = 8;
/// The number of words among which the length is divided, so that writers on different lanes need not change
/// the same line.
pub(crate) const LENGTHS: usize = 16;

media_struct! {
    /// The head of a tree, which the pool's root leads to.
    pub(crate) struct PmMap: 1088 {
        /// The bytes `wBtree`, format version 2, or 3 for a tree that counts, zero.
        0 => format: u64,
        /// The tree: the root node's offset (low 48 bits) and its level (high 16 bits); 0 for an empty tree.
        8 => root: u64,
        /// The first of the cleared trees that are still being freed, packed as `root`.
        16 => doomed: u64,
        /// In a dropped map: the head of the next dropped map, or 0.
        24 => next_dropped: u64,
        /// The sums that the tree keeps; see `Counting`.
        32 => counting: u64,
        /// Zero.
        40 => reserved: [u64; 3],
        /// The parts of the tree's length, which is their sum modulo 2^64.
        64 => lengths: [PmLength; 16],
    }
}

media_struct! {
    /// A part of a tree's length, in a line of its own.
    pub(crate) struct PmLength: 64 {
        /// Records added less records removed by the lanes whose number modulo 16 is this part's, in two's
        /// complement.
        0 => records: u64,
        /// Zero.
        8 => reserved: [u64; 7],
    }
}

media_struct! {
    /// An entry of a leaf.
    pub(crate) struct PmEntry: 16 {
        /// The 8 key bytes after the leaf's skip, big-endian, padded with zeros.
        0 => prefix: u64,
        /// The record.
        8 => record: u64,
    }
}

media_struct! {
    /// A leaf.
    pub(crate) struct PmLeaf: 512 {
        /// Which entries are live (low 28 bits), and a version that changes with them (high 36 bits).
        0 => state: u64,
        /// Kind 1; see `NodeKind`. Never changes.
        8 => kind: u64,
        /// The low byte of each live key's XXH3-64, in the first 28 bytes; the rest is zero.
        16 => fingerprints: [u64; 4],
        /// In the root of a doomed tree: the next doomed tree, packed as `PmMap::root`.
        48 => next_doomed: u64,
        /// In a tree that counts weights: the sum of those of the live entries; else zero.
        56 => tally: u64,
        /// The entries, in no order; those that are not live hold anything.
        64 => entries: [PmEntry; 28],
    }
}

media_struct! {
    /// An inner node. Only `tally`, `next_doomed` and `children` ever change.
    pub(crate) struct PmInner: 1024 {
        /// In a tree that counts: the sum of the weights of the records below. In a doomed tree: how many
        /// children, from the last one on, were freed; with the top bit set if the tree counts.
        0 => tally: u64,
        /// Kind 2; see `NodeKind`.
        8 => kind: u64,
        /// A separator block whose first `base` bytes all separators share, if `base` exceeds `skip`; else 0.
        16 => common: u64,
        /// In the root of a doomed tree: the next doomed tree, packed as `PmMap::root`.
        24 => next_doomed: u64,
        /// The 8 bytes after `base` of each separator, big-endian, padded with zeros; ascending.
        32 => prefixes: [u64; 41],
        /// Each separator: `length after base << 1 | 1` if the prefix holds all of it, else its block.
        360 => separators: [u64; 41],
        /// The children; past the last one, anything. Child `i` holds the keys from separator `i - 1` on
        /// and below separator `i`.
        688 => children: [u64; 42],
    }
}

media_struct! {
    /// The head of a record; the key and the value follow it. Never changes.
    pub(crate) struct PmRecord: 8 {
        /// Length of the key in bytes (low 32 bits) and of the value (high 32 bits).
        0 => lengths: u64,
    }
}

media_struct! {
    /// The head of a separator block; the separator's bytes, from the first, follow it. Never changes.
    pub(crate) struct PmSeparator: 8 {
        /// Length of the separator in bytes.
        0 => bytes: u64,
    }
}

pub(crate) const MAP_BYTES: u64 = size_of::<PmMap>() as u64;
pub(crate) const LEAF_BYTES: u64 = size_of::<PmLeaf>() as u64;
pub(crate) const INNER_BYTES: u64 = size_of::<PmInner>() as u64;
const _: () = assert!(RECORD_HEAD_BYTES == size_of::<PmRecord>() as u64);
pub(crate) const SEPARATOR_HEAD_BYTES: u64 = size_of::<PmSeparator>() as u64;

/// Offset of a field of a media struct, as the `u64` that all offsets are.
macro_rules! field {
    ($struct:ident . $field:ident) => {
        core::mem::offset_of!($crate::wbtree::layout::$struct, $field) as u64
    };
}
pub(crate) use field;

/// Sets a word of an object that is being composed.
#[inline(always)]
pub(crate) fn put_word(image: &mut [u8], at: u64, word: u64) {
    image[at as usize..at as usize + 8].copy_from_slice(&word.to_ne_bytes());
}

const STATE_BITS: u32 = LEAF_SLOTS as u32;
const BITMAP_MASK: u64 = (1 << STATE_BITS) - 1;
const OFF_BITS: u32 = 48;

/// The word that commits a leaf's changes: the set of live entries, and a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafState(pub(crate) u64);

impl LeafState {
    /// A new leaf with its first `count` entries live.
    pub(crate) fn first(count: usize) -> LeafState {
        debug_assert!(count <= LEAF_SLOTS);
        LeafState((1 << count) - 1)
    }

    #[inline(always)]
    pub(crate) fn bitmap(self) -> u32 {
        (self.0 & BITMAP_MASK) as u32
    }

    pub(crate) fn count(self) -> usize {
        self.bitmap().count_ones() as usize
    }

    /// The state after this one, in which `bitmap` is live.
    pub(crate) fn next(self, bitmap: u32) -> LeafState {
        let version = (self.0 >> STATE_BITS).wrapping_add(1);
        LeafState(version << STATE_BITS | u64::from(bitmap))
    }
}

/// A node's immutable description: kind (bits 0-7), level (8-15), number of children (16-31), skip (32-47),
/// base (48-63).
///
/// `skip` bytes are shared by every key that may ever come to the node, because its fences share them.
/// `base >= skip` bytes are shared by the separators of an inner node; prefixes begin there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeKind(pub(crate) u64);

impl NodeKind {
    const LEAF: u64 = 1;
    const INNER: u64 = 2;

    pub(crate) fn leaf(skip: usize) -> NodeKind {
        NodeKind(Self::LEAF | (skip as u64) << 32)
    }

    pub(crate) fn inner(level: usize, count: usize, skip: usize, base: usize) -> NodeKind {
        debug_assert!(level <= MAX_HEIGHT && count <= FANOUT && skip <= base && base < 1 << 16);
        let [level, count, skip, base] = [level, count, skip, base].map(|n| n as u64);
        NodeKind(Self::INNER | level << 8 | count << 16 | skip << 32 | base << 48)
    }

    /// Whether a node with this description may lie at `level`.
    #[inline(always)]
    pub(crate) fn fits(self, level: usize) -> bool {
        let kind = if level == 0 { Self::LEAF } else { Self::INNER };
        let counts = if level == 0 { 0..=0 } else { 2..=FANOUT };
        self.0 & 0xFFFF == kind | (level as u64) << 8
            && counts.contains(&self.count())
            && (level == 0 || self.skip() <= self.base())
    }

    pub(crate) fn level(self) -> usize {
        (self.0 >> 8 & 0xFF) as usize
    }

    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        (self.0 >> 16 & 0xFFFF) as usize
    }

    #[inline(always)]
    pub(crate) fn skip(self) -> usize {
        (self.0 >> 32 & 0xFFFF) as usize
    }

    #[inline(always)]
    pub(crate) fn base(self) -> usize {
        (self.0 >> 48) as usize
    }
}

/// A tree in one word: its root node and that node's level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeWord(pub(crate) u64);

impl TreeWord {
    pub(crate) const EMPTY: TreeWord = TreeWord(0);

    pub(crate) fn new(node: u64, level: usize) -> TreeWord {
        debug_assert!(node < 1 << OFF_BITS && level <= MAX_HEIGHT);
        TreeWord(node | (level as u64) << OFF_BITS)
    }

    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(crate) fn node(self) -> u64 {
        self.0 & ((1 << OFF_BITS) - 1)
    }

    #[inline(always)]
    pub(crate) fn level(self) -> usize {
        (self.0 >> OFF_BITS) as usize
    }
}

/// A separator's word in an inner node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeparatorWord {
    /// The prefix holds all of the separator after the node's base: this many bytes.
    Inline(usize),
    /// The whole separator lies in this block.
    Block(u64),
}

impl SeparatorWord {
    pub(crate) fn encode(self) -> u64 {
        match self {
            SeparatorWord::Inline(bytes) => (bytes as u64) << 1 | 1,
            SeparatorWord::Block(off) => off,
        }
    }

    /// `None` if no separator is encoded so.
    pub(crate) fn decode(word: u64) -> Option<SeparatorWord> {
        match word {
            0 => None,
            inline if inline & 1 == 1 => {
                (inline >> 1 <= INLINE_BYTES as u64).then_some(SeparatorWord::Inline((inline >> 1) as usize))
            }
            block => Some(SeparatorWord::Block(block)),
        }
    }
}
