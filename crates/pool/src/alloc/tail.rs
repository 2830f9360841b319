//! The free end of the pool, and how it is given up.
//!
//! # Layout
//!
//! The pool's length is one word of its header (`PmHeader::committed`). A zone that begins behind the end is
//! cut off with its head and its chunk table. In the zone that is kept in part, the frontier is lowered to
//! the new end; chunk words from there on are zero, as they were.
//!
//! # Invariants
//!
//! * T1: nothing behind the new end is allocated, reserved, in limbo, or in a live record. All chunks there
//!   are free in DRAM, where a chunk arrives only after limbo: no reader from before is left. The cut happens
//!   under the allocator's lock, so no thread takes one, and while no record is live (`Log::while_quiet`). So
//!   no record can have changed a word there, or raise a frontier beyond the end.
//! * T2: a zone's frontier is durably at or below the new end before the length is.
//! * T3: the length is durable before the region and its file become shorter.
//! * T4: a chunk that was used, and that a later growth adds again, is not taken for one that reads as zero
//!   (`zero_from` stays as it is, also in DRAM).
//!
//! # Commit point
//!
//! The store of the length. It is made durable by a fence of its own (T3).
//!
//! # Recovery
//!
//! Cut before the commit point: the frontier may be lower; all chunks above it are free, and it rises again
//! with the next block. After it: the file may be longer than the pool. An opening for writing cuts it, and
//! so does growth before it adds anything. No code reads that part.

use super::allocator::{Allocator, Shared};
use super::zone::Zone;
use crate::Result;
use tembo_pmem::Region;

/// How much of a free end is given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CutRule {
    /// The pool stays this long.
    pub floor_bytes: u64,
    /// Bytes that stay behind the last block, in addition to those that are kept for removals.
    pub slack_bytes: u64,
    /// Nothing is done for less than this.
    pub least_bytes: u64,
    /// The pool becomes shorter by about this much at most.
    pub most_bytes: u64,
}

impl Allocator {
    /// The length to which the pool can be cut.
    pub(crate) fn length_to_cut(&self, region: &Region, rule: CutRule) -> Option<u64> {
        self.shorter(&mut self.shared.lock(), region, rule)
    }

    /// Gives the free end up: `commit` makes a length durable, and then shortens the region. No record is
    /// live. Returns whether the pool has become shorter.
    pub(crate) fn cut(
        &self,
        region: &Region,
        rule: CutRule,
        commit: impl FnOnce(u64) -> Result<()>,
    ) -> Result<bool> {
        let mut shared = self.shared.lock();
        let Some(length) = self.shorter(&mut shared, region, rule) else { return Ok(false) };
        let count = self.geometry.zone_count(length) as usize;
        for zone in &shared.zones[..count] {
            let limit = self.geometry.zone_limit(zone.number, length);
            let off = self.geometry.zone_off(zone.number);
            if region.load_u64(off)? > limit {
                region.store_u64(off, limit)?;
                // PERSIST(T2): the frontier is durable before a length at or above it is.
                region.persist(off, 8)?;
            }
        }
        commit(length)?;
        shared.stuck.clear();
        shared.zones.truncate(count);
        for zone in &mut shared.zones {
            zone.cut(self.geometry.zone_limit(zone.number, length));
        }
        shared.unread.iter_mut().for_each(|slabs| slabs.retain(|slab| slab.zone < count as u64));
        shared.newest = shared.newest.min(count - 1);
        shared.scan_next = shared.scan_next.min(count);
        Ok(true)
    }

    /// The length of the pool without its free end, if that is much shorter.
    fn shorter(&self, shared: &mut Shared, region: &Region, rule: CutRule) -> Option<u64> {
        let (g, committed) = (&self.geometry, region.len());
        let header = g.zone_header_chunks();
        let used_end = |zone: &mut Zone| match zone.read(region, g) {
            Ok(()) => zone.used_end(),
            // A damaged zone stays.
            Err(_) => g.zone_limit(zone.number, committed),
        };
        let mut zones = shared.zones.iter_mut().rev().map(|zone| (zone.number, used_end(zone)));
        // The first zone is never given up.
        let (last, used_end) = zones.find(|(number, used_end)| *number == 0 || *used_end > header)?;
        let spare =
            self.kept_chunks_behind(g.chunk_off(last, used_end)) + rule.slack_bytes.div_ceil(g.chunk());
        let with_spare = if used_end + spare <= u64::from(g.zone_chunks) {
            g.chunk_off(last, used_end + spare)
        } else {
            g.chunk_off(last + 1, header + spare)
        };
        let floor = rule.floor_bytes.saturating_sub(g.zones_off()).div_ceil(g.chunk()) * g.chunk();
        let length = with_spare.max(g.zones_off() + floor).max(g.min_bytes());
        // A zone has its whole head, or nothing.
        let (zone, chunk) = g.locate(length)?;
        let in_head = 1..=header;
        let length = if in_head.contains(&chunk) { g.chunk_off(zone, header + 1) } else { length };
        if length >= committed || committed - length < rule.least_bytes.max(1) {
            return None;
        }
        let stop = committed.saturating_sub(rule.most_bytes).max(length);
        let (zone, chunk) = g.locate(stop)?;
        // A zone of which only the head would stay goes.
        let chunk = if in_head.contains(&chunk) { 0 } else { chunk };
        Some(g.chunk_off(zone, chunk).max(length))
    }
}

impl Zone {
    /// The chunk from which on all are free, as far as this process knows them.
    pub(super) fn used_end(&self) -> u64 {
        let last = self.runs().last().filter(|(start, chunks)| start + chunks == self.frontier);
        last.map_or(self.frontier, |(start, _)| start)
    }
}
