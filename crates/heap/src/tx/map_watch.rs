//! The check that no nested transaction has changed a map between two steps of an iterator.

use crate::error::{ErrorKind, Result};
use crate::objects::brand::Brand;
use crate::tx::read::ReadTx;

/// Shows an iterator of a map whether a nested transaction between two of its steps has changed the map's
/// entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapWatch {
    writers_begun: u64,
    reshaped: usize,
}

impl MapWatch {
    pub(crate) fn begin<B: Brand>(tx: &ReadTx<'_, B>) -> MapWatch {
        let reshaped = tx.active.writer.borrow().as_ref().map_or(0, |writer| writer.reshaped.len());
        MapWatch { writers_begun: tx.writers_begun(), reshaped }
    }

    /// Refuses to go on if the map at `off` has changed.
    #[inline(always)]
    pub(crate) fn check<B: Brand>(&mut self, tx: &ReadTx<'_, B>, off: u64) -> Result<()> {
        if tx.writers_begun() == self.writers_begun { Ok(()) } else { self.find_change(tx, off) }
    }

    #[cold]
    fn find_change<B: Brand>(&mut self, tx: &ReadTx<'_, B>, off: u64) -> Result<()> {
        let before = self.reshaped;
        *self = MapWatch::begin(tx);
        let writer = tx.active.writer.borrow();
        let reshaped = writer.as_ref().map_or(&[][..], |writer| &writer.reshaped);
        if reshaped.get(before..).is_some_and(|new| new.iter().any(|(map, _)| *map == off)) {
            return Err(ErrorKind::MapChanged.into());
        }
        Ok(())
    }
}
