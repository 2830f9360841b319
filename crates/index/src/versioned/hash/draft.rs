//! Nodes in memory, as the writer makes them.

use super::super::layout::Form;
use super::layout::{BirthWord, ENTRY_WORDS, HEAD_WORDS, MAX_DEPTH, MapsWord, PLACES};
use super::node::{Entry, Place, TrieNode};
use crate::error::{Result, corrupt};

/// A node that has no place on media yet has this bit in the number by which it is referred to.
pub(super) const NEW: u64 = 1 << 63;

const UNUSED: Entry = Entry { version: 0, form: Form::Block, key: 0, value: 0 };

/// A node of the version that is being made.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) depth: usize,
    /// Which places have children and entries.
    children_map: u16,
    entries_map: u16,
    /// Children, by their places: offsets, or numbers of new nodes.
    children: [u64; PLACES],
    /// Entries, by their places.
    entries: [Entry; PLACES],
    /// The entries of a node at the greatest depth, in no order.
    equal: Vec<Entry>,
    /// It is in the version that is being made no more.
    pub(super) is_gone: bool,
}

impl Draft {
    pub(super) fn new(depth: usize) -> Draft {
        Draft {
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
    pub(super) fn load(node: &TrieNode<'_>) -> Result<Draft> {
        let mut draft = Draft::new(node.depth);
        for place in 0..node.places() {
            match node.place(place)? {
                Place::Empty => {}
                Place::Child(child) if child & NEW != 0 => {
                    return Err(corrupt("a child of a node", node.off, "an offset", format!("{child:#x}")));
                }
                Place::Child(child) => draft.set_child(place, child),
                Place::Entry(entry) if node.depth == MAX_DEPTH => draft.equal.push(entry),
                Place::Entry(entry) => draft.set_entry(place, entry),
            }
        }
        Ok(draft)
    }

    pub(super) fn place(&self, place: usize) -> Place {
        if self.children_map >> place & 1 == 1 {
            Place::Child(self.children[place])
        } else if self.entries_map >> place & 1 == 1 {
            Place::Entry(self.entries[place])
        } else {
            Place::Empty
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

    pub(super) fn set_entry(&mut self, place: usize, entry: Entry) {
        self.clear(place);
        self.entries_map |= 1 << place;
        self.entries[place] = entry;
    }

    /// The entries of a node at the greatest depth.
    pub(super) fn equal(&mut self) -> &mut Vec<Entry> {
        debug_assert_eq!(self.depth, MAX_DEPTH);
        &mut self.equal
    }

    pub(super) fn equal_entries(&self) -> &[Entry] {
        &self.equal
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        places(self.entries_map).map(|place| &self.entries[place]).chain(&self.equal)
    }

    /// What is left of a node that is not to stay.
    pub(super) fn remains(&self) -> Remains {
        let places = self.entries_map.trailing_zeros() as usize;
        match (self.children_map, self.entries_map.count_ones(), &self.equal[..]) {
            (0, 0, []) => Remains::Nothing,
            (0, 0, [entry]) => Remains::One(*entry),
            (0, 1, []) => Remains::One(self.entries[places]),
            _ => Remains::More,
        }
    }

    /// What it is on media, with children at `resolve(child)`.
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

/// What is left of a node.
pub(super) enum Remains {
    Nothing,
    /// An entry, which belongs one node higher.
    One(Entry),
    More,
}

/// The places of a map.
fn places(map: u16) -> impl Iterator<Item = usize> {
    (0..PLACES).filter(move |place| map >> place & 1 == 1)
}
