//! The commit of a transaction: gather its work, append its record (`log/commit.rs`), store the home words.

use super::gather::{build_image, gather_fresh_lines, gather_homes, gather_owned_lines};
use super::lane::Lane;
use super::slabs;
use super::write_set::WriteSet;
use crate::Result;
use crate::alloc::{Allocator, Arena};
use crate::inner::PoolInner;
use crate::log::commit::{LockedLane, NewRecord};
use crate::log::handle::Log;
use crate::log::record::COVERED_MAX_SYNCED_BYTES;
use tembo_pmem::{Domain, Region};

/// New data up to this many bytes is covered by the record's checksum; more is fenced before the record. At
/// about 10 bytes per nanosecond, summing this much takes as long as a fence.
const COVERED_MAX_BYTES: u64 = 2048;
/// The most lines of a commit whose owners are prefetched while the record is made.
const PREFETCHED_MAX: usize = 64;

/// Commits the lane's transaction. The order of things is in `log/mod.rs`.
pub(super) fn commit(lane: &mut Lane) -> Result<()> {
    if lane.writes.is_untouched() {
        return Ok(());
    }
    lane.pool.inner.check_usable()?;
    let only_stores = lane.writes.only_stores_lines();
    gather_homes(&mut lane.writes, &lane.pool.inner.log.geometry, only_stores)?;
    if lane.writes.gathered.home_lines.is_empty() {
        return finish(lane, None);
    }
    #[cfg(feature = "research")]
    if lane.leaves_log_out {
        return commit_unlogged(lane);
    }
    prefetch_owners(lane);
    let fences_first = make_image(lane, only_stores)?;
    let chain = lane.prepare_chain()?;
    append_and_store(lane, only_stores, fences_first, chain)
}

#[inline(always)]
fn prefetch_owners(lane: &mut Lane) {
    let line_owners = &lane.pool.inner.log.line_owners;
    if line_owners.is_on() {
        gather_owned_lines(&mut lane.writes);
        let owned = &lane.writes.gathered.owned_lines;
        line_owners.prefetch(&owned[..owned.len().min(PREFETCHED_MAX)]);
    }
}

/// Builds the record's image. Returns whether the new data is to be fenced before the record.
#[inline(always)]
fn make_image(lane: &mut Lane, only_stores: bool) -> Result<bool> {
    let Lane { pool, writes, image, .. } = lane;
    let region: &Region = &pool.inner.log.region;
    if only_stores {
        image.clear();
        image.stores(std::iter::empty(), &writes.lines);
        return Ok(false);
    }
    let covered = gather_fresh_lines(writes, region)?;
    let needs_covers = !region.domain().keeps_program_order();
    let fences_first = needs_covers && covered > covered_max_bytes(region.domain());
    build_image(writes, image, needs_covers && !fences_first);
    Ok(fences_first)
}

/// The largest amount of new data that a record covers rather than being preceded by a fence.
fn covered_max_bytes(domain: Domain) -> u64 {
    if domain.waits_for_device() { COVERED_MAX_SYNCED_BYTES } else { COVERED_MAX_BYTES }
}

/// Commits the record and stores the home words, under the lane's lock.
#[inline(always)]
fn append_and_store(lane: &mut Lane, only_stores: bool, fences_first: bool, chain: u64) -> Result<()> {
    let Lane { pool, number, writes, image, tail, .. } = &mut *lane;
    let log: &Log = &pool.inner.log;
    let slot = log.slot(*number);
    let LockedLane { mut state, is_only_lane, least_seq } = log.lock_lane(slot, writes, owned_lines)?;
    let fresh_lines: &[u64] = &writes.gathered.fresh_lines;
    let home_lines: &[u64] = &writes.gathered.home_lines;
    let record = NewRecord { image, chain, least_seq, fresh_lines, home_lines, fences_first };
    log.append(slot, &mut state, tail, record)?;
    // While this is the only lane, no locked instruction follows until the end: it would wait for the fence,
    // with which the next operation's traversal can otherwise overlap. Calls and stores are few as well: a
    // processor can hold back only some hundred until the fence is over.
    let commits = state.commits;
    if only_stores {
        writes.lines.apply(&log.region)?;
        drop(state);
        writes.lines.clear();
        return if is_only_lane { Ok(()) } else { register(log, *number, commits, writes) };
    }
    store_homes(&log.region, writes, is_only_lane)?;
    if !writes.freed.is_empty() {
        log.retire(slot, &mut state, &mut writes.freed, is_only_lane);
    }
    drop(state);
    release_and_finish(lane, (!is_only_lane).then_some(commits))
}

/// The lines that the lane is going to own; gathered on the first call.
#[inline(always)]
fn owned_lines(writes: &mut WriteSet) -> &[u64] {
    if writes.gathered.owned_lines.is_empty() {
        gather_owned_lines(writes);
    }
    &writes.gathered.owned_lines
}

/// The rest of a commit without a record (`unlogged.rs`).
#[cfg(feature = "research")]
#[cold]
fn commit_unlogged(lane: &mut Lane) -> Result<()> {
    let Lane { pool, number, writes, .. } = &mut *lane;
    let log: &Log = &pool.inner.log;
    slabs::write_slab_heads(&log.region, writes)?;
    let is_only_lane = !log.line_owners.is_on();
    store_homes(&log.region, writes, is_only_lane)?;
    if !writes.freed.is_empty() {
        let slot = log.slot(*number);
        log.retire(slot, &mut slot.lock(), &mut writes.freed, is_only_lane);
    }
    release_and_finish(lane, None)
}

/// Stores the home words.
#[inline(always)]
fn store_homes(region: &Region, writes: &WriteSet, is_only_lane: bool) -> Result<()> {
    for (off, value) in writes.steps.redo_words() {
        region.store_u64(off, value)?;
    }
    for (off, change) in &writes.gathered.homes {
        change.apply(region, *off, is_only_lane)?;
    }
    writes.lines.apply(region)?;
    for change in &writes.gathered.bits {
        change.slab.change_media(region, change.place, change.set, is_only_lane)?;
    }
    Ok(())
}

/// Releases the blocks that have left limbo, which the list of freed blocks has now, and then
/// [finishes](finish) the commit.
#[inline(always)]
fn release_and_finish(lane: &mut Lane, commit: Option<u64>) -> Result<()> {
    if !lane.writes.freed.is_empty() { release(lane, commit) } else { finish(lane, commit) }
}

#[inline(never)]
fn release(lane: &mut Lane, commit: Option<u64>) -> Result<()> {
    let Lane { pool, number, arena, writes, .. } = &mut *lane;
    let PoolInner { log, alloc, .. } = &**pool.inner;
    let released = log.release(alloc, *number, &mut writes.freed, Some(arena));
    // The commit is over, whether or not the release succeeded.
    finish(lane, commit).and(released)
}

/// Updates the volatile state after a commit. Unless the lane is the only one, registers it as owner of its
/// lines by this commit.
#[inline(always)]
fn finish(lane: &mut Lane, commit: Option<u64>) -> Result<()> {
    let Lane { pool, number, arena, writes, .. } = lane;
    let inner: &PoolInner = &pool.inner;
    writes.lines.clear();
    if !writes.only_stores_lines() {
        finish_blocks(writes, &inner.alloc, arena);
    }
    match commit {
        None => Ok(()),
        Some(commit) => register(&inner.log, *number, commit, writes),
    }
}

#[inline(always)]
fn register(log: &Log, lane: u32, commit: u64, writes: &mut WriteSet) -> Result<()> {
    let outcome = log.line_owners.register(log.lanes(), lane, commit, &writes.gathered.owned_lines);
    writes.gathered.trim();
    outcome
}

/// Updates the volatile state of the blocks that the transaction allocated and freed, and forgets them. The
/// stores here wait for the fence.
#[inline(always)]
fn finish_blocks(writes: &mut WriteSet, alloc: &Allocator, arena: &Arena) {
    if !writes.gathered.new_slabs.is_empty() {
        slabs::note_published(writes);
    }
    if writes.fresh.iter().any(|f| f.cancelled) {
        release_cancelled(writes, alloc, arena);
    }
    writes.clear_blocks();
}

#[cold]
fn release_cancelled(writes: &WriteSet, alloc: &Allocator, arena: &Arena) {
    let cancelled = writes.fresh.iter().filter(|f| f.cancelled).map(|f| f.block.clone());
    alloc.release(cancelled, Some(arena));
}
