//! Recovery takes back the half-made changes of a crash, node by node. A crash during recovery can be
//! recovered from in the same way.

use super::node::{Entry, NODE_BYTES, SLOTS};
use super::{CddsError, NODES_OFF, Order, PaperCdds};
use crate::mem::Mem;
use std::collections::HashSet;

impl<M: Mem> PaperCdds<M> {
    /// Makes the tree what it was in the newest version, and finds the nodes that are in none.
    pub(super) fn recover(&mut self) -> Result<(), CddsError> {
        let mut reached = HashSet::new();
        self.recover_node(self.root, self.level, &mut reached)?;
        self.next = reached.iter().max().map_or(NODES_OFF, |last| last + NODE_BYTES);
        self.free = (NODES_OFF..self.next)
            .step_by(NODE_BYTES as usize)
            .filter(|node| !reached.contains(node))
            .collect();
        Ok(())
    }

    fn recover_node(&self, node: u64, level: usize, reached: &mut HashSet<u64>) -> Result<(), CddsError> {
        let is_place = node >= NODES_OFF && (node - NODES_OFF).is_multiple_of(NODE_BYTES);
        if !is_place || node + NODE_BYTES > self.mem.len_bytes() || self.level_of(node) != Some(level) {
            return Err(CddsError::Damaged(format!("no node of level {level} at {node:#x}")));
        }
        if !reached.insert(node) {
            return Err(CddsError::Damaged(format!("the node at {node:#x} is reached twice")));
        }
        let kept = self.kept(node);
        match self.order {
            Order::Sorted => self.write_sorted(node, &kept),
            Order::Unsorted => self.write_unsorted(node),
        }
        if level > 0 {
            kept.iter().try_for_each(|entry| self.recover_node(entry.value, level - 1, reached))?;
        }
        Ok(())
    }

    /// The entries of the newest version, each once, with no end.
    fn kept(&self, node: u64) -> Vec<Entry> {
        let mut kept: Vec<Entry> = Vec::new();
        for slot in 0..SLOTS {
            let entry = self.entry(node, slot);
            if self.is_kept(entry)
                && !kept.iter().any(|known| known.key == entry.key && known.start == entry.start)
            {
                kept.push(Entry { end: 0, ..entry });
            }
        }
        kept
    }

    fn is_kept(&self, entry: Entry) -> bool {
        let version = self.version;
        entry.start != 0 && entry.start <= version && (entry.end == 0 || entry.end > version)
    }

    /// Moves the kept entries to the front; each is durable there before the place that it comes from
    /// changes.
    fn write_sorted(&self, node: u64, kept: &[Entry]) {
        for (slot, entry) in kept.iter().enumerate() {
            let there = self.entry(node, slot);
            if there != *entry {
                if (Entry { end: 0, ..there }) == *entry {
                    self.store_end(node, slot, 0);
                } else {
                    self.write(node, slot, *entry);
                }
            }
        }
        (kept.len()..SLOTS).for_each(|slot| self.erase(node, slot));
    }

    fn write_unsorted(&self, node: u64) {
        for slot in 0..SLOTS {
            let entry = self.entry(node, slot);
            if !self.is_kept(entry) {
                self.erase(node, slot);
            } else if entry.end != 0 {
                self.store_end(node, slot, 0);
            }
        }
    }
}
