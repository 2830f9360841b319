//! Changes of records, each made in full or not at all.
//!
//! One undo point is enough for a change: its own, or that of a caller who takes back more than this change
//! ([`WbTree::change_without_undo`]).
//!
//! A change frees a part of the cleared trees in its own transaction. If it finds no space even so, separate
//! transactions before it free more: a rollback of the change would otherwise undo its frees each time.

use super::WbTree;
use crate::error::{Error, Result};
use tembo_pool::Tx;

/// Steps of freeing a cleared tree that every change takes.
const RECLAIM_STEPS: usize = 1;

impl WbTree {
    /// Makes a change of records, in full or not at all. Frees a part of the cleared trees first. If the
    /// change finds no space, and nothing else is in its transaction, frees more and tries again.
    #[inline(always)]
    pub(crate) fn change<T>(
        &self,
        tx: &mut Tx<'_>,
        mut change: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let before = tx.savepoint();
        let mut steps = 0;
        // The change is called in one place only, so that the compiler inlines it.
        loop {
            match self.change_without_undo(tx, &mut change) {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => {
                    tx.rollback_to(before);
                    self.make_room(tx, failure, &mut steps)?;
                }
            }
        }
    }

    /// Frees a part of the cleared trees, and makes a change of records. After an error the transaction may
    /// hold a part of the change: the caller must roll it back to a savepoint from before.
    #[inline(always)]
    pub(crate) fn change_without_undo<T>(
        &self,
        tx: &mut Tx<'_>,
        change: impl FnOnce(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        if tx.load(self.doomed_off())? != 0 {
            self.reclaim(tx, RECLAIM_STEPS)?;
        }
        change(tx)
    }

    /// Frees more of the cleared trees, for a change that found no space. Its transaction was rolled back to
    /// before the change.
    ///
    /// # Errors
    ///
    /// The failure, if the change must not be tried again.
    #[cold]
    #[inline(never)]
    fn make_room(&self, tx: &mut Tx<'_>, failure: Error, steps: &mut u64) -> Result<()> {
        if !failure.is_full() || tx.load(self.doomed_off())? == 0 {
            return Err(failure);
        }
        if !tx.is_empty() {
            // The transaction has other changes, which must not be committed here.
            self.reclaim(tx, RECLAIM_STEPS)?;
            return Err(failure);
        }
        // Each transaction makes one step, because the record of one step always finds room. A failing change
        // searches the whole pool for space, so it is tried again only after 1, 2, 4, 8, ... steps.
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
