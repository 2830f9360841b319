//! Moves nodes to other blocks, for a compaction of the pool.
//!
//! A step handles one inner node above leaves. It moves the nodes on the way there, and then leaves below it,
//! each by a record of its own, under the lock of structure changes.
//!
//! An inner node is written anew, and one word leads to it, as after a division. A leaf is locked. Its copy
//! is durable before the record that links it, which does not cover it (I5). Then the copy is published to
//! readers, and after that the old leaf is marked as removed: a thread that finds this mark begins its search
//! again. The old block is freed after all readers that may still read it.

use super::create::{Tree, U64Tree};
use super::inner::{ChildEntry, Inner, NEW_SLOT};
use super::layout::{LEAF_KIND, NODE_BYTES, NODE_WORDS, WORDS_PER_LINE, next_off};
use super::lock::Locked;
use super::node::{Child, Leaf, Link, Structure};
use super::structure::{Path, Rewired};
use crate::error::Result;
use std::sync::atomic::Ordering;
use tembo_pmem::LINE_BYTES;
use tembo_pool::{Compaction, KeptSpace, Lane, Tx};

/// The progress of one step of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct U64CompactionStep {
    /// How many bytes of nodes were copied.
    pub moved_bytes: u64,
    /// The key at which the next step continues; `None` at the end of the tree.
    pub next: Option<u64>,
}

impl U64Tree {
    /// Moves nodes that lie in the compaction's slabs: those on the way to `from`, and the leaves from there
    /// on up to the end of the node above, which has up to 124; and returns the key at which the next step
    /// continues. The contents do not change. Changes of the moved leaves wait, and so do changes that divide
    /// or join leaves; readers never wait. Costs two fences for each leaf.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is full, read-only or damaged, or the device failed.
    /// Leaves and nodes that were moved before stay moved, everything else is where it was.
    ///
    /// # Panics
    ///
    /// If the compaction is one of another pool.
    pub fn compact_at(&self, compaction: &Compaction, from: u64) -> Result<U64CompactionStep> {
        let tree = &self.tree;
        assert!(compaction.is_of(&tree.pool), "a compaction of another pool");
        tree.pool.check_process()?;
        // Until the blocks that are given up wait for all readers.
        let _pin = tree.pool.pin_briefly();
        let mut step = U64CompactionStep { moved_bytes: 0, next: None };
        tree.change_structure(|lock, lane| {
            while tree.move_inner(compaction, from, lock, lane)? {
                step.moved_bytes += NODE_BYTES;
            }
            let (keys, next) = tree.leaves_to_move(compaction, from, lock)?;
            for key in keys {
                step.moved_bytes += u64::from(tree.move_leaf(key, lock, lane)?) * NODE_BYTES;
            }
            step.next = next;
            if next.is_none() {
                lane.give_up_slabs();
            }
            Ok(())
        })?;
        Ok(step)
    }
}

impl Tree {
    /// Moves the first inner node on the way to a key that is to be moved; returns whether there was one.
    fn move_inner(
        &self,
        compaction: &Compaction,
        key: u64,
        lock: &Structure<'_>,
        lane: &mut Lane,
    ) -> Result<bool> {
        let path = self.path(key, lock)?;
        let Some(depth) = path.nodes.iter().position(|(node, _)| compaction.has(node.off)) else {
            return Ok(false);
        };
        let mut tx = lane.begin();
        tx.use_kept_space(KeptSpace::Half);
        let rewired = self.rebuild_inner(&mut tx, &path.nodes, depth, lock)?;
        match tx.commit() {
            Ok(()) => self.publish(rewired),
            Err(e) => {
                rewired.undo();
                return Err(e.into());
            }
        }
        Ok(true)
    }

    /// The first keys of the leaves to be moved, from that of a key to the last one below the node above, and
    /// the first key behind these.
    fn leaves_to_move(
        &self,
        compaction: &Compaction,
        from: u64,
        lock: &Structure<'_>,
    ) -> Result<(Vec<u64>, Option<u64>)> {
        let path = self.path(from, lock)?;
        let mut keys = Vec::new();
        let Some((node, at)) = path.nodes.last() else {
            keys.extend(compaction.has(path.leaf.off).then_some(path.leaf.low));
            return Ok((keys, None));
        };
        let places = node.positions().filter(|place| place >= at);
        keys.extend(
            places.filter(|place| compaction.has(node.child_off(*place))).map(|place| node.separator(place)),
        );
        let right_of = |(node, at): &(&Inner, usize)| node.next(*at).map(|next| node.separator(next));
        let (_, above) = path.nodes.split_last().expect("there is a node");
        Ok((keys, above.iter().rev().find_map(right_of)))
    }

    /// Moves the leaf to which a key belongs; returns whether it did.
    fn move_leaf(&self, key: u64, lock: &Structure<'_>, lane: &mut Lane) -> Result<bool> {
        let path = self.path(key, lock)?;
        let (leaf, low) = (path.leaf, path.leaf.low);
        let left =
            low.checked_sub(1).map(|before| self.path(before, lock)).transpose()?.map(|path| path.leaf);
        // From left to right, as a join locks them.
        let mut left_lock = left.map(|left| Locked::new(left, &self.bias));
        let (Some(leaf_lock), false) = (Locked::new(leaf, &self.bias), matches!(left_lock, Some(None)))
        else {
            return Ok(false);
        };
        let mut tx = lane.begin();
        tx.use_kept_space(KeptSpace::Half);
        let off = tx.alloc_zeroed(NODE_BYTES)?;
        let copy = self.copy_leaf(leaf, off)?;
        let new = Link::leaf(copy);
        let gone = self.link_to(&path);
        let linked = self.link_copy(&mut tx, &path, left, (off, new), lock);
        let linked = linked.and_then(|rewired| match tx.commit() {
            Ok(()) => Ok(rewired),
            Err(e) => {
                rewired.undo();
                Err(e.into())
            }
        });
        let rewired = linked.inspect_err(|_| Link::drop_unused(vec![new]))?;
        // Nobody changes the copy before the old leaf is retired.
        let copy_lock = match new.follow(lock) {
            Child::Leaf(copy) => Locked::new(copy, &self.bias),
            _ => None,
        };
        if let (Some(left), Some(Some(left_lock))) = (left, &mut left_lock) {
            left_lock.change_structure();
            left.next.store(new);
        }
        self.publish(rewired);
        // ORDER: the old leaf is retired last, as in a join.
        leaf_lock.retire();
        // Readers could reach the old block until now. The caller's pin has kept it so far.
        lane.defer_frees_to_current_epoch();
        drop((copy_lock, left_lock));
        gone.discard(&self.garbage, &self.claim);
        Ok(true)
    }

    /// The link to the leaf at the end of a path.
    fn link_to(&self, path: &Path<'_>) -> Link {
        path.nodes.last().map_or(&self.root, |(node, at)| node.child(*at)).load()
    }

    /// Makes the transaction link the copy of the leaf at the end of the path in its place.
    fn link_copy<'g>(
        &'g self,
        tx: &mut Tx<'_>,
        path: &Path<'g>,
        left: Option<&Leaf>,
        (off, child): (u64, Link),
        lock: &'g Structure<'g>,
    ) -> Result<Rewired<'g>> {
        if let Some(left) = left {
            tx.store(next_off(left.off), off)?;
        }
        tx.free(path.leaf.off)?;
        let copy = |leaf: ChildEntry| vec![ChildEntry { child, off, slot: NEW_SLOT, ..leaf }];
        self.rewire(tx, &path.nodes, 1, copy, lock)
    }

    /// Copies a locked leaf into a block of zeros, durably; returns its descriptor.
    fn copy_leaf(&self, leaf: &Leaf, off: u64) -> Result<Leaf> {
        let region = self.region();
        let words = region.words(leaf.off, NODE_WORDS).map_err(tembo_pool::Error::from)?;
        debug_assert_eq!(words[0].load(Ordering::Relaxed), LEAF_KIND);
        for (number, words) in words.chunks(WORDS_PER_LINE).enumerate() {
            if words.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
                continue;
            }
            let line = region.writable_line(off + number as u64 * LINE_BYTES)?;
            words.iter().enumerate().for_each(|(i, word)| line.store(i, word.load(Ordering::Relaxed)));
            line.flush();
        }
        // PERSIST(I5): the copy, before the record that links it, which does not cover it.
        region.fence().map_err(tembo_pool::Error::from)?;
        let copy = Leaf::load(region, off, leaf.low)?;
        copy.next.store(leaf.next.load());
        Ok(copy)
    }
}
