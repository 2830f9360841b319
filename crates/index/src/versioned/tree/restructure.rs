//! Replaces nodes that are full, or have too few live entries, by new ones (algorithms 2 and 3 of the paper).
//!
//! Only live entries are copied. More than four fifths of a node become two nodes, otherwise one. If they are
//! less than two fifths, a neighbour is rebuilt together with the node. The parent's entries for the replaced
//! nodes end, and it gets entries for the new ones; it may have to be rebuilt for this in turn. A root that
//! becomes two nodes gets a new root above it; a root with only one child is replaced by the child.

use super::super::layout::{Form, INLINE_BYTES};
use super::super::node::Record;
use super::super::view::region;
use super::draft::{DraftEntry, Fences, NEW, shared_between};
use super::layout::{LIVE_MIN, MAX_HEIGHT, NEW_NODE_MIN, ONE_NODE_MAX, SLOTS};
use super::node::{Node, after};
use super::ordered::TreeBuilder;
use super::path::NodePath;
use crate::error::{Result, corrupt};
use crate::key_prefix::{prefix8, shortest_between};
use crate::record::write_record;
use std::borrow::Cow;
use std::cmp::Ordering;
use tembo_pool::Tx;

/// Entries of a new node are recomputed, without the bytes that all its keys share, if this leaves out at
/// least this many bytes more than before. Recomputing has to read the keys.
const MORE_SHARED_MIN: usize = 4;

/// The live entries of nodes that are rebuilt.
pub(super) struct Items {
    /// The bytes with which all their keys begin. Entries have the 8 bytes after them.
    pub(super) head: Vec<u8>,
    pub(super) slots: Vec<DraftEntry>,
}

/// A new node: its lower fence and the reference to it.
type NewNode = (Vec<u8>, u64);

impl TreeBuilder {
    /// Puts an entry into a leaf without a free place.
    pub(super) fn divide_leaf(&mut self, tx: &mut Tx<'_>, path: &NodePath, entry: DraftEntry) -> Result<()> {
        self.rebuild(tx, path, path.depth(), &[entry])
    }

    /// Rebuilds a node of the path if it has too few live entries.
    pub(super) fn mend(&mut self, tx: &mut Tx<'_>, path: &NodePath, depth: usize) -> Result<()> {
        let level = self.level_at(path, depth);
        let draft = self.draft(tx, path.id(depth), level)?;
        let live = self.drafts.nodes[draft].live_count();
        if depth > 0 {
            return if live <= LIVE_MIN { self.rebuild(tx, path, depth, &[]) } else { Ok(()) };
        }
        if level > 0 && live == 1 {
            self.promote(draft)?;
        }
        Ok(())
    }

    fn level_at(&self, path: &NodePath, depth: usize) -> usize {
        path.depth() - depth
    }

    /// Makes the root's only child the root.
    fn promote(&mut self, root: usize) -> Result<()> {
        let only = self.drafts.nodes[root].live().next();
        if let Some(slot) = only {
            let child = self.drafts.nodes[root].value(slot);
            self.retire(root);
            self.drafts.root = child;
            self.drafts.root_level -= 1;
        }
        Ok(())
    }

    /// Replaces a node of the path by one or two that have its live entries and `more`.
    pub(super) fn rebuild(
        &mut self,
        tx: &mut Tx<'_>,
        path: &NodePath,
        depth: usize,
        more: &[DraftEntry],
    ) -> Result<()> {
        let level = self.level_at(path, depth);
        let node = self.draft(tx, path.id(depth), level)?;
        let mut fences = self.fences(tx, node)?;
        let mut items = self.items(tx, node)?;
        let mut is_appended = fences.high.is_none() && more.len() == 1;
        for slot in &items.slots {
            is_appended = is_appended && self.compare(tx, level, &items.head, slot, &more[0])?.is_lt();
        }
        items.slots.extend(more);
        let mut replaced = Vec::new();
        if depth > 0 {
            replaced.push(path.slot(depth - 1));
            if items.slots.len() < NEW_NODE_MIN {
                let parent = self.draft(tx, path.id(depth - 1), level + 1)?;
                let (slot, is_right) = self.neighbour(tx, parent, path.slot(depth - 1))?;
                let sibling = self.draft(tx, self.drafts.nodes[parent].value(slot), level)?;
                let mut of_sibling = self.items(tx, sibling)?;
                let theirs = self.fences(tx, sibling)?;
                if is_right {
                    fences.high = theirs.high;
                } else {
                    fences.low = theirs.low;
                }
                let shared = shared_between(&fences).min(items.head.len()).min(of_sibling.head.len());
                let mut moved_out = std::mem::take(&mut self.drafts.moved_out);
                let outcome = items
                    .share_less(tx, level, shared, &mut moved_out)
                    .and_then(|()| of_sibling.share_less(tx, level, shared, &mut moved_out));
                self.drafts.moved_out = moved_out;
                outcome?;
                items.slots.append(&mut of_sibling.slots);
                replaced.push(slot);
                self.retire(sibling);
            }
        }
        self.retire(node);
        self.sort(tx, level, &mut items)?;
        let new = self.build(tx, level, fences, items, is_appended)?;
        if depth > 0 {
            return self.replace_children(tx, path, depth - 1, &replaced, &new);
        }
        self.replace_root(tx, level, &new)
    }

    fn replace_root(&mut self, tx: &mut Tx<'_>, level: usize, new: &[NewNode]) -> Result<()> {
        if let [(_, only)] = new {
            (self.drafts.root, self.drafts.root_level) = (*only, level);
            return Ok(());
        }
        if level == MAX_HEIGHT {
            return Err(corrupt("the height of a tree", self.header, format!("up to {MAX_HEIGHT}"), "more"));
        }
        let slots = new.iter().map(|node| self.child_entry(node, 0)).collect::<Result<_>>()?;
        let all = Fences { low: Vec::new(), high: None };
        self.drafts.root = self.build_one(tx, level + 1, all, &[], slots)?;
        self.drafts.root_level = level + 1;
        Ok(())
    }

    /// Ends the entries of replaced children, and adds those of the new ones.
    fn replace_children(
        &mut self,
        tx: &mut Tx<'_>,
        path: &NodePath,
        depth: usize,
        replaced: &[usize],
        new: &[NewNode],
    ) -> Result<()> {
        let level = self.level_at(path, depth);
        let node = self.draft(tx, path.id(depth), level)?;
        for slot in replaced {
            self.drafts.nodes[node].end(*slot, self.version);
        }
        let shared = self.drafts.nodes[node].shared;
        let entries =
            new.iter().map(|new| self.child_entry(new, shared)).collect::<Result<Vec<DraftEntry>>>()?;
        if self.drafts.nodes[node].free_count(&self.retained) < entries.len() {
            return self.rebuild(tx, path, depth, &entries);
        }
        for entry in entries {
            if let Some(slot) = self.drafts.nodes[node].free_slot(&self.retained) {
                self.drafts.nodes[node].fill(slot, entry);
            }
        }
        self.mend(tx, path, depth)
    }

    /// The entry for a new node in a parent whose keys share `shared` bytes.
    fn child_entry(&self, (low, id): &NewNode, shared: usize) -> Result<DraftEntry> {
        Ok(DraftEntry::new(self.version, Form::Block, prefix8(after(low, shared, 0)?), *id, 0))
    }

    /// The live child next to the one in `slot`, the right one if there is one, and whether it is on the
    /// right.
    fn neighbour(&self, tx: &Tx<'_>, parent: usize, slot: usize) -> Result<(usize, bool)> {
        let node = &self.drafts.nodes[parent];
        // If the 8 bytes do not decide, the children's fences are compared; these are whole keys and need no
        // head.
        let compare = |a: usize, b: usize| match node.key(a).cmp(&node.key(b)) {
            Ordering::Equal => self.compare(tx, node.level, &[], &node.entry(a), &node.entry(b)),
            order => Ok(order),
        };
        let (mut left, mut right) = (None, None);
        for other in node.live().filter(|other| *other != slot) {
            let (best, toward) = match compare(other, slot)? {
                Ordering::Greater => (&mut right, Ordering::Less),
                Ordering::Less => (&mut left, Ordering::Greater),
                Ordering::Equal => continue,
            };
            let is_nearer = match *best {
                None => true,
                Some(best) => compare(other, best)? == toward,
            };
            if is_nearer {
                *best = Some(other);
            }
        }
        match (right, left) {
            (Some(right), _) => Ok((right, true)),
            (None, Some(left)) => Ok((left, false)),
            (None, None) => Err(corrupt("an inner node", node.id & !NEW, "at least two children", "one")),
        }
    }

    /// The live entries of a node, in no order.
    pub(super) fn items(&self, tx: &Tx<'_>, draft: usize) -> Result<Items> {
        let node = &self.drafts.nodes[draft];
        let head = match &node.fences {
            Some(fences) => fences.low.get(..node.shared).unwrap_or(&fences.low).to_vec(),
            None => Node::open(region(tx), node.id, node.level)?.shared_bytes()?.to_vec(),
        };
        let mut slots = Vec::with_capacity(2 * SLOTS);
        slots.extend(node.live().map(|slot| node.entry(slot)));
        if node.level > 0 {
            let stamps = node.live().map(|slot| self.stamp_of(draft, slot));
            slots.iter_mut().zip(stamps).for_each(|(slot, stamp)| slot.stamp = stamp);
        }
        Ok(Items { head, slots })
    }

    /// The key by which an entry is ordered: its own, or its child's lower fence.
    pub(super) fn key_of<'w>(
        &'w self,
        tx: &'w Tx<'_>,
        level: usize,
        head: &[u8],
        entry: &DraftEntry,
    ) -> Result<Cow<'w, [u8]>> {
        if level > 0 {
            return Ok(Cow::Borrowed(self.low(tx, entry.value, level - 1)?));
        }
        whole_key(tx, head, entry)
    }

    /// The order of two entries of nodes whose keys share the same bytes. Compares whole keys only if the 8
    /// bytes do not decide.
    fn compare(
        &self,
        tx: &Tx<'_>,
        level: usize,
        head: &[u8],
        a: &DraftEntry,
        b: &DraftEntry,
    ) -> Result<Ordering> {
        match a.key.cmp(&b.key) {
            Ordering::Equal => Ok(self.key_of(tx, level, head, a)?.cmp(&self.key_of(tx, level, head, b)?)),
            order => Ok(order),
        }
    }

    /// Puts entries in the order of their keys.
    fn sort(&self, tx: &Tx<'_>, level: usize, items: &mut Items) -> Result<()> {
        items.slots.sort_unstable_by_key(|slot| slot.key);
        for alike in items.slots.chunk_by_mut(|a, b| a.key == b.key).filter(|alike| alike.len() > 1) {
            let keyed = alike.iter().map(|slot| Ok((self.key_of(tx, level, &items.head, slot)?, *slot)));
            let mut keyed = keyed.collect::<Result<Vec<_>>>()?;
            keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            alike.iter_mut().zip(keyed).for_each(|(slot, (_, sorted))| *slot = sorted);
        }
        Ok(())
    }

    /// Builds one or two nodes of sorted entries, for the range between the fences.
    fn build(
        &mut self,
        tx: &mut Tx<'_>,
        level: usize,
        fences: Fences,
        items: Items,
        is_appended: bool,
    ) -> Result<Vec<NewNode>> {
        let Items { head, slots: mut left } = items;
        let low = fences.low.clone();
        if left.len() <= ONE_NODE_MAX {
            return Ok(vec![(low, self.build_one(tx, level, fences, &head, left)?)]);
        }
        // Ascending keys will not come to the left node again, so it is filled.
        let cut = if is_appended { left.len() - NEW_NODE_MIN } else { left.len() / 2 };
        let right = left.split_off(cut);
        let separator = {
            let last = self.key_of(tx, level, &head, &left[cut - 1])?;
            let first = self.key_of(tx, level, &head, &right[0])?;
            if last >= first {
                let found = format!("{first:?} twice");
                return Err(corrupt("a tree node", self.header, "every key once", found));
            }
            if level == 0 { shortest_between(&last, &first).to_vec() } else { first.into_owned() }
        };
        let left_fences = Fences { low: fences.low, high: Some(separator.clone()) };
        let right_fences = Fences { low: separator.clone(), high: fences.high };
        let left = self.build_one(tx, level, left_fences, &head, left)?;
        let right = self.build_one(tx, level, right_fences, &head, right)?;
        Ok(vec![(low, left), (separator, right)])
    }

    /// Builds a node of entries with the 8 bytes after `head`.
    fn build_one(
        &mut self,
        tx: &mut Tx<'_>,
        level: usize,
        fences: Fences,
        head: &[u8],
        mut slots: Vec<DraftEntry>,
    ) -> Result<u64> {
        if slots.len() > SLOTS {
            let found = format!("{} entries", slots.len());
            return Err(corrupt("a tree node", self.header, format!("at most {SLOTS} entries"), found));
        }
        let mut shared = shared_between(&fences);
        let Some(more) = shared.checked_sub(head.len()) else {
            let expected = format!("keys that share {} bytes", head.len());
            return Err(corrupt("the fences of a tree node", self.header, expected, shared));
        };
        let is_inline = |slot: &DraftEntry| matches!(slot.start.form(), Some(Form::Inline { .. }));
        if more >= MORE_SHARED_MIN || (level == 0 && slots.iter().all(is_inline)) {
            for slot in &mut slots {
                let key = self.key_of(tx, level, head, slot)?;
                let rest = after(&key, shared, self.header)?;
                slot.key = prefix8(rest);
                if let Some(Form::Inline { value_bytes, .. }) = slot.start.form() {
                    slot.set_form(Form::Inline { key_bytes: rest.len() as u8, value_bytes });
                }
            }
        } else {
            shared = head.len();
        }
        let id = self.new_draft(level, shared, fences);
        let draft = &mut self.drafts.nodes[(id & !NEW) as usize];
        slots.into_iter().enumerate().for_each(|(slot, entry)| draft.fill(slot, entry));
        Ok(id)
    }
}

impl Items {
    /// Shortens the bytes left out of the entries to the first `shared`. Entries whose keys then no longer
    /// fit get records.
    fn share_less(
        &mut self,
        tx: &mut Tx<'_>,
        level: usize,
        shared: usize,
        records: &mut Vec<u64>,
    ) -> Result<()> {
        let more = self.head.len().saturating_sub(shared);
        if more == 0 {
            return Ok(());
        }
        let before = prefix8(&self.head[shared..]);
        for slot in &mut self.slots {
            if let (0, Some(Form::Inline { key_bytes, value_bytes })) = (level, slot.start.form()) {
                let key_bytes = usize::from(key_bytes) + more;
                if key_bytes <= INLINE_BYTES {
                    slot.set_form(Form::Inline { key_bytes: key_bytes as u8, value_bytes });
                } else {
                    // The rest of the key no longer fits into the entry.
                    let key = whole_key(tx, &self.head, slot)?.into_owned();
                    let value = slot.value.to_ne_bytes();
                    let value = &value[..usize::from(value_bytes).min(8)];
                    slot.value = write_record(tx, &key, &[value], value.len() as u64)?;
                    slot.set_form(Form::Block);
                    records.push(slot.value);
                }
            }
            slot.key = if more < 8 { before | slot.key >> (8 * more) } else { before };
        }
        self.head.truncate(shared);
        Ok(())
    }
}

/// The key of an entry of a leaf, whose keys begin with `head`.
fn whole_key<'t>(tx: &'t Tx<'_>, head: &[u8], entry: &DraftEntry) -> Result<Cow<'t, [u8]>> {
    Ok(match entry.start.form() {
        Some(Form::Inline { key_bytes, .. }) => {
            Cow::Owned([head, &entry.key.to_be_bytes()[..usize::from(key_bytes).min(8)]].concat())
        }
        Some(Form::Block) => Cow::Borrowed(Record::read(region(tx), entry.value)?.key),
        None => {
            let found = format!("{:#x}", entry.start.0);
            return Err(corrupt("an entry's start word", entry.value, "a known form", found));
        }
    })
}
