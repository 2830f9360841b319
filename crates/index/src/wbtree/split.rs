//! Divides a full leaf, and if needed the nodes above it.

use super::WbTree;
use super::edit::{Edit, InnerDraft, Path};
use super::items::{Item, Items};
use super::layout::{FANOUT, INLINE_BYTES, INNER_BYTES, LEAF_SLOTS, NodeKind, TreeWord, field, put_word};
use super::node::{Inner, Record, View};
use super::search::{Probe, TreePosition};
use super::separator::{Separator, shared_bytes};
use crate::error::{Result, corrupt};
use crate::key_prefix::shortest_between;
use tembo_pool::Tx;

/// A leaf without a free slot, but with at most this many entries after the insertion, is rewritten instead
/// of divided. (Slots that the same transaction has emptied cannot be filled in place.)
const REWRITE_AT_MOST: usize = LEAF_SLOTS * 3 / 4;

impl WbTree {
    /// Inserts a record whose leaf has no free slot.
    pub(crate) fn split(
        &self,
        tx: &mut Tx<'_>,
        place: &TreePosition<'_>,
        probe: Probe<'_>,
        record: u64,
    ) -> Result<()> {
        let mut edit = Edit::new(self, tx, place.held);
        let path = Path::to_key(edit.view(), place.tree, probe.key)?;
        edit.divide_leaf(&path, probe, record)?;
        edit.finish()
    }
}

impl<'m> Edit<'m, '_, '_> {
    fn divide_leaf(&mut self, path: &Path<'m>, probe: Probe<'_>, record: u64) -> Result<()> {
        let (leaf, depth) = (path.leaf, path.steps.len());
        let view = self.view();
        let mut items = Items::new(leaf.skip());
        items.gather(view, &leaf, leaf.state(view)?)?;
        items.push(Item { prefix: leaf.prefix_of(probe.key)?, record, fingerprint: probe.fingerprint });
        items.sort(view)?;
        let count = items.as_slice().len();
        if count <= REWRITE_AT_MOST {
            let new = self.build_leaf(&items)?;
            self.retire_leaf(leaf.off)?;
            return self.replace(path, depth, new);
        }
        let at = items.as_slice().iter().position(|item| item.record == record).unwrap_or_default();
        let cut = choose_cut(count, at);
        let separator = separator_at(view, items.as_slice(), cut)?;
        let (low, high) = path.fences(depth, probe.key)?;
        // If the new record is alone on its side, the old leaf stays as the other side.
        let left = if cut == count - 1 && at == cut {
            leaf.off
        } else {
            let skip = shared_bytes(low.as_ref(), Some(&separator));
            let part = items.part(self.view(), 0..cut, skip)?;
            self.build_leaf(&part)?
        };
        let right = if cut == 1 && at == 0 {
            leaf.off
        } else {
            let skip = shared_bytes(Some(&separator), high.as_ref());
            let part = items.part(self.view(), cut..count, skip)?;
            self.build_leaf(&part)?
        };
        if left != leaf.off && right != leaf.off {
            self.retire_leaf(leaf.off)?;
        }
        self.grow(path, depth, probe.key, (left, separator, right))
    }

    /// Replaces the node at `depth` of the path by two nodes.
    pub(crate) fn grow(
        &mut self,
        path: &Path<'m>,
        depth: usize,
        key: &[u8],
        (left, separator, right): (u64, Separator<'_>, u64),
    ) -> Result<()> {
        let Some(above) = depth.checked_sub(1) else {
            let level = path.tree.level() + 1;
            let root = self.build_inner(level, 0, (&[left, right], &[separator]))?;
            return self.store_root(TreeWord::new(root, level));
        };
        let (parent, child) = path.steps[above];
        if parent.count() < FANOUT && fits_base(&parent, &separator)? {
            let new = self.splice(&parent, child, (left, separator, right))?;
            self.retire_node(parent.off, INNER_BYTES)?;
            return self.replace(path, above, new);
        }
        let level = path.tree.level() - above;
        let mut draft = InnerDraft::of(self.view(), &parent, key)?;
        draft.children[child] = left;
        draft.children.insert(child + 1, right);
        draft.separators.insert(child, separator);
        self.retire_inner(&parent)?;
        if draft.children.len() <= FANOUT {
            let new = self.build_inner(level, parent.kind.skip(), draft.part(0..draft.children.len()))?;
            return self.replace(path, above, new);
        }
        self.divide_inner(path, above, key, &draft, child)
    }

    /// Divides the overfull contents of the inner node at `depth`, after an insertion at child `child`.
    fn divide_inner(
        &mut self,
        path: &Path<'m>,
        depth: usize,
        key: &[u8],
        draft: &InnerDraft<'_>,
        child: usize,
    ) -> Result<()> {
        let count = draft.children.len();
        let level = path.tree.level() - depth;
        let cut = match child {
            0 => 2,
            last if last + 2 == count => count - 2,
            _ => count / 2,
        };
        let middle = draft.separators[cut - 1];
        let (low, high) = path.fences(depth, key)?;
        let left_skip = shared_bytes(low.as_ref(), Some(&middle));
        let left = self.build_inner(level, left_skip, draft.part(0..cut))?;
        let right_skip = shared_bytes(Some(&middle), high.as_ref());
        let right = self.build_inner(level, right_skip, draft.part(cut..count))?;
        self.grow(path, depth, key, (left, middle, right))
    }

    /// A copy of `node` in which two children replace one. The base stays the same, so all other words are
    /// copied.
    fn splice(
        &mut self,
        node: &Inner<'m>,
        child: usize,
        (left, separator, right): (u64, Separator<'_>, u64),
    ) -> Result<u64> {
        let (count, base) = (node.count(), node.kind.base());
        let (prefix, word) = self.encode(&separator, base)?;
        let mut image = [0; INNER_BYTES as usize];
        let kind = NodeKind::inner(node.kind.level(), count + 1, node.kind.skip(), base);
        put_word(&mut image, field!(PmInner.tally), self.view().load(node.off)?);
        put_word(&mut image, field!(PmInner.kind), kind.0);
        put_word(&mut image, field!(PmInner.common), node.common_block()?);
        for i in 0..count {
            let (prefix, word) = match i.cmp(&child) {
                std::cmp::Ordering::Less => (node.prefix(i), node.separator_word(i)),
                std::cmp::Ordering::Equal => (prefix, word),
                std::cmp::Ordering::Greater => (node.prefix(i - 1), node.separator_word(i - 1)),
            };
            put_word(&mut image, field!(PmInner.prefixes) + 8 * i as u64, prefix);
            put_word(&mut image, field!(PmInner.separators) + 8 * i as u64, word);
        }
        for i in 0..=count {
            let off = match i {
                i if i == child => left,
                i if i == child + 1 => right,
                i => self.view().load(node.child_off(i - usize::from(i > child)))?,
            };
            put_word(&mut image, field!(PmInner.children) + 8 * i as u64, off);
        }
        self.write_inner(&image, count + 1)
    }
}

/// How many of `count` sorted entries go to the left, if the new one is at position `at`. A new entry at
/// either end is probably part of a sequence: then the full side stays full, and the other side begins with
/// the new entry.
fn choose_cut(count: usize, at: usize) -> usize {
    match at {
        0 => 1,
        last if last + 1 == count => count - 1,
        _ => count / 2,
    }
}

/// The separator before item `cut`.
pub(crate) fn separator_at<'m>(view: impl View<'m>, items: &[Item], cut: usize) -> Result<Separator<'m>> {
    let (left, right) = (items[cut - 1].record, items[cut].record);
    let left_key = Record::read(view.region(), left)?.key;
    let right_key = Record::read(view.region(), right)?.key;
    if left_key >= right_key {
        return Err(corrupt("a leaf's entries", right, "keys that differ", "the same key twice"));
    }
    Ok(Separator::whole(shortest_between(left_key, right_key)))
}

/// Whether a new separator can be added to a node without a new base. It must begin with the node's common
/// bytes, and must not need a block that a larger base would make unnecessary.
fn fits_base(node: &Inner<'_>, separator: &Separator<'_>) -> Result<bool> {
    let (skip, base) = (node.kind.skip(), node.kind.base());
    if base > skip {
        return Ok(separator.lcp(&Separator::whole(node.common()?)) == base);
    }
    Ok(separator.len() <= base + INLINE_BYTES)
}
