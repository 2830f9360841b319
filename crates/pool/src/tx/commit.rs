//! Commits: the record, its fence, and the home words.

use super::gather::{build_image, collect_fresh_lines, collect_homes, collect_touched_lines};
use super::{
    COVERED_MAX_BYTES, COVERED_MAX_SYNCED_BYTES, PREFETCHED_MAX, TOUCHED_KEPT, TxWork, redo_words, slabs,
    unlogged,
};
use crate::alloc::Arena;
use crate::layout::MAX_SEQ;
use crate::log::lane::{Lane, LaneSlot, LaneState};
use crate::log::record::RecordImage;
use crate::pool::PoolInner;
use crate::{Done, Error, Result};
use std::sync::atomic::Ordering;
use tembo_pmem::{Domain, LINE_BYTES, SyncError};
use tembo_sync::SpinMutexGuard;

/// Commits the lane's transaction. See `lane.rs` for the order of things.
pub(super) fn commit(lane: &mut Lane) -> Done {
    if lane.work.is_untouched() {
        return Ok(());
    }
    lane.pool.inner.check_usable()?;
    let only_stores = lane.work.only_stores_lines();
    collect_homes(&mut lane.work, &lane.pool.inner, only_stores)?;
    if lane.work.home_lines.is_empty() {
        return finish(lane, None);
    }
    if lane.leaves_log_out {
        return unlogged::commit(lane);
    }
    if lane.pool.inner.touches.is_on() {
        collect_touched_lines(&mut lane.work);
        let soon = lane.work.touched.len().min(PREFETCHED_MAX);
        lane.pool.inner.touches.prefetch(&lane.work.touched[..soon]);
    }
    let mut fence_first = false;
    if only_stores {
        lane.image.clear();
        lane.image.stores(std::iter::empty(), &lane.work.stored_lines);
    } else {
        let covered = collect_fresh_lines(&mut lane.work, &lane.pool.inner)?;
        let needs_covers = !lane.pool.inner.region.domain().keeps_program_order();
        fence_first = needs_covers && covered > covered_max_bytes(lane.pool.inner.region.domain());
        build_image(&lane.work, &mut lane.image, needs_covers && !fence_first);
    }
    let chain = lane.prepare_chain()?;
    let Lane { pool, number, work, image, tail, .. } = &mut *lane;
    let inner: &PoolInner = &pool.inner;
    let slot = &inner.lanes[*number as usize];
    let (mut state, alone, least_seq) = lock(inner, slot, work)?;
    let seq = state.seq.max(least_seq) + 1;
    if seq >= MAX_SEQ {
        return Err(Error::corrupt("the last sequence number", 0, format!("less than {MAX_SEQ}"), seq).into());
    }
    // Summed before any flush: the checksum reads new data, whose lines would be on their way out of the cache.
    image.complete(&inner.region, inner.seed, seq, chain)?;
    let inline_bytes = if chain == 0 { image.payload_bytes() } else { 0 };
    let place = state.place(&inner.geometry, inline_bytes, chain != 0);
    // Every flush of the commit is issued here, just before the fence: the processor orders write-backs before any
    // locked instruction too, so that one flushed earlier would be waited for at the next lock or counter.
    if place.switches {
        inner.region.flush_lines(&state.home_lines);
    }
    inner.region.flush_lines(&work.lines);
    if fence_first {
        // PERSIST(I4): without covers the record alone vouches for the new data, so that has to be durable first.
        inner.fence()?;
    }
    write_record(image, inner, place.off(&inner.geometry, *number), chain)?;
    // What nobody sees before the lock is released, and of which nothing is on media, is done while the flushes are under way: stores that
    // follow the fence would wait for it, and soon the processor for room for them. (If the fence fails, so does
    // every later one, so that nothing is ever settled from what was noted.)
    *tail = state.note_record(seq, place, &work.home_lines);
    if !inner.region.streams_single_lines() {
        // The next record's first lines were flushed some time ago, and may have left the cache with that.
        let next_off = state.next_off(&inner.geometry, *number);
        inner.region.prefetch_for_store(next_off);
        inner.region.prefetch_for_store(next_off + LINE_BYTES);
    }
    // PERSIST(L6): the commit point. New data and record are durable after this fence; and if the record switches halves,
    // so are the home stores of all records before it.
    inner.fence()?;
    if place.ends_switch() {
        slot.note_switched(state.commits);
    }
    // No locked instruction from here to the end while this lane is alone: it would wait for the fence, which
    // the next operation's traversal can overlap with otherwise. And few calls and stores: a processor has room for some hundred until the
    // fence is over.
    let commits = state.commits;
    if only_stores {
        work.stored_lines.apply(&inner.region)?;
        drop(state);
        work.stored_lines.clear();
        return if alone { Ok(()) } else { register(inner, *number, commits, work) };
    }
    store_homes(inner, work, alone)?;
    if !work.freed.is_empty() {
        slot.retire(inner, &mut state, &mut work.freed, alone);
    }
    drop(state);
    release_and_finish(lane, (!alone).then_some(commits))
}

/// Locks the lane, when no other one has a live record for any of the lines. Tells whether no other lane is in use, and the number that the record's is
/// to be higher than.
#[inline(always)]
fn lock<'s>(
    inner: &PoolInner,
    slot: &'s LaneSlot,
    work: &mut TxWork,
) -> Result<(SpinMutexGuard<'s, LaneState>, bool, u64)> {
    let mut alone = true;
    let mut least_seq = 0;
    loop {
        if inner.touches.is_on() {
            if work.touched.is_empty() {
                collect_touched_lines(work);
            }
            least_seq = inner.touches.settle_others(inner, slot.number, &work.touched)?;
            alone = false;
        }
        let state = slot.lock();
        // ORDER: who turns the table on settles this lane afterwards, under its lock. If that has happened by
        // now, this record would be missing from the table.
        if !alone || !inner.touches.is_on() {
            return Ok((state, alone, least_seq));
        }
    }
}

/// Stores the home words.
#[inline(always)]
pub(super) fn store_homes(inner: &PoolInner, work: &TxWork, alone: bool) -> Result<()> {
    for (off, value) in redo_words(&work.steps) {
        inner.region.store_u64(off, value)?;
    }
    for (off, change) in &work.homes {
        change.apply(&inner.region, *off, alone)?;
    }
    work.stored_lines.apply(&inner.region)?;
    for change in &work.bits {
        change.slab.change_media(&inner.region, change.place, change.set, alone)?;
    }
    Ok(())
}

/// How much new data a record covers rather than being preceded by a fence.
fn covered_max_bytes(domain: Domain) -> u64 {
    if domain == Domain::Synced { COVERED_MAX_SYNCED_BYTES } else { COVERED_MAX_BYTES }
}

/// Writes the record where no live one is, and starts its write-back. Its words may arrive in any order: it is complete when
/// its checksum says so.
fn write_record(image: &RecordImage, inner: &PoolInner, off: u64, chain: u64) -> Result<()> {
    // SAFETY: the place is this lane's, whose lock is held; the chain block is reserved for it.
    unsafe {
        if chain == 0 {
            inner.region.write_and_flush(off, image.whole())?;
        } else {
            let (head, payload) = image.parts();
            inner.region.write_and_flush(chain, payload)?;
            inner.region.write_and_flush(off, head)?;
        }
    }
    Ok(())
}

/// Makes blocks available that may be, which lie in place of those that were freed, and [finishes](finish).
#[inline(always)]
pub(super) fn release_and_finish(lane: &mut Lane, done: Option<u64>) -> Done {
    if !lane.work.freed.is_empty() { release(lane, done) } else { finish(lane, done) }
}

#[inline(never)]
fn release(lane: &mut Lane, done: Option<u64>) -> Done {
    let Lane { pool, number, arena, work, .. } = &mut *lane;
    let released = pool.inner.lanes[*number as usize].release(&pool.inner, &mut work.freed, Some(arena));
    // The commit is over, whatever became of them.
    finish(lane, done).and(released)
}

/// Puts the volatile state in order after a commit, and registers the lines that it touched.
#[inline(always)]
fn finish(lane: &mut Lane, done: Option<u64>) -> Done {
    let Lane { pool, number, arena, work, .. } = lane;
    let inner: &PoolInner = &pool.inner;
    work.stored_lines.clear();
    if !work.only_stores_lines() {
        finish_blocks(work, inner, arena);
    }
    match done {
        None => Ok(()),
        Some(commit) => register(inner, *number, commit, work),
    }
}

#[inline(always)]
fn register(inner: &PoolInner, lane: u32, commit: u64, work: &mut TxWork) -> Done {
    let outcome = inner.touches.register(inner, lane, commit, &work.touched);
    if work.touched.len() > TOUCHED_KEPT {
        work.touched = Vec::new();
    }
    outcome
}

/// Puts in order what is known of blocks that the transaction allocated and freed, and forgets it.
#[inline(always)]
fn finish_blocks(work: &mut TxWork, inner: &PoolInner, arena: &Arena) {
    if !work.new_slabs.is_empty() {
        slabs::note_published(work);
    }
    if work.fresh.iter().any(|f| f.cancelled) {
        release_cancelled(work, inner, arena);
    }
    // What is stored here waits for the fence.
    if !work.steps.is_empty() {
        work.steps.clear();
    }
    if !work.fresh.is_empty() {
        work.fresh.clear();
    }
    if !work.freed.is_empty() {
        work.freed.clear();
    }
    work.clear_indexes();
}

#[cold]
fn release_cancelled(work: &TxWork, inner: &PoolInner, arena: &Arena) {
    let cancelled = work.fresh.iter().filter(|f| f.cancelled).map(|f| f.block.clone());
    inner.alloc.release(cancelled, Some(arena));
}

impl PoolInner {
    /// A fence; its failure makes the pool unusable until it is opened again.
    #[inline(always)]
    fn fence(&self) -> Result<()> {
        // PERSIST(I4): for the commits above, which say what has to be durable.
        self.region.fence().map_err(|e| self.fail(e))
    }

    #[cold]
    fn fail(&self, e: SyncError) -> Error {
        self.failed.store(true, Ordering::Release);
        Error::Sync(e)
    }
}
