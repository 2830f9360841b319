//! Drafts of nodes.

use super::super::layout::Form;
use super::layout::{BirthWord, ENTRY_WORDS, HEAD_WORDS, MAX_DEPTH, MapsWord, PLACES};
use super::node::{TrieEntry, TrieNode, TriePlace};
use crate::error::{Result, corrupt};

/// Marks a reference to a node without a block: the other bits are its number among the drafts.
pub(super) const NEW: u64 = 1 << 63;

const UNUSED: TrieEntry = TrieEntry { version: 0, form: Form::Block, key: 0, value: 0 };

/// A node of the version under construction.
#[derive(Debug)]
pub(super) struct TrieDraft {
    pub(super) depth: usize,
    /// The places that have children, a bit each; `entries_map` has those with entries.
    children_map: u16,
    entries_map: u16,
    /// Children by place: offsets, or references to drafts.
    children: [u64; PLACES],
    /// Entries by place.
    entries: [TrieEntry; PLACES],
    /// The entries of a node at the greatest depth, in no order.
    equal: Vec<TrieEntry>,
    /// Whether it has left the version.
    pub(super) is_gone: bool,
}

impl TrieDraft {
    pub(super) fn new(depth: usize) -> TrieDraft {
        TrieDraft {
            depth,
            children_map: 0,
            entries_map: 0,
            children: [0; PLACES],
            entries: [UNUSED; PLACES],
            equal: Vec::new(),
            is_gone: false,
        }
    }

    /// A copy of a node on media.
    pub(super) fn load(node: &TrieNode<'_>) -> Result<TrieDraft> {
        let mut draft = TrieDraft::new(node.depth);
        for place in 0..node.places() {
            match node.place(place)? {
                TriePlace::Empty => {}
                TriePlace::Child(child) if child & NEW != 0 => {
                    return Err(corrupt("a child of a node", node.off, "an offset", format!("{child:#x}")));
                }
                TriePlace::Child(child) => draft.set_child(place, child),
                TriePlace::TrieEntry(entry) if node.depth == MAX_DEPTH => draft.equal.push(entry),
                TriePlace::TrieEntry(entry) => draft.set_entry(place, entry),
            }
        }
        Ok(draft)
    }

    pub(super) fn place(&self, place: usize) -> TriePlace {
        if self.children_map >> place & 1 == 1 {
            TriePlace::Child(self.children[place])
        } else if self.entries_map >> place & 1 == 1 {
            TriePlace::TrieEntry(self.entries[place])
        } else {
            TriePlace::Empty
        }
    }

    pub(super) fn clear(&mut self, place: usize) {
        self.children_map &= !(1 << place);
        self.entries_map &= !(1 << place);
    }

    pub(super) fn set_child(&mut self, place: usize, child: u64) {
        self.clear(place);
        self.children_map |= 1 << place;
        self.children[place] = child;
    }

    pub(super) fn set_entry(&mut self, place: usize, entry: TrieEntry) {
        self.clear(place);
        self.entries_map |= 1 << place;
        self.entries[place] = entry;
    }

    /// The entries of a node at the greatest depth.
    pub(super) fn equal(&mut self) -> &mut Vec<TrieEntry> {
        debug_assert_eq!(self.depth, MAX_DEPTH);
        &mut self.equal
    }

    pub(super) fn equal_entries(&self) -> &[TrieEntry] {
        &self.equal
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &TrieEntry> {
        places(self.entries_map).map(|place| &self.entries[place]).chain(&self.equal)
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut TrieEntry> {
        let map = self.entries_map;
        let in_places = self.entries.iter_mut().enumerate().filter(move |(place, _)| map >> place & 1 == 1);
        in_places.map(|(_, entry)| entry).chain(&mut self.equal)
    }

    /// The contents that are left in a node, which decide whether it stays.
    pub(super) fn remains(&self) -> Remainder {
        let places = self.entries_map.trailing_zeros() as usize;
        match (self.children_map, self.entries_map.count_ones(), &self.equal[..]) {
            (0, 0, []) => Remainder::Nothing,
            (0, 0, [entry]) => Remainder::One(*entry),
            (0, 1, []) => Remainder::One(self.entries[places]),
            _ => Remainder::More,
        }
    }

    /// The node's image on media, with children at `resolve(child)`.
    pub(super) fn image(&self, version: u64, resolve: impl Fn(u64) -> u64) -> Vec<u8> {
        let maps = if self.depth == MAX_DEPTH {
            MapsWord::of_count(self.equal.len() as u32)
        } else {
            MapsWord::of_places(self.children_map, self.entries_map)
        };
        let mut image = Vec::with_capacity(self.media_bytes() as usize);
        let mut push = |word: u64| image.extend_from_slice(&word.to_ne_bytes());
        push(BirthWord::new(version, self.depth).0);
        push(maps.0);
        places(self.children_map).for_each(|place| push(resolve(self.children[place])));
        self.entries().flat_map(|entry| entry.words()).for_each(push);
        image
    }

    /// Bytes of its image.
    pub(super) fn media_bytes(&self) -> u64 {
        let entries = self.entries_map.count_ones() as usize + self.equal.len();
        8 * (HEAD_WORDS + self.children_map.count_ones() as usize + ENTRY_WORDS * entries) as u64
    }
}

/// The contents that are left in a node.
pub(super) enum Remainder {
    Nothing,
    /// An entry, which belongs one node higher.
    One(TrieEntry),
    More,
}

/// The places whose bits are set in a map.
fn places(map: u16) -> impl Iterator<Item = usize> {
    (0..PLACES).filter(move |place| map >> place & 1 == 1)
}
