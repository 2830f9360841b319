//! Nodes that are full, or have too little left: new ones take their places (algorithms 2 and 3 of the paper).
//!
//! Live entries alone are copied. Where they are more than four fifths of a node they become two nodes, else one; where they would
//! be less than two fifths, a neighbour is rebuilt together with the node. The parent's entries for what is replaced end, and it
//! gets entries for the new nodes, for which it may have to be rebuilt in turn. A root gets a new one above it when it becomes
//! two, and gives way to its child when it has but one.

use super::super::layout::{Form, INLINE_BYTES};
use super::super::node::Record;
use super::super::work::{Work, region, write_record};
use super::draft::{Fences, Slot};
use super::edit::Path;
use super::layout::{LIVE_MIN, MAX_HEIGHT, NEW_NODE_MIN, NO_END, ONE_NODE_MAX, SLOTS};
use super::node::after;
use crate::error::{Result, corrupt};
use crate::wbtree::bytes::{prefix8, shortest_between};
use tembo_pool::Tx;

/// An entry with what it is ordered by: its key, or its child's lower fence.
pub(super) struct Item {
    pub(super) key: Vec<u8>,
    pub(super) slot: Slot,
}

/// A new node: its lower fence and its number.
type NewNode = (Vec<u8>, u64);

impl Work {
    /// Puts an entry into a leaf that has no place for it.
    pub(super) fn divide_leaf(
        &mut self,
        tx: &mut Tx<'_>,
        path: &Path,
        key: &[u8],
        entry: Slot,
    ) -> Result<()> {
        self.rebuild(tx, path, path.ids.len() - 1, vec![Item { key: key.to_vec(), slot: entry }])
    }

    /// Rebuilds a node of the path if it has too few live entries.
    pub(super) fn mend(&mut self, tx: &mut Tx<'_>, path: &Path, depth: usize) -> Result<()> {
        let level = self.level_at(path, depth);
        let draft = self.draft(tx, path.ids[depth], level)?;
        let live = self.drafts.nodes[draft].live_count();
        if depth > 0 {
            return if live <= LIVE_MIN { self.rebuild(tx, path, depth, Vec::new()) } else { Ok(()) };
        }
        if level > 0 && live == 1 {
            self.promote(draft)?;
        }
        Ok(())
    }

    fn level_at(&self, path: &Path, depth: usize) -> usize {
        path.ids.len() - 1 - depth
    }

    /// The root's only child becomes the root.
    fn promote(&mut self, root: usize) -> Result<()> {
        let only = self.drafts.nodes[root].live().next();
        if let Some(slot) = only {
            let child = self.drafts.nodes[root].slots[slot].value;
            self.retire(root);
            self.drafts.root = child;
            self.drafts.root_level -= 1;
        }
        Ok(())
    }

    /// Replaces a node of the path by one or two that have its live entries and `more`.
    fn rebuild(&mut self, tx: &mut Tx<'_>, path: &Path, depth: usize, more: Vec<Item>) -> Result<()> {
        let level = self.level_at(path, depth);
        let node = self.draft(tx, path.ids[depth], level)?;
        let mut fences = self.fences(tx, node)?;
        let mut items = self.items(tx, node)?;
        let is_appended = fences.high.is_none()
            && matches!(&more[..], [only] if items.iter().all(|item| item.key < only.key));
        items.extend(more);
        let mut replaced = Vec::new();
        if depth > 0 {
            replaced.push(path.slots[depth - 1]);
            if items.len() < NEW_NODE_MIN {
                let parent = self.draft(tx, path.ids[depth - 1], level + 1)?;
                let (slot, is_right) = self.neighbour(tx, parent, path.slots[depth - 1])?;
                let sibling = self.draft(tx, self.drafts.nodes[parent].slots[slot].value, level)?;
                items.extend(self.items(tx, sibling)?);
                let theirs = self.fences(tx, sibling)?;
                if is_right {
                    fences.high = theirs.high;
                } else {
                    fences.low = theirs.low;
                }
                replaced.push(slot);
                self.retire(sibling);
            }
        }
        self.retire(node);
        items.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let new = self.build(tx, level, fences, items, is_appended)?;
        if depth > 0 {
            return self.replace_children(tx, path, depth - 1, &replaced, new);
        }
        self.replace_root(tx, level, new)
    }

    fn replace_root(&mut self, tx: &mut Tx<'_>, level: usize, new: Vec<NewNode>) -> Result<()> {
        if let [(_, only)] = new[..] {
            (self.drafts.root, self.drafts.root_level) = (only, level);
            return Ok(());
        }
        if level == MAX_HEIGHT {
            return Err(corrupt("the height of a tree", self.header, format!("up to {MAX_HEIGHT}"), "more"));
        }
        let items = new.into_iter().map(|node| self.child_item(node)).collect();
        let all = Fences { low: Vec::new(), high: None };
        self.drafts.root = self.build_one(tx, level + 1, all, items)?;
        self.drafts.root_level = level + 1;
        Ok(())
    }

    /// Ends the entries for children that were replaced, and adds those for the new ones.
    fn replace_children(
        &mut self,
        tx: &mut Tx<'_>,
        path: &Path,
        depth: usize,
        replaced: &[usize],
        new: Vec<NewNode>,
    ) -> Result<()> {
        let level = self.level_at(path, depth);
        let node = self.draft(tx, path.ids[depth], level)?;
        for slot in replaced {
            self.drafts.nodes[node].end(*slot, self.version);
        }
        let items: Vec<Item> = new.into_iter().map(|new| self.child_item(new)).collect();
        if self.drafts.nodes[node].free_count(&self.retained) < items.len() {
            return self.rebuild(tx, path, depth, items);
        }
        let shared = self.drafts.nodes[node].shared;
        for Item { key, slot: entry } in items {
            let key = prefix8(after(&key, shared, path.ids[depth])?);
            if let Some(slot) = self.drafts.nodes[node].free_slot(&self.retained) {
                self.drafts.nodes[node].fill(slot, Slot { key, ..entry });
            }
        }
        self.mend(tx, path, depth)
    }

    /// The entry for a new node.
    fn child_item(&self, (low, id): NewNode) -> Item {
        let slot = Slot { start: self.version, form: Form::Block, key: 0, value: id, end: NO_END, print: 0 };
        Item { key: low, slot }
    }

    /// The live child next to the one in `slot`, and whether it is on its right: the right one if there is one.
    fn neighbour(&self, tx: &Tx<'_>, parent: usize, slot: usize) -> Result<(usize, bool)> {
        let own = self.child_low(tx, parent, slot)?;
        let (mut left, mut right): (Option<(usize, &[u8])>, Option<(usize, &[u8])>) = (None, None);
        for other in self.drafts.nodes[parent].live().filter(|other| *other != slot) {
            let low = self.child_low(tx, parent, other)?;
            if low > own && right.is_none_or(|(_, best)| low < best) {
                right = Some((other, low));
            } else if low < own && left.is_none_or(|(_, best)| low > best) {
                left = Some((other, low));
            }
        }
        match (right, left) {
            (Some((right, _)), _) => Ok((right, true)),
            (None, Some((left, _))) => Ok((left, false)),
            (None, None) => {
                let id = self.drafts.nodes[parent].id & !super::draft::NEW;
                Err(corrupt("an inner node", id, "at least two children", "one"))
            }
        }
    }

    /// The live entries of a node, in no order.
    pub(super) fn items(&self, tx: &Tx<'_>, draft: usize) -> Result<Vec<Item>> {
        let node = &self.drafts.nodes[draft];
        let fences =
            if node.level == 0 && node.shared > 0 { self.fences(tx, draft)?.low } else { Vec::new() };
        let mut items = Vec::with_capacity(2 * SLOTS);
        for slot in node.live() {
            let entry = node.slots[slot];
            let key = match entry.form {
                _ if node.level > 0 => self.child_low(tx, draft, slot)?.to_vec(),
                Form::Block => Record::read(region(tx), entry.value)?.key.to_vec(),
                Form::Inline { key_bytes, .. } => {
                    let rest = entry.key.to_be_bytes();
                    let shared = fences.get(..node.shared).ok_or_else(|| {
                        let expected = format!("a lower fence of at least {} bytes", node.shared);
                        corrupt("a tree node", node.id, expected, format!("one of {}", fences.len()))
                    })?;
                    [shared, &rest[..usize::from(key_bytes).min(8)]].concat()
                }
            };
            items.push(Item { key, slot: entry });
        }
        Ok(items)
    }

    /// Builds one or two nodes of entries in order, for the range between the fences.
    fn build(
        &mut self,
        tx: &mut Tx<'_>,
        level: usize,
        fences: Fences,
        items: Vec<Item>,
        is_appended: bool,
    ) -> Result<Vec<NewNode>> {
        if items.len() <= ONE_NODE_MAX {
            let low = fences.low.clone();
            return Ok(vec![(low, self.build_one(tx, level, fences, items)?)]);
        }
        // Keys that come in order fill the left node, which no later one will get into.
        let cut = if is_appended { items.len() - NEW_NODE_MIN } else { items.len() / 2 };
        let mut left = items;
        let right = left.split_off(cut);
        let (last, first) = (&left[cut - 1].key, &right[0].key);
        if last >= first {
            return Err(corrupt("a tree node", self.header, "every key once", format!("{first:?} twice")));
        }
        let separator = if level == 0 { shortest_between(last, first).to_vec() } else { first.clone() };
        let low = fences.low.clone();
        let left_fences = Fences { low: fences.low, high: Some(separator.clone()) };
        let right_fences = Fences { low: separator.clone(), high: fences.high };
        let left = self.build_one(tx, level, left_fences, left)?;
        let right = self.build_one(tx, level, right_fences, right)?;
        Ok(vec![(low, left), (separator, right)])
    }

    fn build_one(&mut self, tx: &mut Tx<'_>, level: usize, fences: Fences, items: Vec<Item>) -> Result<u64> {
        if items.len() > SLOTS {
            let found = format!("{} entries", items.len());
            return Err(corrupt("a tree node", self.header, format!("at most {SLOTS} entries"), found));
        }
        let id = self.new_draft(level, fences);
        let draft = (id & !super::draft::NEW) as usize;
        let shared = self.drafts.nodes[draft].shared;
        for (slot, Item { key, slot: mut entry }) in items.into_iter().enumerate() {
            let rest = after(&key, shared, 0)?;
            if let Form::Inline { value_bytes, .. } = entry.form {
                if rest.len() <= INLINE_BYTES {
                    entry.form = Form::Inline { key_bytes: rest.len() as u8, value_bytes };
                } else {
                    // Joined nodes share less, so that more of the key has to be kept than fits into the entry.
                    let value = entry.value.to_ne_bytes();
                    entry.value = write_record(tx, &key, &value[..usize::from(value_bytes).min(8)])?;
                    entry.form = Form::Block;
                }
            }
            entry.key = prefix8(rest);
            self.drafts.nodes[draft].fill(slot, entry);
        }
        Ok(id)
    }
}
