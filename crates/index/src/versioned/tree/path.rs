//! Paths from the root of a tree to a leaf.

use super::layout::MAX_HEIGHT;

/// The path from the root to a leaf.
#[derive(Debug)]
pub(crate) struct NodePath {
    /// The nodes, the root first.
    pub(super) ids: [u64; MAX_HEIGHT + 1],
    /// The place in each node that leads to the next.
    pub(super) slots: [u8; MAX_HEIGHT],
    /// The number of nodes above the leaf.
    depth: usize,
}

impl Default for NodePath {
    fn default() -> NodePath {
        NodePath { ids: [0; _], slots: [0; _], depth: 0 }
    }
}

impl NodePath {
    /// Starts a path at a root.
    #[inline]
    pub(super) fn begin(&mut self, root: u64) {
        (self.ids[0], self.depth) = (root, 0);
    }

    /// Extends the path to a child.
    #[inline]
    pub(super) fn push(&mut self, slot: usize, child: u64) {
        self.slots[self.depth] = slot as u8;
        self.depth += 1;
        self.ids[self.depth] = child;
    }

    /// The depth of the leaf below the root.
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

/// The place of a key in the version before.
#[derive(Debug, Default)]
pub(super) struct Sought {
    pub(super) path: NodePath,
    /// The key's place in the leaf, if the leaf has the key.
    pub(super) slot: Option<usize>,
}
