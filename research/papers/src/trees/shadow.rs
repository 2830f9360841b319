//! Trees that are changed by shadowing (section 3.2): a change of a leaf is made in a copy, which two logged
//! stores then put in its place, one in the parent and one in the leaf before.
//!
//! The copy takes no unlogged store once it is linked, but for values, which no record is about; and the node
//! that it replaces is used again only after the log has been emptied. So redoing a record never harms what
//! was written later.

use super::key::KeyKind;
use super::log::Form;
use super::node::{Found, Item, Layout, NOWHERE, Shape, add_item, build, gather};
use super::packed::{Bitmap, Sorted, Unsorted};
use super::space::Space;
use super::{Named, Path, ROOT_OFF, Scheme, Tree, Unlink};
use crate::mem::Mem;
use std::marker::PhantomData;
use tembo_pmem::WORD_BYTES;

/// Leaves of the layout `L` under shadowing.
#[derive(Debug)]
pub struct Shadow<L>(PhantomData<L>);

/// The B+-Tree under shadowing.
pub type BtreeShadow = Shadow<Sorted>;
/// The B+-Tree with unsorted leaves under shadowing.
pub type UnsortedShadow = Shadow<Unsorted>;
/// The B+-Tree with unsorted leaves with bitmaps under shadowing.
pub type BitmapShadow = Shadow<Bitmap>;

impl Named for BtreeShadow {
    const NAME: &'static str = "btree shadow";
    const ID: u64 = 5;
}

impl Named for UnsortedShadow {
    const NAME: &'static str = "unsorted leaf shadow";
    const ID: u64 = 6;
}

impl Named for BitmapShadow {
    const NAME: &'static str = "uleaf bmp shadow";
    const ID: u64 = 7;
}

impl<L: Layout> Scheme for Shadow<L>
where
    Shadow<L>: Named,
{
    const PERSISTENT: bool = true;
    const LOG: Form = Form::Redo;
    const LOG_BYTES: u64 = 64 << 10;
    type Leaf = L;
    type Inner = Sorted;

    fn max_nodes(levels: usize, is_insertion: bool) -> usize {
        if is_insertion { 2 * (levels + 1) + 1 } else { 1 }
    }

    fn max_records(_node_words: u64, levels: u64) -> u64 {
        // Two copies of the leaf and of each level, a root, and two pointers.
        2 * (levels + 1) + 1 + 2
    }

    #[inline]
    fn insert<M: Mem, K: KeyKind>(
        tree: &mut Tree<M, K, Self>,
        path: &Path,
        found: Found,
        key: K::Stored,
        value: u64,
    ) {
        let mut items = tree.take_items::<L>(tree.leaf, path.leaf);
        let rank = if L::KEEPS_ORDER { found.rank() } else { items.len() };
        items.insert(rank, Item { key, value, at: NOWHERE });
        tree.replace_leaf(path, items);
    }

    fn split<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, key: K::Stored, value: u64) {
        let mut items = std::mem::take(&mut tree.items);
        gather::<M, K, L>(&tree.mem, &tree.leaf, path.leaf, &mut items);
        add_item::<M, K>(&tree.mem, &mut items, key, value);
        let keep = items.len().div_ceil(2);
        let next = tree.mem.load_u64(tree.leaf.link(path.leaf));
        let right = tree.copy_to_new::<L>(tree.leaf, &items[keep..], next);
        let left = tree.copy_to_new::<L>(tree.leaf, &items[..keep], right);
        let separator = K::copy(&tree.mem, &mut tree.space, &items[keep].key, true);
        tree.edits.clear();
        tree.edits.push((tree.link_to(path), left));
        tree.space.hold_node(path.leaf);
        let mut carried = (separator.expect("room was asked for"), left, right);
        for (depth, &(node, rank)) in path.steps().iter().enumerate().rev() {
            gather::<M, K, Sorted>(&tree.mem, &tree.inner, node, &mut items);
            let mut link = tree.mem.load_u64(tree.inner.link(node));
            *rank.checked_sub(1).map_or(&mut link, |before| &mut items[before].value) = carried.1;
            items.insert(rank, Item { key: carried.0, value: carried.2, at: NOWHERE });
            tree.space.hold_node(node);
            if items.len() <= tree.inner.capacity {
                let copy = tree.copy_to_new::<Sorted>(tree.inner, &items, link);
                tree.items = items;
                return tree.link_copy(path, depth, copy);
            }
            let keep = items.len() / 2;
            let middle = items[keep];
            let right = tree.copy_to_new::<Sorted>(tree.inner, &items[keep + 1..], middle.value);
            let left = tree.copy_to_new::<Sorted>(tree.inner, &items[..keep], link);
            carried = (middle.key, left, right);
        }
        let item = Item { key: carried.0, value: carried.2, at: NOWHERE };
        let root = tree.copy_to_new::<Sorted>(tree.inner, &[item], carried.1);
        tree.edits.push((ROOT_OFF, root | (path.levels as u64 + 1)));
        tree.items = items;
        tree.commit_copies();
    }

    #[inline]
    fn remove<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, found: Found) {
        let mut items = tree.take_items::<L>(tree.leaf, path.leaf);
        items.retain(|item| usize::from(item.at) != found.at);
        tree.replace_leaf(path, items);
    }

    fn unlink<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, unlink: Unlink) {
        tree.edits.clear();
        tree.edits.push((unlink.link_off, unlink.next));
        if let Some(root) = unlink.root {
            tree.edits.push((ROOT_OFF, root));
            return tree.commit_copies();
        }
        let mut items = tree.take_items::<Sorted>(tree.inner, unlink.parent);
        let gone = items.remove(unlink.position.saturating_sub(1));
        let link = match unlink.position {
            0 => gone.value,
            _ => tree.mem.load_u64(tree.inner.link(unlink.parent)),
        };
        let copy = tree.copy_to_new::<Sorted>(tree.inner, &items, link);
        tree.items = items;
        tree.space.hold_node(unlink.parent);
        tree.link_copy(path, unlink.depth, copy);
    }

    /// A value is a word that no record is about, so it can be changed in its place.
    fn update<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, off: u64, value: u64) {
        tree.mem.store_u64(off, value);
        tree.mem.flush(off, WORD_BYTES);
        // PERSIST(I5): the value, before the update is acknowledged.
        tree.mem.fence();
    }

    fn give_node(space: &mut Space, node: u64) {
        space.hold_node(node);
    }
}

impl<M: Mem, K: KeyKind, L: Layout> Tree<M, K, Shadow<L>>
where
    Shadow<L>: Named,
{
    /// A node's entries, in its own order.
    #[inline]
    fn take_items<N: Layout>(&mut self, shape: Shape, node: u64) -> Vec<Item<K::Stored>> {
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        items.extend(N::places(&self.mem, node).iter().map(|at| Item {
            key: K::load(&self.mem, shape.entry::<K>(node, at)),
            value: self.mem.load_u64(shape.value::<K>(node, at)),
            at: at as u8,
        }));
        items
    }

    /// Builds and flushes a new node.
    #[inline]
    fn copy_to_new<N: Layout>(&mut self, shape: Shape, items: &[Item<K::Stored>], link: u64) -> u64 {
        let node = self.space.take_node();
        build::<K, N>(&shape, node, items, link, |off, word| self.mem.store_u64(off, word));
        self.mem.flush(node, shape.used_bytes::<K>(items.len()));
        self.fresh.push(node);
        node
    }

    /// Puts a copy with other entries in the place of the leaf of a path.
    #[inline]
    fn replace_leaf(&mut self, path: &Path, items: Vec<Item<K::Stored>>) {
        let link = self.mem.load_u64(self.leaf.link(path.leaf));
        let copy = self.copy_to_new::<L>(self.leaf, &items, link);
        self.items = items;
        self.edits.clear();
        self.edits.push((self.link_to(path), copy));
        self.space.hold_node(path.leaf);
        self.link_copy(path, path.levels, copy);
    }

    /// Commits copies of which `copy` takes the place of the node at a depth of the path.
    #[inline]
    fn link_copy(&mut self, path: &Path, depth: usize, copy: u64) {
        let levels = if depth == 0 { path.levels as u64 } else { 0 };
        self.edits.push((self.pointer_to(path, depth), copy | levels));
        self.commit_copies();
    }

    /// Makes the edits, which link the fresh copies.
    #[inline]
    fn commit_copies(&mut self) {
        self.log.begin();
        if !self.fresh.is_empty() {
            for node in self.fresh.drain(..) {
                self.log.note_allocation(&self.mem, node);
            }
            self.log.flush(&self.mem);
            // PERSIST(I5): the copies, before a record that links them can be on media.
            self.mem.fence();
        }
        self.log_edits();
        // PERSIST(I5): the records, before the stores that they stand for, which nobody flushes.
        self.mem.fence();
        for &(off, word) in &self.edits {
            self.mem.store_u64(off, word);
        }
    }
}
