//! Joins a sparse leaf with a neighbour, and if needed the nodes above it.

use super::edit::{Edit, InnerDraft, Path};
use super::items::Items;
use super::layout::{FANOUT, LEAF_SLOTS, LeafState, TreeWord};
use super::node::{Inner, Leaf, View};
use super::separator::{Separator, shared_bytes};
use crate::error::Result;

/// Two leaves are joined if together they have at most this many entries, so that the next few insertions do
/// not divide them again. (An empty leaf is always joined.)
const JOINT_LEAF_AT_MOST: usize = LEAF_SLOTS * 3 / 4;
/// An inner node with fewer children than this takes some from a neighbour, or is joined with it.
const SPARSE_INNER_BELOW: usize = FANOUT / 4;
/// Two inner nodes are joined if together they have at most this many children; otherwise they share them
/// evenly.
const JOINT_INNER_AT_MOST: usize = FANOUT * 3 / 4;

impl<'m> Edit<'m, '_, '_> {
    /// Joins the path's leaf with the emptier of its neighbours under the same parent, if both fit into one.
    pub(crate) fn join_leaf(&mut self, path: &Path<'m>, key: &[u8]) -> Result<()> {
        let state = path.leaf.state(self.view())?;
        let Some(depth) = path.steps.len().checked_sub(1) else {
            if state.count() == 0 {
                self.store_root(TreeWord::EMPTY)?;
                self.retire_leaf(path.leaf.off)?;
            }
            return Ok(());
        };
        let (parent, child) = path.steps[depth];
        let Some((first, neighbour, neighbour_state)) = self.choose_neighbour(&parent, child, state)? else {
            return Ok(());
        };
        let skip = Edit::skip_between(path, depth, first, first + 1, key)?;
        let joint = if state.count() == 0 && neighbour.skip() <= skip {
            neighbour.off
        } else {
            let view = self.view();
            let mut items = Items::new(skip);
            items.gather(view, &path.leaf, state)?;
            items.gather(view, &neighbour, neighbour_state)?;
            self.retire_leaf(neighbour.off)?;
            self.build_leaf(&items)?
        };
        self.retire_leaf(path.leaf.off)?;
        let gone = parent.separator(first, key)?;
        if gone.block != 0 {
            self.retire(gone.block);
        }
        self.shrink(path, depth, key, first, joint)
    }

    /// The neighbour to join with: the index of the left one of the pair, the leaf and its state.
    fn choose_neighbour(
        &self,
        parent: &Inner<'m>,
        child: usize,
        state: LeafState,
    ) -> Result<Option<(usize, Leaf, LeafState)>> {
        let view = self.view();
        let mut best: Option<(usize, Leaf, LeafState)> = None;
        let left = child.checked_sub(1);
        let right = Some(child + 1).filter(|right| *right < parent.count());
        for at in [left, right].into_iter().flatten() {
            let leaf = Leaf::open(self.region(), view.load(parent.child_off(at))?)?;
            self.lock(leaf.off);
            let its = leaf.state(view)?;
            let fits = state.count() == 0 || state.count() + its.count() <= JOINT_LEAF_AT_MOST;
            if fits && best.as_ref().is_none_or(|(_, _, other)| its.count() < other.count()) {
                best = Some((at.min(child), leaf, its));
            }
        }
        Ok(best)
    }

    /// Replaces children `first` and `first + 1` of the inner node at `depth` by `joint`. The caller takes
    /// care of the separator between them.
    fn shrink(&mut self, path: &Path<'m>, depth: usize, key: &[u8], first: usize, joint: u64) -> Result<()> {
        let (node, _) = path.steps[depth];
        let level = path.tree.level() - depth;
        let mut draft = InnerDraft::of(self.view(), &node, key)?;
        draft.children[first] = joint;
        draft.children.remove(first + 1);
        draft.separators.remove(first);
        self.retire_inner(&node)?;
        let count = draft.children.len();
        if depth == 0 && count == 1 {
            return self.store_root(TreeWord::new(joint, level - 1));
        }
        if depth == 0 || count >= SPARSE_INNER_BELOW {
            let new = self.build_inner(level, node.kind.skip(), draft.part(0..count))?;
            return self.replace(path, depth, new);
        }
        self.balance(path, depth, key, draft)
    }

    /// Joins the sparse contents of the inner node at `depth` with a neighbour, or takes some of the
    /// neighbour's children.
    fn balance(&mut self, path: &Path<'m>, depth: usize, key: &[u8], sparse: InnerDraft<'_>) -> Result<()> {
        let (parent, child) = path.steps[depth - 1];
        let level = path.tree.level() - depth;
        let first = if child + 1 < parent.count() { child } else { child - 1 };
        let neighbour_at = if first == child { child + 1 } else { first };
        let neighbour = Inner::open(self.region(), self.view().load(parent.child_off(neighbour_at))?, level)?;
        // The separator between the two is a fence of both, so it begins with the bytes that the neighbour's
        // keys share.
        let between = parent.separator(first, key)?;
        let between_bytes = between.to_vec();
        let between = Separator::in_block(&between_bytes, between.block);
        let other = InnerDraft::of(self.view(), &neighbour, &between_bytes)?;
        self.retire_inner(&neighbour)?;
        let both = if first == child { sparse.joined(between, other) } else { other.joined(between, sparse) };
        let count = both.children.len();
        if count <= JOINT_INNER_AT_MOST {
            let skip = Edit::skip_between(path, depth - 1, first, first + 1, key)?;
            let joint = self.build_inner(level, skip, both.part(0..count))?;
            return self.shrink(path, depth - 1, key, first, joint);
        }
        self.share(path, depth - 1, key, first, &both)
    }

    /// Divides `both` evenly between children `first` and `first + 1` of the inner node at `depth`.
    fn share(
        &mut self,
        path: &Path<'m>,
        depth: usize,
        key: &[u8],
        first: usize,
        both: &InnerDraft<'_>,
    ) -> Result<()> {
        let (node, _) = path.steps[depth];
        let level = path.tree.level() - depth;
        let count = both.children.len();
        let middle = both.separators[count / 2 - 1];
        let low = path.low_fence(depth, first, key)?;
        let high = path.high_fence(depth, first + 1, key)?;
        let left_skip = shared_bytes(low.as_ref(), Some(&middle));
        let left = self.build_inner(level - 1, left_skip, both.part(0..count / 2))?;
        let right_skip = shared_bytes(Some(&middle), high.as_ref());
        let right = self.build_inner(level - 1, right_skip, both.part(count / 2..count))?;
        let mut draft = InnerDraft::of(self.view(), &node, key)?;
        draft.children[first] = left;
        draft.children[first + 1] = right;
        draft.separators[first] = middle;
        self.retire_inner(&node)?;
        let new = self.build_inner(level, node.kind.skip(), draft.part(0..draft.children.len()))?;
        self.replace(path, depth, new)
    }
}
