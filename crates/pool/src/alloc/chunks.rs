//! The allocator's chunks: taking them from zones, scanning zones, and growing the pool.

use super::allocator::{Allocator, Shared, check_process};
use super::block::Room;
use super::zone::{NEWEST_AT, Zone};
use crate::{Error, ErrorKind, Result};
use std::sync::atomic::Ordering;
use tembo_pmem::{Region, RegionError};

impl Allocator {
    /// Takes consecutive chunks. It tries free runs first, then chunks that were never used, then growing.
    /// Returns also whether the chunks read as zero.
    pub(super) fn take_chunks(
        &self,
        shared: &mut Shared,
        region: &Region,
        chunks: u64,
        room: &Room<'_>,
    ) -> Result<(u64, u64, bool)> {
        loop {
            if let Some(place) = self.take_used_or_new(shared, region, chunks, room.kept_chunks)? {
                if shared.missed_chunks <= chunks {
                    (shared.missed_chunks, shared.has_emptied_first) = (0, false);
                    shared.has_tried_run = false;
                }
                return Ok(place);
            }
            if self.scan_one(shared, region)? {
                continue;
            }
            if let Some(evacuated) = shared.evacuated.take() {
                if let Some(place) = self.take_used_or_new(shared, region, chunks, room.kept_chunks)? {
                    // There is no room elsewhere. New blocks lie there from now on, so none is moved.
                    self.has_closed.store(false, Ordering::Release);
                    self.miss_run_again(shared, region);
                    return Ok(place);
                }
                shared.evacuated = Some(evacuated);
            }
            let committed = region.len();
            let (least, wanted) = self.growth(shared, region, chunks, room.kept_chunks);
            (room.grow)(least, wanted).inspect_err(|_| {
                shared.missed_chunks = shared.missed_chunks.max(chunks);
            })?;
            self.note_growth(shared, committed - self.set_aside_bytes.min(committed));
            for zone in shared.zones.len() as u64..self.geometry.zone_count(region.len()) {
                shared.zones.push(Zone::new(zone));
            }
        }
    }

    fn take_used_or_new(
        &self,
        shared: &mut Shared,
        region: &Region,
        chunks: u64,
        kept_chunks: u64,
    ) -> Result<Option<(u64, u64, bool)>> {
        if !self.leaves(shared, region, chunks, kept_chunks)? {
            return Ok(None);
        }
        let evacuated = shared.evacuated.clone().unwrap_or(u64::MAX..u64::MAX);
        // The part of it in a zone.
        let part = |zone: u64| {
            let chunk_of =
                |off: u64| off.saturating_sub(self.geometry.zone_off(zone)).div_ceil(self.geometry.chunk());
            chunk_of(evacuated.start)..chunk_of(evacuated.end)
        };
        for zone in &mut shared.zones {
            if let Some(chunk) = zone.take_run(chunks, &part(zone.number)) {
                let (off, bytes) =
                    (self.geometry.chunk_off(zone.number, chunk), chunks * self.geometry.chunk());
                // This process or an earlier one may have given the run back to the file system.
                if let Err(e) = region.reallocate(off, bytes) {
                    zone.put_run(chunk, chunks);
                    return Err(full(bytes, &e));
                }
                return Ok(Some((zone.number, chunk, false)));
            }
        }
        let committed = region.len();
        let Shared { zones, newest, noted_newest, .. } = shared;
        // The search begins at the newest zone: looking at all zones of a large pool would take long.
        for number in (*newest..zones.len()).chain(0..*newest) {
            let zone = &mut zones[number];
            let mut limit = self.geometry.zone_limit(zone.number, committed);
            zone.read(region, &self.geometry)?;
            let part = part(zone.number);
            if zone.frontier < part.end {
                limit = limit.min(part.start);
            }
            if let Some((chunk, is_zero)) = zone.take_new(region, &self.geometry, chunks, limit)? {
                let found = zone.number;
                *newest = number;
                if found != *noted_newest {
                    *noted_newest = found;
                    region.store_u64(self.geometry.zone_off(0) + NEWEST_AT, found)?;
                }
                return Ok(Some((found, chunk, is_zero)));
            }
        }
        Ok(None)
    }

    /// Whether enough space is left once the chunks are taken: `kept_chunks` with half of them in one piece,
    /// or four times as many in pieces of any length.
    fn leaves(&self, shared: &mut Shared, region: &Region, chunks: u64, kept_chunks: u64) -> Result<bool> {
        if kept_chunks == 0 {
            return Ok(true);
        }
        let committed = region.len();
        let Shared { zones, newest, .. } = shared;
        let unused = |zone: &mut Zone| {
            zone.read(region, &self.geometry)?;
            Ok(self.geometry.zone_limit(zone.number, committed).saturating_sub(zone.frontier))
        };
        // This is nearly always true.
        if unused(&mut zones[*newest])? >= chunks + kept_chunks {
            return Ok(true);
        }
        let unused: Vec<u64> = zones.iter_mut().map(unused).collect::<Result<_>>()?;
        let runs = || zones.iter().flat_map(|zone| zone.runs().map(|(_, length)| length));
        let pieces = || runs().chain(unused.iter().copied());
        if pieces().any(|length| length >= chunks + kept_chunks) {
            return Ok(true);
        }
        // The piece that `take_chunks` would take: the first free run that is long enough, else a zone's
        // unused part.
        let in_order = (*newest..unused.len()).chain(0..*newest).map(|number| unused[number]);
        let Some(taken) = runs().chain(in_order).find(|length| *length >= chunks) else { return Ok(true) };
        let longest = pieces().filter(|length| *length != taken).max().unwrap_or(0);
        let has_equal = pieces().filter(|length| *length == taken).nth(1).is_some();
        let longest = longest.max(if has_equal { taken } else { taken - chunks });
        let left = pieces().sum::<u64>() - chunks;
        // Half is enough: a removal may take a chunk out of the longest piece, and writes must still be able
        // to use the space that it freed.
        Ok(left >= kept_chunks && longest >= kept_chunks / 2 || left >= 4 * kept_chunks)
    }

    /// Scans one more zone; false if all are scanned.
    pub(super) fn scan_one(&self, shared: &mut Shared, region: &Region) -> Result<bool> {
        while shared.scan_next > 0 {
            shared.scan_next -= 1;
            if !shared.zones[shared.scan_next].scanned {
                self.scan(shared, region, shared.scan_next)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn scan(&self, shared: &mut Shared, region: &Region, zone: usize) -> Result<()> {
        let mut found = Vec::new();
        shared.zones[zone].scan(region, &self.geometry, &self.classes, &mut found)?;
        for slab in found {
            // Slabs that this process has made or read are in its lists already.
            let off = self.geometry.chunk_off(slab.zone, slab.chunk);
            if !self.slabs.has(self.geometry.chunk_key(off)) {
                shared.unread[slab.class].push(slab);
            }
        }
        Ok(())
    }

    /// Scans a zone before one of its extents is freed. A later scan could take the extent for free while
    /// readers still look at it.
    pub(super) fn scan_zone(&self, region: &Region, zone: u64) -> Result<()> {
        check_process(region)?;
        let mut shared = self.shared.lock();
        match shared.zones.get(zone as usize) {
            Some(z) if !z.scanned => self.scan(&mut shared, region, zone as usize),
            _ => Ok(()),
        }
    }

    /// The least length at which the pool has room for `chunks` more besides `kept`, and the length that it
    /// should grow to.
    fn growth(&self, shared: &Shared, region: &Region, chunks: u64, kept: u64) -> (u64, u64) {
        let g = &self.geometry;
        let (header, zone_chunks) = (g.zone_header_chunks(), u64::from(g.zone_chunks));
        let last = shared.zones.last().map_or(0, |z| z.number);
        let frontier = shared.zones.last().map_or(header, |z| z.frontier);
        let least = if frontier + chunks + kept <= zone_chunks {
            g.chunk_off(last, frontier + chunks + kept)
        } else if header + chunks + kept <= zone_chunks {
            g.chunk_off(last + 1, header + chunks + kept)
        } else {
            g.chunk_off(last + 2, header + kept)
        };
        // Huge pages begin at multiples of their size.
        let wanted = (region.len() + region.growth_step(region.len())).next_multiple_of(2 << 20);
        (least, least.max(wanted.div_ceil(g.chunk()) * g.chunk()))
    }

    /// Scans all zones.
    #[cfg(test)]
    pub(crate) fn scan_all(&self, region: &Region) -> Result<()> {
        let mut shared = self.shared.lock();
        while self.scan_one(&mut shared, region)? {}
        Ok(())
    }

    /// Bytes in chunks that are known to be free.
    pub(crate) fn unused_bytes(&self, region: &Region) -> u64 {
        let mut shared = self.shared.lock();
        let unused = |zone: &mut Zone| {
            let limit = self.geometry.zone_limit(zone.number, region.len());
            // A damaged zone has no usable space.
            zone.read(region, &self.geometry)
                .map_or(0, |()| zone.free_chunks + limit.saturating_sub(zone.frontier))
        };
        shared.zones.iter_mut().map(unused).sum::<u64>() * self.geometry.chunk()
    }

    /// Gives the space of free runs of at least `least_bytes` back to the file system, from this offset on,
    /// and `most_bytes` of it at most. Returns the bytes, and the offset to go on at, if there may be more.
    pub(crate) fn punch(
        &self,
        region: &Region,
        (least_bytes, most_bytes): (u64, u64),
        from: u64,
    ) -> (u64, Option<u64>) {
        let shared = self.shared.lock();
        let (mut pieces, mut left) = (Vec::new(), most_bytes);
        for (off, bytes) in self.free_runs(&shared, least_bytes, from) {
            let start = off.max(from);
            let piece = (off + bytes - start).min(left);
            pieces.push((start, piece));
            left -= piece;
            if left == 0 {
                return (region.punch(pieces), Some(start + piece));
            }
        }
        (region.punch(pieces), None)
    }

    /// Whether [`punch`](Self::punch) would find a run.
    pub(crate) fn has_free_run(&self, least_bytes: u64, from: u64) -> bool {
        self.free_runs(&self.shared.lock(), least_bytes, from).next().is_some()
    }

    /// The free runs of at least `least_bytes` that end behind this offset: offsets and bytes.
    fn free_runs<'s>(
        &'s self,
        shared: &'s Shared,
        least_bytes: u64,
        from: u64,
    ) -> impl Iterator<Item = (u64, u64)> + 's {
        let g = &self.geometry;
        let zones = shared.zones.iter().skip_while(move |zone| g.zone_off(zone.number + 1) <= from);
        let runs = zones.flat_map(|zone| {
            zone.runs().map(|(start, chunks)| (g.chunk_off(zone.number, start), chunks * g.chunk()))
        });
        runs.filter(move |(off, bytes)| *bytes >= least_bytes && off + bytes > from)
    }
}

/// The error for chunks that cannot be had.
pub(crate) fn full(needed_bytes: u64, why: &RegionError) -> Error {
    ErrorKind::Full { needed_bytes, why: why.reason() }.into()
}
