//! A moment without live records, in which no lane commits.

use super::handle::Log;
use super::recover::write_watermark;
use crate::Result;
use tembo_pmem::LINE_BYTES;

impl Log {
    /// Calls `body` while no lane commits and no record is live. Commits wait meanwhile, so it does little.
    ///
    /// # Errors
    ///
    /// Those of a fence, and of `body`.
    pub(crate) fn while_quiet<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        // A thread that holds a lane's state waits for no other lane's, so there is no circle of waiting
        // threads.
        let mut states: Vec<_> = self.slots.iter().map(|slot| slot.lock()).collect();
        let is_dead = |number: usize| states[number].commits == self.slots[number].dead_to();
        if !(0..states.len()).all(is_dead) {
            let seq = states.iter().map(|state| state.seq).max().unwrap_or(0);
            let lines = states.iter().flat_map(|state| &state.home_lines);
            lines.for_each(|line| self.region.flush(line * LINE_BYTES, 1));
            // PERSIST(I6): the home words are durable before the watermark declares their records dead.
            self.fence()?;
            write_watermark(&self.region, seq)?;
            for (slot, state) in self.slots.iter().zip(&mut states) {
                // Later records of any lane have numbers above the watermark.
                state.seq = seq;
                slot.note_all_dead(state);
            }
        }
        body()
    }
}
