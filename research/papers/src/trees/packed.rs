//! Nodes without slots: sorted, as in a B+-Tree; unsorted and packed, or unsorted with a bitmap, as in the
//! leaves of a PCM-friendly B+-Tree (and, with the bitmap, in those of a wB+-Tree with bitmap-only leaves).
//!
//! ```text
//! Sorted, Unsorted   count  | link | entry 0 | entry 1 | ...
//! Bitmap             bitmap | link | entry 0 | entry 1 | ...        bit i: entry i is valid
//! ```

use super::key::KeyKind;
use super::node::{
    Found, Layout, MAX_ENTRIES, MAX_HEADER_WORDS, OrderedLayout, Places, Shape, bisect, find_among, set_bits,
};
use crate::mem::Mem;

/// Entries in the order of their keys.
#[derive(Debug)]
pub struct Sorted;

/// Entries packed at the front, in no order.
#[derive(Debug)]
pub struct Unsorted;

/// Entries anywhere, in no order, and a bitmap of the valid ones.
#[derive(Debug)]
pub struct Bitmap;

fn check_count<M: Mem>(mem: &M, shape: &Shape, node: u64) -> Result<(), String> {
    let count = mem.load_u64(node);
    if count > shape.capacity as u64 {
        return Err(format!("node {node:#x} claims {count} entries of at most {}", shape.capacity));
    }
    Ok(())
}

impl Layout for Sorted {
    const KEEPS_ORDER: bool = true;

    fn shape(node_words: usize, entry_words: usize) -> Shape {
        Shape::fit(node_words, entry_words, MAX_ENTRIES, |_| 1)
    }

    #[inline(always)]
    fn count<M: Mem>(mem: &M, node: u64) -> usize {
        mem.load_u64(node) as usize
    }

    fn places<M: Mem>(mem: &M, node: u64) -> Places {
        Places::packed(Sorted::count(mem, node), true)
    }

    fn header(order: &[u8], words: &mut [u64; MAX_HEADER_WORDS]) -> usize {
        words[0] = order.len() as u64;
        1
    }

    #[inline(always)]
    fn find<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> Found {
        bisect::<M, K>(mem, shape, node, probe, Sorted::count(mem, node), |rank| rank)
    }

    fn check<M: Mem>(mem: &M, shape: &Shape, node: u64) -> Result<(), String> {
        check_count(mem, shape, node)
    }
}

impl OrderedLayout for Sorted {
    #[inline(always)]
    fn place_of<M: Mem>(_mem: &M, _node: u64, rank: usize) -> usize {
        rank
    }
}

impl Layout for Unsorted {
    const KEEPS_ORDER: bool = false;

    fn shape(node_words: usize, entry_words: usize) -> Shape {
        Sorted::shape(node_words, entry_words)
    }

    #[inline(always)]
    fn count<M: Mem>(mem: &M, node: u64) -> usize {
        mem.load_u64(node) as usize
    }

    fn places<M: Mem>(mem: &M, node: u64) -> Places {
        Places::packed(Unsorted::count(mem, node), false)
    }

    fn header(order: &[u8], words: &mut [u64; MAX_HEADER_WORDS]) -> usize {
        Sorted::header(order, words)
    }

    #[inline(always)]
    fn find<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> Found {
        find_among::<M, K>(mem, shape, node, probe, 0..Unsorted::count(mem, node))
    }

    fn check<M: Mem>(mem: &M, shape: &Shape, node: u64) -> Result<(), String> {
        check_count(mem, shape, node)
    }
}

impl Layout for Bitmap {
    const KEEPS_ORDER: bool = false;

    fn shape(node_words: usize, entry_words: usize) -> Shape {
        Sorted::shape(node_words, entry_words)
    }

    #[inline(always)]
    fn count<M: Mem>(mem: &M, node: u64) -> usize {
        mem.load_u64(node).count_ones() as usize
    }

    #[inline(always)]
    fn places<M: Mem>(mem: &M, node: u64) -> Places {
        Places::of_bits(mem.load_u64(node))
    }

    fn header(order: &[u8], words: &mut [u64; MAX_HEADER_WORDS]) -> usize {
        words[0] = order.iter().fold(0, |bits, at| bits | 1 << at);
        1
    }

    #[inline(always)]
    fn find<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, probe: &K::Probe) -> Found {
        find_among::<M, K>(mem, shape, node, probe, set_bits(mem.load_u64(node)))
    }

    fn check<M: Mem>(mem: &M, shape: &Shape, node: u64) -> Result<(), String> {
        let bitmap = mem.load_u64(node);
        if bitmap >> shape.capacity != 0 {
            return Err(format!("node {node:#x} has bits of entries beyond {}", shape.capacity));
        }
        Ok(())
    }
}
