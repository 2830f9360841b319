//! The nodes of wB+-Trees that have slots: a small array that gives the order of the keys of unsorted entries.
//!
//! ```text
//! SlotOnly     slots: 8 bytes         | link | entry 0 | entry 1 | ...
//! SlotBitmap   bitmap | slots: n + 1 bytes, padded to words | link | entry 0 | entry 1 | ...
//! ```
//!
//! Slot 0 is the number of entries, slot i the place of the entry with the i-th smallest key. In a slot+bitmap node,
//! bit 0 of the bitmap says that the slots are valid, bit i + 1 that entry i is.

use super::key::KeyKind;
use super::node::{
    Found, Layout, MAX_ENTRIES, MAX_HEADER_WORDS, OrderedLayout, Places, Shape, bisect, find_among, set_bits,
};
use crate::mem::Mem;
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
        let ranks = 0..byte(slots, 0);
        bisect::<M, K>(mem, shape, node, probe, ranks, Found::default(), |rank| byte(slots, rank + 1))
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

/// Ranks left at which a search fetches the rest of the slots at once.
const WINDOW: usize = 8;

/// The slots `first..first + 8` as the bytes of a word.
#[inline(always)]
fn window<M: Mem>(mem: &M, node: u64, first: usize) -> u64 {
    let word = |i: usize| mem.load_u64(node + SLOTS_OFF + i as u64 * WORD_BYTES);
    let shift = first % WORD_SLOTS * 8;
    let low = word(first / WORD_SLOTS) >> shift;
    low | word(first / WORD_SLOTS + 1) << 1 << (63 - shift)
}

/// Searches a node with valid slots: by halves, and when less than a word of slots is left, within that word.
#[inline(always)]
fn find_in_slots<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> Found {
    let mut ranks = 0..usize::from(mem.load_u8(node + SLOTS_OFF));
    let mut found = Found::default();
    while ranks.len() >= WINDOW {
        let rank = usize::midpoint(ranks.start, ranks.end);
        let at = SlotBitmap::place_of(mem, node, rank);
        match K::compare(mem, shape.entry::<K>(node, at), probe) {
            std::cmp::Ordering::Greater => ranks.end = rank,
            order => {
                found = Found { is_present: order.is_eq(), rank, at };
                ranks.start = rank + 1;
            }
        }
    }
    let first = ranks.start;
    let slots = window(mem, node, first + 1);
    bisect::<M, K>(mem, shape, node, probe, ranks, found, |rank| byte(slots, rank - first))
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
        for (word, slots) in words[1..].iter_mut().zip(slot_words(&slots_of(order))) {
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
        find_in_slots::<M, K>(mem, shape, node, probe)
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
        let seen = check_slots(node, shape, &load_slots(mem, node + SLOTS_OFF, words as usize))?;
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
    fn child_position<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> usize {
        let found = find_in_slots::<M, K>(mem, shape, node, probe);
        found.rank + usize::from(found.is_present)
    }
}
