//! Trees that are changed in place: the volatile B+-Tree, and those under undo-redo logging (section 3.1).
//!
//! A change of a word that is live logs its old and new value, and waits for that, before it is made. A
//! change of a word that is not live yet logs the new value only; the waiting is done once for all of them,
//! before the first live word changes. The last change of an operation carries the mark that makes the
//! operation count.

use super::key::KeyKind;
use super::log::{Form, Log};
use super::node::{Found, Item, Layout, MAX_ENTRIES, NOWHERE, Shape, add_item, build, gather, store_entry};
use super::packed::{Bitmap, Sorted, Unsorted};
use super::{Named, Path, ROOT_OFF, Scheme, Tree, Unlink};
use crate::mem::Mem;
use std::marker::PhantomData;
use tembo_pmem::WORD_BYTES;

/// The work that accompanies a store.
pub trait Journal: 'static {
    /// Whether anything is.
    const PERSISTENT: bool;

    /// Begins an operation.
    #[doc(hidden)]
    fn begin(log: &mut Log);

    /// Changes a live word; `is_last` for the last one of the operation.
    #[doc(hidden)]
    fn write<M: Mem>(log: &mut Log, mem: &M, off: u64, new: u64, is_last: bool);

    /// Stores a word that nothing refers to yet.
    #[doc(hidden)]
    fn write_new<M: Mem>(log: &mut Log, mem: &M, off: u64, new: u64);

    /// Makes the words durable that nothing refers to yet.
    #[doc(hidden)]
    fn settle_new<M: Mem>(log: &mut Log, mem: &M);
}

/// Nothing: stores are stores.
#[derive(Debug)]
pub struct Unlogged;

/// Undo-redo logging.
#[derive(Debug)]
pub struct UndoRedo;

impl Journal for Unlogged {
    const PERSISTENT: bool = false;

    #[inline(always)]
    fn begin(_log: &mut Log) {}

    #[inline(always)]
    fn write<M: Mem>(_log: &mut Log, mem: &M, off: u64, new: u64, _is_last: bool) {
        mem.store_u64(off, new);
    }

    #[inline(always)]
    fn write_new<M: Mem>(_log: &mut Log, mem: &M, off: u64, new: u64) {
        mem.store_u64(off, new);
    }

    #[inline(always)]
    fn settle_new<M: Mem>(_log: &mut Log, _mem: &M) {}
}

impl Journal for UndoRedo {
    const PERSISTENT: bool = true;

    #[inline(always)]
    fn begin(log: &mut Log) {
        log.begin();
    }

    #[inline]
    fn write<M: Mem>(log: &mut Log, mem: &M, off: u64, new: u64, is_last: bool) {
        log.undo_redo(mem, off, mem.load_u64(off), new, is_last);
        log.flush(mem);
        // PERSIST(I5): the record, before the store that it can undo.
        mem.fence();
        mem.store_u64(off, new);
    }

    #[inline]
    fn write_new<M: Mem>(log: &mut Log, mem: &M, off: u64, new: u64) {
        log.redo(mem, off, new, false);
        mem.store_u64(off, new);
    }

    #[inline]
    fn settle_new<M: Mem>(log: &mut Log, mem: &M) {
        log.flush(mem);
        // PERSIST(I5): the records of what is new, before a live word refers to it.
        mem.fence();
    }
}

/// A leaf that is changed in place.
pub trait InPlaceLeaf: Layout {
    /// Puts an entry into a node with room.
    #[doc(hidden)]
    fn insert<J: Journal, M: Mem, K: KeyKind>(
        to: Node<'_, M>,
        found: Found,
        key: &K::Stored,
        value: u64,
        is_last: bool,
    );

    /// Takes an entry out of a node.
    #[doc(hidden)]
    fn remove<J: Journal, M: Mem, K: KeyKind>(from: Node<'_, M>, found: Found, is_last: bool);

    /// Leaves in a full node the first `keep` of `items`, its entries and a new one in the order of their
    /// keys.
    #[doc(hidden)]
    fn keep_lower<J: Journal, M: Mem, K: KeyKind>(node: Node<'_, M>, items: &[Item<K::Stored>], keep: usize);
}

/// A node with what it takes to change it.
#[derive(Debug)]
pub struct Node<'t, M> {
    log: &'t mut Log,
    mem: &'t M,
    shape: &'t Shape,
    off: u64,
}

impl<M: Mem> Node<'_, M> {
    #[inline(always)]
    fn write<J: Journal>(&mut self, off: u64, new: u64, is_last: bool) {
        J::write(self.log, self.mem, off, new, is_last);
    }

    /// Changes a live entry.
    #[inline(always)]
    fn write_entry<J: Journal, K: KeyKind>(&mut self, at: usize, key: &K::Stored, value: u64) {
        let entry = self.shape.entry::<K>(self.off, at);
        store_entry::<K>(entry, key, value, |off, word| J::write(self.log, self.mem, off, word, false));
    }

    /// Stores an entry that is not valid yet.
    #[inline(always)]
    fn write_new_entry<J: Journal, K: KeyKind>(&mut self, at: usize, key: &K::Stored, value: u64) {
        let entry = self.shape.entry::<K>(self.off, at);
        store_entry::<K>(entry, key, value, |off, word| J::write_new(self.log, self.mem, off, word));
        J::settle_new(self.log, self.mem);
    }

    /// Copies an entry of the node over another.
    #[inline(always)]
    fn move_entry<J: Journal, K: KeyKind>(&mut self, from: usize, to: usize) {
        let from = self.shape.entry::<K>(self.off, from);
        let to = self.shape.entry::<K>(self.off, to);
        for word in 0..=K::WORDS as u64 {
            let moved = self.mem.load_u64(from + word * WORD_BYTES);
            self.write::<J>(to + word * WORD_BYTES, moved, false);
        }
    }
}

impl InPlaceLeaf for Sorted {
    #[inline]
    fn insert<J: Journal, M: Mem, K: KeyKind>(
        mut to: Node<'_, M>,
        found: Found,
        key: &K::Stored,
        value: u64,
        is_last: bool,
    ) {
        let count = Sorted::count(to.mem, to.off);
        for at in (found.rank()..count).rev() {
            to.move_entry::<J, K>(at, at + 1);
        }
        to.write_entry::<J, K>(found.rank(), key, value);
        to.write::<J>(to.off, count as u64 + 1, is_last);
    }

    #[inline]
    fn remove<J: Journal, M: Mem, K: KeyKind>(mut from: Node<'_, M>, found: Found, is_last: bool) {
        let count = Sorted::count(from.mem, from.off);
        for at in found.rank()..count - 1 {
            from.move_entry::<J, K>(at + 1, at);
        }
        from.write::<J>(from.off, count as u64 - 1, is_last);
    }

    fn keep_lower<J: Journal, M: Mem, K: KeyKind>(
        mut node: Node<'_, M>,
        items: &[Item<K::Stored>],
        keep: usize,
    ) {
        for at in (0..keep).filter(|at| usize::from(items[*at].at) != *at) {
            node.write_entry::<J, K>(at, &items[at].key, items[at].value);
        }
        node.write::<J>(node.off, keep as u64, false);
    }
}

impl InPlaceLeaf for Unsorted {
    #[inline]
    fn insert<J: Journal, M: Mem, K: KeyKind>(
        mut to: Node<'_, M>,
        _found: Found,
        key: &K::Stored,
        value: u64,
        is_last: bool,
    ) {
        let count = Unsorted::count(to.mem, to.off);
        to.write_new_entry::<J, K>(count, key, value);
        to.write::<J>(to.off, count as u64 + 1, is_last);
    }

    #[inline]
    fn remove<J: Journal, M: Mem, K: KeyKind>(mut from: Node<'_, M>, found: Found, is_last: bool) {
        let last = Unsorted::count(from.mem, from.off) - 1;
        if found.at != last {
            from.move_entry::<J, K>(last, found.at);
        }
        from.write::<J>(from.off, last as u64, is_last);
    }

    /// The entries that stay and lie behind the first `keep` places go to places there whose entries do not
    /// stay.
    fn keep_lower<J: Journal, M: Mem, K: KeyKind>(
        mut node: Node<'_, M>,
        items: &[Item<K::Stored>],
        keep: usize,
    ) {
        let mut stays = [false; MAX_ENTRIES + 1];
        for item in items[..keep].iter().filter(|item| item.at != NOWHERE) {
            stays[usize::from(item.at)] = true;
        }
        let mut holes = (0..keep).filter(|at| !stays[*at]);
        for item in items[..keep].iter().filter(|item| usize::from(item.at) >= keep) {
            let hole = holes.next().expect("as many holes as entries to move");
            node.write_entry::<J, K>(hole, &item.key, item.value);
        }
        node.write::<J>(node.off, keep as u64, false);
    }
}

impl InPlaceLeaf for Bitmap {
    #[inline]
    fn insert<J: Journal, M: Mem, K: KeyKind>(
        mut to: Node<'_, M>,
        _found: Found,
        key: &K::Stored,
        value: u64,
        is_last: bool,
    ) {
        let bitmap = to.mem.load_u64(to.off);
        let at = bitmap.trailing_ones();
        to.write_new_entry::<J, K>(at as usize, key, value);
        to.write::<J>(to.off, bitmap | 1 << at, is_last);
    }

    #[inline]
    fn remove<J: Journal, M: Mem, K: KeyKind>(mut from: Node<'_, M>, found: Found, is_last: bool) {
        let bitmap = from.mem.load_u64(from.off);
        from.write::<J>(from.off, bitmap & !(1 << found.at), is_last);
    }

    fn keep_lower<J: Journal, M: Mem, K: KeyKind>(
        mut node: Node<'_, M>,
        items: &[Item<K::Stored>],
        keep: usize,
    ) {
        let free = usize::from(items[keep..].iter().find(|i| i.at != NOWHERE).expect("old entries go").at);
        let mut bitmap = 0;
        for item in &items[..keep] {
            let at = if item.at == NOWHERE { free } else { usize::from(item.at) };
            if item.at == NOWHERE {
                node.write_entry::<J, K>(at, &item.key, item.value);
            }
            bitmap |= 1 << at;
        }
        node.write::<J>(node.off, bitmap, false);
    }
}

/// Leaves of the layout `L`, changed in place under the journal `J`.
#[derive(Debug)]
pub struct InPlace<L, J>(PhantomData<(L, J)>);

/// The prefetching B+-Tree, which is lost in a crash.
pub type Volatile = InPlace<Sorted, Unlogged>;
/// The B+-Tree under undo-redo logging.
pub type BtreeLog = InPlace<Sorted, UndoRedo>;
/// The B+-Tree with unsorted leaves under undo-redo logging.
pub type UnsortedLog = InPlace<Unsorted, UndoRedo>;
/// The B+-Tree with unsorted leaves with bitmaps under undo-redo logging.
pub type BitmapLog = InPlace<Bitmap, UndoRedo>;

impl Named for Volatile {
    const NAME: &'static str = "btree (volatile)";
    const ID: u64 = 1;
}

impl Named for BtreeLog {
    const NAME: &'static str = "btree log";
    const ID: u64 = 2;
}

impl Named for UnsortedLog {
    const NAME: &'static str = "unsorted leaf log";
    const ID: u64 = 3;
}

impl Named for BitmapLog {
    const NAME: &'static str = "uleaf bmp log";
    const ID: u64 = 4;
}

impl<L: InPlaceLeaf, J: Journal> Scheme for InPlace<L, J>
where
    InPlace<L, J>: Named,
{
    const PERSISTENT: bool = J::PERSISTENT;
    const LOG: Form = Form::UndoRedo;
    const LOG_BYTES: u64 = if J::PERSISTENT { 256 << 10 } else { 0 };
    type Leaf = L;
    type Inner = Sorted;

    fn max_records(node_words: u64, levels: u64) -> u64 {
        // Each level: a new node, what is moved in the old one, an entry shifted in.
        if J::PERSISTENT { 3 * node_words * (levels + 2) + 8 } else { 0 }
    }

    #[inline]
    fn insert<M: Mem, K: KeyKind>(
        tree: &mut Tree<M, K, Self>,
        path: &Path,
        found: Found,
        key: K::Stored,
        value: u64,
    ) {
        J::begin(&mut tree.log);
        L::insert::<J, M, K>(tree.leaf_node(path.leaf), found, &key, value, true);
    }

    fn split<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, key: K::Stored, value: u64) {
        J::begin(&mut tree.log);
        let mut items = std::mem::take(&mut tree.items);
        let (left, right) = (path.leaf, tree.space.take_node());
        gather::<M, K, L>(&tree.mem, &tree.leaf, left, &mut items);
        add_item::<M, K>(&tree.mem, &mut items, key, value);
        let keep = items.len().div_ceil(2);
        let link = tree.mem.load_u64(tree.leaf.link(left));
        tree.build_new::<J, L>(false, right, &items[keep..], link);
        L::keep_lower::<J, M, K>(tree.leaf_node(left), &items, keep);
        let left_link = tree.leaf.link(left);
        J::write(&mut tree.log, &tree.mem, left_link, right, false);
        let separator = K::copy(&tree.mem, &mut tree.space, &items[keep].key, J::PERSISTENT);
        let mut carried = (separator.expect("room was asked for"), right);
        for &(node, rank) in path.steps().iter().rev() {
            if Sorted::count(&tree.mem, node) < tree.inner.capacity {
                let found = Found { is_present: false, upto: rank, at: rank };
                let (key, child) = carried;
                Sorted::insert::<J, M, K>(tree.inner_node(node), found, &key, child, true);
                tree.items = items;
                return;
            }
            let right = tree.space.take_node();
            gather::<M, K, Sorted>(&tree.mem, &tree.inner, node, &mut items);
            items.insert(rank, Item { key: carried.0, value: carried.1, at: NOWHERE });
            let keep = items.len() / 2;
            let middle = items[keep];
            tree.build_new::<J, Sorted>(true, right, &items[keep + 1..], middle.value);
            Sorted::keep_lower::<J, M, K>(tree.inner_node(node), &items, keep);
            carried = (middle.key, right);
        }
        let (root, levels) = tree.root();
        let new_root = tree.space.take_node();
        let item = Item { key: carried.0, value: carried.1, at: NOWHERE };
        tree.build_new::<J, Sorted>(true, new_root, &[item], root);
        J::write(&mut tree.log, &tree.mem, ROOT_OFF, new_root | (levels as u64 + 1), true);
        tree.items = items;
    }

    #[inline]
    fn remove<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, found: Found) {
        J::begin(&mut tree.log);
        L::remove::<J, M, K>(tree.leaf_node(path.leaf), found, true);
    }

    fn unlink<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, _path: &Path, unlink: Unlink) {
        J::begin(&mut tree.log);
        let Unlink { parent, position, link_off, next, .. } = unlink;
        J::write(&mut tree.log, &tree.mem, link_off, next, false);
        if let Some(root) = unlink.root {
            J::write(&mut tree.log, &tree.mem, ROOT_OFF, root, true);
            return;
        }
        if position == 0 {
            let second = tree.child(parent, 1);
            let first_off = tree.inner.link(parent);
            J::write(&mut tree.log, &tree.mem, first_off, second, false);
        }
        let rank = position.saturating_sub(1);
        let found = Found { is_present: true, upto: rank + 1, at: rank };
        Sorted::remove::<J, M, K>(tree.inner_node(parent), found, true);
    }

    fn update<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, off: u64, value: u64) {
        J::begin(&mut tree.log);
        J::write(&mut tree.log, &tree.mem, off, value, true);
    }
}

impl<M: Mem, K: KeyKind, S: Scheme> Tree<M, K, S> {
    #[inline(always)]
    fn leaf_node(&mut self, off: u64) -> Node<'_, M> {
        Node { log: &mut self.log, mem: &self.mem, shape: &self.leaf, off }
    }

    fn inner_node(&mut self, off: u64) -> Node<'_, M> {
        Node { log: &mut self.log, mem: &self.mem, shape: &self.inner, off }
    }

    /// Writes a node that nothing refers to yet.
    fn build_new<J: Journal, L: Layout>(
        &mut self,
        is_inner: bool,
        node: u64,
        items: &[Item<K::Stored>],
        link: u64,
    ) {
        let shape = if is_inner { &self.inner } else { &self.leaf };
        let (log, mem) = (&mut self.log, &self.mem);
        build::<K, L>(shape, node, items, link, |off, word| J::write_new(log, mem, off, word));
        J::settle_new(log, mem);
    }
}
