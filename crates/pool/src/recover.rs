//! Recovery: bringing the pool to the state after the last record that is complete.
//!
//! At most two records per lane can matter. They are replayed in the order of their sequence numbers, each
//! made durable before the next is begun, since a later record may change bytes that an earlier one
//! vouches for. Then one word, the watermark, declares everything up to the highest number seen dead: also a
//! number in a slot whose record is not valid, so that no later writer reuses it and revives that record.
//!
//! A crash inside recovery finds the same records again, less those whose effect is durable already.

use crate::layout::{Geometry, MAX_SEQ, PmHeader, PmLane, WATERMARK_BITS, seal, unseal};
use crate::record::{SlotState, read_slot};
use crate::{Error, Result};
use tembo_pmem::{Region, offset_of};

/// What recovery did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records that were complete and were replayed.
    pub records_replayed: u64,
    /// Records that had begun to be written and were discarded; nothing in them was acknowledged.
    pub records_discarded: u64,
}

const WATERMARK_OFF: u64 = offset_of!(PmHeader, watermark) as u64;

/// Replays what has to be replayed; returns the highest sequence number in use.
pub(crate) fn recover(region: &Region, geometry: &Geometry, seed: u64) -> Result<(u64, Recovery)> {
    let watermark = read_watermark(region)?;
    let mut highest = watermark;
    let mut found = Vec::new();
    let mut outcome = Recovery::default();
    for lane in 0..geometry.lane_count {
        let dead_to = region.load_u64(geometry.lane_off(lane) + offset_of!(PmLane, retired) as u64)?;
        if dead_to >= MAX_SEQ {
            let off = geometry.lane_off(lane);
            return Err(Error::corrupt(
                "a lane's retired word",
                off,
                format!("less than {MAX_SEQ}"),
                dead_to,
            ));
        }
        // It is no higher than the number in one of the slots, unless it is damaged: even then later records count.
        highest = highest.max(dead_to);
        for slot in 0..2 {
            let (seq, record) = match read_slot(region, geometry, seed, lane, slot)? {
                SlotState::Invalid { seq } => (seq, None),
                SlotState::Valid(record) => (record.seq, Some(record)),
            };
            highest = highest.max(seq);
            if seq <= watermark || seq <= dead_to {
                continue;
            }
            match record {
                Some(record) => found.push(record),
                None => outcome.records_discarded += 1,
            }
        }
    }
    found.sort_by_key(|record| (record.seq, record.lane));
    for record in &found {
        for (off, change) in &record.changes {
            change.apply(region, *off, true)?;
            region.flush(*off, 8);
        }
        // PERSIST(L4): the next record may overwrite bytes that this one's checksum covers, so this one has to be
        // done for good before.
        region.fence()?;
    }
    outcome.records_replayed = found.len() as u64;
    if highest > watermark {
        write_watermark(region, highest)?;
    }
    Ok((highest, outcome))
}

fn read_watermark(region: &Region) -> Result<u64> {
    let word = region.load_u64(WATERMARK_OFF)?;
    unseal(word, WATERMARK_BITS)
        .ok_or_else(|| Error::HeaderDamaged { what: format!("its watermark is {word:#x}") })
}

/// Declares all records up to `seq` dead. Their home stores must be durable.
pub(crate) fn write_watermark(region: &Region, seq: u64) -> Result<()> {
    region.store_u64(WATERMARK_OFF, seal(seq, WATERMARK_BITS))?;
    // PERSIST(I6): no later record may have a number of a dead one before the watermark is durable.
    region.persist(WATERMARK_OFF, 8)?;
    Ok(())
}
