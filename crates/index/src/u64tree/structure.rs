//! Changes of the structure: making nodes known, joining leaves, and the resulting changes of inner nodes.
//!
//! All are made under one lock; threads that share it divide leaves below inner nodes with room
//! (`divide.rs`), one at a time, because the tree has one lane. A thread that waits for that lock holds no
//! leaf.

use super::create::Tree;
use super::fingerprints::{bits, fingerprint};
use super::inner::{ChildEntry, Inner, NEW_SLOT, SPARSE_CHILDREN};
use super::layout::{
    INNER_KIND, LEAF_KIND, MAX_LEVEL, NODE_BYTES, SLOTS, child_off, floor_off, key_off, next_off, root_off,
    separator_off, value_off,
};
use super::lock::Locked;
use super::node::{Child, Leaf, Link, SharedStructure, Structure, Word};
use crate::error::{Result, corrupt};
use parking_lot::{MappedMutexGuard, MutexGuard};
use std::sync::atomic::Ordering;
use tembo_pmem::LINE_BYTES;
use tembo_pool::{KeptSpace, Lane, Tx};
use tembo_sync::lock_soon;

/// Two nodes are joined if together they hold at most this much.
const JOINED_MAX: usize = SLOTS * 3 / 4;

/// The path from the root to a leaf: the inner nodes, with the position in each.
pub(super) struct Path<'g> {
    pub(super) nodes: Vec<(&'g Inner, usize)>,
    pub(super) leaf: &'g Leaf,
}

/// Two neighbouring leaves, with their positions in the node above.
struct LeafPair<'g> {
    parent: &'g Inner,
    left: (usize, &'g Leaf),
    right: (usize, &'g Leaf),
}

/// A change of the inner nodes. Once its redo record is durable, exchanging one word of the tree shows it.
pub(super) struct Rewired<'g> {
    lock: &'g Structure<'g>,
    /// The word, in the root or in an image that stays.
    word: &'g Word,
    new: Link,
    /// Images that leave the tree.
    replaced: Vec<Link>,
    /// New nodes.
    made: Vec<Link>,
}

impl Rewired<'_> {
    /// Drops the new nodes of a change that is abandoned.
    pub(super) fn undo(self) {
        Link::drop_unused(self.made);
    }
}

impl Tree {
    /// Waits for the lock of structure changes.
    pub(super) fn lock_structure(&self) -> Structure<'_> {
        lock_soon(|| self.structure.try_write(), || self.structure.write())
    }

    /// Waits for the lock of structure changes, to share it.
    pub(super) fn share_structure(&self) -> SharedStructure<'_> {
        lock_soon(|| self.structure.try_read(), || self.structure.read())
    }

    /// Makes the nodes on the path to a key known, if the lock is free; returns whether it was.
    pub(super) fn try_warm(&self, key: u64) -> Result<bool> {
        match self.structure.try_write() {
            Some(lock) => self.path(key, &lock).map(|_| true),
            None => Ok(false),
        }
    }

    /// Makes the nodes on the path to a key known.
    pub(super) fn warm(&self, key: u64) -> Result<()> {
        let lock = self.lock_structure();
        self.path(key, &lock).map(drop)
    }

    /// The path to a key. Makes all nodes on it known.
    pub(super) fn path<'g>(&'g self, key: u64, lock: &'g Structure<'g>) -> Result<Path<'g>> {
        let mut nodes: Vec<(&Inner, usize)> = Vec::new();
        let mut word = &self.root;
        loop {
            let (low, below) =
                nodes.last().map_or((0, MAX_LEVEL + 1), |(node, at)| (node.separator(*at), node.level));
            let at = nodes.last().map_or(0, |(_, at)| *at);
            match self.known(word, (low, floor_at(&nodes, at)), below, lock)? {
                Child::Inner(inner) => {
                    let at = inner.taker(inner.position(key));
                    nodes.push((inner, at));
                    word = inner.child(at);
                }
                Child::Leaf(leaf) => return Ok(Path { nodes, leaf }),
                Child::Cold(_) | Child::None => unreachable!("it was made known"),
            }
        }
    }

    /// The node behind a word, made known if it was cold. `low` and `floor` are the bounds that its parents
    /// give it.
    fn known<'g>(
        &self,
        word: &Word,
        (low, floor): (u64, u64),
        below: u64,
        lock: &'g Structure<'_>,
    ) -> Result<Child<'g>> {
        let child = word.follow(lock);
        let Child::Cold(off) = child else { return Ok(child) };
        let region = self.region();
        let new = match region.load_u64(off)? {
            LEAF_KIND => {
                let leaf = Leaf::load(region, off, low)?;
                // A wrong floor would send a search on to the right and back here for ever.
                let found = leaf.floor.load(Ordering::Relaxed);
                if found != floor {
                    return Err(corrupt("the bound of a leaf", floor_off(off), floor, found));
                }
                Link::leaf(leaf)
            }
            INNER_KIND => Link::inner(Inner::load(region, off, low, below)?),
            found => return Err(corrupt("a node", off, "a leaf or an inner node", format!("{found:#x}"))),
        };
        word.store(new);
        Ok(new.follow(lock))
    }

    /// Waits for the tree's lane, under the lock of structure changes, shared or not. The lane's holders
    /// never wait for that lock.
    pub(super) fn lock_lane(&self) -> Result<MappedMutexGuard<'_, Lane>> {
        let lane = lock_soon(|| self.lane.try_lock(), || self.lane.lock());
        MutexGuard::try_map(lane, Option::as_mut).map_err(|_| tembo_pool::ErrorKind::ReadOnly.into())
    }

    /// Runs a change under the lock of structure changes, with the tree's lane.
    pub(super) fn change_structure(
        &self,
        change: impl FnOnce(&Structure<'_>, &mut Lane) -> Result<()>,
    ) -> Result<()> {
        let structure = self.lock_structure();
        let mut lane = self.lock_lane()?;
        change(&structure, &mut lane)
    }

    /// Joins the leaf to which a key belongs with a neighbour, if both fit into one leaf.
    #[cold]
    pub(super) fn join_at(&self, key: u64) -> Result<()> {
        self.change_structure(|lock, lane| self.join_under(key, lock, lane))
    }

    fn join_under(&self, key: u64, lock: &Structure<'_>, lane: &mut Lane) -> Result<()> {
        let path = self.path(key, lock)?;
        let Some(LeafPair { parent, left: (at, left), right: (next, right) }) =
            self.leaf_pair(&path, lock)?
        else {
            return Ok(());
        };
        let (Some(mut left_lock), Some(right_lock)) =
            (Locked::new(left, &self.bias), Locked::new(right, &self.bias))
        else {
            return Ok(());
        };
        let (left_len, right_len) = (left.len.load(Ordering::Relaxed), right.len.load(Ordering::Relaxed));
        let total = left_len + right_len;
        // An empty leaf is always joined.
        if total > JOINED_MAX as u64 && left_len.min(right_len) > 0 {
            return Ok(());
        }
        self.fetch_leaf(right);
        self.fetch_leaf(left);
        let copied = self.copy_records(left, right)?;
        let mut tx = lane.begin();
        tx.use_kept_space(KeptSpace::Half);
        let region = self.region();
        let floor = right.floor.load(Ordering::Relaxed);
        tx.store(next_off(left.off), region.load_u64(next_off(right.off))?)?;
        tx.store(floor_off(left.off), floor)?;
        tx.free(right.off)?;
        let gone = parent.child(next).load();
        let mut nodes = path.nodes;
        if let Some(last) = nodes.last_mut() {
            last.1 = at;
        }
        // Without space for this the leaf stays sparse: removing a record must not depend on space.
        let Some(rewired) = self.unlink(&mut tx, &nodes, next, lock)? else { return Ok(()) };
        if let Err(e) = tx.commit() {
            rewired.into_iter().for_each(Rewired::undo);
            return if e.is_full() { Ok(()) } else { Err(e.into()) };
        }
        left_lock.change_structure();
        copied.iter().for_each(|(key, slot)| left.fingerprints.set(*slot, fingerprint(*key)));
        left.len.store(total, Ordering::Relaxed);
        left.next.store(right.next.load());
        left.floor.store(floor, Ordering::Release);
        match rewired {
            Some(rewired) => self.publish(rewired),
            None => parent.take_out(next),
        }
        // ORDER: the right leaf is retired last: a thread that finds it retired starts again, and must find
        // everything in the left leaf.
        right_lock.retire();
        // Readers could reach the block of the right leaf until now, so it has to wait for all readers that
        // are pinned now. The caller's pin has kept it so far.
        lane.defer_frees_to_current_epoch();
        drop(left_lock);
        // No word leads to the leaf any more: those of its parent are gone, and that of its left neighbour
        // was exchanged.
        gone.discard(&self.garbage, &self.claim);
        Ok(())
    }

    /// Takes the child at `next` out of the last of `nodes`, whose position is that of the child before it.
    /// Works in place if the node has children to spare. `None` if there is no space for new nodes.
    fn unlink<'g>(
        &'g self,
        tx: &mut Tx<'_>,
        nodes: &[(&'g Inner, usize)],
        next: usize,
        lock: &'g Structure<'g>,
    ) -> Result<Option<Option<Rewired<'g>>>> {
        match nodes {
            [.., (parent, _)] if parent.can_spare(nodes.len() == 1) => {
                tx.store(child_off(parent.off, parent.entry(next).slot.into()), 0)?;
                Ok(Some(None))
            }
            _ => match self.rewire(tx, nodes, 2, |left| vec![left], lock) {
                Err(e) if e.is_full() => Ok(None),
                rewired => Ok(Some(Some(rewired?))),
            },
        }
    }

    /// The leaf at the end of a path and the neighbour with which it could be joined, if there is one.
    fn leaf_pair<'g>(&'g self, path: &Path<'g>, lock: &'g Structure<'g>) -> Result<Option<LeafPair<'g>>> {
        let Some((parent, at)) = path.nodes.last().copied() else { return Ok(None) };
        let Some((at, next)) = parent.pair(at) else { return Ok(None) };
        let known = |at| {
            let bounds = (parent.separator(at), floor_at(&path.nodes, at));
            self.known(parent.child(at), bounds, parent.level, lock)
        };
        let (Child::Leaf(left), Child::Leaf(right)) = (known(at)?, known(next)?) else {
            let (expected, found) = ("leaves", "leaves and inner nodes");
            return Err(corrupt("the children of an inner node", parent.off, expected, found));
        };
        Ok(Some(LeafPair { parent, left: (at, left), right: (next, right) }))
    }

    /// Copies the records of `right` into unused slots of `left`, durably. They do not count there until the
    /// floor is lowered. Returns keys and slots.
    fn copy_records(&self, left: &Leaf, right: &Leaf) -> Result<Vec<(u64, usize)>> {
        let region = self.region();
        let unused = !left.fingerprints.used() & ((1 << SLOTS) - 1);
        let mut copied = Vec::with_capacity(JOINED_MAX);
        let mut from = bits(right.fingerprints.used());
        // Lines of the leaf, a bit each, so that each is flushed once.
        let mut changed = 0u64;
        for to in bits(unused) {
            if let Some(from) = from.next() {
                let key = !region.load_u64(key_off(right.off, from))?;
                region.store_u64(value_off(left.off, to), region.load_u64(value_off(right.off, from))?)?;
                region.store_u64(key_off(left.off, to), !key)?;
                copied.push((key, to));
            } else if region.load_u64(key_off(left.off, to))? != 0 {
                // An old record that does not count now would count once the floor is lowered.
                region.store_u64(key_off(left.off, to), 0)?;
            } else {
                continue;
            }
            changed |= 1 << ((key_off(left.off, to) - left.off) / LINE_BYTES);
        }
        bits(changed.into()).for_each(|line| region.flush(left.off + line as u64 * LINE_BYTES, LINE_BYTES));
        // PERSIST(I2): before the record that raises the bound.
        region.fence().map_err(tembo_pool::Error::from)?;
        Ok(copied)
    }

    /// Replaces `count` children of the last node of `nodes`, from the position given with it on. `children`
    /// makes the new ones from the first that is replaced.
    pub(super) fn rewire<'g>(
        &'g self,
        tx: &mut Tx<'_>,
        nodes: &[(&'g Inner, usize)],
        count: usize,
        children: impl FnOnce(ChildEntry) -> Vec<ChildEntry>,
        lock: &'g Structure<'g>,
    ) -> Result<Rewired<'g>> {
        let (replaced, made) = (Vec::new(), Vec::new());
        let mut rewired = Rewired { lock, word: &self.root, new: Link::NONE, replaced, made };
        let first = match nodes.last() {
            Some((node, at)) => node.entry(*at),
            None => {
                let child = self.root.load();
                ChildEntry { separator: 0, child, off: child.follow(lock).off(), slot: NEW_SLOT }
            }
        };
        match self.splice(tx, nodes, count, children(first), 1, &mut rewired) {
            Ok(()) => Ok(rewired),
            Err(e) => {
                rewired.undo();
                Err(e)
            }
        }
    }

    /// As [`rewire`](Self::rewire), level by level upwards. `level` is that of the node whose children are
    /// replaced.
    fn splice<'g>(
        &'g self,
        tx: &mut Tx<'_>,
        nodes: &[(&'g Inner, usize)],
        count: usize,
        children: Vec<ChildEntry>,
        level: u64,
        rewired: &mut Rewired<'g>,
    ) -> Result<()> {
        let Some(((node, at), above)) = nodes.split_last() else {
            return self.replace_root(tx, children, level, rewired);
        };
        let word = above.last().map_or(&self.root, |(parent, at)| parent.child(*at));
        let mut entries = node.entries();
        let first = node.before(*at);
        let gone: Vec<ChildEntry> = entries.splice(first..first + count, children).collect();
        rewired.replaced.push(word.load());
        if above.is_empty() && entries.len() == 1 {
            tx.free(node.off)?;
            return self.replace_root(tx, entries, level, rewired);
        }
        if entries.len() > SLOTS {
            let right = entries.split_off(entries.len() / 2);
            tx.free(node.off)?;
            let halves = vec![
                self.make_inner(tx, level, entries, rewired)?,
                self.make_inner(tx, level, right, rewired)?,
            ];
            return self.splice(tx, above, 1, halves, level + 1, rewired);
        }
        if entries.len() < SPARSE_CHILDREN
            && let Some((first, mut all)) = self.with_neighbour(tx, above, &entries, level, rewired)?
        {
            tx.free(node.off)?;
            // Two nodes share the children evenly if one cannot hold all.
            let rest = if all.len() > JOINED_MAX { all.split_off(all.len() / 2) } else { Vec::new() };
            let mut joined = vec![self.make_inner(tx, level, all, rewired)?];
            if !rest.is_empty() {
                joined.push(self.make_inner(tx, level, rest, rewired)?);
            }
            let mut above = above.to_vec();
            if let Some(last) = above.last_mut() {
                last.1 = first;
            }
            return self.splice(tx, &above, 2, joined, level + 1, rewired);
        }
        store_children(tx, node.off, &mut entries, &gone)?;
        (rewired.word, rewired.new) = (word, Link::inner(Inner::new(node.off, level, &entries)));
        rewired.made.push(rewired.new);
        Ok(())
    }

    /// Makes a single child the new root, or several children the children of a new root.
    fn replace_root<'g>(
        &'g self,
        tx: &mut Tx<'_>,
        children: Vec<ChildEntry>,
        level: u64,
        rewired: &mut Rewired<'g>,
    ) -> Result<()> {
        let root = match children.as_slice() {
            [only] => *only,
            _ => self.make_inner(tx, level, children, rewired)?,
        };
        tx.store(root_off(self.header), root.off)?;
        (rewired.word, rewired.new) = (&self.root, root.child);
        Ok(())
    }

    /// Makes the inner node at `depth` of a path anew, in another block.
    pub(super) fn rebuild_inner<'g>(
        &'g self,
        tx: &mut Tx<'_>,
        nodes: &[(&'g Inner, usize)],
        depth: usize,
        lock: &'g Structure<'g>,
    ) -> Result<Rewired<'g>> {
        let (above, node) = (&nodes[..depth], nodes[depth].0);
        let word = above.last().map_or(&self.root, |(parent, at)| parent.child(*at));
        let replaced = vec![word.load()];
        let mut rewired = Rewired { lock, word: &self.root, new: Link::NONE, replaced, made: Vec::new() };
        let outcome = tx.free(node.off).map_err(Into::into);
        let outcome = outcome
            .and_then(|()| self.make_inner(tx, node.level, node.entries(), &mut rewired))
            .and_then(|copy| self.splice(tx, above, 1, vec![copy], node.level + 1, &mut rewired));
        match outcome {
            Ok(()) => Ok(rewired),
            Err(e) => {
                rewired.undo();
                Err(e)
            }
        }
    }

    /// The children of a node and, if it has a neighbour, those of the neighbour, which is freed. Returns
    /// also the position of the first of the two.
    fn with_neighbour<'g>(
        &'g self,
        tx: &mut Tx<'_>,
        above: &[(&'g Inner, usize)],
        entries: &[ChildEntry],
        level: u64,
        rewired: &mut Rewired<'g>,
    ) -> Result<Option<(usize, Vec<ChildEntry>)>> {
        let Some((parent, at)) = above.last().copied() else { return Ok(None) };
        let Some((first, second)) = parent.pair(at) else { return Ok(None) };
        let other = if first == at { second } else { first };
        let bounds = (parent.separator(other), floor_at(above, other));
        let Child::Inner(neighbour) = self.known(parent.child(other), bounds, parent.level, rewired.lock)?
        else {
            return Err(corrupt("a child of an inner node", parent.off, "an inner node", "a leaf"));
        };
        if neighbour.level != level {
            return Err(corrupt("the level of an inner node", neighbour.off, level, neighbour.level));
        }
        tx.free(neighbour.off)?;
        rewired.replaced.push(parent.child(other).load());
        let (mut joined, mut rest) = (entries.to_vec(), neighbour.entries());
        if other < at {
            std::mem::swap(&mut joined, &mut rest);
        }
        joined.append(&mut rest);
        Ok(Some((first, joined)))
    }

    /// Makes a new inner node of sorted children; returns its entry for the parent.
    fn make_inner(
        &self,
        tx: &mut Tx<'_>,
        level: u64,
        mut entries: Vec<ChildEntry>,
        rewired: &mut Rewired<'_>,
    ) -> Result<ChildEntry> {
        let off = tx.alloc(NODE_BYTES)?;
        let mut image = [0; NODE_BYTES as usize];
        image[..8].copy_from_slice(&INNER_KIND.to_le_bytes());
        image[8..16].copy_from_slice(&level.to_le_bytes());
        tx.write_fresh(off, &image)?;
        entries.iter_mut().for_each(|entry| entry.slot = NEW_SLOT);
        store_children(tx, off, &mut entries, &[])?;
        let child = Link::inner(Inner::new(off, level, &entries));
        rewired.made.push(child);
        Ok(ChildEntry { separator: entries[0].separator, child, off, slot: NEW_SLOT })
    }

    /// Makes a durable change of the inner nodes visible.
    pub(super) fn publish(&self, rewired: Rewired<'_>) {
        rewired.word.store(rewired.new);
        // Each of these images was in one word, which the change removed.
        rewired.replaced.into_iter().for_each(|image| image.discard(&self.garbage, &self.claim));
    }
}

/// The floor of the child at position `at` of the last node of a path, as the nodes say.
fn floor_at(nodes: &[(&Inner, usize)], at: usize) -> u64 {
    let Some(((node, _), above)) = nodes.split_last() else { return 0 };
    if let Some(next) = node.next(at) {
        return !node.separator(next);
    }
    above.last().map_or(0, |(_, at)| floor_at(above, *at))
}

/// Writes the children without a slot to free slots of the node at `off`, and clears the slots of the
/// children that are `gone`.
fn store_children(tx: &mut Tx<'_>, off: u64, entries: &mut [ChildEntry], gone: &[ChildEntry]) -> Result<()> {
    let mut used = entries.iter().filter(|e| e.slot != NEW_SLOT).fold(0u128, |used, e| used | 1 << e.slot);
    for entry in entries.iter_mut().filter(|entry| entry.slot == NEW_SLOT) {
        let slot = (!used).trailing_zeros() as u8;
        used |= 1 << slot;
        entry.slot = slot;
        tx.store(separator_off(off, slot.into()), entry.separator)?;
        tx.store(child_off(off, slot.into()), entry.off)?;
    }
    for slot in gone.iter().map(|entry| entry.slot).filter(|slot| used >> slot & 1 == 0) {
        tx.store(child_off(off, slot.into()), 0)?;
    }
    Ok(())
}
