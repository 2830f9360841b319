//! Rollback of changes of an unfinished version: of one that failed, or of all since a savepoint.
//!
//! Before a change first touches a draft, a copy of the draft is put aside. If the change fails, the copies
//! replace the drafts. If it succeeds, they are dropped or, if there is a savepoint, kept for it: each draft
//! once, as it was at the savepoint. Lists of nodes and stamps are truncated to their earlier lengths.

use super::super::queue::Dead;
use super::draft::NodeDraft;
use super::ordered::TreeBuilder;
use super::stamps::Touched;
use crate::error::Result;
use std::collections::HashMap;
use tembo_pool::Tx;

/// The state for rolling changes back.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    /// The number of changes so far.
    changes: u64,
    /// The number of the change under way, if it can be rolled back; else 0.
    change: u64,
    /// The number of drafts before that change.
    drafts_before: usize,
    /// Copies of drafts from before that change.
    of_change: Vec<(usize, NodeDraft)>,
    /// A frame for each savepoint that was followed by a change.
    frames: Vec<Frame>,
    /// The savepoint of the last frame.
    savepoint: u64,
}

impl Undo {
    /// Begins with an unchanged version.
    pub(super) fn clear(&mut self) {
        if self.changes > 0 {
            (self.changes, self.change, self.drafts_before, self.savepoint) = (0, 0, 0, 0);
            self.of_change.clear();
            self.frames.clear();
        }
    }
}

/// The state needed to return to a savepoint.
#[derive(Debug)]
struct Frame {
    savepoint: u64,
    then: Counts,
    /// Copies of drafts from that time, of drafts that changed before the tree was cleared.
    drafts: Vec<(usize, NodeDraft)>,
    /// The drafts that existed when the tree was cleared.
    cleared: Option<Box<Cleared>>,
}

/// The counts and flags of a version under construction.
#[derive(Debug, Clone, Copy)]
struct Counts {
    root: u64,
    root_level: usize,
    length: u64,
    drafts: usize,
    touched: usize,
    dead: usize,
    is_changed: bool,
    more_steps: usize,
}

/// The drafts that clearing a tree removes from a version under construction.
#[derive(Debug)]
pub(crate) struct Cleared {
    drafts: Vec<NodeDraft>,
    by_off: HashMap<u64, usize>,
    touched: Touched,
    dead: Vec<Dead>,
}

impl TreeBuilder {
    /// Makes a change in full or, if it fails, not at all. `savepoint` is the number of the last savepoint,
    /// which rises, or 0 if there was none.
    pub(crate) fn attempt<T>(
        &mut self,
        tx: &mut Tx<'_>,
        savepoint: u64,
        body: impl FnOnce(&mut TreeBuilder, &mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        if savepoint > self.drafts.undo.savepoint {
            self.drafts.undo.savepoint = savepoint;
            let then = self.counts();
            self.drafts.undo.frames.push(Frame { savepoint, then, drafts: Vec::new(), cleared: None });
        }
        let (begin, before) = (tx.savepoint(), self.counts());
        self.drafts.undo.changes += 1;
        (self.drafts.undo.change, self.drafts.undo.drafts_before) = (self.drafts.undo.changes, before.drafts);
        let outcome = body(self, tx);
        self.drafts.undo.change = 0;
        match outcome {
            Ok(outcome) => {
                self.keep_copies();
                Ok(outcome)
            }
            Err(e) => {
                tx.rollback_to(begin);
                let copies = std::mem::take(&mut self.drafts.undo.of_change);
                self.restore(before, copies);
                self.is_broken = false;
                Err(e)
            }
        }
    }

    /// Undoes all changes since a savepoint. The caller rolls back the transaction.
    pub(crate) fn roll_back_to(&mut self, savepoint: u64) {
        // The next change makes a frame for the savepoint again.
        self.drafts.undo.savepoint = self.drafts.undo.savepoint.min(savepoint.saturating_sub(1));
        while self.drafts.undo.frames.last().is_some_and(|frame| frame.savepoint >= savepoint) {
            let Some(frame) = self.drafts.undo.frames.pop() else { break };
            if let Some(cleared) = frame.cleared {
                let Cleared { drafts, by_off, touched, dead } = *cleared;
                (self.drafts.nodes, self.drafts.by_off, self.drafts.touched) = (drafts, by_off, touched);
                self.dead = dead;
            }
            self.restore(frame.then, frame.drafts);
        }
    }

    /// Puts a copy of a draft aside, unless this change has done so already.
    pub(crate) fn set_aside(&mut self, draft: usize) {
        let Undo { change, drafts_before, .. } = self.drafts.undo;
        if change == 0 || draft >= drafts_before || self.drafts.nodes[draft].set_aside.0 == change {
            return;
        }
        self.drafts.undo.of_change.push((draft, self.drafts.nodes[draft].clone()));
        self.drafts.nodes[draft].set_aside.0 = change;
    }

    /// Removes all drafts and dead blocks from the version; a savepoint keeps them.
    pub(crate) fn take_drafts(&mut self) {
        let cleared = Cleared {
            drafts: std::mem::take(&mut self.drafts.nodes),
            by_off: std::mem::take(&mut self.drafts.by_off),
            touched: std::mem::take(&mut self.drafts.touched),
            dead: std::mem::take(&mut self.dead),
        };
        self.drafts.undo.of_change.clear();
        if let Some(frame) = self.drafts.undo.frames.last_mut()
            && frame.cleared.is_none()
        {
            frame.cleared = Some(Box::new(cleared));
        }
    }

    fn keep_copies(&mut self) {
        let Undo { of_change, frames, savepoint, .. } = &mut self.drafts.undo;
        let Some(frame) = frames.last_mut().filter(|frame| frame.cleared.is_none()) else {
            of_change.clear();
            return;
        };
        for (draft, copy) in of_change.drain(..) {
            if draft < frame.then.drafts && self.drafts.nodes[draft].set_aside.1 != *savepoint {
                self.drafts.nodes[draft].set_aside.1 = *savepoint;
                frame.drafts.push((draft, copy));
            }
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            root: self.drafts.root,
            root_level: self.drafts.root_level,
            length: self.length,
            drafts: self.drafts.nodes.len(),
            touched: self.drafts.touched.len(),
            dead: self.dead.len(),
            is_changed: self.is_changed,
            more_steps: self.more_steps,
        }
    }

    fn restore(&mut self, then: Counts, copies: Vec<(usize, NodeDraft)>) {
        self.drafts.nodes.truncate(then.drafts);
        self.drafts.by_off.retain(|_, draft| *draft < then.drafts);
        self.drafts.touched.truncate(then.touched);
        self.dead.truncate(then.dead);
        copies.into_iter().rev().for_each(|(draft, copy)| self.drafts.nodes[draft] = copy);
        (self.drafts.root, self.drafts.root_level, self.length) = (then.root, then.root_level, then.length);
        (self.is_changed, self.more_steps) = (then.is_changed, then.more_steps);
    }
}
