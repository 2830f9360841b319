//! Whether there is anything that was dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use tembo_pool::Tx;

/// Whether dropped maps still have blocks, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Dropped(AtomicBool);

impl Dropped {
    pub(crate) fn new(has_any: bool) -> Dropped {
        Dropped(AtomicBool::new(has_any))
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes whether dropped structures have blocks left. The caller has the writers' turn, so that the note
    /// is not late.
    pub(crate) fn note(&self, has_any: bool) {
        self.0.store(has_any, Ordering::Relaxed);
    }

    /// Frees a few blocks as part of the caller's transaction, which ignores errors of this.
    #[inline]
    pub(crate) fn reclaim_within(&self, tx: &mut Tx<'_>) {
        if self.has_any() {
            self.note(matches!(tembo_index::reclaim_dropped(tx, 1), Ok(true)));
        }
    }
}
