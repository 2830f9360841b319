//! Nodes and entries on media, for reading. They never change once they are published.

use super::super::bytes::VersionedBytes;
use super::super::entry::VersionedEntry;
use super::super::layout::{Form, INLINE_BYTES, StartWord};
use super::super::node::Record;
use super::layout::{
    BirthWord, ENTRY_WORDS, HEAD_WORDS, MAX_DEPTH, MapsWord, PLACES, digit, is_on_path, path_of,
};
use crate::error::{Result, corrupt};
use crate::key_prefix::prefix8;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pmem::Region;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The hash of a key in a table with this seed.
#[inline]
pub(super) fn hash_of(seed: u64, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// A node on media. Whoever opens it reads a held version or is the table's writer.
#[derive(Clone, Copy)]
pub(super) struct TrieNode<'m> {
    pub(super) off: u64,
    pub(super) birth: u64,
    pub(super) depth: usize,
    pub(super) maps: MapsWord,
    /// Its children and entries.
    words: &'m [AtomicU64],
}

/// The content of a place of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum TriePlace {
    Empty,
    Child(u64),
    TrieEntry(TrieEntry),
}

impl<'m> TrieNode<'m> {
    /// A node of this depth.
    #[inline]
    pub(super) fn open(region: &'m Region, off: u64, depth: usize) -> Result<TrieNode<'m>> {
        let node = TrieNode::open_any(region, off)?;
        if node.depth != depth {
            return Err(corrupt("a table's node", off, format!("one below {depth} others"), node.depth));
        }
        Ok(node)
    }

    /// Opens a node of any depth.
    #[inline]
    pub(super) fn open_any(region: &'m Region, off: u64) -> Result<TrieNode<'m>> {
        let [birth, maps] = [0, 8].map(|at| region.load_u64(off.saturating_add(at)));
        let (birth, maps) = (BirthWord(birth?), MapsWord(maps?));
        let depth = birth.depth();
        if depth > MAX_DEPTH || !maps.is_valid(depth) {
            return Err(not_a_node(off, birth, maps));
        }
        let (children, entries) = maps.counts(depth);
        let words = region.words(off + 8 * HEAD_WORDS as u64, (children + ENTRY_WORDS * entries) as u64)?;
        Ok(TrieNode { off, birth: birth.version(), depth, maps, words })
    }

    /// Bytes of the whole node.
    pub(super) fn media_bytes(&self) -> u64 {
        8 * (HEAD_WORDS + self.words.len()) as u64
    }

    #[inline(always)]
    fn word(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    /// The number of its places, empty ones included.
    #[inline]
    pub(super) fn places(&self) -> usize {
        if self.depth == MAX_DEPTH { self.words.len() / ENTRY_WORDS } else { PLACES }
    }

    /// The content of a place.
    #[inline]
    pub(super) fn place(&self, place: usize) -> Result<TriePlace> {
        if self.depth == MAX_DEPTH {
            return self.entry(0, place);
        }
        let (bit, below) = (1_u16 << place, (1_u16 << place) - 1);
        let (children, entries) = (self.maps.children(), self.maps.entries());
        if children & bit != 0 {
            Ok(TriePlace::Child(self.word((children & below).count_ones() as usize)))
        } else if entries & bit != 0 {
            self.entry(children.count_ones() as usize, (entries & below).count_ones() as usize)
        } else {
            Ok(TriePlace::Empty)
        }
    }

    #[inline]
    fn entry(&self, children: usize, idx: usize) -> Result<TriePlace> {
        let at = children + ENTRY_WORDS * idx;
        let start = StartWord(self.word(at));
        let Some(form) = start.form() else {
            return Err(corrupt(
                "an entry's start word",
                self.off,
                "a known form",
                format!("{:#x}", start.0),
            ));
        };
        let (key, value) = (self.word(at + 1), self.word(at + 2));
        Ok(TriePlace::TrieEntry(TrieEntry { version: start.version(), form, key, value }))
    }

    /// The content of the place that leads to a hash, in a node that has places.
    #[inline]
    pub(super) fn at(&self, hash: u64) -> Result<TriePlace> {
        self.place(digit(hash, self.depth))
    }

    /// The content of a place of a node whose hashes begin with `path`, and the leading bits of the hashes
    /// below the place. Checks an entry's hash.
    pub(super) fn place_on(&self, seed: u64, path: u64, place: usize) -> Result<(TriePlace, u64)> {
        let found = self.place(place)?;
        let (below, depth) = match self.depth {
            MAX_DEPTH => (path, MAX_DEPTH),
            depth => (path_of(path, depth, place), depth + 1),
        };
        if let TriePlace::TrieEntry(entry) = found
            && !is_on_path(entry.hash(seed), below, depth)
        {
            let expected = format!("a hash that begins as {below:#018x}");
            return Err(corrupt("an entry of a table", self.off, expected, format!("{entry:?}")));
        }
        Ok((found, below))
    }
}

#[cold]
fn not_a_node(off: u64, birth: BirthWord, maps: MapsWord) -> crate::Error {
    corrupt("a table's node", off, "a node", format!("words {:#x} and {:#x}", birth.0, maps.0))
}

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrieEntry {
    /// The version that put it.
    pub(super) version: u64,
    pub(super) form: Form,
    /// The hash, or the key.
    pub(super) key: u64,
    /// The record's offset, or the value.
    pub(super) value: u64,
}

impl TrieEntry {
    /// An entry that holds its key and value, if they fit.
    pub(super) fn inline(version: u64, key: &[u8], value: &[u8]) -> Option<TrieEntry> {
        if key.len() > INLINE_BYTES || value.len() > INLINE_BYTES {
            return None;
        }
        let mut word = [0; INLINE_BYTES];
        word[..value.len()].copy_from_slice(value);
        let form = Form::Inline { key_bytes: key.len() as u8, value_bytes: value.len() as u8 };
        Some(TrieEntry { version, form, key: prefix8(key), value: u64::from_ne_bytes(word) })
    }

    /// An entry that leads to a record.
    pub(super) fn of_record(version: u64, hash: u64, record: u64) -> TrieEntry {
        TrieEntry { version, form: Form::Block, key: hash, value: record }
    }

    pub(super) fn words(&self) -> [u64; ENTRY_WORDS] {
        [StartWord::new(self.version, self.form).0, self.key, self.value]
    }

    /// The hash of its key.
    #[inline]
    pub(super) fn hash(&self, seed: u64) -> u64 {
        match self.form {
            Form::Block => self.key,
            Form::Inline { key_bytes, .. } => {
                hash_of(seed, &self.key.to_be_bytes()[..usize::from(key_bytes)])
            }
        }
    }

    /// Whether it is the entry of this key, which has this hash.
    #[inline]
    pub(super) fn is_of(&self, region: &Region, hash: u64, key: &[u8]) -> Result<bool> {
        Ok(match self.form {
            Form::Block => self.key == hash && Record::read(region, self.value)?.key == key,
            Form::Inline { key_bytes, .. } => usize::from(key_bytes) == key.len() && self.key == prefix8(key),
        })
    }

    #[inline]
    pub(super) fn value<'m>(&self, region: &'m Region) -> Result<VersionedBytes<'m>> {
        Ok(match self.form {
            Form::Block => VersionedBytes::media(Record::read(region, self.value)?.value),
            Form::Inline { value_bytes, .. } => VersionedBytes::word(self.value, value_bytes),
        })
    }

    pub(super) fn read<'m>(&self, region: &'m Region) -> Result<VersionedEntry<'m>> {
        let start = self.version;
        Ok(match self.form {
            Form::Block => {
                let Record { key, value } = Record::read(region, self.value)?;
                VersionedEntry { key: VersionedBytes::media(key), value: VersionedBytes::media(value), start }
            }
            Form::Inline { key_bytes, value_bytes } => {
                let key = u64::from_ne_bytes(self.key.to_be_bytes());
                let (key, value) =
                    (VersionedBytes::word(key, key_bytes), VersionedBytes::word(self.value, value_bytes));
                VersionedEntry { key, value, start }
            }
        })
    }
}
