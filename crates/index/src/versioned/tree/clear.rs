//! Removes everything, in time that does not depend on the size of the tree.
//!
//! The new version has no root. The nodes and records of the version before die as one subtree, which later
//! versions and collection take apart (`queue.rs`). Nodes that the new version had changed stay as they are
//! on media. Blocks made for the new version are given up here.

use super::super::dropped::{Load, Remains};
use super::super::layout::Form;
use super::super::queue::Dead;
use super::super::view::region;
use super::layout::{Field, entry_word};
use super::node::Node;
use super::ordered::TreeBuilder;
use crate::error::Result;
use tembo_pmem::Region;
use tembo_pool::Tx;

impl TreeBuilder {
    /// Removes everything.
    pub(crate) fn clear(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        self.check_whole()?;
        if self.length == 0 {
            return Ok(());
        }
        self.is_broken = true;
        let leaves = self.drafts.nodes.iter().filter(|draft| draft.level == 0 && !draft.is_gone);
        for leaf in leaves {
            for slot in leaf.live() {
                let is_ours =
                    leaf.start(slot) == self.version || self.drafts.moved_out.contains(&leaf.value(slot));
                if is_ours && leaf.form(slot)? == Form::Block {
                    tx.free(leaf.value(slot))?;
                }
            }
        }
        let before = self.before.root;
        let died = match before.is_empty() {
            true => None,
            false => {
                let birth = Node::open(region(tx), before.node(), before.level())?.birth();
                Some(Dead::subtree(before.node(), birth, self.version))
            }
        };
        self.take_drafts();
        self.dead.extend(died);
        (self.drafts.root, self.drafts.root_level, self.length) = (0, 0, 0);
        (self.is_changed, self.is_broken) = (true, false);
        Ok(())
    }
}

/// The parts of a dead subtree: its uppermost node, and the blocks that it leads to in its last version.
pub(super) fn parts(node: &Node<'_>, dead: &Dead) -> Result<Vec<Dead>> {
    let mut parts = vec![Dead::node(dead.off, dead.birth, dead.death)];
    for slot in node.slots_in(dead.death.saturating_sub(1)) {
        let birth = node.start(slot).version();
        if node.level() > 0 {
            // `child` checks that the level falls, so damaged links cannot form a circle.
            parts.push(Dead::subtree(node.child(slot)?.off, birth, dead.death));
        } else if node.form(slot)? == Form::Block {
            parts.push(Dead::record(node.field(slot, Field::Value), birth, dead.death));
        }
    }
    Ok(parts)
}

/// The blocks that a node of a dropped tree still leads to in a version.
pub(super) fn remains(region: &Region, load: &Load<'_>, off: u64, version: u64) -> Result<Remains> {
    let node = Node::open_any(region, off)?;
    let level = node.level();
    let mut remains = Remains { bytes: node.fences().node_bytes(level), ..Remains::default() };
    for slot in node.slots_in(version) {
        if level > 0 {
            let at = off + 8 * entry_word(level, slot, Field::Value) as u64;
            let child = load(at)?;
            if child != 0 {
                remains.children.push((at, child));
            }
        } else if node.form(slot)? == Form::Block {
            remains.records.push(node.field(slot, Field::Value));
        }
    }
    Ok(remains)
}
