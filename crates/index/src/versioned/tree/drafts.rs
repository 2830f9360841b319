//! The drafts of a version under construction.

use super::super::view::View;
use super::draft::{NodeDraft, Words};
use super::layout::INNER_WORDS;
use super::path::Sought;
use super::stamps::Touched;
use super::undo::Undo;
use crate::error::Result;
use std::collections::HashMap;

/// The memory of up to this many drafts is kept for the next version.
const SPARE_MAX: usize = 16;

/// The drafts of a version under construction.
#[derive(Debug, Default)]
pub struct TreeDrafts {
    /// The root's offset, or a reference to its draft; 0 if there is no root.
    pub(super) root: u64,
    pub(super) root_level: usize,
    pub(super) nodes: Vec<NodeDraft>,
    /// From a node's offset to the number of its draft, once there are too many drafts to search.
    pub(super) by_off: HashMap<u64, usize>,
    pub(super) touched: Touched,
    /// Records that were written for entries from before. After a rollback some may belong to no entry; their
    /// blocks can only have been reused for other new records.
    pub(super) moved_out: Vec<u64>,
    pub(super) undo: Undo,
    /// The place of the key of the only change, as found before the version began.
    pub(super) sought: Option<Box<Sought>>,
    /// Spare memory for `sought`.
    pub(super) spare_sought: Option<Box<Sought>>,
    /// Spare memory for drafts.
    spare: Vec<Words>,
}

impl TreeDrafts {
    /// Begins a version; reuses the memory of an earlier one.
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

    /// Forgets the drafts after the first `count`; these have no changes.
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
