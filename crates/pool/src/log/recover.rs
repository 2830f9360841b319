//! Recovery: bringing the pool to the state after the last record that is complete.
//!
//! A lane's newest record is complete if the bytes that it covers match their sum: no live record changes
//! them (`log/mod.rs`, L3 and L4). If they do not match, the newest complete record is the one before it.
//! That one needs no such check, because its successor was begun after the fence that made it durable. The
//! live records are those of the half with the newest complete record; if that is the first of its half, also
//! those of the other half (L6). Records up to the watermark or the lane's `retired` word are dead.
//!
//! Live records are replayed in the order of their sequence numbers, and their homes made durable together.
//! Then one word, the watermark, declares all records up to the highest number seen dead. That includes the
//! number of an incomplete record: if a later record had the same number and payload, chained through the
//! same block, it would complete the old one.
//!
//! After a crash inside recovery, the next recovery finds the same records. Changes are idempotent, so a
//! partial replay before it is harmless.

use super::record::{Change, Half, RECORDS_MIN, read_half};
use crate::layout::{Geometry, MAX_SEQ, PmHeader, PmLane, WATERMARK_BITS, seal, unseal};
use crate::{Error, ErrorKind, Result};
use tembo_pmem::{Region, offset_of};

/// The work of recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records that were complete and were replayed.
    pub records_replayed: u64,
    /// Incomplete records, which were discarded; none of them was acknowledged.
    pub records_discarded: u64,
}

const WATERMARK_OFF: u64 = offset_of!(PmHeader, watermark) as u64;

/// Replays the live records; returns the highest sequence number in use. `begin` is called once it is certain
/// that the pool can be recovered, before anything is stored.
pub(crate) fn recover(
    region: &Region,
    geometry: &Geometry,
    seed: u64,
    begin: impl FnOnce() -> Result<()>,
) -> Result<(u64, Recovery)> {
    let watermark = read_watermark(region)?;
    let mut highest = watermark;
    let mut outcome = Recovery::default();
    let mut live: Vec<LiveRecord> = Vec::new();
    let mut entry_bytes = 0;
    for lane in 0..geometry.lane_count {
        let dead_to = read_retired(region, geometry, lane)?.max(watermark);
        // An intact `retired` word is not above the lane's records. If it is damaged and higher, later
        // records get numbers above it.
        highest = highest.max(dead_to);
        let mut halves = [Half::default(), Half::default()];
        for (number, half) in halves.iter_mut().enumerate() {
            *half = read_half(region, geometry, seed, (lane, number))?;
            highest = highest.max(half.highest_seq());
        }
        let last_seq = halves.iter().filter_map(Half::last_seq).max().unwrap_or(0);
        let is_unfinished = |half: &&Half| half.next_seq > last_seq.max(dead_to);
        outcome.records_discarded += halves.iter().filter(is_unfinished).count() as u64;
        let [first, second] = halves;
        let (mut newer, mut older) =
            if first.last_seq() > second.last_seq() { (first, second) } else { (second, first) };
        let doubtful = newer.records.last().filter(|last| last.seq > dead_to);
        if doubtful.is_some_and(|last| !last.covers_match(region, seed)) {
            outcome.records_discarded += 1;
            newer.records.pop();
        }
        if newer.records.len() >= RECORDS_MIN {
            older.records.clear();
        }
        for record in older.records.iter().chain(&newer.records).filter(|record| record.seq > dead_to) {
            entry_bytes += record.entry_bytes();
            if entry_bytes > region.len() {
                let off = geometry.lane_off(lane);
                let expected = "records that the pool has room for";
                return Err(Error::corrupt("the lanes", off, expected, format!("{entry_bytes} bytes")));
            }
            live.push((record.seq, lane, record.changes(region, geometry)?));
        }
    }
    outcome.records_replayed = live.len() as u64;
    begin()?;
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
        .ok_or_else(|| ErrorKind::HeaderDamaged { what: format!("its watermark is {word:#x}") }.into())
}

/// Declares all records up to `seq` dead. Their home stores must be durable.
pub(crate) fn write_watermark(region: &Region, seq: u64) -> Result<()> {
    region.store_u64(WATERMARK_OFF, seal(seq, WATERMARK_BITS))?;
    // PERSIST(I6): the watermark is durable before any new record is written.
    region.persist(WATERMARK_OFF, 8)?;
    Ok(())
}
