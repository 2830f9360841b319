//! Runs of chunks that a compaction empties: the end of the pool, so that the file can be cut there, and the
//! run that costs least to empty, for a block that found no run of chunks.
//!
//! The pool is surveyed as a row of *units*: slabs, extents, and free runs. A unit is *fixed* if it cannot
//! move: the journal, and chunks whose owner has not committed yet. A unit that an earlier compaction left in
//! place is also fixed, as long as no part of it was freed (`Shared::stuck`): otherwise blocks would leave
//! such a run without result and return, again and again. A slab that a lane allocates from is closed when
//! the lane gives it up, which it is asked to do with its next transaction. The blocks of the others move if
//! there is room for them outside of the run: in slabs of their class, or in free chunks. While the run is
//! being emptied, nothing is allocated in it (`Shared::evacuated`), unless there is no room elsewhere: then
//! the compaction is called off, and the run is missed as before.
//!
//! Separate free chunks have no room for a slab of several chunks. A run whose slabs seem to find free runs
//! elsewhere is therefore preferred, whatever the cost of another one.

use super::allocator::{Allocator, Shared, StuckBlocks};
use super::classes::MAX_SLAB_CHUNKS;
use super::slab::Slab;
use super::sparse::CloseLimits;
use super::zone::walk_chunks;
use crate::Result;
use crate::layout::{ChunkWord, Geometry};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use tembo_pmem::Region;

/// The end of a pool is emptied only if the file becomes shorter by this part of it.
const PART_GAINED: u64 = 16;
/// A compaction also has to gain this many bytes.
const GAINED_BYTES_MIN: u64 = 1 << 20;
/// The share of the free blocks of slabs that moved blocks may fill.
const FILLED_AT_MOST_PERCENT: u64 = 90;

/// Chunks with one owner.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) off: u64,
    pub(crate) chunks: u64,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Free,
    Fixed,
    Extent,
    /// A slab with this many blocks in use. Its free blocks serve others if a list has the slab.
    Slab {
        slab: Arc<Slab>,
        used: u64,
        is_listed: bool,
    },
}

/// The part of a pool that is to be emptied.
#[derive(Debug)]
pub(super) struct Evacuation {
    /// Offsets.
    pub(super) range: Range<u64>,
    /// Where the blocks lie that are to be moved, in ascending order.
    pub(super) spans: Vec<Range<u64>>,
    pub(super) slabs: Vec<Arc<Slab>>,
}

/// A slab has fewer chunks than this.
const SIZES: usize = MAX_SLAB_CHUNKS as usize + 1;

/// The sums of the units outside of a run, and of those in it.
#[derive(Debug)]
pub(crate) struct Tally<'a> {
    allocator: &'a Allocator,
    /// By class: free blocks outside, and blocks in use inside.
    room: Vec<u64>,
    moving: Vec<u64>,
    /// By the chunks of a slab: chunks of the slabs that the blocks inside need besides the room outside.
    slab_chunks: [u64; SIZES],
    /// Chunks of the extents inside.
    extent_chunks: u64,
    /// Free chunks outside.
    free_chunks: u64,
    /// For each number of chunks of a slab: the free chunks outside of the run that such slabs can take.
    run_chunks: [u64; SIZES],
    /// Bytes in use inside of the run, and its chunks.
    moved_bytes: u64,
    chunks: u64,
    /// Fixed units inside.
    fixed: u64,
}

impl<'a> Tally<'a> {
    /// All units are outside.
    pub(crate) fn new(allocator: &'a Allocator, units: &[Unit]) -> Tally<'a> {
        let classes = allocator.classes.len();
        let mut tally = Tally {
            allocator,
            room: vec![0; classes],
            moving: vec![0; classes],
            slab_chunks: [0; SIZES],
            extent_chunks: 0,
            free_chunks: 0,
            run_chunks: [0; SIZES],
            moved_bytes: 0,
            chunks: 0,
            fixed: 0,
        };
        for unit in units {
            match &unit.what {
                What::Free => {
                    tally.free_chunks += unit.chunks;
                    tally.turn_runs(unit.chunks, false);
                }
                What::Slab { slab, used, is_listed: true } => {
                    tally.room[slab.class_number] += slab.class.blocks - used;
                }
                _ => {}
            }
        }
        tally
    }

    /// The chunks of all new slabs that a class needs, and the chunks of one slab.
    fn needed(&self, class: usize) -> (u64, usize) {
        let Some(shape) = self.allocator.classes.get(class) else { return (0, 0) };
        let homeless = self.moving[class].saturating_sub(self.room[class] * FILLED_AT_MOST_PERCENT / 100);
        (homeless.div_ceil(shape.blocks) * shape.chunks, shape.chunks as usize)
    }

    /// Takes a free run out of the sums of the space outside, as it is now inside (`into`), or adds it to
    /// them again.
    fn turn_runs(&mut self, chunks: u64, into: bool) {
        for (size, sum) in (1..).zip(&mut self.run_chunks[1..]) {
            let usable = chunks / size * size;
            *sum = if into { *sum - usable } else { *sum + usable };
        }
    }

    /// Moves a unit into the run, or out of it again.
    pub(crate) fn turn(&mut self, unit: &Unit, into: bool) {
        let add = |sum: &mut u64, amount: u64| {
            *sum = if into { *sum + amount } else { *sum - amount };
        };
        let take = |sum: &mut u64, amount: u64| {
            *sum = if into { *sum - amount } else { *sum + amount };
        };
        add(&mut self.chunks, unit.chunks);
        match &unit.what {
            What::Free => {
                take(&mut self.free_chunks, unit.chunks);
                self.turn_runs(unit.chunks, into);
            }
            What::Fixed => add(&mut self.fixed, 1),
            What::Extent => {
                add(&mut self.extent_chunks, unit.chunks);
                add(&mut self.moved_bytes, unit.chunks * self.allocator.geometry.chunk());
            }
            What::Slab { slab, used, is_listed } => {
                let class = slab.class_number;
                let (needed, size) = self.needed(class);
                self.slab_chunks[size] -= needed;
                add(&mut self.moving[class], *used);
                if *is_listed {
                    take(&mut self.room[class], slab.class.blocks - used);
                }
                self.slab_chunks[size] += self.needed(class).0;
                add(&mut self.moved_bytes, used * slab.class.block_bytes);
            }
        }
    }

    /// Whether there is room outside for all blocks that move, with `kept_chunks` left over.
    pub(crate) fn fits(&self, kept_chunks: u64) -> bool {
        self.fixed == 0 && self.taken_chunks() + kept_chunks <= self.free_chunks
    }

    /// Whether free runs outside seem to be enough for the slabs that the moves need: a slab takes at least
    /// `larger / size` places of each smaller size. Extents are not counted, so there may be too few.
    pub(crate) fn has_runs(&self) -> bool {
        (1..SIZES).all(|size| {
            let slabs = |larger: usize| self.slab_chunks[larger] / larger as u64 * (larger / size) as u64;
            (size..SIZES).map(slabs).sum::<u64>() <= self.run_chunks[size] / size as u64
        })
    }

    /// The free chunks outside that moves take: extents may need more than their sum, as free chunks lie in
    /// pieces.
    fn taken_chunks(&self) -> u64 {
        self.slab_chunks.iter().sum::<u64>() + self.extent_chunks + self.extent_chunks / 4
    }

    /// The free chunks outside that moves leave.
    fn left_chunks(&self) -> u64 {
        self.free_chunks.saturating_sub(self.taken_chunks())
    }
}

impl Allocator {
    /// The end of the pool, if emptying it is worth while: as much of it as finds room below. No more bytes
    /// are moved than the file becomes shorter by.
    pub(super) fn tail_to_empty(
        &self,
        shared: &Shared,
        region: &Region,
        limits: CloseLimits,
    ) -> Result<Option<Evacuation>> {
        let (units, end) = (self.survey(shared, region, limits.fixed)?, region.len());
        let kept = self.kept_chunks(region);
        let mut tally = Tally::new(self, &units);
        let mut best = None;
        for (number, unit) in units.iter().enumerate().rev() {
            tally.turn(unit, true);
            if tally.fixed > 0 || unit.off < limits.floor_bytes {
                break;
            }
            let least = (end / PART_GAINED).max(GAINED_BYTES_MIN);
            // Low chunks are taken first, so of a free run in front of the unit the end stays free.
            let below = number.checked_sub(1).map(|number| &units[number]);
            let run =
                below.filter(|below| matches!(below.what, What::Free) && self.end_of(below) == unit.off);
            let left = run.map_or(0, |run| run.chunks.min(tally.left_chunks()));
            let from = unit.off - left * self.geometry.chunk();
            let gained = (end - from).saturating_sub(kept * self.geometry.chunk());
            if tally.moved_bytes > 0 && gained >= least.max(tally.moved_bytes) && tally.fits(kept) {
                best = Some(number);
            }
        }
        Ok(best.map(|first| evacuate(&units[first..], u64::MAX)))
    }

    /// The run of at least `chunks` chunks that costs least to empty; `None` if there is none, or if a run is
    /// free.
    pub(super) fn run_to_empty(
        &self,
        shared: &Shared,
        region: &Region,
        (chunks, fixed): (u64, Option<u64>),
    ) -> Result<Option<Evacuation>> {
        let units = self.survey(shared, region, fixed)?;
        let mut tally = Tally::new(self, &units);
        // The cheapest run whose slabs seem to find runs elsewhere is preferred.
        let (mut first, mut best): (usize, Option<((bool, u64), Range<usize>)>) = (0, None);
        for (last, unit) in units.iter().enumerate() {
            let is_beside = last > first && self.end_of(&units[last - 1]) == unit.off;
            if !is_beside || matches!(unit.what, What::Fixed) {
                units[first..last].iter().for_each(|unit| tally.turn(unit, false));
                first = last;
            }
            if matches!(unit.what, What::Fixed) {
                first = last + 1;
                continue;
            }
            tally.turn(unit, true);
            while tally.chunks - units[first].chunks >= chunks {
                tally.turn(&units[first], false);
                first += 1;
            }
            let (is_free, bytes) = (tally.moved_bytes == 0, tally.moved_bytes);
            let is_better = |cost: (bool, u64)| best.as_ref().is_none_or(|(least, _)| cost < *least);
            if tally.chunks >= chunks && is_better((false, bytes)) && (is_free || tally.fits(0)) {
                let cost = (!is_free && !tally.has_runs(), bytes);
                if is_better(cost) {
                    best = Some((cost, first..last + 1));
                }
            }
        }
        let found = best.filter(|((_, bytes), _)| *bytes > 0).map(|(_, run)| {
            let end = self.end_of(&units[run.end - 1]);
            evacuate(&units[run], end)
        });
        Ok(found)
    }

    fn end_of(&self, unit: &Unit) -> u64 {
        unit.off + unit.chunks * self.geometry.chunk()
    }

    /// All units of the pool, in ascending order. Every slab was read before.
    fn survey(&self, shared: &Shared, region: &Region, fixed: Option<u64>) -> Result<Vec<Unit>> {
        let listed: HashSet<u64> = shared.partial.iter().flatten().map(|slab| slab.off).collect();
        let mut units = Vec::new();
        for zone in &shared.zones {
            let off_of = |chunk| self.geometry.chunk_off(zone.number, chunk);
            let end = zone.media_frontier(region, &self.geometry)?;
            walk_chunks(region, &self.geometry, &self.classes, zone.number, end, |chunk, word| {
                let off = off_of(chunk);
                let (chunks, what) = match word {
                    ChunkWord::Extent { chunks } if fixed == Some(off) || shared.stuck.contains_key(&off) => {
                        (chunks, What::Fixed)
                    }
                    ChunkWord::Extent { chunks } => (chunks, What::Extent),
                    ChunkWord::Slab { .. } => self.survey_slab(off, shared, &listed),
                    // Free runs are added below; others have an owner who has not committed.
                    _ => (1, What::Fixed),
                };
                units.push(Unit { off, chunks, what });
                Ok(())
            })?;
            let frontier = zone.frontier.max(self.geometry.zone_header_chunks());
            let fixed_chunk = |chunk| Unit { off: off_of(chunk), chunks: 1, what: What::Fixed };
            units.extend((end..frontier).map(fixed_chunk));
            let limit = self.geometry.zone_limit(zone.number, region.len());
            let unused = (frontier, limit.saturating_sub(frontier));
            let free = zone.runs().chain([unused]).filter(|(_, chunks)| *chunks > 0);
            let free: Vec<Unit> =
                free.map(|(chunk, chunks)| Unit { off: off_of(chunk), chunks, what: What::Free }).collect();
            cover(&mut units, free, &self.geometry);
        }
        Ok(units)
    }

    /// All units.
    #[cfg(test)]
    pub(crate) fn survey_all(&self, region: &Region) -> Result<Vec<Unit>> {
        self.survey(&self.shared.lock(), region, None)
    }

    /// The number of chunks of the slab at `off`, and its state.
    fn survey_slab(&self, off: u64, shared: &Shared, listed: &HashSet<u64>) -> (u64, What) {
        let Some(slab) = self.slabs.get(self.geometry.chunk_key(off)).filter(|slab| slab.off == off) else {
            return (1, What::Fixed);
        };
        let (chunks, is_listed) = (slab.class.chunks, listed.contains(&off));
        if !slab.is_published() {
            return (chunks, What::Fixed);
        }
        let used = slab.class.blocks - slab.free_blocks();
        if shared.stuck.get(&off).is_some_and(|stuck| slab.keeps_busy(&stuck.busy)) {
            return (chunks, What::Fixed);
        }
        (chunks, What::Slab { slab, used, is_listed })
    }

    /// Whether a run is being emptied.
    pub(crate) fn is_evacuating(&self) -> bool {
        self.shared.lock().evacuated.is_some()
    }

    /// After the moves of a compaction: remembers the blocks left in these spans. `is_sure`: every movable
    /// block has moved, so that more room would change nothing.
    pub(crate) fn note_stuck(&self, region: &Region, spans: &[Range<u64>], is_sure: bool) {
        let mut shared = self.shared.lock();
        for span in spans {
            let slab = self.slabs.get(self.geometry.chunk_key(span.start));
            match slab.filter(|slab| slab.blocks_span() == *span) {
                Some(slab) if slab.is_empty() => {}
                // Blocks of a sparse slab that only wait for readers or records are soon free.
                Some(slab) if shared.evacuated.is_none() && !slab.has_no_waiting_block() => {}
                Some(slab) => {
                    let busy = slab.busy_words();
                    shared.stuck.insert(slab.off, StuckBlocks { busy, is_sure });
                }
                None if self.extent_bytes(region, span.start) == 0 => {}
                None => _ = shared.stuck.insert(span.start, StuckBlocks { busy: Vec::new(), is_sure }),
            }
        }
    }

    /// Closes the slabs of an evacuation, and its chunks. Returns where the blocks lie that are to be moved.
    pub(super) fn close_run(&self, shared: &mut Shared, evacuation: Evacuation) -> Vec<Range<u64>> {
        let Evacuation { range, spans, slabs } = evacuation;
        for list in &mut shared.partial {
            list.retain(|slab| !range.contains(&slab.off));
        }
        shared.closed.extend(slabs);
        shared.evacuated = Some(range);
        spans
    }
}

/// The evacuation of these units, which end at `end`.
fn evacuate(units: &[Unit], end: u64) -> Evacuation {
    let mut evacuation = Evacuation { range: units[0].off..end, spans: Vec::new(), slabs: Vec::new() };
    for unit in units {
        match &unit.what {
            What::Slab { slab, used, is_listed } => {
                if *used > 0 {
                    evacuation.spans.push(slab.blocks_span());
                }
                // A slab that no lane holds is full.
                if *is_listed || slab.hold() {
                    evacuation.slabs.push(slab.clone());
                }
            }
            What::Extent => evacuation.spans.push(unit.off..unit.off + 1),
            What::Free | What::Fixed => {}
        }
    }
    evacuation
}

/// Adds free runs to the units of a zone, in the place of the single chunks without an owner that they are.
fn cover(units: &mut Vec<Unit>, free: Vec<Unit>, geometry: &Geometry) {
    let is_free = |off: u64| {
        let after = free.partition_point(|run| run.off <= off);
        after > 0 && off < free[after - 1].off + free[after - 1].chunks * geometry.chunk()
    };
    units.retain(|unit| !(matches!(unit.what, What::Fixed) && unit.chunks == 1 && is_free(unit.off)));
    units.extend(free);
    units.sort_unstable_by_key(|unit| unit.off);
}
