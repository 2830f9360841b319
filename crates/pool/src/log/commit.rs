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
    /// Checkpoints every other lane that may have a live record for one of the lines, and locks this lane.
    /// `lines` computes the lines of `changes`; it is called only if a second lane is in use.
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
            // ORDER: a thread that turns the line owners on checkpoints this lane afterwards, under this
            // lock. If that has happened already, this record would never be registered, so the loop starts
            // again.
            if !is_only_lane || !self.line_owners.is_on() {
                return Ok(LockedLane { state, is_only_lane, least_seq });
            }
        }
    }

    /// The commit: writes a record and makes it durable together with its new data. Stores the lane's new
    /// tail in `tail`.
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
        // Volatile state changes here, while the flushes are under way; no other thread sees it before the
        // lock is released. Stores after the fence would wait for it and soon fill the store buffer. (If the
        // fence fails, every later fence fails too, so no checkpoint ever relies on this state.)
        *tail = state.note_record(seq, place, record.home_lines);
        if !self.region.streams_single_lines() {
            // The next record's first lines were flushed some time ago, and the flush may have evicted them.
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

    /// Chooses the record's number and place, and completes its image.
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
        // The checksum reads the new data, so it is computed before any flush: a flush may evict those lines.
        image.complete(&self.region, self.seed, seq, chain)?;
        let inline_bytes = if chain == 0 { image.payload_bytes() } else { 0 };
        Ok((seq, state.next_slot(&self.geometry, inline_bytes, chain != 0)))
    }

    /// Starts every write-back of the commit.
    ///
    /// All flushes are issued here, just before the fence. A locked instruction, too, waits for earlier
    /// write-backs, so an earlier flush would delay the next lock or counter.
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
            // PERSIST(I4): a record without covers does not say whether the new data arrived, so the data is
            // durable before the record is written.
            self.fence()?;
        }
        self.write(record.image, place.off(&self.geometry, slot.number), record.chain)
    }

    /// Writes the record to a place without a live one, and starts its write-back. Its words may reach media
    /// in any order: the record counts once its checksum matches.
    fn write(&self, image: &RecordImage, off: u64, chain: u64) -> Result<()> {
        // SAFETY: the place belongs to this lane, whose lock is held; the chain block is reserved for it.
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
