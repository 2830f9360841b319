//! Iteration over all keys of a version, in the order of their hashes.

use super::super::entry::VersionedEntry;
use super::super::view::View;
use super::node::{TrieNode, TriePlace};
use crate::error::Result;
use std::iter::FusedIterator;

/// An iterator over the keys of a version of a [`VersionedHash`](crate::VersionedHash). The order is
/// arbitrary. It is the same for all versions of a table with equal keys, except among keys of equal hash. An
/// error ends the iteration.
pub struct VersionedHashIter<'r> {
    view: View<'r>,
    /// The root, before the first step.
    root: Option<u64>,
    way: Vec<Step<'r>>,
}

/// A node on the path to the present place of the walk.
struct Step<'r> {
    node: TrieNode<'r>,
    /// The leading bits of the hashes below it.
    path: u64,
    /// The next place.
    next: usize,
}

impl<'r> VersionedHashIter<'r> {
    pub(super) fn new(view: View<'r>) -> VersionedHashIter<'r> {
        let root = Some(view.root.node()).filter(|root| *root != 0);
        VersionedHashIter { view, root, way: Vec::new() }
    }

    fn enter(&mut self, off: u64, path: u64) -> Result<()> {
        let node = TrieNode::open(self.view.region, off, self.way.len())?;
        self.way.push(Step { node, path, next: 0 });
        Ok(())
    }

    /// The next entry. The walk ends on damaged media too: every node leads to entries, and an entry is
    /// accepted on one path only.
    fn advance(&mut self) -> Result<Option<VersionedEntry<'r>>> {
        if let Some(root) = self.root.take() {
            self.enter(root, 0)?;
        }
        while let Some(step) = self.way.last_mut() {
            if step.next == step.node.places() {
                self.way.pop();
                continue;
            }
            let (node, place) = (step.node, step.next);
            step.next += 1;
            let (found, path) = node.place_on(self.view.seed, step.path, place)?;
            match found {
                TriePlace::Empty => {}
                TriePlace::Child(child) => self.enter(child, path)?,
                TriePlace::TrieEntry(entry) => return Ok(Some(entry.read(self.view.region)?)),
            }
        }
        Ok(None)
    }
}

impl<'r> Iterator for VersionedHashIter<'r> {
    type Item = Result<VersionedEntry<'r>>;

    fn next(&mut self) -> Option<Self::Item> {
        let outcome = self.advance();
        if outcome.is_err() {
            self.way.clear();
        }
        outcome.transpose()
    }
}

impl FusedIterator for VersionedHashIter<'_> {}

impl std::fmt::Debug for VersionedHashIter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionedHashIter").field("version", &self.view.version).finish_non_exhaustive()
    }
}
