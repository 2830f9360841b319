//! The store on media. All references are byte offsets from the start of the pool, and 0 is none.

use tembo_pmem::media_struct;

/// The kind of a store's root in the pool's directory.
pub(crate) const ROOT_KIND: u32 = u32::from_le_bytes(*b"Sto1");
/// The kind of the root that leads to stores that were dropped.
pub(crate) const DROPPED_KIND: u32 = u32::from_le_bytes(*b"StoD");
/// The first words: a mark and the version of the format.
pub(crate) const STORE_FORMAT: u64 = u64::from_le_bytes(*b"TmStore\x01");
pub(crate) const DROPPED_FORMAT: u64 = u64::from_le_bytes(*b"TmStDrp\x01");
pub(crate) const HISTORY_FORMAT: u64 = u64::from_le_bytes(*b"TmHisto\x01");
pub(crate) const KEYSPACE_FORMAT: u64 = u64::from_le_bytes(*b"TmKeysp\x01");
/// Longest name of a keyspace or a snapshot, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 256;
/// Versions that lie in a version table itself.
pub(crate) const INLINE_VERSIONS: u64 = 2;
/// Lanes that a store commits through, at most.
pub(crate) const WRITERS_MAX: u64 = 16;
/// Versions of a vector, at most; 2^32 commits of one key between two that collect.
pub(crate) const MAX_CAPACITY: u64 = 1 << 32;

media_struct! {
    /// The head of a store, which the pool's root names.
    pub(crate) struct PmStore: 1088 {
        /// The bytes `TmStore`, format version 1.
        0 => format: u64,
        /// Zero.
        8 => reserved_a: [u64; 2],
        /// The head of the tree of keyspaces: name to `PmKeyspace`.
        24 => keyspaces: u64,
        /// The head of the tree of kept snapshots.
        32 => kept: u64,
        /// The id of the last keyspace that was made. In a store that was dropped: the next one, or 0.
        40 => last_keyspace: u64,
        /// The first keyspace that was dropped and is being freed, or 0.
        48 => dropped: u64,
        /// The log of commits, a `PmHistory`; 0 if there never was one.
        56 => history: u64,
        /// For each lane that the store commits through, its last commit.
        64 => last: [PmLast; 16],
    }
}

media_struct! {
    /// The log of commits.
    pub(crate) struct PmHistory: 64 {
        /// The bytes `TmHisto`, format version 1.
        0 => format: u64,
        /// The head of the tree of entries: the number of a commit, big-endian, to what it changed.
        8 => log: u64,
        /// How long entries stay; see `Audit`. The kind (low 8 bits) and its number (high 56 bits).
        16 => audit: u64,
        /// Commits with a higher number are in the log, while there is one.
        24 => log_after: u64,
        /// The sum of the lengths of the keys and values in the tree.
        32 => log_bytes: u64,
        /// Zero.
        40 => reserved: [u64; 3],
    }
}

media_struct! {
    /// The last commit of a lane, in a line of its own.
    pub(crate) struct PmLast: 64 {
        /// Its number: its time, in nanoseconds since 1970, or one more than the number before. 0: none.
        0 => number: u64,
        /// Zero.
        8 => reserved: [u64; 7],
    }
}

media_struct! {
    /// The head of a keyspace.
    pub(crate) struct PmKeyspace: 64 {
        /// The bytes `TmKeysp`, format version 1.
        0 => format: u64,
        /// Its id, which no other keyspace of the store has or had.
        8 => id: u64,
        /// The head of the index: a tree from keys to their `PmTable`.
        16 => index: u64,
        /// In a keyspace that was dropped: the next one, or 0.
        24 => next_dropped: u64,
        /// Which versions are retained; see `Retention`. The kind (low 8 bits) and its number (high 56 bits).
        32 => retention: u64,
        /// The current snapshot when `retention` was chosen.
        40 => retained_from: u64,
        /// Versions that one with a lower number follows are not retained, whatever `retention` says.
        48 => cut: u64,
        /// Zero.
        56 => reserved: u64,
    }
}

media_struct! {
    /// A version of a key.
    pub(crate) struct PmVersion: 16 {
        /// The number of the commit that wrote it (low 63 bits), and whether the value is a word of 8 raw
        /// bytes (high bit). 0 if there is no version.
        0 => number: u64,
        /// The value: 8 bytes, or see `ValueWord`. 0 if there is no version.
        8 => value: u64,
    }
}

media_struct! {
    /// The version table of a key: the value of its record in the index, after as many zero bytes as align it
    /// to 8. The record stays where it is while it has versions, but for compactions, and its words change in
    /// place.
    pub(crate) struct PmTable: 40 {
        /// The vector that has the versions, or 0: they are here. With the high bit: they are here, and one
        /// more follows them, a tombstone that found no slot, whose number the other bits are.
        0 => vector: u64,
        /// The versions, in any order, while there is no vector.
        8 => versions: [PmVersion; 2],
    }
}

media_struct! {
    /// The versions of a key of which there are, or were, more than two. `capacity` times `PmVersion` follow:
    /// up to eight in any order, more in the order of their numbers.
    pub(crate) struct PmVector: 16 {
        /// How many versions it has room for.
        0 => capacity: u64,
        /// The number of one more version, the last, a tombstone that found no slot; or 0.
        8 => tombstone: u64,
    }
}

media_struct! {
    /// The head of a value; its bytes follow.
    pub(crate) struct PmValue: 8 {
        /// Length in bytes.
        0 => bytes: u64,
    }
}

media_struct! {
    /// A kept snapshot: the value in the tree of kept snapshots. Its key is the byte 1 and a name, or the
    /// byte 0 and the number, big-endian.
    pub(crate) struct PmKept: 8 {
        /// The snapshot's number.
        0 => number: u64,
    }
}

/// Offset of a field of a media struct, as the `u64` that all offsets are.
macro_rules! field {
    ($struct:ident . $field:ident) => {
        core::mem::offset_of!($crate::layout::$struct, $field) as u64
    };
}
pub(crate) use field;

pub(crate) const STORE_BYTES: u64 = size_of::<PmStore>() as u64;
pub(crate) const TABLE_BYTES: u64 = size_of::<PmTable>() as u64;
pub(crate) const VECTOR_HEAD_BYTES: u64 = size_of::<PmVector>() as u64;
pub(crate) const VERSION_BYTES: u64 = size_of::<PmVersion>() as u64;
pub(crate) const VALUE_HEAD_BYTES: u64 = size_of::<PmValue>() as u64;

/// The bit of a version's number that says that its value is 8 raw bytes. Numbers are times in nanoseconds,
/// and need 62 bits until the year 2116.
const RAW: u64 = 1 << 63;
/// The highest number of a commit.
pub(crate) const NUMBER_MAX: u64 = RAW - 1;

/// The bit of `PmTable::vector` that says that the other bits are the number of a tombstone.
pub(crate) const HAS_TOMBSTONE: u64 = 1 << 63;

/// The number in the first word of a version.
#[inline(always)]
pub(crate) fn number_of(word: u64) -> u64 {
    word & NUMBER_MAX
}

/// The value of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueWord {
    /// The key was deleted.
    Tombstone,
    /// There was a value that nobody can ask for any more.
    Collected,
    /// Up to seven bytes, in the word itself.
    Inline { bytes: [u8; 7], len: u8 },
    /// Eight bytes, which are the word.
    Raw([u8; 8]),
    /// The value lies in a `PmValue`.
    Block(u64),
}

/// The longest value that lies in its word.
pub(crate) const MAX_INLINE_BYTES: usize = 8;

impl ValueWord {
    const TOMBSTONE: u64 = 2;
    const COLLECTED: u64 = 4;
    const INLINE: u64 = 8;

    /// The word of a short value.
    pub(crate) fn inline(value: &[u8]) -> Option<ValueWord> {
        if let Ok(bytes) = value.try_into() {
            return Some(ValueWord::Raw(bytes));
        }
        let mut bytes = [0; 7];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(ValueWord::Inline { bytes, len: value.len() as u8 })
    }

    /// The two words of a version with this value.
    #[inline]
    pub(crate) fn encode(self, number: u64) -> [u64; 2] {
        let word = match self {
            ValueWord::Tombstone => ValueWord::TOMBSTONE,
            ValueWord::Collected => ValueWord::COLLECTED,
            ValueWord::Inline { bytes, len } => {
                let mut word = [0; 8];
                word[0] = ValueWord::INLINE as u8 | len << 4;
                word[1..].copy_from_slice(&bytes);
                u64::from_le_bytes(word)
            }
            ValueWord::Raw(bytes) => return [number | RAW, u64::from_le_bytes(bytes)],
            // A block's offset is a multiple of 16.
            ValueWord::Block(off) => off,
        };
        [number, word]
    }

    /// The value of the words of a version; `None` if no value is encoded so.
    #[inline]
    pub(crate) fn decode([number, word]: [u64; 2]) -> Option<ValueWord> {
        if number & RAW != 0 {
            return Some(ValueWord::Raw(word.to_le_bytes()));
        }
        match word & 15 {
            0 if word != 0 => Some(ValueWord::Block(word)),
            ValueWord::TOMBSTONE if word == ValueWord::TOMBSTONE => Some(ValueWord::Tombstone),
            ValueWord::COLLECTED if word == ValueWord::COLLECTED => Some(ValueWord::Collected),
            ValueWord::INLINE => {
                let all = word.to_le_bytes();
                let len = all[0] >> 4;
                let bytes: [u8; 7] = all[1..].try_into().expect("seven bytes");
                let is_padded = bytes.get(usize::from(len)..)?.iter().all(|byte| *byte == 0);
                is_padded.then_some(ValueWord::Inline { bytes, len })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_read_as_it_was_written() {
        let mut values =
            vec![ValueWord::Tombstone, ValueWord::Collected, ValueWord::Block(16), ValueWord::Block(1 << 47)];
        values.extend((0..=8).map(|len| ValueWord::inline(&[0xFF, 0, 1, 2, 3, 4, 5, 6][..len]).unwrap()));
        for value in values {
            let words = value.encode(77);
            assert_eq!((number_of(words[0]), ValueWord::decode(words)), (77, Some(value)));
        }
        assert_eq!(ValueWord::inline(&[0; 9]), None);
        for wrong in [0, 1, 3, 18, 20, 0x88, 0x0100 | 8] {
            assert_eq!(ValueWord::decode([77, wrong]), None, "{wrong:#x}");
            assert!(ValueWord::decode([77 | RAW, wrong]).is_some(), "eight bytes may be any");
        }
    }
}
