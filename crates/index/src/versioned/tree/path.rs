//! Ways from the root of a tree to a leaf.

use super::layout::MAX_HEIGHT;

/// The way from the root to a leaf.
#[derive(Debug)]
pub(crate) struct NodePath {
    /// The nodes, the root first.
    pub(super) ids: [u64; MAX_HEIGHT + 1],
    /// The place of each of them that leads to the next.
    pub(super) slots: [u8; MAX_HEIGHT],
    /// How many there are above the leaf.
    depth: usize,
}

impl Default for NodePath {
    fn default() -> NodePath {
        NodePath { ids: [0; _], slots: [0; _], depth: 0 }
    }
}

impl NodePath {
    /// Begins at a root.
    #[inline]
    pub(super) fn begin(&mut self, root: u64) {
        (self.ids[0], self.depth) = (root, 0);
    }

    /// Goes on to a child.
    #[inline]
    pub(super) fn push(&mut self, slot: usize, child: u64) {
        self.slots[self.depth] = slot as u8;
        self.depth += 1;
        self.ids[self.depth] = child;
    }

    /// How far below the root the leaf is.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn id(&self, depth: usize) -> u64 {
        self.ids[depth]
    }

    pub(crate) fn slot(&self, depth: usize) -> usize {
        usize::from(self.slots[depth])
    }

    pub(crate) fn leaf(&self) -> u64 {
        self.ids[self.depth]
    }
}

/// Where a key is in the version before.
#[derive(Debug, Default)]
pub(super) struct Sought {
    pub(super) path: NodePath,
    /// Its place in the leaf, if it is there.
    pub(super) slot: Option<usize>,
}
