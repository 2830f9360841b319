//! Taking back changes of a version that is not finished: one that failed, or all since a savepoint.
//!
//! Before a change touches a node's draft for the first time, a copy of the draft is put aside; if the
//! change fails, the copies take their places again. If it succeeds they are forgotten, or, where there is
//! a savepoint, kept for that: each draft once, as it was then. Lists of nodes and stamps are cut to their
//! lengths from before.

use super::super::queue::Dead;
use super::draft::NodeDraft;
use super::ordered::TreeBuilder;
use super::stamps::Touched;
use crate::error::Result;
use std::collections::HashMap;
use tembo_pool::Tx;

/// The state that takes back changes.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    /// How many changes there were.
    changes: u64,
    /// The change that is being made and can be taken back, by its number; or 0.
    change: u64,
    /// How many drafts there were before it.
    drafts_before: usize,
    /// Drafts as they were before it.
    of_change: Vec<(usize, NodeDraft)>,
    /// A frame for each savepoint after which something changed.
    frames: Vec<Frame>,
    /// The savepoint that the last frame is for.
    savepoint: u64,
}

impl Undo {
    /// Begins with a version in which nothing has changed.
    pub(super) fn clear(&mut self) {
        if self.changes > 0 {
            (self.changes, self.change, self.drafts_before, self.savepoint) = (0, 0, 0, 0);
            self.of_change.clear();
            self.frames.clear();
        }
    }
}

/// How to go back to a savepoint.
#[derive(Debug)]
struct Frame {
    savepoint: u64,
    then: Counts,
    /// Drafts as they were then; of those that changed before the tree was cleared.
    drafts: Vec<(usize, NodeDraft)>,
    /// The drafts that there were when the tree was cleared.
    cleared: Option<Box<Cleared>>,
}

/// The counts and flags of a version in the making.
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

/// The drafts that clearing a tree takes out of a version in the making.
#[derive(Debug)]
pub(crate) struct Cleared {
    drafts: Vec<NodeDraft>,
    by_off: HashMap<u64, usize>,
    touched: Touched,
    dead: Vec<Dead>,
}

impl TreeBuilder {
    /// Makes a change as a whole or, if it fails, not at all. `savepoint` is greater than before if there
    /// has been a savepoint since the change before, and 0 as long as there was none.
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

    /// Takes back all changes since a savepoint. The caller sees to the transaction.
    pub(crate) fn roll_back_to(&mut self, savepoint: u64) {
        // A change after this makes a frame for the savepoint again.
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

    /// Puts a copy of a draft aside, unless that was done in this change.
    pub(crate) fn set_aside(&mut self, draft: usize) {
        let Undo { change, drafts_before, .. } = self.drafts.undo;
        if change == 0 || draft >= drafts_before || self.drafts.nodes[draft].set_aside.0 == change {
            return;
        }
        self.drafts.undo.of_change.push((draft, self.drafts.nodes[draft].clone()));
        self.drafts.nodes[draft].set_aside.0 = change;
    }

    /// Takes all drafts, and what died, out of the version; a savepoint keeps them.
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
