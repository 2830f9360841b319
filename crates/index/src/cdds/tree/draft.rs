//! Nodes in memory, as the writer changes them and makes them.

use super::super::layout::{Form, StartWord};
use super::super::readers::Retained;
use super::layout::{
    FencesWord, Field, KindWord, MAX_SHARED_BYTES, NO_END, NODE_BYTES, NODE_LINES, NODE_WORDS, SLOTS, at,
    entry_word,
};
use super::node::{CHANGED_WORD, Node, PRINTS_WORD};
use crate::error::{Result, corrupt};
use crate::wbtree::bytes::lcp;

/// Words of one line that change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineWrites {
    /// Bit i: word i changes.
    pub(crate) mask: u8,
    pub(crate) words: [u64; 8],
}

/// A node that has no place on media yet has this bit in the number by which it is referred to.
pub(crate) const NEW: u64 = 1 << 63;

/// A place of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) start: u64,
    pub(crate) form: Form,
    pub(crate) key: u64,
    /// In an inner node: the child's offset, or its number if it is new.
    pub(crate) value: u64,
    pub(crate) end: u64,
    pub(crate) print: u8,
}

impl Slot {
    pub(crate) const UNUSED: Slot = Slot { start: 0, form: Form::Block, key: 0, value: 0, end: 0, print: 0 };

    #[inline(always)]
    pub(crate) fn is_live(&self) -> bool {
        self.end == NO_END
    }

    /// Whether its place may be used again.
    #[inline(always)]
    fn is_free(&self, retained: &Retained) -> bool {
        self.end == 0 || (self.end != NO_END && !retained.any_in(self.start, self.end))
    }

    fn word(&self, field: Field) -> u64 {
        match field {
            Field::Start => StartWord::new(self.start, self.form).0,
            Field::Key => self.key,
            Field::Value => self.value,
            Field::End => self.end,
        }
    }
}

/// The range of a node's keys.
#[derive(Debug, Clone)]
pub(crate) struct Fences {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
}

/// A node in memory.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// Its offset, or its number if it is new.
    pub(crate) id: u64,
    pub(crate) level: usize,
    pub(crate) shared: usize,
    pub(crate) birth: u64,
    pub(crate) slots: [Slot; SLOTS],
    /// Places that changed, by bit.
    pub(crate) changed: u32,
    /// It is in the version that is being made no more.
    pub(crate) is_gone: bool,
    /// Of a new node.
    pub(crate) fences: Option<Fences>,
    /// The change, and the savepoint, before which it was put aside last.
    pub(crate) set_aside: (u64, u64),
}

/// Where a child of a node on media lies.
pub(crate) fn child_off(node: &Node<'_>, slot: usize) -> Result<u64> {
    match node.field(slot, Field::Value) {
        off if off & NEW == 0 => Ok(off),
        off => Err(corrupt("a child of an inner node", node.off, "an offset", format!("{off:#x}"))),
    }
}

/// How many bytes the keys between two fences share.
pub(crate) fn shared_between(fences: &Fences) -> usize {
    fences.high.as_ref().map_or(0, |high| lcp(&fences.low, high).min(MAX_SHARED_BYTES))
}

impl Draft {
    /// A node that is on media.
    pub(crate) fn load(node: &Node<'_>) -> Result<Draft> {
        let mut slots = [Slot::UNUSED; SLOTS];
        for (i, slot) in slots.iter_mut().enumerate() {
            let end = node.field(i, Field::End);
            if end != 0 {
                let value = if node.level() == 0 { node.field(i, Field::Value) } else { child_off(node, i)? };
                *slot = Slot {
                    start: node.start(i).version(),
                    form: node.form(i)?,
                    key: node.field(i, Field::Key),
                    value,
                    end,
                    print: if node.level() == 0 { node.fingerprint(i) } else { 0 },
                };
            }
        }
        Ok(Draft {
            id: node.off,
            level: node.level(),
            shared: node.shared(),
            birth: node.birth(),
            slots,
            changed: 0,
            is_gone: false,
            fences: None,
            set_aside: (0, 0),
        })
    }

    pub(crate) fn is_new(&self) -> bool {
        self.fences.is_some()
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = usize> {
        (0..SLOTS).filter(|slot| self.slots[*slot].is_live())
    }

    pub(crate) fn live_count(&self) -> usize {
        self.live().count()
    }

    /// A place for another entry.
    pub(crate) fn free_slot(&self, retained: &Retained) -> Option<usize> {
        self.slots.iter().position(|slot| slot.is_free(retained))
    }

    pub(crate) fn free_count(&self, retained: &Retained) -> usize {
        self.slots.iter().filter(|slot| slot.is_free(retained)).count()
    }

    pub(crate) fn fill(&mut self, slot: usize, entry: Slot) {
        self.slots[slot] = entry;
        self.changed |= 1 << slot;
    }

    /// Takes an entry out of the version that is being made.
    pub(crate) fn end(&mut self, slot: usize, version: u64) {
        self.changed |= 1 << slot;
        let entry = &mut self.slots[slot];
        if self.fences.is_some() {
            *entry = Slot::UNUSED;
        } else if entry.start == version {
            // Never in any version. Its start stays, since starts of a place only rise.
            entry.end = 0;
        } else {
            entry.end = version;
        }
    }

    fn image_words(&self, version: u64) -> [u64; NODE_WORDS] {
        let mut words = [0; NODE_WORDS];
        words[0] = KindWord::new(self.level, self.shared).0;
        words[(at!(PmCddsNode.birth) / 8) as usize] = self.birth;
        words[CHANGED_WORD] = version;
        for (i, slot) in self.slots.iter().enumerate() {
            for field in [Field::Start, Field::Key, Field::Value, Field::End] {
                words[entry_word(self.level, i, field)] = slot.word(field);
            }
        }
        self.prints().into_iter().enumerate().for_each(|(i, word)| words[PRINTS_WORD + i] = word);
        words
    }

    fn prints(&self) -> [u64; 4] {
        let mut bytes = [0; 32];
        if self.level == 0 {
            self.slots.iter().zip(&mut bytes).for_each(|(slot, byte)| *byte = slot.print);
        }
        std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|j| bytes[8 * i + j])))
    }

    /// What a new node is on media.
    pub(crate) fn image(&self, fences: &Fences, version: u64) -> Vec<u8> {
        let mut words = self.image_words(version);
        let lengths = FencesWord::new(fences.low.len(), fences.high.as_ref().map(Vec::len));
        words[(at!(PmCddsNode.fences) / 8) as usize] = lengths.0;
        let mut image = Vec::with_capacity(NODE_BYTES as usize + fences.low.len() + 64);
        words.iter().for_each(|word| image.extend_from_slice(&word.to_ne_bytes()));
        image.extend_from_slice(&fences.low);
        image.extend_from_slice(fences.high.as_deref().unwrap_or_default());
        image
    }

    /// What has to be stored of a node that is on media: its lines in their order, so that a place's start is stored
    /// before, and its end after its other words (I4).
    pub(crate) fn line_writes(&self, node: &Node<'_>, version: u64) -> [LineWrites; NODE_LINES] {
        let mut lines = [LineWrites { mask: 0, words: [0; 8] }; NODE_LINES];
        let mut store = |word: usize, value: u64| {
            if node.word(word) != value {
                lines[word / 8].mask |= 1 << (word % 8);
                lines[word / 8].words[word % 8] = value;
            }
        };
        store(CHANGED_WORD, version);
        if self.level == 0 {
            self.prints().into_iter().enumerate().for_each(|(i, word)| store(PRINTS_WORD + i, word));
        }
        let changed = (0..SLOTS).filter(|slot| self.changed >> slot & 1 == 1);
        for (i, slot) in changed.map(|i| (i, &self.slots[i])) {
            for field in [Field::Start, Field::Key, Field::Value, Field::End] {
                store(entry_word(self.level, i, field), slot.word(field));
            }
        }
        lines
    }
}
