//! The nodes of a version in the making.

use super::super::view::View;
use super::draft::{NodeDraft, Words};
use super::layout::INNER_WORDS;
use super::path::Sought;
use super::stamps::Touched;
use super::undo::Undo;
use crate::error::Result;
use std::collections::HashMap;

/// Drafts up to this many leave their memory to those of another version.
const SPARE_MAX: usize = 16;

/// The nodes of a version in the making.
#[derive(Debug, Default)]
pub struct TreeDrafts {
    /// The root's offset, or its number if it is new; 0 if there is none.
    pub(super) root: u64,
    pub(super) root_level: usize,
    pub(super) nodes: Vec<NodeDraft>,
    /// The numbers of drafts by their offsets, once there are more than can be searched.
    pub(super) by_off: HashMap<u64, usize>,
    pub(super) touched: Touched,
    /// Records that were written for entries from before. Some may have been taken back: their places can
    /// only get records that are new, too.
    pub(super) moved_out: Vec<u64>,
    pub(super) undo: Undo,
    /// Where the key of the only change is.
    pub(super) sought: Option<Box<Sought>>,
    /// Memory for that.
    pub(super) spare_sought: Option<Box<Sought>>,
    /// Memory for drafts.
    spare: Vec<Words>,
}

impl TreeDrafts {
    /// Begins with a version, with the memory of another.
    pub(super) fn begin(&mut self, before: View<'_>) -> Result<()> {
        (self.root, self.root_level) = (before.root.node(), before.root_level()?);
        while let Some(draft) = self.nodes.pop() {
            if self.spare.len() < SPARE_MAX {
                self.spare.push(draft.into_words());
            }
        }
        self.by_off.clear();
        self.touched.truncate(0);
        self.moved_out.clear();
        self.undo.clear();
        self.sought = None;
        Ok(())
    }

    /// Forgets the drafts behind the first `count`, in which nothing has changed.
    pub(super) fn unload(&mut self, count: usize) {
        for draft in self.nodes.drain(count..) {
            self.by_off.remove(&draft.id);
            self.spare.push(draft.into_words());
        }
    }

    /// Memory for a draft.
    pub(super) fn words(&mut self) -> Words {
        self.spare.pop().unwrap_or_else(|| Box::new([0; INNER_WORDS]))
    }
}
