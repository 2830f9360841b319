//! Range scans along the links of the leaves.

use super::key::KeyKind;
use super::node::gather;
use super::{Scheme, Tree};
use crate::mem::Mem;

impl<M: Mem, K: KeyKind, S: Scheme> Tree<M, K, S> {
    /// Calls `visit` with the stored keys and the values from `from` on, in ascending order, until it returns
    /// false or `limit` entries were visited; returns how many were. [`KeyKind::owned`] reads a stored key.
    ///
    /// Leaves that keep their order are read in it; others are sorted one by one.
    pub fn scan(
        &mut self,
        from: K::Key<'_>,
        limit: usize,
        mut visit: impl FnMut(&M, &K::Stored, u64) -> bool,
    ) -> usize {
        let probe = K::probe(from);
        let mut leaf = self.leaf_of(&probe);
        let mut items = std::mem::take(&mut self.items);
        let (mut visited, mut is_first) = (0, true);
        while leaf != 0 && visited < limit {
            let next = self.mem.load_u64(self.leaf.link(leaf));
            if next != 0 {
                self.prefetch(next);
            }
            gather::<M, K, S::Leaf>(&self.mem, &self.leaf, leaf, &mut items);
            let before = |entry: u64| K::compare(&self.mem, entry, &probe).is_lt();
            let skipped = if is_first {
                items.partition_point(|item| before(self.leaf.entry::<K>(leaf, usize::from(item.at))))
            } else {
                0
            };
            for item in items[skipped..].iter().take(limit - visited) {
                visited += 1;
                if !visit(&self.mem, &item.key, item.value) {
                    self.items = items;
                    return visited;
                }
            }
            (leaf, is_first) = (next, false);
        }
        self.items = items;
        visited
    }

    /// Every entry, in ascending order. Of a damaged tree, whose leaves may form a ring, as many leaves as
    /// there can be.
    pub fn entries(&self) -> Vec<(K::Owned, u64)> {
        let (mut all, mut items) = (Vec::new(), Vec::new());
        let mut leaf = self.mem.load_u64(super::FIRST_LEAF_OFF);
        for _ in 0..self.mem.len_bytes() / self.node_bytes {
            if leaf == 0 {
                break;
            }
            gather::<M, K, S::Leaf>(&self.mem, &self.leaf, leaf, &mut items);
            all.extend(items.iter().map(|item| (K::owned(&self.mem, &item.key), item.value)));
            leaf = self.mem.load_u64(self.leaf.link(leaf));
        }
        all
    }
}
