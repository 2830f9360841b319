//! Nodes in DRAM: descriptors of leaves and images of inner nodes.
//!
//! This file and `node/` have the only unsafe code of the tree. One [`Word`], in an inner image or the root
//! word, leads to each node. Further words lead to a leaf: that of its left neighbour's descriptor, and those
//! of children whose keys it has taken over (`group.rs`). A node that was not visited since the pool was
//! opened is *cold*: its word holds its offset. A node that leaves the tree is freed when every earlier pin
//! has ended.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(all(test, target_arch = "x86_64"))]
mod reporting;
mod search;
#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod search_tests;
pub(super) mod simd;
#[cfg(all(test, target_arch = "x86_64", not(miri)))]
pub(super) mod upper_halves;

use super::fingerprints::{Fingerprints, NewFingerprints, fingerprint};
use super::garbage::{Garbage, Waste};
use super::group::Leads;
use super::inner::Inner;
use super::layout::{
    INNER_KIND, LEAF_KIND, MAX_LEVEL, SLOTS, child_off, floor_off, key_off, level_off, line_off, low_off,
    separator_off,
};
use crate::error::{Result, corrupt};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use tembo_pmem::{Region, prefetch_for_store};
use tembo_pool::{BriefPin, OpenGuard};

/// The lock of structure changes.
pub(super) type Structure<'s> = RwLockWriteGuard<'s, ()>;
/// The lock of structure changes, shared with threads that divide leaves in place.
pub(super) type SharedStructure<'s> = RwLockReadGuard<'s, ()>;

/// Proof that nodes found in the tree are not dropped: a pin, or the lock of structure changes, shared or
/// not. Nodes leave the tree only under the exclusive lock.
pub(super) trait Keeps {}
impl Keeps for BriefPin<'_> {}
impl Keeps for Structure<'_> {}
impl Keeps for SharedStructure<'_> {}

/// The target of a word of the tree.
#[derive(Clone, Copy)]
pub(super) enum Child<'g> {
    None,
    /// A node on media only, at this offset.
    Cold(u64),
    Leaf(&'g Leaf),
    Inner(&'g Inner),
}

impl Child<'_> {
    /// The offset of the node on media.
    pub(super) fn off(self) -> u64 {
        match self {
            Child::None => 0,
            Child::Cold(off) => off,
            Child::Leaf(leaf) => leaf.off,
            Child::Inner(inner) => inner.off,
        }
    }
}

/// The value of a word of the tree. Held only while its target is in the tree or about to enter it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(*mut ());

// SAFETY: a link that is not followed is only an address, and its target, a leaf or an inner node, is `Send`
// and `Sync`.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

/// Marks in the low bits of a link's address.
const COLD: usize = 1;
const LEAF: usize = 2;

impl Link {
    /// A link to no node: that of a cold node at offset 0.
    pub(super) const NONE: Link = Link(ptr::without_provenance_mut(COLD));

    pub(super) fn cold(off: u64) -> Link {
        Link(ptr::without_provenance_mut(off as usize | COLD))
    }

    pub(super) fn leaf(leaf: Leaf) -> Link {
        Link(Box::into_raw(Box::new(leaf)).cast::<()>().map_addr(|address| address | LEAF))
    }

    pub(super) fn inner(inner: Box<Inner>) -> Link {
        Link(Box::into_raw(inner).cast())
    }

    /// The address without a mark.
    #[inline(always)]
    fn without(self, mark: usize) -> *mut () {
        self.0.map_addr(|address| address & !mark)
    }

    #[inline(always)]
    pub(super) fn follow<'g>(self, _kept: &'g impl Keeps) -> Child<'g> {
        match self.0.addr() {
            word if word & (COLD | LEAF) == 0 => {
                // SAFETY: only `inner` makes such a word, of a box. The box is dropped once it has left the
                // tree and all pins from before are gone. The caller has such a pin, or the lock without
                // which the box does not leave.
                Child::Inner(unsafe { &*self.0.cast::<Inner>() })
            }
            // SAFETY: as above, of `leaf`.
            word if word & LEAF != 0 => Child::Leaf(unsafe { &*self.without(LEAF).cast::<Leaf>() }),
            COLD => Child::None,
            word => Child::Cold((word & !COLD) as u64),
        }
    }

    /// Takes the node back, once no other thread can reach it.
    fn take(self) -> Option<Node> {
        let word = self.0.addr();
        if word & COLD != 0 {
            return None;
        }
        // SAFETY: such a word was made of a box; the callers in this file take a word once, which is not in
        // the tree.
        Some(unsafe {
            match word & LEAF {
                0 => Node::Inner(Box::from_raw(self.0.cast())),
                _ => Node::Leaf(Box::from_raw(self.without(LEAF).cast())),
            }
        })
    }

    /// Drops nodes of a change that was abandoned: they were never in the tree.
    pub(super) fn drop_unused(made: Vec<Link>) {
        made.into_iter().for_each(|link| drop(link.take()));
    }

    /// Drops a node to which no word of the tree leads any more, once its readers have ended.
    pub(super) fn discard(self, garbage: &Garbage, claim: &OpenGuard) {
        if let Some(node) = self.take() {
            garbage.add(claim, node.into_waste());
        }
    }

    /// Drops all nodes of a tree that is no longer used. Each is found by one word of an inner node, or by
    /// the root; the links between leaves are not followed.
    pub(super) fn drop_tree(root: &mut Word) {
        let mut links = vec![root.load()];
        while let Some(node) = links.pop() {
            if let Some(Node::Inner(inner)) = node.take() {
                links.extend(inner.positions().map(|at| inner.child(at).load()));
            }
        }
    }
}

/// A word of the tree that leads to a node.
pub(super) struct Word(AtomicPtr<()>);

impl Word {
    pub(super) const fn new(link: Link) -> Word {
        Word(AtomicPtr::new(link.0))
    }

    #[inline(always)]
    pub(super) fn load(&self) -> Link {
        Link(self.0.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(super) fn follow<'g>(&self, kept: &'g impl Keeps) -> Child<'g> {
        self.load().follow(kept)
    }

    /// ORDER: release, so that a thread that finds the node finds it whole.
    pub(super) fn store(&self, link: Link) {
        self.0.store(link.0, Ordering::Release);
    }
}

impl Leads for Word {
    type To = Link;

    fn load(&self) -> Link {
        Word::load(self)
    }

    fn store(&self, to: Link) {
        Word::store(self, to);
    }
}

/// A node that was taken out of the tree.
enum Node {
    Leaf(Box<Leaf>),
    Inner(Box<Inner>),
}

impl Node {
    fn into_waste(self) -> Waste {
        match self {
            Node::Leaf(leaf) => leaf,
            Node::Inner(inner) => inner,
        }
    }
}

/// A value that is exchanged as a whole; a reader keeps the value that it found.
pub(super) struct Exchanged<T>(AtomicPtr<T>);

impl<T> Exchanged<T>
where
    T: Send + 'static,
{
    pub(super) fn new(value: Option<T>) -> Exchanged<T> {
        Exchanged(AtomicPtr::new(value.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)))))
    }

    #[inline]
    pub(super) fn get<'g>(&self, _kept: &'g BriefPin<'_>) -> Option<&'g T> {
        // SAFETY: null, or made of a box that is dropped when every pin from before its exchange has ended.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Prefetches all lines of the value, if there is one.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        let value = self.0.load(Ordering::Relaxed).cast::<u8>();
        if !value.is_null() {
            (0..size_of::<T>()).step_by(64).for_each(|at| fetch_line(value.wrapping_add(at)));
        }
    }

    pub(super) fn set(&self, value: T, garbage: &Garbage, claim: &OpenGuard) {
        let old = self.0.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: made of a box; the thread that exchanged it owns it, and shares it only with readers
            // of older pins.
            garbage.add(claim, unsafe { Box::from_raw(old) });
        }
    }
}

impl<T> Drop for Exchanged<T> {
    fn drop(&mut self) {
        let value = *self.0.get_mut();
        if !value.is_null() {
            // SAFETY: made of a box, and no other thread has it any more.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

/// Prefetches a line of DRAM. Never faults.
#[inline(always)]
pub(super) fn fetch_line(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is without effect on the program's state.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast::<i8>())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// The slots in use of some version of a leaf, in the order of their keys.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Order {
    pub(super) version: u64,
    len: u32,
    slots: [u8; SLOTS],
}

impl Order {
    pub(super) fn new(version: u64, slots: impl ExactSizeIterator<Item = u8>) -> Order {
        let mut order = Order { version, len: slots.len() as u32, slots: [0; SLOTS] };
        order.slots.iter_mut().zip(slots).for_each(|(to, slot)| *to = slot);
        order
    }

    #[inline(always)]
    pub(super) fn slots(&self) -> &[u8] {
        &self.slots[..self.len as usize]
    }

    pub(super) fn slots_mut(&mut self) -> &mut [u8] {
        &mut self.slots[..self.len as usize]
    }
}

/// The descriptor of a leaf in DRAM.
#[repr(C, align(64))]
pub(super) struct Leaf {
    /// See `lock.rs`.
    pub(super) version: AtomicU64,
    /// The floor on media: the change that set it is durable.
    pub(super) floor: AtomicU64,
    /// The next leaf.
    pub(super) next: Word,
    /// The number of records. Changed under the lock.
    pub(super) len: AtomicU64,
    pub(super) off: u64,
    pub(super) low: u64,
    pub(super) order: Exchanged<Order>,
    pub(super) fingerprints: Fingerprints,
}

impl Leaf {
    /// Prefetches the words that a walk reads first.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        fetch_line((&raw const *self).cast());
    }

    /// The offset of a line of records. A known leaf lies in the region as a whole: it was read or allocated.
    #[inline(always)]
    pub(super) fn line_off(&self, line: usize) -> u64 {
        self.off.wrapping_add(line_off(0, line))
    }

    /// Prefetches the words that every change loads and stores; another processor may have them.
    #[inline(always)]
    pub(super) fn fetch_to_change(&self) {
        prefetch_for_store(&self.version);
        self.fingerprints.fetch_to_change();
    }

    pub(super) fn new(off: u64, low: u64, floor: u64, fingerprints: NewFingerprints) -> Leaf {
        let fingerprints = Fingerprints::new(fingerprints);
        let len = fingerprints.used().count_ones().into();
        Leaf {
            version: AtomicU64::new(0),
            floor: AtomicU64::new(floor),
            next: Word::new(Link::NONE),
            len: AtomicU64::new(len),
            off,
            low,
            order: Exchanged::new(None),
            fingerprints,
        }
    }

    /// Reads a cold leaf.
    pub(super) fn load(region: &Region, off: u64, low: u64) -> Result<Leaf> {
        let (found_low, floor) = ColdLeaf { region, off }.bounds()?;
        if found_low != low {
            return Err(corrupt("the least key of a leaf", low_off(off), low, found_low));
        }
        if !floor <= low {
            return Err(corrupt("the bound of a leaf", floor_off(off), format!("above {low}"), !floor));
        }
        let mut fingerprints = NewFingerprints::new();
        for slot in 0..SLOTS {
            let word = region.load_u64(key_off(off, slot))?;
            if word > floor {
                if !word < low {
                    return Err(corrupt(
                        "a key of a leaf",
                        key_off(off, slot),
                        format!("at least {low}"),
                        !word,
                    ));
                }
                fingerprints.set(slot, fingerprint(!word));
            }
        }
        Ok(Leaf::new(off, low, floor, fingerprints))
    }
}

/// A cold leaf, read from media.
#[derive(Clone, Copy)]
pub(super) struct ColdLeaf<'m> {
    pub(super) region: &'m Region,
    pub(super) off: u64,
}

impl ColdLeaf<'_> {
    /// The least key that belongs to the leaf, and the floor.
    pub(super) fn bounds(self) -> Result<(u64, u64)> {
        let kind = self.region.load_u64(self.off)?;
        if kind != LEAF_KIND {
            return Err(corrupt("a leaf", self.off, format!("{LEAF_KIND:#x}"), format!("{kind:#x}")));
        }
        Ok((self.region.load_u64(low_off(self.off))?, self.region.load_u64(floor_off(self.off))?))
    }
}

/// A cold inner node, read from media.
#[derive(Clone, Copy)]
pub(super) struct ColdInner<'m> {
    pub(super) region: &'m Region,
    pub(super) off: u64,
}

impl ColdInner<'_> {
    pub(super) fn level(self) -> Result<u64> {
        let kind = self.region.load_u64(self.off)?;
        if kind != INNER_KIND {
            return Err(corrupt("an inner node", self.off, format!("{INNER_KIND:#x}"), format!("{kind:#x}")));
        }
        let level = self.region.load_u64(level_off(self.off))?;
        if level == 0 || level > MAX_LEVEL {
            return Err(corrupt("the level of an inner node", level_off(self.off), "1 to 16", level));
        }
        Ok(level)
    }

    /// Separator and offset of the child in a slot.
    pub(super) fn child(self, slot: usize) -> Result<Option<(u64, u64)>> {
        let child = self.region.load_u64(child_off(self.off, slot))?;
        if child == 0 {
            return Ok(None);
        }
        if child & 63 != 0 {
            return Err(corrupt("a child", child_off(self.off, slot), "the offset of a node", child));
        }
        Ok(Some((self.region.load_u64(separator_off(self.off, slot))?, child)))
    }

    /// Separator and offset of the child to which a key belongs.
    pub(super) fn child_for(self, key: u64) -> Result<Option<(u64, u64)>> {
        let mut best: Option<(u64, u64)> = None;
        for slot in 0..SLOTS {
            if let Some((separator, child)) = self.child(slot)?
                && separator <= key
                && best.is_none_or(|(known, _)| known < separator)
            {
                best = Some((separator, child));
            }
        }
        Ok(best)
    }
}
