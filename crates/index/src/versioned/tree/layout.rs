//! The nodes of a tree on media.

use tembo_pmem::{LINE_BYTES, media_struct};

use crate::record::MAX_KEY_BYTES;

/// The kind of a tree's root in the pool's root directory.
pub(crate) const ROOT_KIND: u32 = u32::from_le_bytes(*b"CDB1");
/// The first word of a tree's head: a magic and the format version.
pub(crate) const FORMAT: u64 = u64::from_le_bytes(*b"CDDStr\x02\0");

/// Entries of a node.
pub(crate) const SLOTS: usize = 28;
/// A node of the newest version has more live entries than this, unless it is the root: a fifth (3.3.3 of
/// the paper).
pub(crate) const LIVE_MIN: usize = SLOTS / 5;
/// More live entries than this are divided between two nodes (algorithm 2).
pub(crate) const ONE_NODE_MAX: usize = 4 * LIVE_MIN;
/// A new node has at least this many live entries, unless it is the root.
pub(crate) const NEW_NODE_MIN: usize = 2 * LIVE_MIN;
/// The greatest height of a tree, in nodes.
pub(crate) const MAX_HEIGHT: usize = 32;
/// The most shared bytes that a node records for its keys.
pub(crate) const MAX_SHARED_BYTES: usize = MAX_KEY_BYTES as usize - 1;
/// The end of an entry that is live.
pub(crate) const NO_END: u64 = u64::MAX;

media_struct! {
    /// An entry of a leaf. In an inner node the four fields are four arrays, in this order. A place that
    /// was never used is zero.
    pub(crate) struct PmVersionedEntry: 32 {
        /// The first version that it is in (low 56 bits). High 8 bits: 0 if `value` leads to a record or
        /// child; else 1 + 9 times the bytes of the key that are in `key`, which are all after the shared
        /// ones, + the bytes of the value, which are in `value`.
        0 => start: u64,
        /// The 8 bytes after those that all keys of the node share, big-endian, padded with zeros: of its
        /// key, or of its child's lower fence.
        8 => key: u64,
        /// The record or the child; or up to 8 bytes of value, as they are in memory.
        16 => value: u64,
        /// The first version that it is not in any more; all bits set if it is live.
        24 => end: u64,
    }
}

media_struct! {
    /// A node. In an inner one [`PmVersionedStamps`] follow. Then come its fences: first the lower, then the
    /// upper one.
    pub(crate) struct PmVersionedNode: 960 {
        /// 0xCDD5 (low 16 bits), the level, 0 for a leaf (16 bits), and how many bytes all keys share (32
        /// bits).
        0 => kind: u64,
        /// The first version that it is in.
        8 => birth: u64,
        /// Zero.
        16 => reserved: u64,
        /// Bytes of the lower fence (low 32 bits) and of the upper one (high 32 bits, all set if there is
        /// none).
        24 => fences: u64,
        /// In a leaf, the low byte of each key's XXH3-64, in the first 28 bytes; otherwise zero.
        32 => fingerprints: [u64; 4],
        /// The entries, in no order.
        64 => entries: [PmVersionedEntry; 28],
    }
}

media_struct! {
    /// The stamps of an inner node, behind its entries.
    pub(crate) struct PmVersionedStamps: 224 {
        /// For each place, the last version that changed something in the entry's child or below it, as far
        /// as anybody relies on that: a version that is earlier than that change and held, or has a name,
        /// is earlier than the stamp.
        0 => stamps: [u64; 28],
    }
}

const NODE_BYTES: u64 = size_of::<PmVersionedNode>() as u64;
pub(crate) const NODE_WORDS: usize = NODE_BYTES as usize / 8;
/// Words of the largest node without its fences.
pub(crate) const INNER_WORDS: usize = NODE_WORDS + size_of::<PmVersionedStamps>() / 8;
/// Lines of a node without its stamps and fences.
pub(crate) const NODE_LINES: usize = (NODE_BYTES / LINE_BYTES) as usize;
/// The word at which entries begin.
pub(crate) const FIRST_ENTRY_WORD: usize = 8;

/// Bytes of a node without its fences.
#[inline]
pub(crate) fn node_bytes(level: usize) -> u64 {
    NODE_BYTES + if level == 0 { 0 } else { size_of::<PmVersionedStamps>() as u64 }
}

/// The offset of the stamp of a place of an inner node.
#[inline]
pub(crate) fn stamp_off(node: u64, slot: usize) -> u64 {
    node.saturating_add(NODE_BYTES + 8 * slot as u64)
}

/// The offset of a field, as a `u64`.
macro_rules! at {
    ($type:ident . $field:ident) => {
        ::tembo_pmem::offset_of!($crate::versioned::tree::layout::$type, $field) as u64
    };
}
pub(crate) use at;

/// The first word of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KindWord(pub(crate) u64);

impl KindWord {
    const MAGIC: u64 = 0xCDD5;

    pub(crate) fn new(level: usize, shared: usize) -> KindWord {
        KindWord(Self::MAGIC | (level as u64) << 16 | (shared as u64) << 32)
    }

    pub(crate) fn is_node(self) -> bool {
        self.0 & 0xFFFF == Self::MAGIC && self.level() <= MAX_HEIGHT
    }

    pub(crate) fn level(self) -> usize {
        (self.0 >> 16 & 0xFFFF) as usize
    }

    pub(crate) fn shared(self) -> usize {
        (self.0 >> 32) as usize
    }
}

/// The word with the lengths of a node's fences.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FencesWord(pub(crate) u64);

impl FencesWord {
    const NO_UPPER: u64 = u32::MAX as u64;

    pub(crate) fn new(low_bytes: usize, high_bytes: Option<usize>) -> FencesWord {
        FencesWord(low_bytes as u64 | high_bytes.map_or(Self::NO_UPPER, |bytes| bytes as u64) << 32)
    }

    pub(crate) fn low_bytes(self) -> u64 {
        self.0 & 0xFFFF_FFFF
    }

    pub(crate) fn high_bytes(self) -> Option<u64> {
        let bytes = self.0 >> 32;
        (bytes != Self::NO_UPPER).then_some(bytes)
    }

    /// Bytes of a node of this level with these fences.
    pub(crate) fn node_bytes(self, level: usize) -> u64 {
        (node_bytes(level) + self.low_bytes() + self.high_bytes().unwrap_or(0)).next_multiple_of(LINE_BYTES)
    }
}

/// The fields of an entry, in the order in which they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Start,
    Key,
    Value,
    End,
}

/// The word of a node that has an entry's field. In a leaf an entry lies in one line, since a lookup reads
/// all of it; in an inner node the keys lie together, since the search compares them all. In both, a place's
/// start precedes its other words and its end follows them, so storing a node's lines in order fills a place
/// in the order that readers need (I4).
#[inline(always)]
pub(crate) fn entry_word(level: usize, slot: usize, field: Field) -> usize {
    debug_assert!(slot < SLOTS);
    let field = field as usize;
    FIRST_ENTRY_WORD + if level == 0 { 4 * slot + field } else { SLOTS * field + slot }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_cover_the_words_of_a_node_and_begin_with_their_starts() {
        for level in [0, 1] {
            let fields = [Field::Start, Field::Key, Field::Value, Field::End];
            let mut words: Vec<usize> = Vec::new();
            for slot in 0..SLOTS {
                let of_slot = fields.map(|field| entry_word(level, slot, field));
                assert!(of_slot.is_sorted());
                words.extend(of_slot);
            }
            words.sort_unstable();
            assert_eq!(words, (FIRST_ENTRY_WORD..NODE_WORDS).collect::<Vec<_>>());
        }
    }
}
