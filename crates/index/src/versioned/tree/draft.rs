//! Drafts: the nodes that a writer changes or makes, in memory.

use super::super::layout::{Form, StartWord};
use super::super::readers::Retained;
use super::layout::{
    FencesWord, Field, INNER_WORDS, KindWord, MAX_SHARED_BYTES, NO_END, NODE_WORDS, SLOTS, entry_word,
    node_bytes,
};
use super::node::{BIRTH_WORD, FENCES_WORD, Node, PRINTS_WORD};
use crate::error::{Result, corrupt};
use crate::key_prefix::lcp;
use crate::wbtree::node::matches;
use tembo_pmem::LINE_BYTES;
use tembo_pool::Tx;

/// Marks a reference to a node without a block: the other bits are its number among the drafts.
pub(crate) const NEW: u64 = 1 << 63;

/// An entry on its way from one node to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DraftEntry {
    pub(crate) start: StartWord,
    /// The 8 bytes of its key, or of its child's lower fence, after those that its node's keys share.
    pub(crate) key: u64,
    /// In an inner node: the child's offset, or a reference to its draft.
    pub(crate) value: u64,
    pub(crate) print: u8,
    /// In an inner node: the entry's stamp.
    pub(crate) stamp: u64,
}

impl DraftEntry {
    pub(crate) fn new(version: u64, form: Form, key: u64, value: u64, print: u8) -> DraftEntry {
        DraftEntry { start: StartWord::new(version, form), key, value, print, stamp: version }
    }

    pub(crate) fn set_form(&mut self, form: Form) {
        self.start = StartWord::new(self.start.version(), form);
    }
}

/// The range of a node's keys.
#[derive(Debug, Clone)]
pub(crate) struct Fences {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
}

/// The words of a draft.
pub(crate) type Words = Box<[u64; INNER_WORDS]>;

/// A draft of a node.
#[derive(Debug, Clone)]
pub(crate) struct NodeDraft {
    /// The node's offset, or the reference to a new node.
    pub(crate) id: u64,
    pub(crate) level: usize,
    pub(crate) shared: usize,
    /// The node as it will be on media, except that new children have references instead of offsets.
    words: Words,
    /// A bit for each word that differs from media, in a byte for each line. Stamps are not included; they
    /// are stored separately (`stamps.rs`).
    dirty: [u8; 16],
    /// Places of live entries, by bit.
    live: u32,
    /// Whether the node has left the version.
    pub(crate) is_gone: bool,
    /// The fences of a new node.
    pub(crate) fences: Option<Fences>,
    /// The change and the savepoint for which a copy was last put aside.
    pub(crate) set_aside: (u64, u64),
}

const ALL_SLOTS: u32 = (1 << SLOTS) - 1;

/// Whether a word can be an offset in a pool, as in a root word, and not a reference to a new node.
fn is_offset(word: u64) -> bool {
    word >> 48 == 0
}

/// The places of live entries, by bit.
#[inline(always)]
fn live_slots(words: &[u64; INNER_WORDS], level: usize) -> u32 {
    let mut live = 0;
    for slot in 0..SLOTS {
        live |= u32::from(words[entry_word(level, slot, Field::End)] == NO_END) << slot;
    }
    live
}

/// The offset of a child of a node on media.
pub(crate) fn child_off(node: &Node<'_>, slot: usize) -> Result<u64> {
    match node.field(slot, Field::Value) {
        off if is_offset(off) => Ok(off),
        off => Err(wrong_child(node.off, off)),
    }
}

#[cold]
fn wrong_child(node: u64, child: u64) -> crate::Error {
    corrupt("a child of an inner node", node, "an offset", format!("{child:#x}"))
}

/// How many bytes the keys between two fences share.
pub(crate) fn shared_between(fences: &Fences) -> usize {
    fences.high.as_ref().map_or(0, |high| lcp(&fences.low, high).min(MAX_SHARED_BYTES))
}

/// The bits of a mask that are set.
pub(crate) fn bits(mask: u32) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(mask), |mask| Some(mask & mask.wrapping_sub(1)))
        .take_while(|mask| *mask != 0)
        .map(|mask| mask.trailing_zeros() as usize)
}

impl NodeDraft {
    /// The draft of a node on media. The contents of `words` are overwritten.
    pub(crate) fn load(node: &Node<'_>, mut words: Words) -> Result<NodeDraft> {
        node.copy_to(&mut words)?;
        let level = node.level();
        // Each branch has a constant level, so the compiler knows the places of the words.
        let live = if level == 0 { live_slots(&words, 0) } else { live_slots(&words, 1) };
        if level > 0 {
            let values = &words[entry_word(level, 0, Field::Value)..][..SLOTS];
            if let Some(child) = values.iter().find(|child| !is_offset(**child)) {
                return Err(wrong_child(node.off, *child));
            }
        }
        let (id, shared, set_aside) = (node.off, node.shared(), (0, 0));
        let (fences, is_gone) = (None, false);
        Ok(NodeDraft { id, level, shared, words, dirty: [0; 16], live, is_gone, fences, set_aside })
    }

    /// A new node without entries, whose keys share at least `shared` bytes. The contents of `words` are
    /// overwritten.
    pub(crate) fn new(
        id: u64,
        level: usize,
        shared: usize,
        birth: u64,
        fences: Fences,
        mut words: Words,
    ) -> NodeDraft {
        words.fill(0);
        words[0] = KindWord::new(level, shared).0;
        words[BIRTH_WORD] = birth;
        words[FENCES_WORD] = FencesWord::new(fences.low.len(), fences.high.as_ref().map(Vec::len)).0;
        let (fences, is_gone, set_aside) = (Some(fences), false, (0, 0));
        NodeDraft { id, level, shared, words, dirty: [0; 16], live: 0, is_gone, fences, set_aside }
    }

    /// The draft's memory, for reuse.
    pub(crate) fn into_words(self) -> Words {
        self.words
    }

    pub(crate) fn is_new(&self) -> bool {
        self.fences.is_some()
    }

    /// Whether any word differs from media.
    pub(crate) fn is_changed(&self) -> bool {
        self.dirty != [0; 16]
    }

    pub(crate) fn birth(&self) -> u64 {
        self.words[BIRTH_WORD]
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = usize> {
        bits(self.live)
    }

    pub(crate) fn live_count(&self) -> usize {
        self.live.count_ones() as usize
    }

    #[inline(always)]
    fn field(&self, slot: usize, field: Field) -> u64 {
        self.words[entry_word(self.level, slot, field)]
    }

    #[inline(always)]
    pub(crate) fn key(&self, slot: usize) -> u64 {
        self.field(slot, Field::Key)
    }

    #[inline(always)]
    pub(crate) fn value(&self, slot: usize) -> u64 {
        self.field(slot, Field::Value)
    }

    pub(crate) fn value_ref(&self, slot: usize) -> &u64 {
        &self.words[entry_word(self.level, slot, Field::Value)]
    }

    /// The first version that has an entry.
    pub(crate) fn start(&self, slot: usize) -> u64 {
        StartWord(self.field(slot, Field::Start)).version()
    }

    /// The form of an entry's key and value.
    pub(crate) fn form(&self, slot: usize) -> Result<Form> {
        let word = self.field(slot, Field::Start);
        StartWord(word).form().ok_or_else(|| {
            corrupt("an entry's start word", self.id & !NEW, "a known form", format!("{word:#x}"))
        })
    }

    pub(crate) fn entry(&self, slot: usize) -> DraftEntry {
        DraftEntry {
            start: StartWord(self.field(slot, Field::Start)),
            key: self.key(slot),
            value: self.value(slot),
            print: self.words[PRINTS_WORD + slot / 8].to_ne_bytes()[slot % 8],
            stamp: self.stamp(slot),
        }
    }

    /// The stamp of a place of an inner node, from media or as it came with the entry.
    pub(crate) fn stamp(&self, slot: usize) -> u64 {
        self.words[NODE_WORDS + slot]
    }

    pub(crate) fn is_live(&self, slot: usize) -> bool {
        self.live & 1 << slot != 0
    }

    /// The live entries of a leaf with this hash byte.
    #[inline]
    pub(crate) fn live_with(&self, print: u8) -> impl Iterator<Item = usize> {
        let prints = std::array::from_fn(|i| self.words[PRINTS_WORD + i]);
        bits(matches(prints, print) & self.live)
    }

    #[inline(always)]
    fn set(&mut self, word: usize, value: u64) {
        if self.words[word] != value {
            self.words[word] = value;
            self.dirty[word / 8] |= 1 << (word % 8);
        }
    }

    /// Whether an entry's place may be reused.
    #[inline]
    fn is_free(&self, slot: usize, retained: &Retained) -> bool {
        let end = self.field(slot, Field::End);
        end == 0 || !retained.any_in(self.start(slot), end)
    }

    fn free(&self, retained: &Retained) -> impl Iterator<Item = usize> {
        bits(ALL_SLOTS & !self.live).filter(|slot| self.is_free(*slot, retained))
    }

    /// A place for another entry.
    pub(crate) fn free_slot(&self, retained: &Retained) -> Option<usize> {
        self.free(retained).next()
    }

    pub(crate) fn free_count(&self, retained: &Retained) -> usize {
        self.free(retained).count()
    }

    /// Puts an entry into a place that is free.
    pub(crate) fn fill(&mut self, slot: usize, entry: DraftEntry) {
        let at = |field| entry_word(self.level, slot, field);
        let [start, key, value, end] = [Field::Start, Field::Key, Field::Value, Field::End].map(at);
        self.set(start, entry.start.0);
        self.set(key, entry.key);
        self.set(value, entry.value);
        self.set(end, NO_END);
        if self.level == 0 {
            let mut prints = self.words[PRINTS_WORD + slot / 8].to_ne_bytes();
            prints[slot % 8] = entry.print;
            self.set(PRINTS_WORD + slot / 8, u64::from_ne_bytes(prints));
        } else if self.is_new() {
            // The node is older than this version. The child is new, and the stamp of the previous entry is
            // early enough.
            self.words[NODE_WORDS + slot] = entry.stamp;
        }
        self.live |= 1 << slot;
    }

    /// Makes an entry lead to another record. The node is new, or the version under construction does without
    /// it.
    pub(super) fn set_value(&mut self, slot: usize, value: u64) {
        self.words[entry_word(self.level, slot, Field::Value)] = value;
    }

    /// Ends an entry with the version under construction.
    pub(crate) fn end(&mut self, slot: usize, version: u64) {
        // An entry that begins with this version, or lies in a new node, is then in no version of this node.
        // Its start stays, since the starts of a place only rise.
        let end = if self.is_new() || self.start(slot) == version { 0 } else { version };
        self.set(entry_word(self.level, slot, Field::End), end);
        self.live &= !(1 << slot);
    }

    /// Replaces references to new children by their offsets.
    pub(crate) fn resolve(&mut self, offset: impl Fn(u64) -> u64) {
        for slot in 0..SLOTS {
            let word = entry_word(self.level, slot, Field::Value);
            if self.words[word] & NEW != 0 {
                self.words[word] = offset(self.words[word]);
            }
        }
    }

    /// Raises stamps of a new node.
    pub(crate) fn raise(&mut self, slots: u32, version: u64) {
        bits(slots).for_each(|slot| self.words[NODE_WORDS + slot] = version);
    }

    /// Writes a new node to its block.
    pub(crate) fn write(&self, fences: &Fences, off: u64, tx: &mut Tx<'_>) -> Result<()> {
        let high = fences.high.as_deref().unwrap_or_default();
        let bytes = node_bytes(self.level) as usize;
        let mut image = Vec::with_capacity(bytes + fences.low.len() + high.len());
        image.extend_from_slice(bytemuck::cast_slice(&self.words[..bytes / 8]));
        image.extend_from_slice(&fences.low);
        image.extend_from_slice(high);
        Ok(tx.write_fresh(off, &image)?)
    }

    /// Stores the changed words of a node on media in ascending order. They become visible in that order: a
    /// place's start before its other words, and its end after them (I4).
    pub(crate) fn store(&self, tx: &mut Tx<'_>) -> Result<()> {
        let (lines, _) = self.words.as_chunks();
        let mut dirty = u128::from_le_bytes(self.dirty);
        while dirty != 0 {
            let line = dirty.trailing_zeros() as usize / 8;
            tx.lines().store_line(self.id + LINE_BYTES * line as u64, self.dirty[line], &lines[line])?;
            dirty &= !(0xFF << (8 * line));
        }
        Ok(())
    }
}
