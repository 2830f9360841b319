//! Proves a table's nodes whole. The invariants are in the head of `hash/mod.rs`.

use super::super::bytes::VersionedBytes;
use super::super::checker::{VersionChecker, expect};
use super::super::layout::{Form, INLINE_BYTES, RootWord};
use super::super::queue::Dead;
use super::super::view::View;
use super::layout::{MAX_DEPTH, path_to};
use super::node::{TrieEntry, TrieNode, TriePlace, hash_of};
use crate::error::{Result, corrupt};
use crate::record::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use std::collections::HashSet;

impl VersionChecker<'_, '_> {
    pub(super) fn check_table(&mut self, view: View<'_>) -> Result<()> {
        if view.root.0 != view.root.node() {
            let found = format!("{:#x}", view.root.0);
            return Err(corrupt("the root of a table", view.root.node(), "an offset", found));
        }
        if view.root.is_empty() {
            return Ok(());
        }
        self.check_node(&view, view.root.node(), 0, 0, view.version)
    }

    /// Checks a node and everything below it. The node above was made for version `above`.
    fn check_node(&mut self, view: &View<'_>, off: u64, path: u64, depth: usize, above: u64) -> Result<()> {
        let node = TrieNode::open(self.region, off, depth)?;
        self.reach_node(off, node.media_bytes())?;
        check_birth(&node, above)?;
        // I7.
        let (children, entries) = node.maps.counts(depth);
        if depth > 0 && children == 0 && entries < 2 {
            return Err(corrupt("a table's node", off, "at least two keys below it", entries));
        }
        let mut keys = HashSet::new();
        for place in 0..node.places() {
            let (found, below) = node.place_on(view.seed, path, place)?;
            match found {
                TriePlace::Empty => {}
                TriePlace::Child(child) => self.check_node(view, child, below, depth + 1, node.birth)?,
                TriePlace::TrieEntry(entry) => {
                    let key = self.check_entry(view, &node, &entry)?;
                    if depth == MAX_DEPTH && !keys.insert(key.to_vec()) {
                        return Err(corrupt(
                            "a table's node",
                            off,
                            "every key once",
                            format!("{key:?} twice"),
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks I1, I6 and I8 of an entry, and I3 of its record; returns its key.
    fn check_entry<'m>(
        &mut self,
        view: &View<'m>,
        node: &TrieNode<'_>,
        entry: &TrieEntry,
    ) -> Result<VersionedBytes<'m>> {
        if !(1..=node.birth).contains(&entry.version) {
            let expected = format!("put by version 1 to {}", node.birth);
            return Err(corrupt("an entry of a table", node.off, expected, entry.version));
        }
        let (key, value) = entry.read(view.region)?.into_parts();
        let is_long = key.len() as u64 > MAX_KEY_BYTES || value.len() as u64 > MAX_VALUE_BYTES;
        let fits = key.len() <= INLINE_BYTES && value.len() <= INLINE_BYTES;
        if is_long || fits != (entry.form != Form::Block) {
            let expected = "a record if it does not fit into its entry, and only then";
            return Err(corrupt("an entry of a table", node.off, expected, format!("{entry:?}")));
        }
        if entry.form == Form::Block {
            expect("the hash of a key", node.off, hash_of(view.seed, &key), entry.key)?;
            self.reach_record(entry.value)?;
        } else {
            let [key_word, value_word] =
                TrieEntry::inline(entry.version, &key, &value).map_or([0; 2], |e| [e.key, e.value]);
            expect("the key in an entry", node.off, key_word, entry.key)?;
            expect("the value in an entry", node.off, value_word, entry.value)?;
        }
        self.keys += 1;
        Ok(key)
    }

    /// Checks I1 and I3 of a dead subtree, and that it is a part of a table. The keys below it tell which
    /// part.
    pub(super) fn check_dead_table_part(&mut self, dead: &Dead) -> Result<()> {
        let node = TrieNode::open_any(self.region, dead.off)?;
        expect("the birth of a dead node", dead.off, dead.birth, node.birth)?;
        let depth = node.depth;
        let mut first = node;
        let hash = loop {
            let mut places = (0..first.places()).map(|place| first.place(place));
            match places.find(|place| !matches!(place, Ok(TriePlace::Empty))).transpose()? {
                Some(TriePlace::TrieEntry(entry)) => break entry.hash(self.seed),
                Some(TriePlace::Child(child)) => first = TrieNode::open(self.region, child, first.depth + 1)?,
                _ => return Err(corrupt("a table's node", first.off, "something in it", "nothing")),
            }
        };
        let (region, version, seed) = (self.region, self.version, self.seed);
        let view = View { region, version, root: RootWord::EMPTY, seed, size_hint: None };
        self.check_node(&view, dead.off, path_to(hash, depth), depth, dead.death - 1)
    }

    pub(super) fn check_dead_table_node(&self, dead: &Dead) -> Result<u64> {
        let node = TrieNode::open_any(self.region, dead.off)?;
        expect("the birth of a dead node", dead.off, dead.birth, node.birth)?;
        Ok(node.media_bytes())
    }
}

/// Checks I1 and I8 of a node.
fn check_birth(node: &TrieNode<'_>, above: u64) -> Result<()> {
    if (1..=above).contains(&node.birth) {
        return Ok(());
    }
    let expected = format!("made for version 1 to {above}, as the node above it");
    Err(corrupt("a table's node", node.off, expected, node.birth))
}
