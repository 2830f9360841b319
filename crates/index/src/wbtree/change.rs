//! Changes of records, each made in full or not at all.
//!
//! A change frees a little of what was cleared, in its own transaction. If it finds no space all the same,
//! more is freed by transactions before it: otherwise what it frees would be taken back with it, each time.

use super::WbTree;
use crate::error::{Error, Result};
use tembo_pool::{Savepoint, Tx};

/// Steps of freeing a cleared tree that every change takes.
const RECLAIM_STEPS: usize = 1;

impl WbTree {
    /// Makes a change of records, in full or not at all, and before it frees a little of what was cleared.
    /// If the change finds no space, and its transaction is for nothing else, it is made again when more of
    /// that was freed.
    #[inline(always)]
    pub(crate) fn change<T>(
        &self,
        tx: &mut Tx<'_>,
        mut change: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let begin = tx.savepoint();
        if tx.load(self.doomed_off())? != 0 {
            self.reclaim(tx, RECLAIM_STEPS)?;
        }
        let mut before = tx.savepoint();
        let mut steps = 0;
        // The change is called in one place, so that the compiler makes it part of its caller.
        loop {
            match change(tx) {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => {
                    tx.rollback_to(before);
                    self.make_room(tx, begin, failure, &mut steps)?;
                    before = tx.savepoint();
                }
            }
        }
    }

    /// Frees more of what was cleared, for a change that found no space. Its transaction was taken back to
    /// before the change.
    ///
    /// # Errors
    ///
    /// The failure, when the change is not to be tried again.
    #[cold]
    #[inline(never)]
    fn make_room(&self, tx: &mut Tx<'_>, begin: Savepoint, failure: Error, steps: &mut u64) -> Result<()> {
        if !failure.is_full() || tx.load(self.doomed_off())? == 0 {
            return Err(failure);
        }
        if *steps == 0 {
            tx.rollback_to(begin);
            if !tx.is_empty() {
                // The rest of the transaction is not to be committed.
                self.reclaim(tx, RECLAIM_STEPS)?;
                return Err(failure);
            }
        }
        // A step at a time: the record of one step always finds room. A change that fails searches the
        // whole pool for space, and is tried again after 1, 2, 4, 8, ... steps.
        loop {
            let has_more = self.reclaim(tx, 1)?;
            tx.commit_and_begin()?;
            *steps += 1;
            if !has_more || steps.is_power_of_two() {
                return Ok(());
            }
        }
    }
}
