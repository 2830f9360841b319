//! The handle of the log, and the state that the log owns.

use super::lane::{LaneSlot, Lanes};
use super::line_owners::LineOwnerTable;
use super::recover::write_watermark;
use crate::layout::Geometry;
use crate::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use tembo_pmem::{LINE_BYTES, Region, SyncError};
use tembo_sync::Epochs;

/// The log of an open pool, and the memory that its records change.
pub(crate) struct Log {
    pub region: Region,
    pub geometry: Geometry,
    /// Makes this pool's checksums differ from those of other pools.
    pub seed: u64,
    pub slots: Box<[LaneSlot]>,
    pub line_owners: LineOwnerTable,
    pub epochs: Epochs,
    /// Set when the device failed.
    failed: AtomicBool,
}

impl Log {
    /// The log of a pool that was recovered, or is new; `seq` is the highest sequence number in use.
    pub(crate) fn new(region: Region, geometry: Geometry, seed: u64, seq: u64) -> Log {
        Log {
            region,
            geometry,
            seed,
            slots: (0..geometry.lane_count).map(|number| LaneSlot::new(number, seq)).collect(),
            line_owners: LineOwnerTable::new(geometry.lane_count),
            epochs: Epochs::default(),
            failed: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    pub(crate) fn slot(&self, lane: u32) -> &LaneSlot {
        &self.slots[lane as usize]
    }

    #[inline(always)]
    pub(crate) fn lanes(&self) -> Lanes<'_> {
        Lanes { slots: &self.slots, region: &self.region, geometry: &self.geometry }
    }

    /// Takes the lowest free lane, so that a single writer always has the same.
    pub(crate) fn take_lane(&self) -> Result<u32> {
        for slot in self.slots.iter() {
            if slot.in_use.swap(true, Ordering::AcqRel) {
                continue;
            }
            if slot.number > 0
                && let Err(e) = self.line_owners.turn_on(self.lanes(), slot.number)
            {
                slot.in_use.store(false, Ordering::Release);
                return Err(e);
            }
            return Ok(slot.number);
        }
        Err(ErrorKind::NoLane { lanes: self.geometry.lane_count }.into())
    }

    /// Makes the lane's home stores durable and retires its records. Returns its sequence number.
    pub(crate) fn checkpoint(&self, lane: u32) -> Result<u64> {
        self.lanes().checkpoint(self.slot(lane))
    }

    /// Whether the device failed, so that the outcome of the last commit is unknown.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// A fence; its failure makes the pool unusable until it is opened again.
    #[inline(always)]
    pub(super) fn fence(&self) -> Result<()> {
        // PERSIST(I4): for commits; `commit.rs` says which lines have to be durable.
        self.region.fence().map_err(|e| self.fail(e))
    }

    #[cold]
    fn fail(&self, e: SyncError) -> Error {
        self.failed.store(true, Ordering::Release);
        ErrorKind::Sync(e).into()
    }

    /// Declares all records dead, if this opening has written any.
    pub(crate) fn close(&self) -> Result<()> {
        if !self.slots.iter().any(|slot| slot.lock().commits > 0) {
            return Ok(());
        }
        let mut seq = 0;
        for slot in &self.slots {
            let state = slot.lock();
            seq = seq.max(state.seq);
            state.home_lines.iter().for_each(|line| self.region.flush(line * LINE_BYTES, 1));
        }
        // PERSIST(I6): the home words are durable before the watermark declares their records dead.
        self.region.fence()?;
        write_watermark(&self.region, seq)
    }
}
