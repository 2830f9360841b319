//! The wB+-Trees (sections 4.2 to 4.6): a change within a leaf writes what nothing refers to, makes that
//! durable, and then commits by one atomic store; splits and the removal of leaves commit by the last record
//! of a redo log.

use super::key::KeyKind;
use super::log::Form;
use super::node::{
    Found, Item, Layout, MAX_ENTRIES, MAX_HEADER_WORDS, NOWHERE, OrderedLayout, Shape, add_item, build,
    gather, store_entry,
};
use super::packed::Bitmap;
use super::slots::{
    SLOTS_OFF, SLOTS_VALID, SlotBitmap, SlotOnly, Slots, close, load_slots, slot_words, slots_of,
};
use super::{Named, Path, ROOT_OFF, Scheme, Tree, Unlink};
use crate::mem::Mem;
use std::marker::PhantomData;
use tembo_pmem::{LINE_BYTES, WORD_BYTES};

/// A leaf whose changes are committed by an atomic store.
pub trait AtomicLeaf: Layout {
    /// Puts an entry into a node with room.
    #[doc(hidden)]
    fn insert<M: Mem, K: KeyKind>(
        mem: &M,
        shape: &Shape,
        node: u64,
        found: Found,
        key: &K::Stored,
        value: u64,
    );

    /// Takes an entry out.
    #[doc(hidden)]
    fn remove<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, found: Found);

    /// Mends what a crash in one of these may have left.
    #[doc(hidden)]
    #[inline(always)]
    fn repair<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64) {
        let _ = (mem, shape, node);
    }
}

/// Stores and flushes an entry that nothing refers to.
#[inline(always)]
fn put_entry<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64, at: usize, key: &K::Stored, value: u64) {
    let entry = shape.entry::<K>(node, at);
    store_entry::<K>(entry, key, value, |off, word| mem.store_u64(off, word));
    mem.flush(entry, (K::WORDS as u64 + 1) * WORD_BYTES);
}

/// Stores the first word of a node, and makes it durable: the commit, or the invalidation of slots.
#[inline(always)]
fn publish<M: Mem>(mem: &M, node: u64, word: u64) {
    mem.store_u64(node, word);
    mem.flush(node, WORD_BYTES);
    // PERSIST(I5): the word, before the operation is acknowledged, or the slots that it declares invalid
    // change.
    mem.fence();
}

impl AtomicLeaf for SlotOnly {
    #[inline]
    fn insert<M: Mem, K: KeyKind>(
        mem: &M,
        shape: &Shape,
        node: u64,
        found: Found,
        key: &K::Stored,
        value: u64,
    ) {
        let mut slots = mem.load_u64(node).to_le_bytes();
        let count = usize::from(slots[0]);
        let used = slots[1..=count].iter().fold(0u64, |bits, at| bits | 1 << at);
        let at = used.trailing_ones() as usize;
        put_entry::<M, K>(mem, shape, node, at, key, value);
        // PERSIST(I5): the entry, before the slots name it.
        mem.fence();
        slots.copy_within(found.rank() + 1..=count, found.rank() + 2);
        slots[found.rank() + 1] = at as u8;
        slots[0] += 1;
        publish(mem, node, u64::from_le_bytes(slots));
    }

    #[inline]
    fn remove<M: Mem, K: KeyKind>(mem: &M, _shape: &Shape, node: u64, found: Found) {
        let mut slots = mem.load_u64(node).to_le_bytes();
        slots.copy_within(found.rank() + 2.., found.rank() + 1);
        slots[0] -= 1;
        publish(mem, node, u64::from_le_bytes(slots));
    }
}

impl AtomicLeaf for Bitmap {
    #[inline]
    fn insert<M: Mem, K: KeyKind>(
        mem: &M,
        shape: &Shape,
        node: u64,
        _found: Found,
        key: &K::Stored,
        value: u64,
    ) {
        let bitmap = mem.load_u64(node);
        let at = bitmap.trailing_ones() as usize;
        put_entry::<M, K>(mem, shape, node, at, key, value);
        // PERSIST(I5): the entry, before the bitmap has it.
        mem.fence();
        publish(mem, node, bitmap | 1 << at);
    }

    #[inline]
    fn remove<M: Mem, K: KeyKind>(mem: &M, _shape: &Shape, node: u64, found: Found) {
        let bitmap = mem.load_u64(node);
        publish(mem, node, bitmap & !(1 << found.at));
    }
}

/// Stores and flushes the slots of `count` entries.
#[inline]
fn put_slots<M: Mem>(mem: &M, node: u64, mut slots: Slots, count: usize) {
    close(&mut slots, count);
    let bytes = count as u64 + 1;
    let words = bytes.div_ceil(WORD_BYTES) as usize;
    for (i, word) in slot_words(&slots).take(words).enumerate() {
        mem.store_u64(node + SLOTS_OFF + i as u64 * WORD_BYTES, word);
    }
    mem.flush(node + SLOTS_OFF, bytes);
}

impl AtomicLeaf for SlotBitmap {
    #[inline]
    fn insert<M: Mem, K: KeyKind>(
        mem: &M,
        shape: &Shape,
        node: u64,
        found: Found,
        key: &K::Stored,
        value: u64,
    ) {
        let bitmap = mem.load_u64(node);
        publish(mem, node, bitmap & !SLOTS_VALID);
        let at = (bitmap >> 1).trailing_ones() as usize;
        put_entry::<M, K>(mem, shape, node, at, key, value);
        let count = (bitmap >> 1).count_ones() as usize;
        let mut slots = load_slots(mem, node + SLOTS_OFF, (count + 1).div_ceil(8));
        slots.copy_within(found.rank() + 1..=count, found.rank() + 2);
        slots[found.rank() + 1] = at as u8;
        put_slots(mem, node, slots, count + 1);
        // PERSIST(I5): the entry and the slots, before the bitmap declares both valid.
        mem.fence();
        publish(mem, node, bitmap | 2 << at);
    }

    #[inline]
    fn remove<M: Mem, K: KeyKind>(mem: &M, _shape: &Shape, node: u64, found: Found) {
        let bitmap = mem.load_u64(node);
        publish(mem, node, bitmap & !SLOTS_VALID);
        let count = (bitmap >> 1).count_ones() as usize;
        let mut slots = load_slots(mem, node + SLOTS_OFF, (count + 1).div_ceil(8));
        slots.copy_within(found.rank() + 2..=count, found.rank() + 1);
        put_slots(mem, node, slots, count - 1);
        // PERSIST(I5): the slots, before the bitmap declares them valid.
        mem.fence();
        publish(mem, node, bitmap & !(2 << found.at));
    }

    #[inline(always)]
    fn repair<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64) {
        if mem.load_u64(node) & SLOTS_VALID == 0 {
            rebuild_slots::<M, K>(mem, shape, node);
        }
    }
}

/// Makes the slots of a node anew from its bitmap, and declares them valid.
#[cold]
fn rebuild_slots<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, node: u64) {
    let mut items = Vec::new();
    gather::<M, K, SlotBitmap>(mem, shape, node, &mut items);
    let order: Vec<u8> = items.iter().map(|item| item.at).collect();
    put_slots(mem, node, slots_of(&order), order.len());
    // PERSIST(I4): the slots, before the bitmap declares them valid.
    mem.fence();
    publish(mem, node, mem.load_u64(node) | SLOTS_VALID);
}

/// Leaves `L` and inner nodes `I` with atomic writes.
#[derive(Debug)]
pub struct Atomic<L, I>(PhantomData<(L, I)>);

/// The wB+-Tree: slots and a bitmap in every node.
pub type WbTree = Atomic<SlotBitmap, SlotBitmap>;
/// The wB+-Tree with bitmap-only leaves.
pub type WbTreeBitmapLeaf = Atomic<Bitmap, SlotBitmap>;
/// The wB+-Tree with slot-only nodes, of up to seven entries.
pub type WbTreeSlotOnly = Atomic<SlotOnly, SlotOnly>;

impl Named for WbTree {
    const NAME: &'static str = "wbtree";
    const ID: u64 = 8;
}

impl Named for WbTreeBitmapLeaf {
    const NAME: &'static str = "wbtree w/ bmp-leaf";
    const ID: u64 = 9;
}

impl Named for WbTreeSlotOnly {
    const NAME: &'static str = "wbtree w/ slot-only";
    const ID: u64 = 10;
}

impl<L: AtomicLeaf, I: OrderedLayout> Scheme for Atomic<L, I>
where
    Atomic<L, I>: Named,
{
    const PERSISTENT: bool = true;
    const LOG: Form = Form::RedoByTurns;
    const LOG_BYTES: u64 = 64 << 10;
    type Leaf = L;
    type Inner = I;

    fn max_records(node_words: u64, levels: u64) -> u64 {
        // Each level: a header, a link, an entry; and the root.
        (MAX_HEADER_WORDS as u64 + 1 + node_words / 2) * (levels + 1) + 1
    }

    #[inline(always)]
    fn repair<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, leaf: u64) {
        L::repair::<M, K>(mem, shape, leaf);
    }

    #[inline]
    fn insert<M: Mem, K: KeyKind>(
        tree: &mut Tree<M, K, Self>,
        path: &Path,
        found: Found,
        key: K::Stored,
        value: u64,
    ) {
        L::insert::<M, K>(&tree.mem, &tree.leaf, path.leaf, found, &key, value);
    }

    fn split<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, key: K::Stored, value: u64) {
        tree.edits.clear();
        let mut items = std::mem::take(&mut tree.items);
        let (left, right) = (path.leaf, tree.space.take_node());
        gather::<M, K, L>(&tree.mem, &tree.leaf, left, &mut items);
        add_item::<M, K>(&tree.mem, &mut items, key, value);
        let keep = items.len().div_ceil(2);
        let next = tree.mem.load_u64(tree.leaf.link(left));
        tree.put_node::<L>(tree.leaf, right, &items[keep..], next);
        tree.keep_lower::<L>(tree.leaf, left, &items, keep);
        tree.edits.push((tree.leaf.link(left), right));
        let separator = K::copy(&tree.mem, &mut tree.space, &items[keep].key, true);
        let mut carried = (separator.expect("room was asked for"), right);
        for &(node, rank) in path.steps().iter().rev() {
            let (key, child) = carried;
            if I::count(&tree.mem, node) < tree.inner.capacity {
                tree.add_child(node, rank, key, child);
                tree.items = items;
                return tree.commit_edits(true);
            }
            let right = tree.space.take_node();
            gather::<M, K, I>(&tree.mem, &tree.inner, node, &mut items);
            items.insert(rank, Item { key, value: child, at: NOWHERE });
            let keep = items.len() / 2;
            let middle = items[keep];
            tree.put_node::<I>(tree.inner, right, &items[keep + 1..], middle.value);
            tree.keep_lower::<I>(tree.inner, node, &items, keep);
            carried = (middle.key, right);
        }
        let (root, levels) = tree.root();
        let new_root = tree.space.take_node();
        let item = Item { key: carried.0, value: carried.1, at: NOWHERE };
        tree.put_node::<I>(tree.inner, new_root, &[item], root);
        tree.edits.push((ROOT_OFF, new_root | (levels as u64 + 1)));
        tree.items = items;
        tree.commit_edits(true);
    }

    #[inline]
    fn remove<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, found: Found) {
        L::remove::<M, K>(&tree.mem, &tree.leaf, path.leaf, found);
    }

    fn unlink<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, _path: &Path, unlink: Unlink) {
        let Unlink { parent, position, link_off, next, .. } = unlink;
        tree.edits.clear();
        tree.edits.push((link_off, next));
        if let Some(root) = unlink.root {
            tree.edits.push((ROOT_OFF, root));
            return tree.commit_edits(false);
        }
        if position == 0 {
            tree.edits.push((tree.inner.link(parent), tree.child(parent, 1)));
        }
        let mut places = I::places(&tree.mem, parent);
        places.at.copy_within(position.max(1)..places.count, position.max(1) - 1);
        tree.edit_header::<I>(parent, &places.at[..places.count - 1]);
        tree.commit_edits(false);
    }

    #[inline]
    fn update<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, off: u64, value: u64) {
        tree.mem.store_u64(off, value);
        tree.mem.flush(off, WORD_BYTES);
        // PERSIST(I5): the value, before the update is acknowledged.
        tree.mem.fence();
    }
}

impl<M: Mem, K: KeyKind, L: AtomicLeaf, I: OrderedLayout> Tree<M, K, Atomic<L, I>>
where
    Atomic<L, I>: Named,
{
    /// Writes and flushes a node that nothing refers to.
    fn put_node<N: Layout>(&self, shape: Shape, node: u64, items: &[Item<K::Stored>], link: u64) {
        build::<K, N>(&shape, node, items, link, |off, word| self.mem.store_u64(off, word));
        self.mem.flush(node, shape.used_bytes::<K>(items.len()));
    }

    /// Adds the edits after which the valid entries of a node are at `order`.
    fn edit_header<N: Layout>(&mut self, node: u64, order: &[u8]) {
        let mut header = [0; MAX_HEADER_WORDS];
        let words = N::header(order, &mut header);
        for (i, &word) in header[..words].iter().enumerate() {
            let off = node + i as u64 * WORD_BYTES;
            if self.mem.load_u64(off) != word {
                self.edits.push((off, word));
            }
        }
    }

    /// Adds the edits after which a full node has the first `keep` of `items`, its own entries and a new one.
    /// If the new one stays, it takes the place of one that does not, which is live until the commit, so it
    /// goes through the log.
    fn keep_lower<N: Layout>(&mut self, shape: Shape, node: u64, items: &[Item<K::Stored>], keep: usize) {
        let mut order = [0; MAX_ENTRIES + 1];
        for (at, item) in order.iter_mut().zip(&items[..keep]) {
            *at = item.at;
            if item.at == NOWHERE {
                let left = items[keep..].iter().find(|item| item.at != NOWHERE);
                *at = left.expect("entries of the node leave it").at;
                let entry = shape.entry::<K>(node, usize::from(*at));
                store_entry::<K>(entry, &item.key, item.value, |off, word| self.edits.push((off, word)));
            }
        }
        self.edit_header::<N>(node, &order[..keep]);
    }

    /// Writes a child's entry into an unused place of an inner node, and adds the edits after which it is
    /// valid.
    fn add_child(&mut self, node: u64, rank: usize, key: K::Stored, child: u64) {
        let mut places = I::places(&self.mem, node);
        let used = places.iter().fold(0u64, |bits, at| bits | 1 << at);
        let at = used.trailing_ones();
        put_entry::<M, K>(&self.mem, &self.inner, node, at as usize, &key, child);
        places.at.copy_within(rank..places.count, rank + 1);
        places.at[rank] = at as u8;
        self.edit_header::<I>(node, &places.at[..=places.count]);
    }

    /// Makes the edits, all or none. `links_new`: they make something reachable that was written before.
    fn commit_edits(&mut self, links_new: bool) {
        if links_new {
            // PERSIST(I5): what is new, before the last record, which links it, can be on media.
            self.mem.fence();
        }
        self.log.begin();
        self.log_edits();
        // PERSIST(I5): the records, before any of the stores that they stand for.
        self.mem.fence();
        let mut flushed = u64::MAX;
        for (i, &(off, word)) in self.edits.iter().enumerate() {
            self.mem.store_u64(off, word);
            let line = off / LINE_BYTES;
            let goes_on = self.edits.get(i + 1).is_some_and(|(next, _)| next / LINE_BYTES == line);
            if !goes_on && line != flushed {
                self.mem.flush(off, WORD_BYTES);
                flushed = line;
            }
        }
        // PERSIST(I6): the home locations, before the log is emptied; from then on they change without it.
        self.mem.fence();
        self.log.advance(&self.mem);
    }
}
