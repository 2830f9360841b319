//! The entries of inner nodes above a version's changes, and the stamps that it raises there (I10).
//!
//! A stamp is raised if a version is held that is not earlier than the stamp: a comparison of that version
//! with a later one would otherwise skip the entry. Without snapshots no stamp is stored, nor for a second
//! change below an entry since the last snapshot. Stamps that the version before may still need are deferred
//! (`deferred_stamps.rs`).

use super::super::view::region;
use super::draft::NEW;
use super::layout::stamp_off;
use super::node::Node;
use super::ordered::TreeBuilder;
use super::path::NodePath;
use crate::error::Result;
use std::collections::HashMap;
use tembo_pool::Tx;

/// Up to this many entries are searched one by one; beyond, an index is kept.
const SEARCH_MAX: usize = 24;

/// Entries of inner nodes below which a version has changed something.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Pairs of a node, by offset or reference, and a place; each pair once.
    entries: Vec<(u64, usize)>,
    /// The places of each node, a bit each, once there are too many entries to search.
    by_node: HashMap<u64, u32>,
}

impl Touched {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    fn note(&mut self, node: u64, slot: usize) {
        if self.entries.len() < SEARCH_MAX {
            if !self.entries.contains(&(node, slot)) {
                self.entries.push((node, slot));
            }
            return;
        }
        if self.in_node(node) & 1 << slot != 0 {
            return;
        }
        self.entries.push((node, slot));
        if self.entries.len() == SEARCH_MAX + 1 {
            self.index();
        } else {
            *self.by_node.entry(node).or_default() |= 1 << slot;
        }
    }

    fn index(&mut self) {
        self.by_node.clear();
        for (node, slot) in &self.entries {
            *self.by_node.entry(*node).or_default() |= 1 << slot;
        }
    }

    /// The places of a node whose entries are in this list, a bit each.
    pub(super) fn in_node(&self, node: u64) -> u32 {
        if self.entries.len() > SEARCH_MAX {
            return self.by_node.get(&node).copied().unwrap_or(0);
        }
        let of_node = self.entries.iter().filter(|(of, _)| *of == node);
        of_node.fold(0, |slots, (_, slot)| slots | 1 << slot)
    }

    /// Forgets all entries after the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        if count < self.entries.len() {
            self.entries.truncate(count);
            if count > SEARCH_MAX {
                self.index();
            }
        }
    }
}

impl TreeBuilder {
    /// Notes that something below these nodes changed.
    pub(super) fn touch(&mut self, path: &NodePath) {
        for depth in 0..path.depth() {
            self.drafts.touched.note(path.id(depth), path.slot(depth));
        }
    }

    /// The stamp of a place of a node on media, including stamps that this version stores for earlier ones.
    fn stamp_before(&self, tx: &Tx<'_>, node: u64, slot: usize) -> Result<u64> {
        let off = stamp_off(node, slot);
        let stamp = region(tx).load_u64(off)?;
        Ok(stamp.max(self.due.word(off).unwrap_or(0)))
    }

    /// The stamp that an entry of an inner node takes along to another node.
    pub(super) fn stamp_of(&self, draft: usize, slot: usize) -> u64 {
        let node = &self.drafts.nodes[draft];
        if self.drafts.touched.in_node(node.id) & 1 << slot != 0 {
            return self.version;
        }
        let due = if node.is_new() { None } else { self.due.word(stamp_off(node.id, slot)) };
        node.stamp(slot).max(due.unwrap_or(0))
    }

    /// Stores the stamps that this version raises in older nodes, and lists those that it defers.
    pub(super) fn store_stamps(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        // Sorted, so that equal changes make equal redo records.
        self.drafts.touched.entries.sort_unstable();
        let has_held = !self.retained.held().is_empty();
        for i in 0..self.drafts.touched.len() {
            let (node, slot) = self.drafts.touched.entries[i];
            if node & NEW != 0 || !self.is_from_before(node, slot) {
                continue;
            }
            if has_held && self.retained.any_held_from(self.stamp_before(tx, node, slot)?) {
                tx.lines().store_words(stamp_off(node, slot), &[self.version])?;
            } else {
                self.deferred.push(stamp_off(node, slot));
            }
        }
        Ok(())
    }

    /// Whether both the node and the entry in this place were there before this version, and the entry still
    /// is.
    fn is_from_before(&self, node: u64, slot: usize) -> bool {
        self.draft_of(node).is_none_or(|draft| {
            let draft = &self.drafts.nodes[draft];
            !draft.is_gone && draft.is_live(slot) && draft.start(slot) != self.version
        })
    }
}

impl Node<'_> {
    /// The stamp of a place, taking the `deferred` stamps of the version into account.
    pub(super) fn stamp_with(
        &self,
        slot: usize,
        deferred: &super::super::deferred_stamps::DeferredStamps,
    ) -> Result<u64> {
        let stamp = self.stamp(slot)?;
        Ok(stamp.max(deferred.word(stamp_off(self.off, slot)).unwrap_or(0)))
    }
}
