//! Sparse slabs: the choice of those that a compaction empties, and the guard against allocations from them
//! meanwhile.
//!
//! A closed slab is *held*, as one is that a lane allocates from, so no release puts it into a partial list.
//! Nothing of that is on media. When the compaction ends, or when a pool is found full, closed slabs go back
//! to the lists. Empty ones stay closed until then: if their chunks were used again, new blocks would lie
//! where the compaction still looks for old ones, and it would move them for ever.

use super::allocator::{Allocator, Shared};
use super::classes::MAX_SLAB_CHUNKS;
use super::slab::Slab;
use super::zone::Zone;
use crate::Result;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tembo_pmem::Region;

/// The pool is compacted when at least this many bytes, and the percentage below of the bytes in use, lie in
/// holes.
pub(crate) const WASTE_BYTES: u64 = 16 << 20;
pub(crate) const WASTE_PERCENT: u64 = 25;
/// A slab of which more is in use is not worth emptying.
const CLOSED_AT_MOST_PERCENT: u64 = 75;
/// The share of the other slabs' free blocks that the blocks of closed ones may fill.
const FILLED_AT_MOST_PERCENT: u64 = 90;

/// The slabs that a call of a survey looks at: some tenths of a millisecond.
const SURVEYED_PER_CALL: usize = 1024;

/// A survey of the holes, some slabs at a time.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The list that is looked at, by its class, or that of closed slabs behind all classes; and how many of
    /// it were passed.
    list: usize,
    passed: usize,
    sum: u64,
    /// The outcome of the last one.
    found: Option<u64>,
}

impl Survey {
    /// Slabs change their lists.
    fn restart(&mut self) {
        *self = Survey { found: self.found, ..Survey::default() };
    }
}

/// The limits of a compaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CloseLimits {
    /// The pool stays at least this long.
    pub floor_bytes: u64,
    /// The extent that nobody moves.
    pub fixed: Option<u64>,
}

impl Allocator {
    /// Closes the space that a compaction empties, the first of these that exists: a run for a large block
    /// that found none; once, the emptiest slabs of each class whose blocks find room in the fuller ones; a
    /// run for a slab that found none; these slabs again; the end of the pool. Returns the spans of the
    /// blocks to be moved, in ascending order; `None` if another compaction is under way.
    pub(crate) fn close(&self, region: &Region, limits: CloseLimits) -> Result<Option<Vec<Range<u64>>>> {
        self.close_by(region, |shared| {
            // Emptied slabs make room for many others, a run for one. They may not make a run.
            let is_large = shared.missed_chunks > MAX_SLAB_CHUNKS;
            let mut spans = Vec::new();
            if is_large || shared.has_emptied_first {
                spans = self.close_for(shared, region, limits)?;
            }
            if spans.is_empty() {
                spans = self.close_sparse(shared);
                shared.has_emptied_first = shared.missed_chunks > 1;
            }
            if spans.is_empty() && shared.has_emptied_first {
                spans = self.close_for(shared, region, limits)?;
            }
            if spans.is_empty() { self.close_end(shared, region, limits) } else { Ok(spans) }
        })
    }

    /// Closes the run that costs least for the chunks that were missed. With the space that is kept behind
    /// it, no request for the run is refused.
    fn close_for(
        &self,
        shared: &mut Shared,
        region: &Region,
        limits: CloseLimits,
    ) -> Result<Vec<Range<u64>>> {
        (shared.has_emptied_first, shared.has_tried_run) = (false, true);
        let wanted = std::mem::take(&mut shared.missed_chunks) + self.kept_chunks(region);
        let mut run = self.run_to_empty(shared, region, (wanted, limits.fixed))?;
        if run.is_none() && !shared.stuck.is_empty() {
            shared.stuck.clear();
            run = self.run_to_empty(shared, region, (wanted, limits.fixed))?;
        }
        shared.made_chunks = if run.is_some() { wanted } else { 0 };
        Ok(run.map_or_else(Vec::new, |run| self.close_run(shared, run)))
    }

    /// As [`close`](Self::close), but closes the end of the pool only.
    pub(crate) fn close_tail(&self, region: &Region, limits: CloseLimits) -> Result<Option<Vec<Range<u64>>>> {
        self.close_by(region, |shared| self.close_end(shared, region, limits))
    }

    fn close_by(
        &self,
        region: &Region,
        choose: impl FnOnce(&mut Shared) -> Result<Vec<Range<u64>>>,
    ) -> Result<Option<Vec<Range<u64>>>> {
        let mut shared = self.shared.lock();
        if shared.is_compacting {
            return Ok(None);
        }
        self.read_all(&mut shared, region)?;
        shared.survey.restart();
        shared.made_chunks = 0;
        let mut spans = choose(&mut shared)?;
        spans.sort_unstable_by_key(|span| span.start);
        shared.is_compacting = true;
        // ORDER: the flag is for the thread that compacts, and its allocations take the lock after this.
        self.has_closed.store(!spans.is_empty(), Ordering::Relaxed);
        Ok(Some(spans))
    }

    fn close_end(
        &self,
        shared: &mut Shared,
        region: &Region,
        limits: CloseLimits,
    ) -> Result<Vec<Range<u64>>> {
        let tail = self.tail_to_empty(shared, region, limits)?;
        Ok(tail.map_or_else(Vec::new, |tail| self.close_run(shared, tail)))
    }

    /// Closes the emptiest slabs of each class whose blocks find room in the fuller ones. Returns where their
    /// blocks lie.
    fn close_sparse(&self, shared: &mut Shared) -> Vec<Range<u64>> {
        let mut spans = Vec::new();
        let Shared { partial, closed, stuck, .. } = shared;
        for list in partial {
            let closing = choose(list, |slab| {
                stuck.get(&slab.off).is_some_and(|stuck| stuck.is_sure && slab.keeps_busy(&stuck.busy))
            });
            spans.extend(closing.iter().map(|slab| slab.blocks_span()));
            closed.extend(closing);
        }
        spans
    }

    /// Calls a compaction off, because the pool was found full: allows allocations from closed slabs again.
    pub(crate) fn open_closed(&self, region: &Region) {
        let mut shared = self.shared.lock();
        if shared.evacuated.is_some() {
            self.miss_run_again(&mut shared, region);
        }
        self.open_all(&mut shared);
    }

    /// Notes that the run which a compaction was to make is missed as before, because it is called off.
    pub(super) fn miss_run_again(&self, shared: &mut Shared, region: &Region) {
        let made = shared.made_chunks.saturating_sub(self.kept_chunks(region));
        shared.missed_chunks = shared.missed_chunks.max(made);
    }

    fn open_all(&self, shared: &mut Shared) {
        // ORDER: before any thread can allocate from these slabs.
        self.has_closed.store(false, Ordering::Release);
        shared.evacuated = None;
        shared.survey.restart();
        for slab in std::mem::take(&mut shared.closed) {
            slab.let_go();
            if slab.has_free_block() && slab.hold() {
                shared.partial[slab.class_number].push_back(slab);
            }
        }
    }

    /// Whether no lane allocates from the slabs that were closed last.
    pub(crate) fn has_closed(&self) -> bool {
        self.has_closed.load(Ordering::Acquire)
    }

    /// Ends a compaction.
    pub(crate) fn end_compaction(&self) {
        let mut shared = self.shared.lock();
        self.open_all(&mut shared);
        shared.is_compacting = false;
    }

    /// The chunks of the run that a large block, or a slab of several chunks, has not found since the last
    /// compaction that was to make one; 0 if none is missed.
    pub(crate) fn missed_chunks(&self) -> u64 {
        Some(self.shared.lock().missed_chunks).filter(|missed| *missed > 1).unwrap_or(0)
    }

    /// Whether the last compaction was to empty a run, and a run of that length is free.
    pub(crate) fn has_made_run(&self, region: &Region) -> bool {
        let shared = self.shared.lock();
        let made = shared.made_chunks;
        let has_one = |zone: &Zone| {
            let behind = self.geometry.zone_limit(zone.number, region.len()).saturating_sub(zone.used_end());
            behind >= made || zone.runs().any(|(_, chunks)| chunks >= made)
        };
        made > 0 && shared.zones.iter().any(has_one)
    }

    /// Whether a compaction was to empty a run since the last call, and no allocation has found such a run
    /// since.
    pub(crate) fn take_tried_run(&self) -> bool {
        std::mem::take(&mut self.shared.lock().has_tried_run)
    }

    /// Bytes of free blocks in the slabs that are known and that no lane holds.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.shared.lock().spare_bytes()
    }

    /// As [`spare_bytes`](Self::spare_bytes), by a survey that each call continues: returns the bytes that
    /// the last one has found, and whether this call has ended one. Exact where there are few slabs.
    pub(crate) fn survey_spare(&self) -> (u64, bool) {
        let mut shared = self.shared.lock();
        let Shared { partial, closed, survey, .. } = &mut *shared;
        if partial.iter().map(VecDeque::len).sum::<usize>() + closed.len() <= SURVEYED_PER_CALL {
            *survey = Survey::default();
            return (shared.spare_bytes(), true);
        }
        let mut left = SURVEYED_PER_CALL;
        while left > 0 && survey.list <= partial.len() {
            let len = partial.get(survey.list).map_or(closed.len(), VecDeque::len);
            let looked = survey.passed.min(len)..len.min(survey.passed.saturating_add(left));
            survey.sum += match partial.get(survey.list) {
                Some(list) => list.range(looked.clone()).map(|slab| slab.spare_bytes()).sum::<u64>(),
                None => closed[looked.clone()].iter().map(|slab| slab.spare_bytes()).sum(),
            };
            left -= looked.len();
            survey.passed += looked.len();
            if looked.end == len {
                (survey.list, survey.passed) = (survey.list + 1, 0);
            }
        }
        let has_ended = survey.list > partial.len();
        if has_ended {
            *survey = Survey { found: Some(survey.sum), ..Survey::default() };
        }
        (survey.found.unwrap_or(survey.sum), has_ended)
    }

    /// Whether the slabs are worth a look before the pool grows. It takes time in proportion to their number,
    /// so a look serves until the pool has grown by a sixteenth.
    pub(crate) fn is_look_due(&self, region: &Region) -> bool {
        self.shared.lock().is_look_due(region.len() - self.set_aside_bytes.min(region.len()))
    }

    /// Notes that the pool has grown, if a compaction could have made the room.
    pub(super) fn note_growth(&self, shared: &mut Shared, bytes_before: u64) {
        if !shared.is_look_due(bytes_before) {
            return;
        }
        shared.noted_bytes = Some(bytes_before);
        shared.stuck.clear();
        let spare = shared.spare_bytes();
        if spare >= WASTE_BYTES && spare >= (bytes_before - spare.min(bytes_before)) / 100 * WASTE_PERCENT {
            self.has_outgrown_waste.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the pool has grown since the last call while a compaction could have made room.
    pub(crate) fn take_outgrown_waste(&self) -> bool {
        self.has_outgrown_waste() && self.has_outgrown_waste.swap(false, Ordering::Relaxed)
    }

    /// As [`take_outgrown_waste`](Self::take_outgrown_waste), but the next call returns the same.
    pub(crate) fn has_outgrown_waste(&self) -> bool {
        self.has_outgrown_waste.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Takes over a slab with free blocks, which is held: others may allocate from it, unless it lies where a
    /// compaction empties all.
    pub(super) fn put(&mut self, slab: Arc<Slab>) {
        if self.evacuated.as_ref().is_some_and(|range| range.contains(&slab.off)) {
            self.closed.push(slab);
        } else {
            self.partial[slab.class_number].push_back(slab);
        }
    }

    fn is_look_due(&self, bytes: u64) -> bool {
        let step = (bytes / 16).clamp(WASTE_BYTES, 1 << 30);
        self.noted_bytes.is_none_or(|noted| !(noted..noted + step).contains(&bytes))
    }

    fn spare_bytes(&self) -> u64 {
        let slabs = self.partial.iter().flatten().chain(&self.closed);
        slabs.map(|slab| slab.spare_bytes()).sum()
    }
}

/// Takes the slabs to empty out of a list, and puts the fullest of the others first, behind those that cannot
/// be emptied: blocks that fill these keep no other slab from being emptied.
fn choose(list: &mut VecDeque<Arc<Slab>>, is_stuck: impl Fn(&Slab) -> bool) -> Vec<Arc<Slab>> {
    let with_free = |slab: Arc<Slab>| (slab.free_blocks(), slab);
    let (mut stuck, mut slabs): (Vec<_>, Vec<_>) =
        list.drain(..).map(with_free).partition(|(_, slab)| is_stuck(slab));
    stuck.sort_by_key(|(free, _)| *free);
    slabs.sort_by_key(|(free, _)| *free);
    let mut room: u64 = stuck.iter().chain(&slabs).map(|(free, _)| free).sum();
    let (mut moving, mut closing) = (0, Vec::new());
    while let Some((free, slab)) = slabs.last() {
        let (free, used) = (*free, slab.class.blocks - free);
        let fits = (moving + used) * 100 <= (room - free) * FILLED_AT_MOST_PERCENT;
        if !fits || used * 100 > slab.class.blocks * CLOSED_AT_MOST_PERCENT || !slab.is_published() {
            break;
        }
        (room, moving) = (room - free, moving + used);
        closing.extend(slabs.pop().map(|(_, slab)| slab));
    }
    list.extend(stuck.into_iter().chain(slabs).map(|(_, slab)| slab));
    closing
}
