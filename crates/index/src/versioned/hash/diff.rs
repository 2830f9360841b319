//! The difference of two versions of a table.
//!
//! Both are walked side by side. A node that both have is skipped with everything below it, because nodes
//! never change.

use super::super::structure::Visit;
use super::super::view::View;
use super::layout::{MAX_DEPTH, PLACES, digit, path_of};
use super::node::{TrieEntry, TrieNode, TriePlace};
use crate::error::Result;
use tembo_pmem::Region;

/// Calls `visit` with each key that differs, in the order of hashes.
pub(super) fn differences<'m>(from: View<'m>, to: View<'m>, visit: &mut Visit<'_, 'm>) -> Result<()> {
    let root = |view: View<'_>| match view.root.node() {
        0 => TriePlace::Empty,
        root => TriePlace::Child(root),
    };
    Comparison { region: from.region, seed: from.seed, visit }.compare(root(from), root(to), 0, 0)
}

struct Comparison<'v, 'c, 'm> {
    region: &'m Region,
    seed: u64,
    visit: &'c mut Visit<'v, 'm>,
}

impl<'m> Comparison<'_, '_, 'm> {
    /// Compares the contents of a place in two versions. The place is `depth` nodes away from the root, and
    /// its hashes begin with `path`.
    fn compare(&mut self, before: TriePlace, after: TriePlace, path: u64, depth: usize) -> Result<()> {
        match (before, after) {
            (TriePlace::Empty, TriePlace::Empty) => Ok(()),
            (TriePlace::Child(before), TriePlace::Child(after)) if before == after => Ok(()),
            (TriePlace::TrieEntry(before), TriePlace::Empty) => self.only_before(&before),
            (TriePlace::Empty, TriePlace::TrieEntry(after)) => self.only_after(&after),
            (TriePlace::TrieEntry(before), TriePlace::TrieEntry(after)) => {
                self.compare_entries(&before, &after)
            }
            _ if depth == MAX_DEPTH => self.compare_equal_hashes(before, after, path),
            _ => self.descend(before, after, path, depth),
        }
    }

    /// Compares two nodes place by place. If one version has an entry in place of a node, the entry is
    /// compared with that place of the other's node to which its hash leads.
    fn descend(&mut self, before: TriePlace, after: TriePlace, path: u64, depth: usize) -> Result<()> {
        let (before, after) = (self.level(before, depth)?, self.level(after, depth)?);
        for place in 0..PLACES {
            let (before, after) =
                (before.place(self.seed, path, place)?, after.place(self.seed, path, place)?);
            self.compare(before, after, path_of(path, depth, place), depth + 1)?;
        }
        Ok(())
    }

    fn level(&self, place: TriePlace, depth: usize) -> Result<Level<'m>> {
        Ok(match place {
            TriePlace::Empty => Level::Empty,
            TriePlace::TrieEntry(entry) => Level::TrieEntry(entry, digit(entry.hash(self.seed), depth)),
            TriePlace::Child(off) => Level::Node(TrieNode::open(self.region, off, depth)?),
        })
    }

    fn compare_entries(&mut self, before: &TrieEntry, after: &TrieEntry) -> Result<()> {
        if before == after {
            return Ok(());
        }
        let hashes = [before.hash(self.seed), after.hash(self.seed)];
        if hashes[0] == hashes[1] {
            return self.compare_equal_hashes(
                TriePlace::TrieEntry(*before),
                TriePlace::TrieEntry(*after),
                hashes[0],
            );
        }
        if hashes[0] < hashes[1] {
            self.only_before(before)?;
            self.only_after(after)
        } else {
            self.only_after(after)?;
            self.only_before(before)
        }
    }

    /// Compares keys that all have the same hash.
    fn compare_equal_hashes(&mut self, before: TriePlace, after: TriePlace, hash: u64) -> Result<()> {
        let (before, mut after) = (self.equal(before, hash)?, self.equal(after, hash)?);
        for old in before {
            let (key, value) = old.read(self.region)?.into_parts();
            let mut found = None;
            for (idx, new) in after.iter().enumerate() {
                if new.is_of(self.region, hash, &key)? {
                    found = Some(idx);
                    break;
                }
            }
            match found.map(|idx| after.swap_remove(idx)) {
                None => (self.visit)(&key, Some(value), None)?,
                // Entries for one key that were put in the same version are equal.
                Some(new) if new.version == old.version => {}
                Some(new) => {
                    let new = new.value(self.region)?;
                    if *new != *value {
                        (self.visit)(&key, Some(value), Some(new))?;
                    }
                }
            }
        }
        after.iter().try_for_each(|new| self.only_after(new))
    }

    /// The entries in a place whose keys have the same hash.
    fn equal(&self, place: TriePlace, hash: u64) -> Result<Vec<TrieEntry>> {
        let node = match place {
            TriePlace::Empty => return Ok(Vec::new()),
            TriePlace::TrieEntry(entry) => return Ok(vec![entry]),
            TriePlace::Child(off) => TrieNode::open(self.region, off, MAX_DEPTH)?,
        };
        let mut entries = Vec::with_capacity(node.places());
        for place in 0..node.places() {
            if let (TriePlace::TrieEntry(entry), _) = node.place_on(self.seed, hash, place)? {
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    fn only_before(&mut self, entry: &TrieEntry) -> Result<()> {
        let (key, value) = entry.read(self.region)?.into_parts();
        (self.visit)(&key, Some(value), None)
    }

    fn only_after(&mut self, entry: &TrieEntry) -> Result<()> {
        let (key, value) = entry.read(self.region)?.into_parts();
        (self.visit)(&key, None, Some(value))
    }
}

/// The contents of a version at a depth.
enum Level<'m> {
    Empty,
    Node(TrieNode<'m>),
    /// An entry, and the place that leads to it.
    TrieEntry(TrieEntry, usize),
}

impl Level<'_> {
    fn place(&self, seed: u64, path: u64, place: usize) -> Result<TriePlace> {
        Ok(match self {
            Level::Node(node) => node.place_on(seed, path, place)?.0,
            Level::TrieEntry(entry, at) if *at == place => TriePlace::TrieEntry(*entry),
            Level::Empty | Level::TrieEntry(..) => TriePlace::Empty,
        })
    }
}
