//! Resuming the ring of a killed process, or of one that closed its file.
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
//!
//! # A ring without records
//!
//! A process that closed its file left none: all lines are home. Steps 2 and 4 have nothing to do, so that
//! step 1 synchronises the whole file, the head with it, and that is the only synchronisation before the next
//! process serves. The file may be a copy that is on no device yet: it is from then on, before a record of
//! this process counts as durable. New records lie behind the end of the old ones, as after a kill, so that
//! I5 and I6 hold as they do there.
//!
//! The owner of the file may store a word that says that it is in use. Its record is the first of the
//! process, so the word is durable before anything else of the process is (I1). Copies that are made of the
//! file while it is in use have to show the word, too, and the record does not say that to one that is made
//! piece by piece. Therefore the line is also [shown at home](Journal::show_at_home) at once, an exception to
//! I3: the line may reach the device at home although its record does not. The state is then that of the
//! closing with another word, so that only a line may be shown of which any version is right until a later
//! record is durable.

use super::layout::{GENERATION_BYTES, encode_generation, next_generation};
use super::{Journal, JournalError, Medium, Records, State};
use crate::SyncError;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

impl Journal {
    /// Goes on in the ring that a killed process of this boot left, whose [records](Records::find) these are:
    /// nothing is written home, and only the heads are synchronised. The lines of the records belong into the
    /// region's memory. If there are none, it may also be the ring of a closed file, and the whole file is
    /// synchronised. As [`open`](Self::open), if the process noted that the device had failed.
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
        let has_none = records.is_empty();
        if has_none {
            // PERSIST(I3, I4): so is home, which may be a copy, before a new record is durable.
            medium.synchronise()?;
        } else {
            ring.synchronise_heads(&*medium)?;
        }
        let mut state = State::new(ring);
        (state.tail, state.durable, state.end) = (ring.tail, ring.tail, end);
        state.generation = records.generation;
        state.next_generation = Some(next_generation(records.generation));
        state.found = (!has_none).then_some(*records);
        if !has_none {
            // Some of them may have waited for long.
            (state.oldest, state.wanted) = (Some(Instant::now()), end);
        }
        Ok(Journal::over(medium, interval, change, state))
    }

    /// Writes lines home before their record is durable, and waits for no device: whoever reads the file sees
    /// them. Only for lines of which any version is right until a later record is durable.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the file cannot be written.
    pub(crate) fn show_at_home(&self, off: u64, lines: &[u8]) -> Result<(), SyncError> {
        // The file's pages change under this lock only.
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.medium.write(off, lines).map_err(|e| self.fail(&mut self.lock(), &e))
    }

    /// Bytes of the records with which the ring was resumed.
    pub(crate) fn found_bytes(&self) -> u64 {
        self.lock().found.map_or(0, |found| found.end - found.ring.tail)
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
            if let Err(e) = state.ring.append(&*self.medium, pos, &record) {
                return Err(self.fail(&mut state, &e));
            }
            state.end += GENERATION_BYTES;
            (state.generation, state.next_generation) = (next, None);
        }
        Ok(state)
    }
}
