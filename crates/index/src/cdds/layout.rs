//! What the tree keeps on media: its head, nodes, records, named snapshots, and queues of what died.
//!
//! All words are in the byte order of the machine (a pool of the other order is refused when it is opened), all references are
//! byte offsets from the start of the pool, and 0 is none.

use tembo_pmem::{LINE_BYTES, media_struct};

pub(crate) use crate::wbtree::layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// What kind of root a tree is, as noted in the pool's root directory.
pub(crate) const ROOT_KIND: u32 = u32::from_le_bytes(*b"CDB1");
/// The first word of a tree's head: a magic and the format version.
pub(crate) const FORMAT: u64 = u64::from_le_bytes(*b"CDDStr\x01\0");

/// Entries of a node.
pub(crate) const SLOTS: usize = 28;
/// A node of the newest version has more live entries than this, unless it is the root: a fifth (3.3.3 of the paper).
pub(crate) const LIVE_MIN: usize = SLOTS / 5;
/// More live entries than this become two nodes instead of one (algorithm 2).
pub(crate) const ONE_NODE_MAX: usize = 4 * LIVE_MIN;
/// A new node has at least this many, unless it is the root.
pub(crate) const NEW_NODE_MIN: usize = 2 * LIVE_MIN;
/// Nodes above each other, at most.
pub(crate) const MAX_HEIGHT: usize = 32;
/// Bytes that the keys of a node are known to share, at most.
pub(crate) const MAX_SHARED_BYTES: usize = MAX_KEY_BYTES as usize - 1;
/// The end of an entry that is live.
pub(crate) const NO_END: u64 = u64::MAX;
/// Longest name of a kept snapshot, in bytes.
pub(crate) const MAX_NAME_BYTES: u64 = 255;
/// The version of a new tree.
pub(crate) const FIRST_VERSION: u64 = 1;

media_struct! {
    /// A queue of dead blocks. The chunks from the first to the last are linked; only these two may be in part unused.
    pub(crate) struct PmCddsQueue: 64 {
        /// The chunk with the oldest item, or 0 if there are no chunks.
        0 => first: u64,
        /// The oldest item's place in it.
        8 => first_idx: u64,
        /// The chunk that the next item goes into.
        16 => last: u64,
        /// Its place in it; 42 if the chunk is full.
        24 => last_idx: u64,
        /// How many items there are.
        32 => count: u64,
        /// Zero.
        40 => reserved: [u64; 3],
    }
}

media_struct! {
    /// The head of a tree, the object that the pool's root names.
    pub(crate) struct PmCddsTree: 192 {
        /// The bytes `CDDStr`, format version 1, zero.
        0 => format: u64,
        /// The newest version; every commit of changes adds 1.
        8 => version: u64,
        /// The root node's offset (low 48 bits) and its level (high 16 bits); 0 before the first change.
        16 => root: u64,
        /// How many keys the newest version has.
        24 => length: u64,
        /// The first kept snapshot.
        32 => kept: u64,
        /// How many there are.
        40 => kept_count: u64,
        /// Zero.
        48 => reserved: [u64; 2],
        /// Blocks that died, in the order of their deaths.
        64 => young: PmCddsQueue,
        /// Dead blocks that were needed by a version that was held when they were looked at last.
        128 => old: PmCddsQueue,
    }
}

media_struct! {
    /// A block that is not in the newest version.
    pub(crate) struct PmCddsDead: 24 {
        /// Its offset, a multiple of 16; the low bit is set if it is a node, and clear if it is a record.
        0 => block: u64,
        /// The first version that it was in.
        8 => birth: u64,
        /// The first version after those.
        16 => death: u64,
    }
}

media_struct! {
    /// A part of a queue.
    pub(crate) struct PmCddsChunk: 1024 {
        /// The chunk with the next items.
        0 => next: u64,
        /// Zero.
        8 => reserved: u64,
        /// Items.
        16 => items: [PmCddsDead; 42],
    }
}

media_struct! {
    /// An entry of a leaf. In an inner node the four fields are four arrays, in this order. A place that was never used is zero.
    pub(crate) struct PmCddsEntry: 32 {
        /// The first version that it is in (low 56 bits). High 8 bits: 0 if `value` leads to a record or child; else 1 + 9 times the
        /// bytes of the key that are in `key`, which are all after the shared ones, + the bytes of the value, which are in `value`.
        0 => start: u64,
        /// The 8 bytes after those that all keys of the node share, big-endian, padded with zeros: of its key, or of its child's
        /// lower fence.
        8 => key: u64,
        /// The record or the child; or up to 8 bytes of value, as they are in memory.
        16 => value: u64,
        /// The first version that it is not in any more; all bits set if it is live.
        24 => end: u64,
    }
}

media_struct! {
    /// A node. Its fences follow: first the lower, then the upper one.
    pub(crate) struct PmCddsNode: 960 {
        /// 0xCDD5 (low 16 bits), the level, 0 for a leaf (16 bits), and how many bytes all keys share (32 bits).
        0 => kind: u64,
        /// The first version that it is in.
        8 => birth: u64,
        /// The last version that changed something in it or below it.
        16 => changed: u64,
        /// Bytes of the lower fence (low 32 bits) and of the upper one (high 32 bits, all set if there is none).
        24 => fences: u64,
        /// Of a leaf, the low byte of each key's XXH3-64, in the first 28 bytes; otherwise zero.
        32 => fingerprints: [u64; 4],
        /// The entries, in no order.
        64 => entries: [PmCddsEntry; 28],
    }
}

media_struct! {
    /// The head of a record. Key and value follow it.
    pub(crate) struct PmCddsRecord: 8 {
        /// Bytes of the key (low 32 bits) and of the value (high 32 bits).
        0 => lengths: u64,
    }
}

media_struct! {
    /// A snapshot with a name, which follows it.
    pub(crate) struct PmCddsKept: 40 {
        /// The next one.
        0 => next: u64,
        /// Its version.
        8 => version: u64,
        /// The root of that version, as in `PmCddsTree`.
        16 => root: u64,
        /// How many keys that version has.
        24 => length: u64,
        /// Bytes of the name, UTF-8, 1 to 255.
        32 => name_bytes: u64,
    }
}

pub(crate) const TREE_BYTES: u64 = size_of::<PmCddsTree>() as u64;
pub(crate) const NODE_BYTES: u64 = size_of::<PmCddsNode>() as u64;
pub(crate) const CHUNK_BYTES: u64 = size_of::<PmCddsChunk>() as u64;
pub(crate) const KEPT_BYTES: u64 = size_of::<PmCddsKept>() as u64;
pub(crate) const RECORD_HEAD_BYTES: u64 = size_of::<PmCddsRecord>() as u64;
/// Items of a chunk.
pub(crate) const CHUNK_ITEMS: u64 = 42;
pub(crate) const NODE_WORDS: usize = NODE_BYTES as usize / 8;
/// Lines of a node without its fences.
pub(crate) const NODE_LINES: usize = (NODE_BYTES / LINE_BYTES) as usize;
/// Where entries begin, in words.
pub(crate) const FIRST_ENTRY_WORD: usize = 8;

/// The offset of a field, as a number of the kind that offsets in a pool are.
macro_rules! at {
    ($type:ident . $field:ident) => {
        ::tembo_pmem::offset_of!($crate::cdds::layout::$type, $field) as u64
    };
}
pub(crate) use at;

/// A root and its level in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RootWord(pub(crate) u64);

impl RootWord {
    pub(crate) const EMPTY: RootWord = RootWord(0);

    pub(crate) fn new(node: u64, level: usize) -> RootWord {
        debug_assert!(node < 1 << 48 && level <= MAX_HEIGHT);
        RootWord(node | (level as u64) << 48)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn node(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }

    pub(crate) fn level(self) -> usize {
        (self.0 >> 48) as usize
    }
}

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

    /// Bytes of a node with these fences.
    pub(crate) fn node_bytes(self) -> u64 {
        (NODE_BYTES + self.low_bytes() + self.high_bytes().unwrap_or(0)).next_multiple_of(LINE_BYTES)
    }
}

/// A field of an entry, in the order in which they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Start,
    Key,
    Value,
    End,
}

/// Where an entry's field lies in its node, in words. In a leaf an entry lies in one line, since a lookup needs all of one; the
/// search in an inner node compares all keys, so these lie together. In both, a place's start comes before its other words and its
/// end after them, so that storing a node's lines in their order fills places in the order that readers need (I7).
#[inline(always)]
pub(crate) fn entry_word(level: usize, slot: usize, field: Field) -> usize {
    debug_assert!(slot < SLOTS);
    let field = field as usize;
    FIRST_ENTRY_WORD + if level == 0 { 4 * slot + field } else { SLOTS * field + slot }
}

const VERSION_BITS: u32 = 56;

/// The largest version that an entry can have.
pub(crate) const MAX_VERSION: u64 = (1 << VERSION_BITS) - 2;

/// The start of an entry, and how it holds its key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartWord(pub(crate) u64);

impl StartWord {
    pub(crate) fn new(version: u64, form: Form) -> StartWord {
        StartWord(version | u64::from(form.code()) << VERSION_BITS)
    }

    #[inline(always)]
    pub(crate) fn version(self) -> u64 {
        self.0 & ((1 << VERSION_BITS) - 1)
    }

    #[inline(always)]
    pub(crate) fn form(self) -> Option<Form> {
        Form::decode((self.0 >> VERSION_BITS) as u8)
    }
}

/// How an entry holds its key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Somewhere else, in a record or a node.
    Block,
    /// In the entry: this many bytes of each.
    Inline { key_bytes: u8, value_bytes: u8 },
}

/// Bytes of a key, or of a value, that an entry can hold.
pub(crate) const INLINE_BYTES: usize = 8;

impl Form {
    fn code(self) -> u8 {
        match self {
            Form::Block => 0,
            Form::Inline { key_bytes, value_bytes } => 1 + 9 * key_bytes + value_bytes,
        }
    }

    #[inline(always)]
    fn decode(code: u8) -> Option<Form> {
        match code {
            0 => Some(Form::Block),
            1..=81 => Some(Form::Inline { key_bytes: (code - 1) / 9, value_bytes: (code - 1) % 9 }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_entries_are_told_apart() {
        let mut codes = vec![Form::Block.code()];
        for key_bytes in 0..=8 {
            for value_bytes in 0..=8 {
                let form = Form::Inline { key_bytes, value_bytes };
                let word = StartWord::new(MAX_VERSION, form);
                assert_eq!((word.version(), word.form()), (MAX_VERSION, Some(form)));
                codes.push(form.code());
            }
        }
        codes.sort_unstable();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(StartWord(200 << VERSION_BITS).form(), None);
    }

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
