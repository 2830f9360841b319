//! Changes of the tree: dividing full nodes on the way of an insertion, merging empty ones on that of a removal.

use super::range::Path;
use super::{
    CHILDREN, KEYS, LEAST, NodeObj, NodePrivateFields, PMap, PMapPrivateFields, TALLIES, child, entries_of,
};
use crate::Persist;
use crate::brand::Brand;
use crate::collections::keys::OrdKey;
use crate::collections::tally;
use crate::error::{Error, Result, corrupt};
use crate::place::{Arr, Ref};
use crate::slots::PRc;
use crate::tx::{ReadTx, Tx};

/// The entry in the middle of a full node.
const MIDDLE: usize = KEYS / 2;

type Children<'t, B, K, V> = Arr<'t, B, PRc<super::Node<K, V>>>;

/// The children of an inner node; `None` in a leaf.
fn children<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    node: NodeObj<'t, B, K, V>,
) -> Result<Option<Children<'t, B, K, V>>> {
    match tx.array(node.children())? {
        Some(children) if children.len() != CHILDREN => Err(damaged(node)),
        other => Ok(other),
    }
}

#[cold]
fn damaged<B: Brand, K: OrdKey, V: Persist>(node: NodeObj<'_, B, K, V>) -> Error {
    corrupt(
        "a map's node",
        node.off,
        format!("a tree of nodes with up to {CHILDREN} children"),
        "another tree",
    )
}

/// The children of a node that is none of the leaves.
fn inner<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    node: NodeObj<'t, B, K, V>,
) -> Result<Children<'t, B, K, V>> {
    children(tx, node)?.ok_or_else(|| damaged(node))
}

/// Makes room for an entry of a node that is not full.
pub(super) fn insert_blank<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    node: NodeObj<'t, B, K, V>,
    at: usize,
) -> Result<()> {
    let entries = entries_of(tx, node)?;
    move_entries(tx, (node, at), (node, at + 1), entries - at)?;
    tx.set(node.entries(), entries as u64 + 1)
}

/// Closes the gap that a blank entry leaves.
fn remove_blank<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    node: NodeObj<'t, B, K, V>,
    at: usize,
) -> Result<()> {
    let entries = entries_of(tx, node)?;
    move_entries(tx, (node, at + 1), (node, at), entries - at - 1)?;
    tx.set(node.entries(), entries as u64 - 1)
}

/// Moves entries to where there are none, or where some came from that move too.
fn move_entries<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    from: (NodeObj<'t, B, K, V>, usize),
    to: (NodeObj<'t, B, K, V>, usize),
    count: usize,
) -> Result<()> {
    tx.move_elements((from.0.keys(), from.1), (to.0.keys(), to.1), count)?;
    tx.move_elements((from.0.values(), from.1), (to.0.values(), to.1), count)
}

/// Moves pointers to the children, from the last to the first if they move up.
fn move_children<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    from: (Children<'t, B, K, V>, usize),
    to: (Children<'t, B, K, V>, usize),
    count: usize,
) -> Result<()> {
    let is_up = to.1 > from.1;
    for i in 0..count {
        let i = if is_up { count - 1 - i } else { i };
        tx.move_value(from.0.at(from.1 + i), to.0.at(to.1 + i))?;
    }
    Ok(())
}

/// Divides a full child of a node that is not: the half after the middle goes to a new node, the middle to the parent.
fn divide<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    (parent, at): (NodeObj<'t, B, K, V>, usize),
    full: NodeObj<'t, B, K, V>,
) -> Result<NodeObj<'t, B, K, V>> {
    let right: NodeObj<'t, B, K, V> = tx.alloc_blank()?;
    move_entries(tx, (full, MIDDLE + 1), (right, 0), KEYS - MIDDLE - 1)?;
    tx.set(right.entries(), (KEYS - MIDDLE - 1) as u64)?;
    if let Some(from) = children(tx, full)? {
        let to = tx.alloc_blanks(CHILDREN)?;
        tx.link_array(right.children(), to)?;
        move_children(tx, (from, MIDDLE + 1), (to, 0), CHILDREN - MIDDLE - 1)?;
    }
    let above = inner(tx, parent)?;
    let entries = entries_of(tx, parent)?;
    insert_blank(tx, parent, at)?;
    move_entries(tx, (full, MIDDLE), (parent, at), 1)?;
    tx.set(full.entries(), MIDDLE as u64)?;
    move_children(tx, (above, at + 1), (above, at + 2), entries - at)?;
    tx.link(above.at(at + 1), right)?;
    Ok(right)
}

impl<'t, B: Brand, K: OrdKey, V: Persist> Ref<'t, B, PMap<K, V>> {
    /// Divides the full leaf that a path ends in, and the full nodes above it. Returns where its last step leads now.
    pub(super) fn make_room(
        self,
        tx: &mut Tx<'t, B>,
        path: &Path<'t, B, K, V>,
    ) -> Result<(NodeObj<'t, B, K, V>, usize)> {
        let mut first = path.len() - 1;
        while first > 0 && entries_of(tx, path[first - 1].0)? == KEYS {
            first -= 1;
        }
        let mut place = if first > 0 { path[first - 1] } else { (self.grow(tx, path[0].0)?, 0) };
        for &(full, at) in &path[first..] {
            let right = divide(tx, place, full)?;
            place = if at <= MIDDLE { (full, at) } else { (right, at - MIDDLE - 1) };
        }
        Ok(place)
    }

    /// Makes a root whose only child is the root before it.
    fn grow(self, tx: &mut Tx<'t, B>, old: NodeObj<'t, B, K, V>) -> Result<NodeObj<'t, B, K, V>> {
        if tx.array(self.tallies())?.is_none() {
            tally::spread(tx, self.tallies(), TALLIES, entries_of(tx, old)? as i64)?;
        }
        let root: NodeObj<'t, B, K, V> = tx.alloc_blank()?;
        let below = tx.alloc_blanks(CHILDREN)?;
        tx.link_array(root.children(), below)?;
        tx.link(below.at(0), old)?;
        tx.link(self.root(), root)?;
        Ok(root)
    }

    /// Removes the entry that a path leads to.
    pub(super) fn remove_at(self, tx: &mut Tx<'t, B>, mut path: Path<'t, B, K, V>) -> Result<()> {
        let Some(&(node, at)) = path.last() else { return Ok(()) };
        tx.clear_value(node.keys().at(at))?;
        tx.clear_value(node.values().at(at))?;
        // In an inner node the last entry before it takes its place.
        let mut below = child(tx, node, at)?;
        while let Some(next) = below {
            let entries = entries_of(tx, next)?;
            below = child(tx, next, entries)?;
            path.push((next, entries));
        }
        let Some((leaf, end)) = path.last_mut() else { return Ok(()) };
        let leaf = *leaf;
        if leaf == node {
            remove_blank(tx, node, at)?;
        } else {
            *end = end.checked_sub(1).ok_or_else(|| damaged(leaf))?;
            move_entries(tx, (leaf, *end), (node, at), 1)?;
            remove_blank(tx, leaf, *end)?;
        }
        self.count(tx, leaf, -1)?;
        self.fill_up(tx, &path)
    }

    /// Sees to it that the nodes of a path have enough entries, from the leaf up.
    fn fill_up(self, tx: &mut Tx<'t, B>, path: &Path<'t, B, K, V>) -> Result<()> {
        for step in path.windows(2).rev() {
            let ((parent, at), (node, _)) = (step[0], step[1]);
            if entries_of(tx, node)? >= LEAST {
                return Ok(());
            }
            // With the neighbour before it, or, if it is the first, the one after.
            let left = at.saturating_sub(1);
            let Some((a, b)) = child(tx, parent, left)?.zip(child(tx, parent, left + 1)?) else {
                return Err(damaged(parent));
            };
            let (in_a, in_b) = (entries_of(tx, a)?, entries_of(tx, b)?);
            if in_a + in_b < KEYS {
                merge(tx, (parent, left), a, b)?;
            } else if in_a < in_b {
                return take_first(tx, (parent, left), a, b);
            } else {
                return take_last(tx, (parent, left), a, b);
            }
        }
        let Some(&(root, _)) = path.first() else { return Ok(()) };
        if entries_of(tx, root)? == 0 {
            let only = child(tx, root, 0)?;
            tx.link(self.root(), only)?;
            if only.is_none() {
                tx.link_array(self.tallies(), None)?;
            }
        }
        Ok(())
    }
}

/// Makes one node of two neighbours and the entry between them.
fn merge<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    (parent, at): (NodeObj<'t, B, K, V>, usize),
    a: NodeObj<'t, B, K, V>,
    b: NodeObj<'t, B, K, V>,
) -> Result<()> {
    let (in_a, in_b, above) = (entries_of(tx, a)?, entries_of(tx, b)?, entries_of(tx, parent)?);
    move_entries(tx, (parent, at), (a, in_a), 1)?;
    move_entries(tx, (b, 0), (a, in_a + 1), in_b)?;
    tx.set(a.entries(), (in_a + 1 + in_b) as u64)?;
    if let (Some(of_a), Some(of_b)) = (children(tx, a)?, children(tx, b)?) {
        move_children(tx, (of_b, 0), (of_a, in_a + 1), in_b + 1)?;
    }
    tx.set(b.entries(), 0)?;
    let slots = inner(tx, parent)?;
    tx.link(slots.at(at + 1), None)?;
    move_children(tx, (slots, at + 2), (slots, at + 1), above - at - 1)?;
    remove_blank(tx, parent, at)
}

/// Moves the first entry of `b` up, and the one between the two to the end of `a`.
fn take_first<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    (parent, at): (NodeObj<'t, B, K, V>, usize),
    a: NodeObj<'t, B, K, V>,
    b: NodeObj<'t, B, K, V>,
) -> Result<()> {
    let (in_a, in_b) = (entries_of(tx, a)?, entries_of(tx, b)?);
    move_entries(tx, (parent, at), (a, in_a), 1)?;
    tx.set(a.entries(), in_a as u64 + 1)?;
    move_entries(tx, (b, 0), (parent, at), 1)?;
    remove_blank(tx, b, 0)?;
    if let (Some(of_a), Some(of_b)) = (children(tx, a)?, children(tx, b)?) {
        tx.move_value(of_b.at(0), of_a.at(in_a + 1))?;
        move_children(tx, (of_b, 1), (of_b, 0), in_b)?;
    }
    Ok(())
}

/// Moves the last entry of `a` up, and the one between the two to the start of `b`.
fn take_last<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    (parent, at): (NodeObj<'t, B, K, V>, usize),
    a: NodeObj<'t, B, K, V>,
    b: NodeObj<'t, B, K, V>,
) -> Result<()> {
    let (in_a, in_b) = (entries_of(tx, a)?, entries_of(tx, b)?);
    insert_blank(tx, b, 0)?;
    move_entries(tx, (parent, at), (b, 0), 1)?;
    move_entries(tx, (a, in_a - 1), (parent, at), 1)?;
    tx.set(a.entries(), in_a as u64 - 1)?;
    if let (Some(of_a), Some(of_b)) = (children(tx, a)?, children(tx, b)?) {
        move_children(tx, (of_b, 0), (of_b, 1), in_b + 1)?;
        tx.move_value(of_a.at(in_a), of_b.at(0))?;
    }
    Ok(())
}
