//! Walking over all keys of a version, in the order of their hashes.

use super::super::entry::VersionedEntry;
use super::super::view::View;
use super::node::{TrieNode, TriePlace};
use crate::error::Result;
use std::iter::FusedIterator;

/// A walk over the keys of a version of a [`VersionedHash`](crate::VersionedHash), in no order that means
/// anything, and the same for versions with equal keys of one table, but for keys of equal hash. After an
/// error it is over.
pub struct VersionedHashIter<'r> {
    view: View<'r>,
    /// The root, before the first step.
    root: Option<u64>,
    way: Vec<Step<'r>>,
}

/// A node of the way to where the walk is.
struct Step<'r> {
    node: TrieNode<'r>,
    /// How hashes begin there.
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

    /// The next entry. Ends on damaged media too: entries are below every node, and each has one way to it.
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
