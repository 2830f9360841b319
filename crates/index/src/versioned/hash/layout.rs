//! The nodes of a hash table on media.

use tembo_pmem::media_struct;

/// The kind of a hash table's root in the pool's root directory.
pub(crate) const ROOT_KIND: u32 = u32::from_le_bytes(*b"CDH1");
/// The first word of a hash table's head: a magic and the format version.
pub(crate) const FORMAT: u64 = u64::from_le_bytes(*b"CDDSht\x01\0");

/// Bits of the hash that choose a place of a node.
const DIGIT_BITS: usize = 4;
/// Places of a node.
pub(crate) const PLACES: usize = 1 << DIGIT_BITS;
/// The depth of a node whose keys have equal hashes: all bits of the hash are used above it.
pub(crate) const MAX_DEPTH: usize = 64 / DIGIT_BITS;

media_struct! {
    /// The head of a node of a hash table. Its children follow, 8 bytes each, and then its entries, both in
    /// the order of their places. It never changes.
    pub(crate) struct PmVersionedTrieNode: 16 {
        /// The version that it was made for (low 56 bits), and how many nodes are above it, up to 16 (high
        /// 8 bits).
        0 => birth: u64,
        /// 0xCDD6 (high 16 bits), and 16 zero bits. Low 32 bits: which of the 16 places have children (low
        /// 16) and which have entries (high 16); with 16 nodes above it, how many entries there are.
        8 => maps: u64,
    }
}

media_struct! {
    /// An entry of such a node.
    pub(crate) struct PmVersionedTrieEntry: 24 {
        /// The version that put it (low 56 bits). High 8 bits: 0 if `value` leads to a record; else 1 + 9
        /// times the bytes of the key + the bytes of the value, both in the entry.
        0 => start: u64,
        /// The key's hash, or up to 8 bytes of key, big-endian, padded with zeros.
        8 => key: u64,
        /// The record; or up to 8 bytes of value, as they are in memory.
        16 => value: u64,
    }
}

/// Words of a node's head.
pub(crate) const HEAD_WORDS: usize = size_of::<PmVersionedTrieNode>() / 8;
/// Words of an entry.
pub(crate) const ENTRY_WORDS: usize = size_of::<PmVersionedTrieEntry>() / 8;

const DEPTH_SHIFT: u32 = 56;

/// The first word of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BirthWord(pub(crate) u64);

impl BirthWord {
    pub(crate) fn new(version: u64, depth: usize) -> BirthWord {
        debug_assert!(depth <= MAX_DEPTH);
        BirthWord(version | (depth as u64) << DEPTH_SHIFT)
    }

    #[inline(always)]
    pub(crate) fn version(self) -> u64 {
        self.0 & ((1 << DEPTH_SHIFT) - 1)
    }

    #[inline(always)]
    pub(crate) fn depth(self) -> usize {
        (self.0 >> DEPTH_SHIFT) as usize
    }
}

/// The second word of a node: which places have children, and which have entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapsWord(pub(crate) u64);

impl MapsWord {
    const MAGIC: u64 = 0xCDD6;

    pub(crate) fn of_places(children: u16, entries: u16) -> MapsWord {
        MapsWord(Self::MAGIC << 48 | u64::from(entries) << 16 | u64::from(children))
    }

    pub(crate) fn of_count(entries: u32) -> MapsWord {
        MapsWord(Self::MAGIC << 48 | u64::from(entries))
    }

    /// Whether a node of this depth may have this word: it has at least one child or entry, and no place has
    /// both.
    #[inline(always)]
    pub(crate) fn is_valid(self, depth: usize) -> bool {
        let has_any = self.0 & 0xFFFF_FFFF != 0;
        let has_twice = depth < MAX_DEPTH && self.children() & self.entries() != 0;
        self.0 >> 32 == Self::MAGIC << 16 && has_any && !has_twice
    }

    #[inline(always)]
    pub(crate) fn children(self) -> u16 {
        self.0 as u16
    }

    #[inline(always)]
    pub(crate) fn entries(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// How many children and entries a node of this depth has.
    #[inline(always)]
    pub(crate) fn counts(self, depth: usize) -> (usize, usize) {
        if depth == MAX_DEPTH {
            return (0, self.0 as u32 as usize);
        }
        (self.children().count_ones() as usize, self.entries().count_ones() as usize)
    }
}

/// The place that leads to a hash, in a node of this depth.
#[inline(always)]
pub(crate) fn digit(hash: u64, depth: usize) -> usize {
    debug_assert!(depth < MAX_DEPTH);
    (hash >> (64 - DIGIT_BITS * (depth + 1))) as usize % PLACES
}

/// The common leading bits of the hashes below a place of a node, if those of the node begin with `path`. The
/// other bits are zero.
#[inline(always)]
pub(crate) fn path_of(path: u64, depth: usize, place: usize) -> u64 {
    path | (place as u64) << (64 - DIGIT_BITS * (depth + 1))
}

/// The leading bits of a hash that `depth` nodes use. The other bits are zero.
pub(crate) fn path_to(hash: u64, depth: usize) -> u64 {
    if depth == 0 { 0 } else { hash & u64::MAX << (64 - DIGIT_BITS * depth) }
}

/// Whether the leading bits of a hash that `depth` nodes use are those of `path`.
#[inline(always)]
pub(crate) fn is_on_path(hash: u64, path: u64, depth: usize) -> bool {
    depth == 0 || (hash ^ path) >> (64 - DIGIT_BITS * depth) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_on_the_way_to_a_hash_are_its_path() {
        let hash = 0x0123_4567_89AB_CDEF;
        let mut path = 0;
        for depth in 0..MAX_DEPTH {
            assert!(is_on_path(hash, path, depth) && !is_on_path(!hash, path, depth.max(1)));
            assert_eq!(path_to(hash, depth), path);
            let place = digit(hash, depth);
            assert_eq!(place, depth);
            path = path_of(path, depth, place);
        }
        assert_eq!([path, path_to(hash, MAX_DEPTH)], [hash; 2]);
        assert!(is_on_path(hash, path, MAX_DEPTH) && !is_on_path(hash ^ 1, path, MAX_DEPTH));
    }

    #[test]
    fn words_of_nodes_are_told_from_others() {
        let word = BirthWord::new(77, MAX_DEPTH);
        assert_eq!((word.version(), word.depth()), (77, MAX_DEPTH));
        let maps = MapsWord::of_places(0b101, 0b1010);
        assert!(maps.is_valid(0) && maps.counts(3) == (2, 2));
        assert!(!MapsWord::of_places(1, 3).is_valid(2) && !MapsWord::of_places(0, 0).is_valid(2));
        assert!(MapsWord::of_count(70_000).is_valid(MAX_DEPTH));
        assert_eq!(MapsWord::of_count(70_000).counts(MAX_DEPTH), (0, 70_000));
        assert!(!MapsWord(0b101).is_valid(1) && !MapsWord(maps.0 | 1 << 40).is_valid(1));
    }
}
