//! Resuming the ring of a killed process.
//!
//! A process that was killed in this boot left the page cache as it was. The next one need not wait for the
//! device ([`Journal::resume`]):
//!
//! 1. Step 1 of recovery. The head is written again, and synchronised.
//! 2. The lines of the records are stored in memory, in their order. They are home as far as the last process
//!    came, and wait in the ring for the next write-back.
//! 3. The process serves. In front of its first record is one with a new generation.
//! 4. Its first synchronisation writes the records that it found again, and synchronises the whole file.
//!    Until then none of them, and none of its own, counts as durable.
//!
//! The file sees the same writes and synchronisations as of one process that was not killed, apart from the
//! record of a generation and from contents that are written again as they are. So the proof above holds,
//! with these differences. *Heads*: the last process may have been killed between writing one and
//! synchronising it; step 1 makes up for that before anything relies on the head (I4, I5, I8). *The
//! incomplete record*, in which it was killed, is written over, and lies behind all complete ones (I1). *The
//! page cache and the device differ* where a synchronisation failed: the kernel takes pages for written that
//! the device has not, or drops them. In the first case step 4 writes them again before anything counts as
//! durable, write-backs write all lines from the tail on, and what is before the tail was synchronised. In
//! the second the records end at a hole, and complete ones of the last process may lie behind it: they have
//! another generation than the record that is written into the hole says (I6). If the power fails while that
//! one is not on the device, the device may have the old record in its place, and after it others of the last
//! process: those are the next of its fences, and nothing later was promised or written home. A process whose
//! synchronisation fails notes that in the heads, and the next one recovers; nothing depends on the note.
//!
//! Killed in 1 to 3, the next process finds the same, and a record of a generation more: any number of
//! processes may resume a ring one after the other. Power that fails: recovery, from the durable tail through
//! all generations.

use super::layout::{GENERATION_BYTES, encode_generation, next_generation};
use super::{Journal, JournalError, Medium, Records, State};
use crate::SyncError;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

impl Journal {
    /// Goes on in the ring that a killed process of this boot left, whose [records](Records::find) these are:
    /// nothing is written home, and only the heads are synchronised. The lines of the records belong into the
    /// region's memory. As [`open`](Self::open), if the process noted that the device had failed.
    ///
    /// # Errors
    ///
    /// Failures of the medium, and damage.
    pub fn resume(
        medium: Box<dyn Medium>,
        records: &Records,
        interval: Option<Duration>,
    ) -> Result<Journal, JournalError> {
        let Records { ring, change, has_failed, end, .. } = *records;
        if has_failed {
            return Journal::open(medium, ring.place, interval);
        }
        medium.prepare_range(ring.place.off, ring.most_bytes);
        // PERSIST(I4): the head that was found is on the device before the other copy is written, (I5) before
        // the space in front of its tail is, and (I8) before the part behind the end of an older one.
        ring.write_head(&*medium, change, ring.tail)?;
        ring.synchronise_heads(&*medium)?;
        let mut state = State::new(ring);
        (state.tail, state.durable, state.end) = (ring.tail, ring.tail, end);
        state.generation = records.generation;
        state.next_generation = Some(next_generation(records.generation));
        state.found = Some(*records);
        if ring.tail < end {
            // Some of them may have waited for long.
            (state.oldest, state.wanted) = (Some(Instant::now()), end);
        }
        Ok(Journal::over(medium, interval, change, state))
    }

    /// Visits the records with which the ring was resumed, if it was: their runs of lines, the contents, and
    /// the position behind them. Before the first record of this process.
    pub(crate) fn visit_found(&self, visit: impl FnMut(&[(u64, u64)], &[u8], u64)) -> std::io::Result<()> {
        let found = self.lock().found;
        found.map_or(Ok(()), |found| found.visit_again(&*self.medium, visit))
    }

    /// Begins the generation of this process in a ring that it resumed: in its first record there (I6).
    pub(super) fn begin_generation<'s>(
        &'s self,
        state: MutexGuard<'s, State>,
    ) -> Result<MutexGuard<'s, State>, SyncError> {
        if state.next_generation.is_none() {
            return Ok(state);
        }
        let mut state = self.wait_for_space(state, GENERATION_BYTES)?;
        // Another thread may have begun it meanwhile.
        if let Some(next) = state.next_generation {
            let (mut record, pos) = (Vec::new(), state.end);
            encode_generation(&mut record, state.generation, pos, next);
            if let Err(e) = state.ring.write(&*self.medium, pos, &record) {
                return Err(self.fail(&mut state, &e));
            }
            state.end += GENERATION_BYTES;
            (state.generation, state.next_generation) = (next, None);
        }
        Ok(state)
    }
}
