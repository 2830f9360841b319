//! Changes of nodes and of the structure: division, joining, copying from a sibling, another root.

use super::node::{Entry, SLOTS};
use super::{LIVE_MIN, PaperCdds, Step};
use crate::mem::Mem;

/// The node next to another one.
struct Sibling {
    node: u64,
    slot: usize,
    key: u64,
    is_right: bool,
}

impl<M: Mem> PaperCdds<M> {
    /// Makes a change where a key belongs, and then sees to the nodes on the way to it.
    pub(super) fn change(&mut self, key: u64, steps: &[Step], leaf: u64, ended: &[usize], added: &[Entry]) {
        self.replace(steps, leaf, ended, added);
        // Nodes that fall below the bound are on the way to the key, deepest first.
        while std::mem::take(&mut self.has_too_few) {
            let (mut steps, mut node) = self.path_to(key);
            while let Some(parent) = steps.last().copied() {
                if self.live_count(node) <= LIVE_MIN {
                    self.join(&steps, node);
                    self.has_too_few = true;
                    break;
                }
                node = parent.node;
                steps.pop();
            }
        }
        // A root with one child gives way to it.
        while self.level > 0 && self.live_count(self.root) == 1 {
            let child = self.live_entries(self.root)[0].value;
            self.retired.push(self.root);
            self.root = child;
            self.level -= 1;
        }
    }

    /// Ends entries of a node and adds others. `steps` lead to the node.
    fn replace(&mut self, steps: &[Step], node: u64, ended: &[usize], added: &[Entry]) {
        ended.iter().for_each(|slot| self.end_entry(node, *slot));
        if !self.has_free(node, added.len()) {
            return self.divide(steps, node, added);
        }
        added.iter().for_each(|entry| self.insert(node, *entry));
        if ended.len() > added.len() {
            self.has_too_few |= !steps.is_empty() && self.live_count(node) <= LIVE_MIN;
        }
    }

    /// Copies the live entries of a full node and the added ones to one or two new ones (`split_insert`).
    fn divide(&mut self, steps: &[Step], node: u64, added: &[Entry]) {
        let level = self.level - steps.len();
        let mut entries = self.live_entries(node);
        entries.extend_from_slice(added);
        entries.sort_unstable_by_key(|entry| entry.key);
        let version = self.version + 1;
        entries.iter_mut().for_each(|entry| entry.start = version);
        self.has_too_few |= entries.len() <= LIVE_MIN;
        let bound = self.bound(steps);
        let new = if entries.len() > 4 * LIVE_MIN {
            let (left, right) = entries.split_at(entries.len() / 2);
            let separator = left[left.len() - 1].key;
            let (left, right) = (self.build(level, left), self.build(level, right));
            vec![self.link(separator, left), self.link(bound, right)]
        } else {
            let only = self.build(level, &entries);
            vec![self.link(bound, only)]
        };
        self.retire(node);
        match steps.split_last() {
            Some((parent, above)) => self.replace(above, parent.node, &[parent.slot], &new),
            None if new.len() == 1 => self.root = new[0].value,
            None => {
                self.root = self.build(level + 1, &new);
                self.level += 1;
            }
        }
    }

    /// Sees to a node that has too few live entries (`copy_from_sibling`, `merge_with_sibling`).
    fn join(&mut self, steps: &[Step], node: u64) {
        let (parent, above) = steps.split_last().expect("a root is not joined");
        let level = self.level - steps.len();
        let sibling = self.sibling(parent);
        let mut entries = self.live_entries(node);
        let version = self.version + 1;
        entries.iter_mut().for_each(|entry| entry.start = version);
        let bound = self.key(parent.node, parent.slot);
        if self.live_count(sibling.node) > 3 * LIVE_MIN {
            let (ended, added) = self.copy_from(&sibling, level, entries, bound, parent.slot);
            self.retire(node);
            return self.replace(above, parent.node, &ended, &added);
        }
        if self.used_count(sibling.node) < 4 * LIVE_MIN
            && entries.len() + self.used_count(sibling.node) <= SLOTS
        {
            entries.iter().for_each(|entry| self.insert(sibling.node, *entry));
            self.retire(node);
            return match sibling.is_right {
                // The bound of what is on the right holds for both.
                true => self.replace(above, parent.node, &[parent.slot], &[]),
                false => {
                    let joined = self.link(bound, sibling.node);
                    self.replace(above, parent.node, &[parent.slot, sibling.slot], &[joined]);
                }
            };
        }
        entries
            .extend(self.live_entries(sibling.node).iter().map(|entry| Entry { start: version, ..*entry }));
        entries.sort_unstable_by_key(|entry| entry.key);
        let new = self.build(level, &entries);
        self.retire(node);
        self.retire(sibling.node);
        let joined = self.link(bound.max(sibling.key), new);
        self.replace(above, parent.node, &[parent.slot, sibling.slot], &[joined]);
    }

    /// Makes a new node of a node's entries and as many of its sibling's; what ends in the parent, and what
    /// is added.
    fn copy_from(
        &mut self,
        sibling: &Sibling,
        level: usize,
        mut entries: Vec<Entry>,
        bound: u64,
        slot: usize,
    ) -> (Vec<usize>, Vec<Entry>) {
        let theirs = self.live_entries(sibling.node);
        let (taken, left) = match sibling.is_right {
            true => theirs.split_at(LIVE_MIN),
            false => {
                let (left, taken) = theirs.split_at(theirs.len() - LIVE_MIN);
                (taken, left)
            }
        };
        let version = self.version + 1;
        entries.extend(taken.iter().map(|entry| Entry { start: version, ..*entry }));
        entries.sort_unstable_by_key(|entry| entry.key);
        let new = self.build(level, &entries);
        for entry in taken {
            let is_it =
                |at: &usize| self.is_live(sibling.node, *at) && self.key(sibling.node, *at) == entry.key;
            let at = (0..SLOTS).find(is_it).expect("an entry that was just read");
            self.end_entry(sibling.node, at);
        }
        if sibling.is_right {
            return (vec![slot], vec![self.link(entries[entries.len() - 1].key, new)]);
        }
        let below = self.link(left[left.len() - 1].key, sibling.node);
        (vec![slot, sibling.slot], vec![below, self.link(bound, new)])
    }

    /// Takes a node out of the version.
    fn retire(&mut self, node: u64) {
        self.end_all(node);
        self.retired.push(node);
    }

    /// The entry for a child.
    fn link(&self, key: u64, child: u64) -> Entry {
        Entry { key, value: child, start: self.version + 1, end: 0 }
    }

    /// The largest key that may be in the node that these steps lead to.
    fn bound(&self, steps: &[Step]) -> u64 {
        steps.last().map_or(u64::MAX, |parent| self.key(parent.node, parent.slot))
    }

    /// The node to the right, or the one to the left if there is none.
    fn sibling(&self, parent: &Step) -> Sibling {
        let own = self.key(parent.node, parent.slot);
        let others = || (0..SLOTS).filter(|slot| *slot != parent.slot && self.is_live(parent.node, *slot));
        let right = others().filter(|slot| self.key(parent.node, *slot) > own);
        let left = others().filter(|slot| self.key(parent.node, *slot) < own);
        let by_key = |slot: &usize| self.key(parent.node, *slot);
        let right = right.min_by_key(by_key);
        let slot = right.or(left.max_by_key(by_key)).expect("an inner node has two children");
        let entry = self.entry(parent.node, slot);
        Sibling { node: entry.value, slot, key: entry.key, is_right: right.is_some() }
    }
}
