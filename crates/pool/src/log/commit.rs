//! The commit of a record: its flushes and its one fence (`log/mod.rs`, Commit point).
//!
//! A transaction gathers the record's contents and its lines, [locks](Log::lock_lane) the lane, and
//! [appends](Log::append) the record. Then it stores the home words under the same lock.

use super::handle::Log;
use super::image::RecordImage;
use super::lane::{LaneSlot, LaneState, RecordSlot, Tail};
use crate::layout::MAX_SEQ;
use crate::{Error, Result};
use tembo_pmem::LINE_BYTES;
use tembo_sync::SpinMutexGuard;

/// A lane whose lock is held for a commit.
pub(crate) struct LockedLane<'s> {
    pub state: SpinMutexGuard<'s, LaneState>,
    /// Whether no other lane is in use.
    pub is_only_lane: bool,
    /// The number that the record's must exceed.
    pub least_seq: u64,
}

/// A record that is about to be written.
pub(crate) struct NewRecord<'r> {
    pub image: &'r mut RecordImage,
    /// Where the payload lies if it does not follow the head, or 0.
    pub chain: u64,
    /// The number that the record's must exceed.
    pub least_seq: u64,
    /// Lines of new data that were not flushed yet.
    pub fresh_lines: &'r [u64],
    /// Lines of the words that the record changes.
    pub home_lines: &'r [u64],
    /// Whether the new data is to be durable before the record.
    pub fences_first: bool,
}

impl Log {
    /// Locks the lane, when no other one has a live record for any of the lines. `lines` gives those of
    /// `changes`, as far as they are needed.
    #[inline(always)]
    pub(crate) fn lock_lane<'s, C>(
        &self,
        slot: &'s LaneSlot,
        changes: &mut C,
        lines: impl Fn(&mut C) -> &[u64],
    ) -> Result<LockedLane<'s>> {
        let mut is_only_lane = true;
        let mut least_seq = 0;
        loop {
            if self.line_owners.is_on() {
                least_seq = self.line_owners.checkpoint_others(self.lanes(), slot.number, lines(changes))?;
                is_only_lane = false;
            }
            let state = slot.lock();
            // ORDER: a thread that turns the line owners on checkpoints this lane afterwards, under its lock.
            // If that has happened by now, this record would have no owner.
            if !is_only_lane || !self.line_owners.is_on() {
                return Ok(LockedLane { state, is_only_lane, least_seq });
            }
        }
    }

    /// Writes a record and makes it durable, with its new data: the commit. `tail` becomes the lane's new
    /// one.
    #[inline(always)]
    pub(crate) fn append(
        &self,
        slot: &LaneSlot,
        state: &mut LaneState,
        tail: &mut Tail,
        record: NewRecord<'_>,
    ) -> Result<()> {
        let (seq, place) = self.complete(state, &mut *record.image, record.chain, record.least_seq)?;
        self.flush(slot, state, place, &record)?;
        // Volatile state that no other thread sees before the lock is released changes while the flushes are
        // under way: stores that follow the fence would wait for it, and soon the processor for room for
        // them. (If the fence fails, so does every later one, so that no checkpoint ever relies on these
        // notes.)
        *tail = state.note_record(seq, place, record.home_lines);
        if !self.region.streams_single_lines() {
            // The next record's first lines were flushed some time ago, and may have left the cache with
            // that.
            let next_off = state.next_off(&self.geometry, slot.number);
            self.region.prefetch_for_store(next_off);
            self.region.prefetch_for_store(next_off + LINE_BYTES);
        }
        // PERSIST(L6): the commit point. New data and record are durable after this fence; and if the record
        // switches halves, so are the home stores of all records before it.
        self.fence()?;
        if place.ends_switch() {
            slot.note_switched(state.commits);
        }
        Ok(())
    }

    /// Gives the record its number and its place, and completes its image.
    #[inline(always)]
    fn complete(
        &self,
        state: &LaneState,
        image: &mut RecordImage,
        chain: u64,
        least_seq: u64,
    ) -> Result<(u64, RecordSlot)> {
        let seq = state.seq.max(least_seq) + 1;
        if seq >= MAX_SEQ {
            return Err(Error::corrupt("the last sequence number", 0, format!("less than {MAX_SEQ}"), seq));
        }
        // Summed before any flush: the checksum reads new data, whose lines would be on their way out of the
        // cache.
        image.complete(&self.region, self.seed, seq, chain)?;
        let inline_bytes = if chain == 0 { image.payload_bytes() } else { 0 };
        Ok((seq, state.next_slot(&self.geometry, inline_bytes, chain != 0)))
    }

    /// Starts every write-back of the commit.
    ///
    /// All flushes are issued here, just before the fence: the processor orders write-backs before any locked
    /// instruction too, so that one flushed earlier would be waited for at the next lock or counter.
    #[inline(always)]
    fn flush(
        &self,
        slot: &LaneSlot,
        state: &LaneState,
        place: RecordSlot,
        record: &NewRecord<'_>,
    ) -> Result<()> {
        if place.switches {
            self.region.flush_lines(&state.home_lines);
        }
        self.region.flush_lines(record.fresh_lines);
        if record.fences_first {
            // PERSIST(I4): without covers the record alone vouches for the new data, so that has to be
            // durable first.
            self.fence()?;
        }
        self.write(record.image, place.off(&self.geometry, slot.number), record.chain)
    }

    /// Writes the record where no live one is, and starts its write-back. Its words may arrive in any order:
    /// it is complete when its checksum says so.
    fn write(&self, image: &RecordImage, off: u64, chain: u64) -> Result<()> {
        // SAFETY: the place is this lane's, whose lock is held; the chain block is reserved for it.
        unsafe {
            if chain == 0 {
                self.region.write_and_flush(off, image.whole())?;
            } else {
                let (head, payload) = image.parts();
                self.region.write_and_flush(chain, payload)?;
                self.region.write_and_flush(off, head)?;
            }
        }
        Ok(())
    }
}
