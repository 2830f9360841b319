//! The nodes of wB+-Trees that have slots: a small array that gives the order of the keys of unsorted
//! entries.
//!
//! ```text
//! SlotOnly     slots: 8 bytes         | link | entry 0 | entry 1 | ...
//! SlotBitmap   bitmap | slots: n + 1 bytes, padded to words | link | entry 0 | entry 1 | ...
//! ```
//!
//! Slot 0 is the number of entries, slot i the place of the entry with the i-th smallest key. In a
//! slot+bitmap node, bit 0 of the bitmap says that the slots are valid, bit i + 1 that entry i is; and the
//! last slot is repeated up to the end of its word (of an empty node, zeros), so that a search in a word
//! needs no end. That costs no word: words are stored as wholes.

use super::key::KeyKind;
use super::node::{
    Found, Layout, MAX_ENTRIES, MAX_HEADER_WORDS, OrderedLayout, Places, STEP_INSTRUCTIONS, Shape, bisect,
    find_among, set_bits,
};
use crate::mem::Mem;
use crate::nvm::Site;
use tembo_pmem::WORD_BYTES;

/// The slots are one word, which is stored atomically; up to seven entries.
#[derive(Debug)]
pub struct SlotOnly;

/// A bitmap, which is stored atomically, and slots, which it declares valid.
#[derive(Debug)]
pub struct SlotBitmap;

/// The bit that says that the slots are valid.
pub(crate) const SLOTS_VALID: u64 = 1;

/// Slots in one word.
const WORD_SLOTS: usize = 8;

/// The byte `i` of a word.
#[inline(always)]
fn byte(word: u64, i: usize) -> usize {
    (word >> (8 * i) & 0xFF) as usize
}

/// The slots of a node as bytes, from slot 0 on.
pub(crate) type Slots = [u8; 8 * (MAX_HEADER_WORDS - 1)];

/// Loads the first `words` words of slots.
#[inline]
pub(crate) fn load_slots<M: Mem>(mem: &M, off: u64, words: usize) -> Slots {
    let mut slots = [0; 8 * (MAX_HEADER_WORDS - 1)];
    for (i, bytes) in slots.chunks_exact_mut(8).take(words).enumerate() {
        bytes.copy_from_slice(&mem.load_u64(off + i as u64 * WORD_BYTES).to_le_bytes());
    }
    slots
}

/// The words of slots.
#[inline]
pub(crate) fn slot_words(slots: &Slots) -> impl Iterator<Item = u64> + '_ {
    slots.chunks_exact(8).map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// The slots of a node whose entries are at the places `order`.
pub(crate) fn slots_of(order: &[u8]) -> Slots {
    let mut slots = [0; 8 * (MAX_HEADER_WORDS - 1)];
    slots[0] = order.len() as u8;
    slots[1..=order.len()].copy_from_slice(order);
    slots
}

/// Makes the first `count` slots those of a slot+bitmap node: notes their number, and repeats the last one up
/// to the end of its word.
#[inline]
pub(crate) fn close(slots: &mut Slots, count: usize) {
    slots[0] = count as u8;
    let end = (count + 1).next_multiple_of(WORD_SLOTS);
    let last = if count == 0 { 0 } else { slots[count] };
    slots[count + 1..end].fill(last);
}

/// Proves that the slots of a node are places, each once; returns them as bits.
fn check_slots(node: u64, shape: &Shape, slots: &Slots) -> Result<u64, String> {
    let count = usize::from(slots[0]);
    if count > shape.capacity {
        return Err(format!("node {node:#x} claims {count} entries of at most {}", shape.capacity));
    }
    let mut seen = 0;
    for &at in &slots[1..=count] {
        if usize::from(at) >= shape.capacity || seen >> at & 1 != 0 {
            return Err(format!("node {node:#x} has a slot {at} that is no place, or twice"));
        }
        seen |= 1 << at;
    }
    Ok(seen)
}

impl Layout for SlotOnly {
    const KEEPS_ORDER: bool = true;

    fn shape(node_words: usize, entry_words: usize) -> Shape {
        Shape::fit(node_words, entry_words, WORD_SLOTS - 1, |_| 1)
    }

    #[inline(always)]
    fn count<M: Mem>(mem: &M, node: u64) -> usize {
        byte(mem.load_u64(node), 0)
    }

    fn places<M: Mem>(mem: &M, node: u64) -> Places {
        let slots = mem.load_u64(node).to_le_bytes();
        let mut places = Places { at: [0; MAX_ENTRIES + 1], count: usize::from(slots[0]), is_sorted: true };
        places.at[..WORD_SLOTS - 1].copy_from_slice(&slots[1..]);
        places
    }

    fn header(order: &[u8], words: &mut [u64; MAX_HEADER_WORDS]) -> usize {
        words[0] = slot_words(&slots_of(order)).next().unwrap_or(0);
        1
    }

    #[inline(always)]
    fn find<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> Found {
        let slots = mem.load_u64(node);
        bisect::<M, K>(mem, shape, node, probe, byte(slots, 0), |rank| {
            mem.compute(SLOT_INSTRUCTIONS);
            byte(slots, rank + 1)
        })
    }

    fn check<M: Mem>(mem: &M, shape: &Shape, node: u64) -> Result<(), String> {
        let slots = load_slots(mem, node, 1);
        if usize::from(slots[0]) >= WORD_SLOTS {
            return Err(format!("node {node:#x} claims {} entries", slots[0]));
        }
        check_slots(node, shape, &slots).map(drop)
    }
}

impl OrderedLayout for SlotOnly {
    #[inline(always)]
    fn place_of<M: Mem>(mem: &M, node: u64, rank: usize) -> usize {
        byte(mem.load_u64(node), rank + 1)
    }
}

/// Where the slots of a slot+bitmap node are.
pub(crate) const SLOTS_OFF: u64 = WORD_BYTES;

/// Instructions that take a slot out of a word.
const SLOT_INSTRUCTIONS: u32 = 3;

/// Instructions of a step within a word of slots, besides the comparison: the word shifted, its lowest slot,
/// the entry's address, the new word.
const SHIFT_INSTRUCTIONS: u32 = 5;

/// The slots of a node up to a key: those of the keys that are at most it.
struct Passed {
    /// The last of them is the lowest slot of this word; if there is none, the count is.
    slots: u64,
    is_none: bool,
    /// How many they are; may be more than the node has.
    upto: usize,
    /// How many the node has.
    count: usize,
    /// Whether the last is the key's own.
    is_present: bool,
}

/// Passes the slots of a node up to a key: by halves the words of slots, by the first slot of each, and then
/// those in the word that remains, which has been loaded.
///
/// Within it a slot is passed by shifting the word until that is its lowest. Three steps leave one of eight.
/// Nothing is to be done about an end, because the last slot is repeated up to the end of its word.
#[inline(always)]
fn pass_slots<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> Passed {
    let first = mem.load_u64(node + SLOTS_OFF);
    let count = byte(first, 0);
    let mut passed = Passed { slots: first, is_none: true, upto: 0, count, is_present: false };
    if count == 0 {
        return passed;
    }
    let (mut start, mut end) = (0, count / WORD_SLOTS + 1);
    while start + 1 < end {
        mem.branch(Site::NarrowSlots, false);
        let middle = (start + end) / 2;
        let word = mem.load_u64(node + SLOTS_OFF + middle as u64 * WORD_BYTES);
        mem.compute(STEP_INSTRUCTIONS);
        let order = K::compare(mem, shape.entry::<K>(node, byte(word, 0)), probe);
        mem.branch(Site::AboveSlot, order.is_le());
        if order.is_gt() {
            end = middle;
        } else {
            start = middle;
            (passed.slots, passed.is_present) = (word, order.is_eq());
        }
    }
    mem.branch(Site::NarrowSlots, true);
    passed.upto = WORD_SLOTS * start;
    for step in [4, 2, 1] {
        let upper = passed.slots >> (8 * step);
        mem.compute(SHIFT_INSTRUCTIONS);
        let order = K::compare(mem, shape.entry::<K>(node, byte(upper, 0)), probe);
        mem.branch(Site::Above, order.is_le());
        if order.is_le() {
            (passed.slots, passed.is_present) = (upper, order.is_eq());
            passed.upto += step;
        }
    }
    passed.is_none = passed.slots == first;
    passed
}

impl Layout for SlotBitmap {
    const KEEPS_ORDER: bool = true;

    fn shape(node_words: usize, entry_words: usize) -> Shape {
        let slot_words = |capacity: usize| (capacity + 1).div_ceil(WORD_SLOTS);
        Shape::fit(node_words, entry_words, MAX_ENTRIES, |capacity| 1 + slot_words(capacity))
    }

    #[inline(always)]
    fn count<M: Mem>(mem: &M, node: u64) -> usize {
        (mem.load_u64(node) >> 1).count_ones() as usize
    }

    fn places<M: Mem>(mem: &M, node: u64) -> Places {
        let bitmap = mem.load_u64(node);
        if bitmap & SLOTS_VALID == 0 {
            return Places::of_bits(bitmap >> 1);
        }
        let count = (bitmap >> 1).count_ones() as usize;
        let slots = load_slots(mem, node + SLOTS_OFF, (count + 1).div_ceil(WORD_SLOTS));
        let mut places = Places { at: [0; MAX_ENTRIES + 1], count, is_sorted: true };
        places.at[..MAX_ENTRIES].copy_from_slice(&slots[1..]);
        places
    }

    fn header(order: &[u8], words: &mut [u64; MAX_HEADER_WORDS]) -> usize {
        words[0] = order.iter().fold(SLOTS_VALID, |bits, at| bits | 2 << at);
        let mut slots = slots_of(order);
        close(&mut slots, order.len());
        for (word, slots) in words[1..].iter_mut().zip(slot_words(&slots)) {
            *word = slots;
        }
        1 + (order.len() + 1).div_ceil(WORD_SLOTS)
    }

    #[inline(always)]
    fn find<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> Found {
        let bitmap = mem.load_u64(node);
        if bitmap & SLOTS_VALID == 0 {
            return find_among::<M, K>(mem, shape, node, probe, set_bits(bitmap >> 1));
        }
        let passed = pass_slots::<M, K>(mem, shape, node, probe);
        let at = if passed.is_none { 0 } else { byte(passed.slots, 0) };
        Found { is_present: passed.is_present, upto: passed.upto.min(passed.count), at }
    }

    fn check<M: Mem>(mem: &M, shape: &Shape, node: u64) -> Result<(), String> {
        let bitmap = mem.load_u64(node);
        if bitmap >> 1 >> shape.capacity != 0 {
            return Err(format!("node {node:#x} has bits of entries beyond {}", shape.capacity));
        }
        if bitmap & SLOTS_VALID == 0 {
            return Ok(());
        }
        let words = (shape.link - SLOTS_OFF) / WORD_BYTES;
        let slots = load_slots(mem, node + SLOTS_OFF, words as usize);
        let seen = check_slots(node, shape, &slots)?;
        let mut closed = slots;
        close(&mut closed, usize::from(slots[0]));
        if closed != slots {
            return Err(format!("node {node:#x} does not repeat its last slot up to the end of the word"));
        }
        if seen != bitmap >> 1 {
            return Err(format!("node {node:#x} has slots of {seen:#b} and a bitmap of {:#b}", bitmap >> 1));
        }
        Ok(())
    }
}

impl OrderedLayout for SlotBitmap {
    #[inline(always)]
    fn place_of<M: Mem>(mem: &M, node: u64, rank: usize) -> usize {
        usize::from(mem.load_u8(node + SLOTS_OFF + rank as u64 + 1))
    }

    /// Inner nodes change through the log only, so their slots are always valid.
    #[inline(always)]
    fn child_for<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> (usize, u64) {
        let passed = pass_slots::<M, K>(mem, shape, node, probe);
        let last = shape.value::<K>(node, byte(passed.slots, 0));
        (passed.upto.min(passed.count), if passed.is_none { shape.link(node) } else { last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvm::{Model, ModelMem, Params};
    use crate::trees::Fixed;
    use crate::trees::node::{Item, NOWHERE, build};

    /// A node of 8 lines has four words of slots: a search loads three of them at most, and each once.
    #[test]
    fn a_search_loads_few_words_of_slots_and_the_keys_that_it_compares() {
        let shape = SlotBitmap::shape(64, 2);
        for count in 0..=shape.capacity {
            let mem = ModelMem::new(Model::new(&Params::wbtree(), "pcm").unwrap(), 4096);
            let items: Vec<Item<[u64; 1]>> =
                (0..count as u64).map(|i| Item { key: [2 * i], value: i, at: NOWHERE }).collect();
            build::<Fixed<u64>, SlotBitmap>(&shape, 512, &items, 0, |off, word| mem.store_u64(off, word));
            SlotBitmap::check(&mem, &shape, 512).unwrap();
            for probe in 0..=2 * count as u64 {
                mem.measure();
                let (upto, child) = SlotBitmap::child_for::<_, Fixed<u64>>(&mem, &shape, 512, &[probe]);
                let (cost, _) = mem.finish();
                let is_present = probe % 2 == 0 && probe < 2 * count as u64;
                let expected = probe.div_ceil(2) + u64::from(is_present);
                let before = expected.checked_sub(1).map(|i| shape.value::<Fixed<u64>>(512, i as usize));
                assert_eq!(
                    (upto as u64, child),
                    (expected, before.unwrap_or(shape.link(512))),
                    "{probe} of {count}"
                );
                let found = SlotBitmap::find::<_, Fixed<u64>>(&mem, &shape, 512, &[probe]);
                assert_eq!((found.is_present, found.upto), (is_present, upto), "{probe} of {count}");
                assert!(cost.loads <= 3 + 2 + 3, "{} of {count}, {probe}", cost.loads);
                if count < WORD_SLOTS {
                    assert!(cost.loads <= 1 + 3, "{} of {count}, {probe}", cost.loads);
                }
            }
        }
    }
}
