//! Code that is the same for every kind of node: places of entries, searching, gathering, building.

use super::key::KeyKind;
use crate::mem::Mem;
use crate::nvm::Site;
use tembo_pmem::WORD_BYTES;

/// The most entries that a node may have: a bitmap is one word, and a slot-valid bit may be in it.
pub(crate) const MAX_ENTRIES: usize = 63;
/// The most words before a node's entries: a bitmap and a slot array of 64 bytes.
pub const MAX_HEADER_WORDS: usize = 9;

/// Where things are in the nodes of a tree; one for leaves, one for inner nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How many entries fit.
    pub capacity: usize,
    /// Offset of the word that is the next leaf in a leaf, the leftmost child in an inner node.
    pub(crate) link: u64,
    /// Offset of the entries.
    pub(crate) entries: u64,
}

impl Shape {
    /// A node of `node_words` words with a header of `header(capacity)` words before link and entries, for
    /// the largest capacity up to `most`. Entries of a power of two of words do not cross lines.
    pub(crate) fn fit(
        node_words: usize,
        entry_words: usize,
        most: usize,
        header: impl Fn(usize) -> usize,
    ) -> Shape {
        let aligned = if entry_words.is_power_of_two() { entry_words } else { 1 };
        let entries = |capacity: usize| (header(capacity) + 1).next_multiple_of(aligned);
        let fits = |capacity: &usize| entries(*capacity) + capacity * entry_words <= node_words;
        let capacity = (0..=most).rev().find(fits).unwrap_or(0);
        let off = |words: usize| words as u64 * WORD_BYTES;
        Shape { capacity, link: off(header(capacity)), entries: off(entries(capacity)) }
    }

    /// Offset of an entry.
    #[inline(always)]
    pub(crate) fn entry<K: KeyKind>(&self, node: u64, at: usize) -> u64 {
        node + self.entries + (at * (K::WORDS + 1)) as u64 * WORD_BYTES
    }

    /// Offset of an entry's value.
    #[inline(always)]
    pub(crate) fn value<K: KeyKind>(&self, node: u64, at: usize) -> u64 {
        self.entry::<K>(node, at) + K::WORDS as u64 * WORD_BYTES
    }

    /// Offset of the link.
    #[inline(always)]
    pub(crate) fn link(&self, node: u64) -> u64 {
        node + self.link
    }

    /// Bytes of a node from its start to the end of its first `count` entries.
    pub(crate) fn used_bytes<K: KeyKind>(&self, count: usize) -> u64 {
        self.entry::<K>(0, count)
    }
}

/// The result of a search in a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// Whether the key is there.
    pub(crate) is_present: bool,
    /// How many of the node's keys are at most it. Only of layouts that keep order.
    pub(crate) upto: usize,
    /// The place of its entry, if it is there; of layouts that keep order otherwise that of the entry before,
    /// if any.
    pub(crate) at: usize,
}

impl Found {
    /// The key's rank among the node's keys, or the rank it would have. Only of layouts that keep order.
    #[inline(always)]
    pub(crate) fn rank(&self) -> usize {
        self.upto - usize::from(self.is_present)
    }
}

/// The place of an item that is in no node yet.
pub(crate) const NOWHERE: u8 = u8::MAX;

/// An entry taken out of a node.
#[derive(Debug, Clone, Copy)]
pub struct Item<S> {
    pub(crate) key: S,
    pub(crate) value: u64,
    /// Its place in the node, or [`NOWHERE`].
    pub(crate) at: u8,
}

/// The places of a node's entries.
#[derive(Debug)]
pub struct Places {
    pub(crate) at: [u8; MAX_ENTRIES + 1],
    pub(crate) count: usize,
    /// Whether they are in the order of keys.
    pub(crate) is_sorted: bool,
}

impl Places {
    /// The first `count` places.
    pub(crate) fn packed(count: usize, is_sorted: bool) -> Places {
        Places { at: std::array::from_fn(|i| i as u8), count, is_sorted }
    }

    /// The places whose bits are set.
    #[inline]
    pub(crate) fn of_bits(mut bits: u64) -> Places {
        let mut places = Places { at: [0; MAX_ENTRIES + 1], count: 0, is_sorted: false };
        while bits != 0 {
            places.at[places.count] = bits.trailing_zeros() as u8;
            places.count += 1;
            bits &= bits - 1;
        }
        places
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.at[..self.count].iter().map(|at| usize::from(*at))
    }
}

/// How a node says which of its entries are valid and in what order their keys are.
pub trait Layout: 'static {
    /// Whether the order of keys is kept, so that `Found::rank` means something.
    const KEEPS_ORDER: bool;

    /// The shape of nodes of `node_words` words with entries of `entry_words`; of capacity 0 if there is
    /// none.
    fn shape(node_words: usize, entry_words: usize) -> Shape;

    /// How many entries a node has.
    fn count<M: Mem>(mem: &M, node: u64) -> usize;

    /// The places of a node's entries.
    #[doc(hidden)]
    fn places<M: Mem>(mem: &M, node: u64) -> Places;

    /// The words at the start of a node whose entries are at the places `order`, in the order of keys.
    #[doc(hidden)]
    fn header(order: &[u8], words: &mut [u64; MAX_HEADER_WORDS]) -> usize;

    /// Searches a node for a key.
    #[doc(hidden)]
    fn find<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> Found;

    /// Proves what the layout promises about a node's header.
    ///
    /// # Errors
    ///
    /// Returns the invariant that does not hold as an error.
    fn check<M: Mem>(mem: &M, shape: &Shape, node: u64) -> Result<(), String>;
}

/// A layout with which inner nodes can be searched fast.
pub trait OrderedLayout: Layout {
    /// The place of the entry of rank `rank`.
    #[doc(hidden)]
    fn place_of<M: Mem>(mem: &M, node: u64, rank: usize) -> usize;

    /// How many keys of a node are at most the probe, which is the position of the child to go to, and the
    /// offset of the word that points to it.
    #[doc(hidden)]
    #[inline(always)]
    fn child_for<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> (usize, u64) {
        let found = Self::find::<M, K>(mem, shape, node, probe);
        (found.upto, if found.upto == 0 { shape.link(node) } else { shape.value::<K>(node, found.at) })
    }

    /// The offset of the word that points to the child at a position.
    #[doc(hidden)]
    #[inline(always)]
    fn child_off<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, position: usize) -> u64 {
        match position.checked_sub(1) {
            None => shape.link(node),
            Some(rank) => shape.value::<K>(node, Self::place_of(mem, node, rank)),
        }
    }
}

/// Instructions of a step of a binary search, besides the comparison: the middle, the entry's address, the
/// new bound.
pub(crate) const STEP_INSTRUCTIONS: u32 = 6;

/// Binary search among the first `count` entries in the order of keys, whose places `place` gives.
///
/// Goes on to the last key that is at most the probe's, and remembers whether it is equal: a test for
/// equality at each step would be one more branch, and rarely ends the search.
#[inline(always)]
pub(crate) fn bisect<M: Mem, K: KeyKind>(
    mem: &M,
    shape: &Shape,
    node: u64,
    probe: &K::Probe,
    count: usize,
    place: impl Fn(usize) -> usize,
) -> Found {
    let (mut ranks, mut found) = (0..count, Found::default());
    while ranks.start < ranks.end {
        mem.branch(Site::Narrow, false);
        // The bounds are small: no overflow to look after.
        let rank = (ranks.start + ranks.end) / 2;
        let at = place(rank);
        mem.compute(STEP_INSTRUCTIONS);
        let order = K::compare(mem, shape.entry::<K>(node, at), probe);
        mem.branch(Site::Above, order.is_le());
        if order.is_gt() {
            ranks.end = rank;
        } else {
            found = Found { is_present: order.is_eq(), upto: rank + 1, at };
            ranks.start = rank + 1;
        }
    }
    mem.branch(Site::Narrow, true);
    found
}

/// Looks at one entry after the other, as far as the places go, for one with the probe's key.
#[inline(always)]
pub(crate) fn find_among<M: Mem, K: KeyKind>(
    mem: &M,
    shape: &Shape,
    node: u64,
    probe: &K::Probe,
    places: impl Iterator<Item = usize>,
) -> Found {
    for at in places {
        mem.branch(Site::Last, false);
        let is_present = K::compare(mem, shape.entry::<K>(node, at), probe).is_eq();
        mem.branch(Site::Equal, is_present);
        if is_present {
            return Found { is_present, upto: 1, at };
        }
    }
    mem.branch(Site::Last, true);
    Found::default()
}

/// The set bits of a word, lowest first.
#[inline(always)]
pub(crate) fn set_bits(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = bits.trailing_zeros() as usize;
        if bits == 0 {
            return None;
        }
        bits &= bits - 1;
        Some(at)
    })
}

/// Reads a node's entries in the order of their keys.
pub(crate) fn gather<M: Mem, K: KeyKind, L: Layout>(
    mem: &M,
    shape: &Shape,
    node: u64,
    items: &mut Vec<Item<K::Stored>>,
) {
    items.clear();
    let places = L::places(mem, node);
    items.extend(places.iter().map(|at| {
        let entry = shape.entry::<K>(node, at);
        Item { key: K::load(mem, entry), value: mem.load_u64(shape.value::<K>(node, at)), at: at as u8 }
    }));
    if !places.is_sorted {
        items.sort_unstable_by(|a, b| K::compare_stored(mem, &a.key, &b.key));
    }
}

/// Puts an item that is in no node yet in its place among gathered ones.
pub(crate) fn add_item<M: Mem, K: KeyKind>(
    mem: &M,
    items: &mut Vec<Item<K::Stored>>,
    key: K::Stored,
    value: u64,
) {
    let rank = items.partition_point(|item| K::compare_stored(mem, &item.key, &key).is_lt());
    items.insert(rank, Item { key, value, at: NOWHERE });
}

/// Writes a whole node with the items at its first places, through `store`.
pub(crate) fn build<K: KeyKind, L: Layout>(
    shape: &Shape,
    node: u64,
    items: &[Item<K::Stored>],
    link: u64,
    mut store: impl FnMut(u64, u64),
) {
    let order: [u8; MAX_ENTRIES + 1] = std::array::from_fn(|i| i as u8);
    let mut header = [0; MAX_HEADER_WORDS];
    let header_words = L::header(&order[..items.len()], &mut header);
    for (i, word) in header[..header_words].iter().enumerate() {
        store(node + i as u64 * WORD_BYTES, *word);
    }
    store(shape.link(node), link);
    for (at, item) in items.iter().enumerate() {
        store_entry::<K>(shape.entry::<K>(node, at), &item.key, item.value, &mut store);
    }
}

/// Writes an entry, through `store`.
#[inline(always)]
pub(crate) fn store_entry<K: KeyKind>(
    entry: u64,
    key: &K::Stored,
    value: u64,
    mut store: impl FnMut(u64, u64),
) {
    for (i, word) in key.as_ref().iter().enumerate() {
        store(entry + i as u64 * WORD_BYTES, *word);
    }
    store(entry + K::WORDS as u64 * WORD_BYTES, value);
}
