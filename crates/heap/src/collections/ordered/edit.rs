//! Changes of the tree: an insertion divides full nodes on its path, and a removal merges small ones.

use super::{Entry, INNER, Inner, InnerPrivateFields, LEAF, LEAST, Leaf, Node, PMap, Path};
use crate::Persist;
use crate::collections::keys::OrdKey;
use crate::collections::sorted::{Order, SLOTS};
use crate::error::Result;
use crate::objects::brand::Brand;
use crate::objects::place::{Obj, Ref};
use crate::tx::{ReadTx, Tx};
use std::mem::offset_of;

/// The entry in the middle of a full node.
const MIDDLE: usize = SLOTS / 2;
/// Entries after the middle one.
const AFTER: usize = SLOTS - MIDDLE - 1;

/// The offsets of the parts of a node.
fn entry_off<K: Persist, V: Persist>(slot: usize) -> usize {
    offset_of!(Leaf<K, V>, slots) + slot * size_of::<Entry<K, V>>()
}
fn child_off<K: Persist, V: Persist>(index: usize) -> usize {
    offset_of!(Inner<K, V>, children) + 8 + 8 * index
}

/// The words of a node with this order, whose slots are blank.
pub(super) fn blank<K: Persist, V: Persist>(is_inner: bool, order: Order) -> Vec<u64> {
    let bytes = if is_inner { size_of::<Inner<K, V>>() } else { size_of::<Leaf<K, V>>() };
    let mut words = vec![0; bytes.div_ceil(8)];
    order.encode(&mut bytemuck::cast_slice_mut(&mut words)[..size_of::<Order>()]);
    words
}

/// Allocates a node with these words.
pub(super) fn alloc<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    is_inner: bool,
    words: &[u64],
) -> Result<Node<'t, B, K, V>> {
    if is_inner {
        let node: Obj<'t, B, Inner<K, V>> = tx.alloc_image(words)?;
        return Ok(Node { own: node.own(), kind: INNER });
    }
    let node: Obj<'t, B, Leaf<K, V>> = tx.alloc_image(words)?;
    Ok(Node { own: *node, kind: LEAF })
}

impl<'t, B: Brand, K: OrdKey, V: Persist> Node<'t, B, K, V> {
    /// Links a child, of the kind of all children.
    fn link_child(self, tx: &mut Tx<'t, B>, index: usize, child: Node<'t, B, K, V>) -> Result<()> {
        if child.is_inner() {
            tx.link(self.child_slot::<Inner<K, V>>(index), child.as_object::<Inner<K, V>>())
        } else {
            tx.link(self.child_slot::<Leaf<K, V>>(index), child.as_object::<Leaf<K, V>>())
        }
    }

    /// Moves the pointer to a child, if the nodes have children.
    fn move_child(
        self,
        tx: &mut Tx<'t, B>,
        index: usize,
        to: Node<'t, B, K, V>,
        to_index: usize,
    ) -> Result<()> {
        if !self.is_inner() {
            return Ok(());
        }
        tx.move_value(self.child_slot::<Leaf<K, V>>(index), to.child_slot(to_index))
    }

    /// The entry `at` and the two children around it.
    fn neighbours(self, tx: &ReadTx<'t, B>, at: usize) -> Result<(Self, Self)> {
        match self.child(tx, at)?.zip(self.child(tx, at + 1)?) {
            Some((a, b)) if a.is_inner() == b.is_inner() => Ok((a, b)),
            _ => Err(self.keys().damage()),
        }
    }
}

/// Makes a node of the entries after the middle of a full node. Removes these entries and the middle one from
/// the full node's order, and nulls their pointers there.
fn second_half<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    full: Node<'t, B, K, V>,
) -> Result<Node<'t, B, K, V>> {
    let order = full.order(tx)?;
    tx.own_place(full.own)?;
    tx.note_variants::<Entry<K, V>>();
    let (key, off) = (full.own.key, full.own.off);
    let mut words = vec![0; Node::<B, K, V>::bytes(full.is_inner()) / 8];
    tx.read_words(key, off, &mut words)?;
    let all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut words = blank::<K, V>(full.is_inner(), Order::of_first(AFTER));
    let image = bytemuck::cast_slice_mut::<u64, u8>(&mut words);
    let mut copy = |from: usize, to: usize, bytes: usize| {
        image[to..to + bytes].copy_from_slice(&all[from..from + bytes])
    };
    for i in 0..AFTER {
        let slot = order.slot(MIDDLE + 1 + i);
        copy(entry_off::<K, V>(slot), entry_off::<K, V>(i), size_of::<Entry<K, V>>());
        if Entry::<K, V>::HAS_POINTERS {
            let zeros = vec![0; size_of::<Entry<K, V>>() / 8];
            tx.write_words(key, off + entry_off::<K, V>(slot) as u64, &zeros)?;
        }
    }
    if full.is_inner() {
        let kind_off = offset_of!(Inner<K, V>, children);
        copy(kind_off, kind_off, 8);
        for i in 0..=AFTER {
            let from = child_off::<K, V>(order.slot(MIDDLE + i) + 1);
            copy(from, child_off::<K, V>(i), 8);
            tx.write_words(key, off + from as u64, &[0])?;
        }
    }
    let mut rest = order;
    rest.truncate(MIDDLE);
    full.keys().set_order(tx, &order, &rest)?;
    alloc(tx, full.is_inner(), &words)
}

/// Divides a full child of a node that is not full: the half after the middle moves to a new node, the middle
/// to the parent.
fn divide<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    (parent, at): (Node<'t, B, K, V>, usize),
    full: Node<'t, B, K, V>,
) -> Result<Node<'t, B, K, V>> {
    let middle = full.entry_at(tx, MIDDLE)?;
    let right = second_half(tx, full)?;
    let old = parent.order(tx)?;
    let mut order = old;
    let slot = order.insert(at);
    tx.move_value(middle, parent.entry(slot))?;
    parent.link_child(tx, slot + 1, right)?;
    parent.keys().set_order(tx, &old, &order)?;
    Ok(right)
}

impl<'t, B: Brand, K: OrdKey, V: Persist> Ref<'t, B, PMap<K, V>> {
    /// Divides the full leaf at the end of a path, and the full nodes above it. Returns the new path.
    #[cold]
    pub(super) fn make_room(
        self,
        tx: &mut Tx<'t, B>,
        root: Node<'t, B, K, V>,
        path: Path<'t, B, K, V>,
    ) -> Result<(Node<'t, B, K, V>, usize)> {
        let mut first = path.len() - 1;
        while first > 0 && path[first - 1].0.order(tx)?.is_full() {
            first -= 1;
        }
        let mut place = if first > 0 { path[first - 1] } else { (self.grow(tx, root)?, 0) };
        for &(full, at) in &path[first..] {
            let right = divide(tx, place, full)?;
            place = if at <= MIDDLE { (full, at) } else { (right, at - MIDDLE - 1) };
        }
        Ok(place)
    }

    /// Makes a root whose only child is the old root.
    fn grow(self, tx: &mut Tx<'t, B>, old: Node<'t, B, K, V>) -> Result<Node<'t, B, K, V>> {
        let mut words = blank::<K, V>(true, Order::of_first(0));
        let image = bytemuck::cast_slice_mut::<u64, u8>(&mut words);
        let kind_off = offset_of!(Inner<K, V>, children);
        image[kind_off..kind_off + 8].copy_from_slice(&old.kind.to_ne_bytes());
        let root = alloc(tx, true, &words)?;
        root.link_child(tx, 0, old)?;
        self.set_root(tx, Some(root))?;
        Ok(root)
    }

    /// Removes the entry at the end of a path.
    #[cold]
    pub(super) fn remove_at(self, tx: &mut Tx<'t, B>, mut path: Path<'t, B, K, V>) -> Result<()> {
        let Some(&(node, at)) = path.last() else { return Ok(()) };
        let entry = node.entry_at(tx, at)?;
        tx.clear_value(entry)?;
        // In an inner node, the last entry before the removed one takes its place.
        let mut below = node.child(tx, at)?;
        while let Some(next) = below {
            let entries = next.order(tx)?.len();
            below = next.child(tx, entries)?;
            path.push((next, entries));
            if path.len() > super::DEPTH {
                return Err(self.too_deep());
            }
        }
        let Some(&(leaf, end)) = path.last() else { return Ok(()) };
        let old = leaf.order(tx)?;
        let mut order = old;
        if leaf.own.off == node.own.off {
            order.remove(at);
        } else {
            let last = end.checked_sub(1).ok_or_else(|| leaf.keys().damage())?;
            tx.move_value(leaf.entry(order.remove(last)), entry)?;
        }
        leaf.keys().set_order(tx, &old, &order)?;
        self.fill_up(tx, &path)
    }

    /// Ensures that the nodes of a path have enough entries, from the leaf up.
    fn fill_up(self, tx: &mut Tx<'t, B>, path: &Path<'t, B, K, V>) -> Result<()> {
        for step in path.windows(2).rev() {
            let ((parent, at), (node, _)) = (step[0], step[1]);
            if node.order(tx)?.len() >= LEAST {
                return Ok(());
            }
            // The node is joined with the previous neighbour or, for the first node, with the next one.
            let left = at.saturating_sub(1);
            let (a, b) = parent.neighbours(tx, left)?;
            let (in_a, in_b) = (a.order(tx)?.len(), b.order(tx)?.len());
            if in_a + in_b < SLOTS {
                merge(tx, (parent, left), a, b)?;
            } else if in_a < in_b {
                return take_first(tx, (parent, left), a, b);
            } else {
                return take_last(tx, (parent, left), a, b);
            }
        }
        let Some(&(root, _)) = path.first() else { return Ok(()) };
        if root.order(tx)?.len() == 0 {
            let only = root.child(tx, 0)?;
            self.set_root(tx, only)?;
        }
        Ok(())
    }
}

/// Merges two neighbours and the entry between them.
fn merge<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    (parent, at): (Node<'t, B, K, V>, usize),
    a: Node<'t, B, K, V>,
    b: Node<'t, B, K, V>,
) -> Result<()> {
    let (of_a, of_b, above) = (a.order(tx)?, b.order(tx)?, parent.order(tx)?);
    let (mut merged, mut rest) = (of_a, above);
    let between = rest.remove(at);
    let slot = merged.insert(merged.len());
    tx.move_value(parent.entry(between), a.entry(slot))?;
    b.move_child(tx, 0, a, slot + 1)?;
    for i in 0..of_b.len() {
        let (from, slot) = (of_b.slot(i), merged.insert(merged.len()));
        tx.move_value(b.entry(from), a.entry(slot))?;
        b.move_child(tx, from + 1, a, slot + 1)?;
    }
    a.keys().set_order(tx, &of_a, &merged)?;
    let mut none = of_b;
    none.truncate(0);
    b.keys().set_order(tx, &of_b, &none)?;
    tx.link(parent.child_slot::<Leaf<K, V>>(between + 1), None)?;
    parent.keys().set_order(tx, &above, &rest)
}

/// Moves the first entry of `b` up, and the entry between the two to the end of `a`.
fn take_first<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    (parent, at): (Node<'t, B, K, V>, usize),
    a: Node<'t, B, K, V>,
    b: Node<'t, B, K, V>,
) -> Result<()> {
    let (of_a, of_b) = (a.order(tx)?, b.order(tx)?);
    let (mut longer, mut shorter) = (of_a, of_b);
    let between = parent.entry_at(tx, at)?;
    let slot = longer.insert(longer.len());
    let first = shorter.remove(0);
    tx.move_value(between, a.entry(slot))?;
    b.move_child(tx, 0, a, slot + 1)?;
    tx.move_value(b.entry(first), between)?;
    b.move_child(tx, first + 1, b, 0)?;
    a.keys().set_order(tx, &of_a, &longer)?;
    b.keys().set_order(tx, &of_b, &shorter)
}

/// Moves the last entry of `a` up, and the entry between the two to the start of `b`.
fn take_last<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    (parent, at): (Node<'t, B, K, V>, usize),
    a: Node<'t, B, K, V>,
    b: Node<'t, B, K, V>,
) -> Result<()> {
    let (of_a, of_b) = (a.order(tx)?, b.order(tx)?);
    let (mut shorter, mut longer) = (of_a, of_b);
    let between = parent.entry_at(tx, at)?;
    let slot = longer.insert(0);
    let last = shorter.remove(of_a.len() - 1);
    tx.move_value(between, b.entry(slot))?;
    b.move_child(tx, 0, b, slot + 1)?;
    tx.move_value(a.entry(last), between)?;
    a.move_child(tx, last + 1, b, 0)?;
    a.keys().set_order(tx, &of_a, &shorter)?;
    b.keys().set_order(tx, &of_b, &longer)
}
