//! Removes everything, in time that does not depend on the size of the table.
//!
//! The new version has no root. The nodes and records of the version before die as one subtree, which later
//! versions and collection take apart (`queue.rs`). Blocks made for the new version are given up here.

use super::super::dropped::{Load, Remains};
use super::super::layout::Form;
use super::super::queue::Dead;
use super::super::view::region;
use super::hashed::HashBuilder;
use super::layout::HEAD_WORDS;
use super::node::{TrieNode, TriePlace};
use crate::error::Result;
use tembo_pmem::Region;
use tembo_pool::Tx;

impl HashBuilder {
    pub(super) fn clear_hashed(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        self.check_whole()?;
        if self.length == 0 {
            return Ok(());
        }
        self.change();
        for entry in self.drafts.entries() {
            if entry.form == Form::Block && entry.version == self.version {
                tx.free(entry.value)?;
            }
        }
        self.dead.clear();
        if !self.before.root.is_empty() {
            let root = TrieNode::open(region(tx), self.before.root.node(), 0)?;
            self.dead.push(Dead::subtree(root.off, root.birth, self.version));
        }
        self.drafts.clear();
        self.length = 0;
        self.is_broken = false;
        Ok(())
    }
}

/// The parts of a dead subtree: its uppermost node, and the blocks that it leads to.
pub(super) fn parts(region: &Region, dead: &Dead) -> Result<Vec<Dead>> {
    let node = TrieNode::open_any(region, dead.off)?;
    let mut parts = vec![Dead::node(dead.off, dead.birth, dead.death)];
    for place in 0..node.places() {
        match node.place(place)? {
            TriePlace::Child(off) => {
                let child = TrieNode::open(region, off, node.depth + 1)?;
                parts.push(Dead::subtree(off, child.birth, dead.death));
            }
            TriePlace::TrieEntry(entry) if entry.form == Form::Block => {
                parts.push(Dead::record(entry.value, entry.version, dead.death));
            }
            TriePlace::TrieEntry(_) | TriePlace::Empty => {}
        }
    }
    Ok(parts)
}

/// The blocks that a node of a dropped table still leads to.
pub(super) fn remains(region: &Region, load: &Load<'_>, off: u64) -> Result<Remains> {
    let node = TrieNode::open_any(region, off)?;
    let mut remains = Remains { bytes: node.media_bytes(), ..Remains::default() };
    for place in 0..node.places() {
        if let TriePlace::TrieEntry(entry) = node.place(place)?
            && entry.form == Form::Block
        {
            remains.records.push(entry.value);
        }
    }
    // Children precede entries, in the order of their places.
    let (children, _) = node.maps.counts(node.depth);
    for at in (0..children as u64).map(|child| off + 8 * (HEAD_WORDS as u64 + child)) {
        let child = load(at)?;
        if child != 0 {
            remains.children.push((at, child));
        }
    }
    Ok(remains)
}
