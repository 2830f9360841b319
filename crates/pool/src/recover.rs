//! Recovery: bringing the pool to the state after the last record that is complete.
//!
//! A lane's newest record is complete if the bytes that it vouches for match: no live record changes them (`lane.rs`, L3
//! and L4). If they do not, the newest complete one is the record before it, which needs no such look: the next one
//! was begun after the fence that made it durable. What is live are the records of the half that holds the newest complete
//! one; and if that is the first of its half, those of the other half too (L6).
//!
//! They are replayed in the order of their sequence numbers, and made durable together. Then one word, the
//! watermark, declares everything up to the highest number seen dead: also a number whose record is not complete, so
//! that no later writer reuses it and revives that record. The number of a record whose own bytes did not arrive is seen
//! only at the start of a half. Further on the place may hold anything, but it needs not be seen: at most one more than the
//! highest of the complete records, it will be no higher than what the lane writes before it comes to that place again,
//! and the reading of a half ends there.
//!
//! A crash inside recovery finds the same records again, and what it replayed already does no harm to a second replay.

use crate::layout::{Geometry, MAX_SEQ, PmHeader, PmLane, WATERMARK_BITS, seal, unseal};
use crate::record::{Change, Half, read_half};
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
    let mut outcome = Recovery::default();
    let mut live: Vec<LiveRecord> = Vec::new();
    let mut unfinished = Vec::new();
    for lane in 0..geometry.lane_count {
        let dead_to = read_retired(region, geometry, lane)?.max(watermark);
        // It is no higher than the number of one of the lane's records, unless it is damaged: even then later records
        // count.
        highest = highest.max(dead_to);
        let mut halves = [Half::default(), Half::default()];
        for (number, half) in halves.iter_mut().enumerate() {
            *half = read_half(region, geometry, seed, (lane, number))?;
            highest = highest.max(half.last_seq().unwrap_or(half.next_seq));
            unfinished.extend((half.next_seq > dead_to).then_some(half.next_seq));
        }
        let [first, second] = halves;
        let (mut newer, mut older) =
            if first.last_seq() > second.last_seq() { (first, second) } else { (second, first) };
        let doubtful = newer.records.last().filter(|last| last.seq > dead_to);
        if doubtful.is_some_and(|last| !last.covers_match(region, seed)) {
            outcome.records_discarded += 1;
            newer.records.pop();
            if newer.records.is_empty() {
                std::mem::swap(&mut newer, &mut older);
            }
        }
        if newer.records.len() > 1 {
            older.records.clear();
        }
        for record in older.records.iter().chain(&newer.records).filter(|record| record.seq > dead_to) {
            live.push((record.seq, lane, record.changes(region, geometry)?));
        }
    }
    outcome.records_replayed = live.len() as u64;
    // What is no record at all is no number either.
    outcome.records_discarded += unfinished.iter().filter(|seq| **seq <= highest + 1).count() as u64;
    replay(region, &mut live)?;
    if highest > watermark {
        write_watermark(region, highest)?;
    }
    Ok((highest, outcome))
}

/// Sequence number, lane and changes of a record that is to be replayed.
type LiveRecord = (u64, u32, Vec<(u64, Change)>);

fn replay(region: &Region, live: &mut [LiveRecord]) -> Result<()> {
    if live.is_empty() {
        return Ok(());
    }
    live.sort_by_key(|(seq, lane, _)| (*seq, *lane));
    for (off, change) in live.iter().flat_map(|(_, _, changes)| changes) {
        change.apply(region, *off, true)?;
        region.flush(*off, 8);
    }
    // PERSIST(I6): the homes are durable before the watermark declares their records dead.
    region.fence()?;
    Ok(())
}

/// The number up to which a lane's records are dead.
fn read_retired(region: &Region, geometry: &Geometry, lane: u32) -> Result<u64> {
    let off = geometry.lane_off(lane);
    let dead_to = region.load_u64(off + offset_of!(PmLane, retired) as u64)?;
    if dead_to >= MAX_SEQ {
        return Err(Error::corrupt("a lane's retired word", off, format!("less than {MAX_SEQ}"), dead_to));
    }
    Ok(dead_to)
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
