//! The media format that all structures share: head, records, named snapshots, and queues of dead blocks.
//!
//! All words are in the byte order of the machine (opening refuses a pool of the other order). All references
//! are byte offsets from the start of the pool; 0 is none.

use tembo_pmem::media_struct;

use crate::record::RECORD_HEAD_BYTES;

/// Longest name of a kept snapshot, in bytes.
pub(crate) const MAX_NAME_BYTES: u64 = 255;
/// The version of a new structure.
pub(crate) const FIRST_VERSION: u64 = 1;

media_struct! {
    /// A queue of dead blocks. The chunks from the first to the last are linked; only these two may be in
    /// part unused.
    pub(crate) struct PmVersionedQueue: 64 {
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
    /// The head of a structure, the object that the pool's root names.
    pub(crate) struct PmVersionedHead: 192 {
        /// The bytes `CDDStr` of a tree or `CDDSht` of a hash table, format version (2 of a tree, 1 of a
        /// hash table), zero.
        0 => format: u64,
        /// The newest version; every commit of changes adds 1.
        8 => version: u64,
        /// The root node's offset (low 48 bits) and its level (high 16 bits, 0 in a hash table); 0 if there
        /// is no node.
        16 => root: u64,
        /// How many keys the newest version has.
        24 => length: u64,
        /// The first kept snapshot.
        32 => kept: u64,
        /// How many there are.
        40 => kept_count: u64,
        /// The seed of a hash table's hashes; zero in a tree.
        48 => seed: u64,
        /// In a dropped map: the head of the next dropped map, or 0.
        56 => next_dropped: u64,
        /// Blocks that died, in the order of their deaths.
        64 => young: PmVersionedQueue,
        /// Dead blocks that were needed by a version that was held when they were looked at last.
        128 => old: PmVersionedQueue,
    }
}

media_struct! {
    /// A block, or all blocks of a part of a tree, that the newest version does not have.
    pub(crate) struct PmVersionedDead: 24 {
        /// Its offset, a multiple of 16. Low 4 bits: 0 for a record, 1 for a node, 3 for a node with all
        /// that is below it in the last version that it was in.
        0 => block: u64,
        /// The first version that it, or the uppermost node, was in.
        8 => birth: u64,
        /// The first version after those.
        16 => death: u64,
    }
}

media_struct! {
    /// A part of a queue.
    pub(crate) struct PmVersionedChunk: 1024 {
        /// The chunk with the next items.
        0 => next: u64,
        /// Zero.
        8 => reserved: u64,
        /// Items.
        16 => items: [PmVersionedDead; 42],
    }
}

media_struct! {
    /// The head of a record. Key and value follow it.
    pub(crate) struct PmVersionedRecord: 8 {
        /// Bytes of the key (low 32 bits) and of the value (high 32 bits).
        0 => lengths: u64,
    }
}

media_struct! {
    /// A snapshot with a name, which follows it.
    pub(crate) struct PmVersionedKept: 40 {
        /// The next one.
        0 => next: u64,
        /// Its version.
        8 => version: u64,
        /// The root of that version, as in `PmVersionedHead`.
        16 => root: u64,
        /// How many keys that version has.
        24 => length: u64,
        /// Bytes of the name, UTF-8, 1 to 255.
        32 => name_bytes: u64,
    }
}

pub(crate) const HEAD_BYTES: u64 = size_of::<PmVersionedHead>() as u64;
pub(crate) const CHUNK_BYTES: u64 = size_of::<PmVersionedChunk>() as u64;
pub(crate) const KEPT_BYTES: u64 = size_of::<PmVersionedKept>() as u64;
const _: () = assert!(RECORD_HEAD_BYTES == size_of::<PmVersionedRecord>() as u64);
/// Items of a chunk.
pub(crate) const CHUNK_ITEMS: u64 = 42;
/// The offset of a field, as a `u64`.
macro_rules! at {
    ($type:ident . $field:ident) => {
        ::tembo_pmem::offset_of!($crate::versioned::layout::$type, $field) as u64
    };
}
pub(crate) use at;

/// A root and its level in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RootWord(pub(crate) u64);

impl RootWord {
    pub(crate) const EMPTY: RootWord = RootWord(0);

    pub(crate) fn new(node: u64, level: usize) -> RootWord {
        debug_assert!(node < 1 << 48 && level < 1 << 16);
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

const VERSION_BITS: u32 = 56;

/// The largest version that an entry can have.
pub(crate) const MAX_VERSION: u64 = (1 << VERSION_BITS) - 2;

/// The version that put an entry, and the form of its key and value.
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

/// The form of an entry's key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Outside of the entry, in a record or a node.
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
}
