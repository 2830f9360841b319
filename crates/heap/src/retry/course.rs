//! The course of a transaction that is nested or is retried.

use crate::error::Result;
use crate::retry::backoff::Backoff;
use crate::retry::quiet::distrust_quiet;
use crate::retry::serial::{SerialTurn, wait_for_turn};
use crate::stm::active_tx::ActiveTx;
use crate::stm::hazards::ValidationMode;
use crate::stm::running::{self, Running};
use crate::stm::shared::HeapShared;

/// After this many attempts a transaction runs serially.
const ATTEMPTS_MAX: u32 = 12;
/// After this many attempts inside a transaction of another heap, that one is retried too: it may own a
/// record for which another thread waits, while that thread owns a record for which this one waits.
const INSIDE_MAX: u32 = 4;
const _: () = assert!(
    INSIDE_MAX < ATTEMPTS_MAX,
    "a transaction inside one of another heap neither runs serially nor waits for that"
);

/// Either part of another transaction of the heap, or a retry.
pub(super) enum Course<'c> {
    Nested(Box<Nested<'c>>),
    Retry(Retry<'c>),
}

impl<'c> Course<'c> {
    #[cold]
    #[inline(never)]
    pub(super) fn find(shared: &'c HeapShared) -> Result<Option<Course<'c>>> {
        if let Some(outer) = running::of(shared) {
            outer.check_nested()?;
            return Ok(Some(Course::Nested(Box::new(Nested::begin(outer)))));
        }
        wait_for_turn(shared);
        Ok(None)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn find_to_write(shared: &'c HeapShared) -> Result<Option<Course<'c>>> {
        match Course::find(shared)? {
            None if shared.pool.is_read_only() => Err(tembo_pool::ErrorKind::ReadOnly.into()),
            course => Ok(course),
        }
    }

    /// The mode of the next attempt to write, if there is to be one.
    #[cold]
    #[inline(never)]
    pub(super) fn next_mode(
        course: &mut Option<Course<'c>>,
        shared: &'c HeapShared,
        was_optimistic: bool,
    ) -> Option<ValidationMode> {
        if was_optimistic {
            // The reads may still have been valid.
            distrust_quiet();
            wait_for_turn(shared);
            return Some(ValidationMode::Validated);
        }
        Course::retry(course, shared).then_some(ValidationMode::Eager)
    }

    /// Waits before the next attempt. Returns whether there is to be one; otherwise the transactions of other
    /// heaps around this one are retried.
    #[cold]
    #[inline(never)]
    pub(super) fn retry(course: &mut Option<Course<'c>>, shared: &'c HeapShared) -> bool {
        if !matches!(course, Some(Course::Retry(_))) {
            *course = Some(Course::Retry(Retry::new()));
        }
        let Some(Course::Retry(retry)) = course else { return true };
        if retry.backoff.attempts() >= INSIDE_MAX && running::is_any() {
            running::doom_all();
            return false;
        }
        retry.prepare(shared);
        true
    }
}

/// A transaction that is part of another one of its heap, whose state it borrows.
pub(super) struct Nested<'c> {
    outer: Running<'c>,
    pub active: ActiveTx,
}

impl<'c> Nested<'c> {
    fn begin(outer: Running<'c>) -> Nested<'c> {
        let active = outer.active().lend();
        Nested { outer, active }
    }
}

/// Gives the state back, however the nested transaction ends.
impl Drop for Nested<'_> {
    fn drop(&mut self) {
        self.outer.active().take_back(&self.active);
    }
}

/// Attempts after a conflict.
pub(super) struct Retry<'c> {
    backoff: Backoff,
    turn: Option<SerialTurn<'c>>,
}

impl<'c> Retry<'c> {
    fn new() -> Retry<'c> {
        Retry { backoff: Backoff::new(), turn: None }
    }

    /// Waits before another attempt, and takes the serial turn after too many.
    fn prepare(&mut self, shared: &'c HeapShared) {
        self.backoff.wait();
        if self.backoff.attempts() == ATTEMPTS_MAX {
            self.turn = Some(SerialTurn::begin(shared));
        }
        if self.turn.is_none() {
            wait_for_turn(shared);
        }
    }
}
