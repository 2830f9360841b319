//! Whether a tree is sound.

use super::node::SLOTS;
use super::{LIVE_MIN, Order, PaperCdds};
use crate::mem::Mem;
use std::collections::HashSet;

impl<M: Mem> PaperCdds<M> {
    /// Walks through the newest version; returns how many nodes it has.
    ///
    /// # Errors
    ///
    /// The damage.
    pub fn check(&self) -> Result<usize, String> {
        let mut reached = HashSet::new();
        self.check_node(self.root, self.level, (None, u64::MAX), &mut reached)?;
        match self.free.iter().find(|node| reached.contains(node)) {
            Some(node) => Err(format!("the node at {node:#x} is free and in the tree")),
            None => Ok(reached.len()),
        }
    }

    fn check_node(
        &self,
        node: u64,
        level: usize,
        (low, high): (Option<u64>, u64),
        reached: &mut HashSet<u64>,
    ) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("the node at {node:#x}: {what}"));
        if !reached.insert(node) {
            return wrong("reached twice");
        }
        if self.level_of(node) != Some(level) {
            return wrong("not of its level");
        }
        let live = self.live_entries(node);
        if node != self.root && live.len() <= LIVE_MIN {
            return wrong("too few live entries");
        }
        if node == self.root && level > 0 && live.len() < 2 {
            return wrong("a root with one child");
        }
        if live.iter().any(|entry| entry.start > self.version) {
            return wrong("an entry of the future");
        }
        if !live.is_sorted_by(|a, b| a.key < b.key) {
            return wrong("a key twice");
        }
        if live.iter().any(|entry| entry.key > high || low.is_some_and(|low| entry.key <= low)) {
            return wrong("a key out of its bounds");
        }
        if self.order == Order::Sorted && !self.is_sorted(node) {
            return wrong("not in order");
        }
        if level == 0 {
            return Ok(());
        }
        if live.last().map(|last| last.key) != Some(high) {
            return wrong("its last child ends before it");
        }
        let mut below = low;
        for entry in &live {
            self.check_node(entry.value, level - 1, (below, entry.key), reached)?;
            below = Some(entry.key);
        }
        Ok(())
    }

    fn is_sorted(&self, node: u64) -> bool {
        let used = self.used_count(node);
        let order = |slot| (self.key(node, slot), self.start(node, slot));
        (0..used).map(order).is_sorted()
            && (0..SLOTS).all(|slot| (self.start(node, slot) != 0) == (slot < used))
    }
}
