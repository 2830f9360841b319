//! Changes a table in memory, and writes the changed nodes.
//!
//! A node that changes is copied into a draft, and so are all nodes on the path to it; the originals leave
//! the version. Within a version a draft is changed in place. Drafts that are left when the version is done
//! get blocks.

use super::super::layout::{Form, RootWord};
use super::super::queue::Dead;
use super::super::view::View;
use super::super::view::region;
use super::draft::{NEW, Remainder, TrieDraft};
use super::get;
use super::hashed::HashBuilder;
use super::layout::{MAX_DEPTH, digit};
use super::node::{TrieEntry, TrieNode, TriePlace, hash_of};
use crate::error::{Result, corrupt, internal};
use crate::record::write_record;
use tembo_pool::Tx;

/// The drafts of a version under construction.
#[derive(Debug, Default)]
pub struct HashDrafts {
    /// The root's offset, or a reference to its draft; 0 if there is no root.
    root: u64,
    nodes: Vec<TrieDraft>,
}

impl HashDrafts {
    pub(super) fn begin(&mut self, before: View<'_>) -> Result<()> {
        let root = before.root.node();
        if before.root.0 != root {
            let found = format!("{:#x}", before.root.0);
            return Err(corrupt("the root of a table", root, "an offset", found));
        }
        self.root = root;
        self.nodes.clear();
        Ok(())
    }

    /// The entries of all drafts that are in the version.
    pub(super) fn entries(&self) -> impl Iterator<Item = &TrieEntry> {
        self.nodes.iter().filter(|draft| !draft.is_gone).flat_map(TrieDraft::entries)
    }

    /// The entries of one draft.
    pub(super) fn entries_of(&mut self, node: usize) -> impl Iterator<Item = &mut TrieEntry> {
        self.nodes[node].entries_mut()
    }

    /// Empties the version.
    pub(super) fn clear(&mut self) {
        (self.root, self.nodes) = (0, Vec::new());
    }

    fn push(&mut self, draft: TrieDraft) -> u64 {
        self.nodes.push(draft);
        NEW | (self.nodes.len() - 1) as u64
    }
}

/// The index of a draft, given a reference to it.
fn index(id: u64) -> usize {
    (id & !NEW) as usize
}

impl HashBuilder {
    pub(super) fn put_hashed(&mut self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let hash = hash_of(self.seed, key);
        let mut node = self.root_draft(tx)?;
        for depth in 0..MAX_DEPTH {
            let place = digit(hash, depth);
            match self.drafts.nodes[node].place(place) {
                TriePlace::Child(_) => node = self.child_draft(tx, node, place)?,
                TriePlace::TrieEntry(old) => {
                    let new = self.entry(tx, hash, key, value)?;
                    if old.is_of(region(tx), hash, key)? {
                        self.drafts.nodes[node].set_entry(place, new);
                        self.end_entry(tx, &old)?;
                        return Ok(true);
                    }
                    let child = self.divide(old, new, hash, depth + 1)?;
                    self.drafts.nodes[node].set_child(place, child);
                    return Ok(false);
                }
                TriePlace::Empty => {
                    let new = self.entry(tx, hash, key, value)?;
                    self.drafts.nodes[node].set_entry(place, new);
                    return Ok(false);
                }
            }
        }
        let new = self.entry(tx, hash, key, value)?;
        let found = self.find_equal(tx, node, hash, key)?;
        let equal = self.drafts.nodes[node].equal();
        let Some(idx) = found else {
            equal.push(new);
            return Ok(false);
        };
        let old = std::mem::replace(&mut equal[idx], new);
        self.end_entry(tx, &old)?;
        Ok(true)
    }

    pub(super) fn remove_hashed(&mut self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        let hash = hash_of(self.seed, key);
        if self.find_made(tx, hash, key)?.is_none() {
            return Ok(false);
        }
        self.change();
        let mut path = vec![self.root_draft(tx)?];
        let old = loop {
            let (depth, node) = (path.len() - 1, path[path.len() - 1]);
            if depth == MAX_DEPTH {
                let found = self.find_equal(tx, node, hash, key)?;
                break found.map(|idx| self.drafts.nodes[node].equal().swap_remove(idx));
            }
            let place = digit(hash, depth);
            match self.drafts.nodes[node].place(place) {
                TriePlace::Child(_) => path.push(self.child_draft(tx, node, place)?),
                TriePlace::TrieEntry(entry) => {
                    self.drafts.nodes[node].clear(place);
                    break Some(entry);
                }
                TriePlace::Empty => break None,
            }
        };
        if let Some(old) = old {
            self.end_entry(tx, &old)?;
        }
        self.contract(&path, hash);
        Ok(true)
    }

    /// Gives up the nodes at the end of a path that have too little left: a single entry belongs in the node
    /// above (I7).
    fn contract(&mut self, path: &[usize], hash: u64) {
        for (depth, node) in path.iter().enumerate().rev() {
            let remains = self.drafts.nodes[*node].remains();
            let Some(above) = depth.checked_sub(1) else {
                if matches!(remains, Remainder::Nothing) {
                    self.drafts.nodes[*node].is_gone = true;
                    self.drafts.root = 0;
                }
                return;
            };
            let (parent, place) = (path[above], digit(hash, above));
            match remains {
                Remainder::More => return,
                Remainder::One(entry) => self.drafts.nodes[parent].set_entry(place, entry),
                Remainder::Nothing => self.drafts.nodes[parent].clear(place),
            }
            self.drafts.nodes[*node].is_gone = true;
        }
    }

    pub(super) fn value_of_hashed(&self, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.find_made(tx, hash_of(self.seed, key), key)?;
        found.map(|entry| Ok(entry.value(region(tx))?.to_vec())).transpose()
    }

    /// The entry of a key in the version under construction.
    fn find_made(&self, tx: &Tx<'_>, hash: u64, key: &[u8]) -> Result<Option<TrieEntry>> {
        let mut id = self.drafts.root;
        for depth in 0..=MAX_DEPTH {
            if id == 0 {
                break;
            }
            if id & NEW == 0 {
                return get::find(region(tx), id, depth, hash, key);
            }
            let node = index(id);
            if depth == MAX_DEPTH {
                let found = self.find_equal(tx, node, hash, key)?;
                return Ok(found.map(|idx| self.drafts.nodes[node].equal_entries()[idx]));
            }
            match self.drafts.nodes[node].place(digit(hash, depth)) {
                TriePlace::Child(child) => id = child,
                TriePlace::TrieEntry(entry) => {
                    return Ok(entry.is_of(region(tx), hash, key)?.then_some(entry));
                }
                TriePlace::Empty => break,
            }
        }
        Ok(None)
    }

    /// The position of a key in a node at the greatest depth.
    fn find_equal(&self, tx: &Tx<'_>, node: usize, hash: u64, key: &[u8]) -> Result<Option<usize>> {
        for (idx, entry) in self.drafts.nodes[node].equal_entries().iter().enumerate() {
            if entry.is_of(region(tx), hash, key)? {
                return Ok(Some(idx));
            }
        }
        Ok(None)
    }

    pub(super) fn root_draft(&mut self, tx: &Tx<'_>) -> Result<usize> {
        if self.drafts.root & NEW == 0 {
            let draft = match self.drafts.root {
                0 => TrieDraft::new(0),
                root => self.copy(tx, root, 0)?,
            };
            self.drafts.root = self.drafts.push(draft);
        }
        Ok(index(self.drafts.root))
    }

    /// The draft of the child in a place that has one.
    pub(super) fn child_draft(&mut self, tx: &Tx<'_>, parent: usize, place: usize) -> Result<usize> {
        let (depth, child) = match self.drafts.nodes[parent].place(place) {
            TriePlace::Child(child) => (self.drafts.nodes[parent].depth + 1, child),
            _ => return Err(internal("a changed node of a table", self.header, "a child", "none")),
        };
        if child & NEW != 0 {
            return Ok(index(child));
        }
        let draft = self.copy(tx, child, depth)?;
        let new = self.drafts.push(draft);
        self.drafts.nodes[parent].set_child(place, new);
        Ok(index(new))
    }

    /// Copies a node into a draft; the original leaves the version.
    fn copy(&mut self, tx: &Tx<'_>, off: u64, depth: usize) -> Result<TrieDraft> {
        let node = TrieNode::open(region(tx), off, depth)?;
        self.dead.push(Dead::node(off, node.birth, self.version));
        TrieDraft::load(&node)
    }

    fn entry(&mut self, tx: &mut Tx<'_>, hash: u64, key: &[u8], value: &[u8]) -> Result<TrieEntry> {
        if let Some(entry) = TrieEntry::inline(self.version, key, value) {
            return Ok(entry);
        }
        Ok(TrieEntry::of_record(self.version, hash, write_record(tx, key, &[value], value.len() as u64)?))
    }

    fn end_entry(&mut self, tx: &mut Tx<'_>, entry: &TrieEntry) -> Result<()> {
        match entry.form {
            Form::Block => self.give_up_record(tx, entry.value, entry.version),
            Form::Inline { .. } => Ok(()),
        }
    }

    /// Makes the node at this depth that separates two entries, which so far belong to one place.
    fn divide(&mut self, old: TrieEntry, new: TrieEntry, hash: u64, depth: usize) -> Result<u64> {
        let old_hash = old.hash(self.seed);
        let mut draft = TrieDraft::new(depth);
        if depth == MAX_DEPTH {
            if old_hash != hash {
                let expected = format!("the hash {hash:#018x}");
                return Err(corrupt(
                    "an entry of a table",
                    self.header,
                    expected,
                    format!("{old_hash:#018x}"),
                ));
            }
            draft.equal().extend([old, new]);
        } else if digit(old_hash, depth) == digit(hash, depth) {
            let child = self.divide(old, new, hash, depth + 1)?;
            draft.set_child(digit(hash, depth), child);
        } else {
            draft.set_entry(digit(old_hash, depth), old);
            draft.set_entry(digit(hash, depth), new);
        }
        Ok(self.drafts.push(draft))
    }

    /// Gives new nodes their blocks and writes them; returns the root.
    pub(super) fn write_hashed(&mut self, tx: &mut Tx<'_>) -> Result<RootWord> {
        let mut places = vec![0; self.drafts.nodes.len()];
        for (draft, place) in self.drafts.nodes.iter().zip(&mut places).filter(|(draft, _)| !draft.is_gone) {
            *place = tx.alloc(draft.media_bytes())?;
        }
        let resolve = |id: u64| if id & NEW == 0 { id } else { places[index(id)] };
        for (draft, place) in self.drafts.nodes.iter().zip(&places).filter(|(_, place)| **place != 0) {
            tx.write_fresh(*place, &draft.image(self.version, resolve))?;
        }
        Ok(match resolve(self.drafts.root) {
            0 => RootWord::EMPTY,
            root => RootWord::new(root, 0),
        })
    }
}
