//! Reserves blocks when the lane's own slabs have none: from other slabs, by dissolving empty slabs (which
//! are looked for once in a sixteenth of growth), by growing, and in a full pool from limbo and the kept
//! space.

use super::commit::commit;
use super::lane::{KeptSpace, Lane};
use crate::alloc::classes::MAX_SLAB_CHUNKS;
use crate::alloc::{Block, Room, SlabPlace, Wanted, slab::Slab};
use crate::inner::PoolInner;
use crate::layout::{PmEntry, PmRecord};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use tembo_pmem::size_of;

impl Lane {
    /// Reserves a block; when space runs out, first by dissolving empty slabs, then by growing, and then by
    /// taking blocks back from limbo.
    pub(super) fn reserve(&mut self, wanted: Wanted) -> Result<Block> {
        match self.reserve_or_grow(wanted) {
            Err(full) if full.is_full() => {
                let kept_space = self.kept_space;
                self.reclaim_and_reserve(wanted, full, kept_space)
            }
            outcome => outcome,
        }
    }

    pub(super) fn reserve_or_grow(&mut self, wanted: Wanted) -> Result<Block> {
        let pool = self.pool.clone();
        let inner: &PoolInner = &pool.inner;
        let region = &inner.log.region;
        let kept_chunks = inner.alloc.kept_chunks(region);
        let refuse = Room { grow: &|least, _| Err(no_chunk(inner, least)), kept_chunks };
        match inner.alloc.reserve(region, &mut self.arena, wanted, &refuse) {
            Err(e) if e.is_full() => {}
            outcome => return outcome,
        }
        if inner.alloc.is_look_due(region)
            && self.dissolve_empty_slabs(false)? > 0
            && let Ok(block) = inner.alloc.reserve(region, &mut self.arena, wanted, &refuse)
        {
            return Ok(block);
        }
        let grow = Room { grow: &|least, wanted| inner.grow(least, wanted), kept_chunks };
        inner.alloc.reserve(region, &mut self.arena, wanted, &grow)
    }

    /// Reserves a block in a pool that was found full.
    #[cold]
    pub(super) fn reclaim_and_reserve(
        &mut self,
        wanted: Wanted,
        full: Error,
        kept_space: KeptSpace,
    ) -> Result<Block> {
        let pool = self.pool.clone();
        let inner: &PoolInner = &pool.inner;
        let region = &inner.log.region;
        let kept_chunks = inner.alloc.kept_chunks(region);
        let usable = if kept_space == KeptSpace::All { 0 } else { kept_chunks / 2 };
        if kept_space != KeptSpace::None && inner.alloc.has_closed() {
            // A compaction continues as long as there is space for the blocks that it moves.
            let room = Room { grow: &|least, _| Err(no_chunk(inner, least)), kept_chunks: usable };
            let mut found = inner.alloc.reserve(region, &mut self.arena, wanted, &room);
            if kept_space == KeptSpace::All {
                // A block for the notes of a removal is soon free again, wherever it lies. A block that moves
                // stays.
                found = self.or_reserve_larger(found, wanted, &room);
            }
            match found {
                Err(e) if e.is_full() => {}
                outcome => return outcome,
            }
        }
        // The slabs that this lane holds for other sizes may be empty too.
        inner.alloc.put_arena(&mut self.arena);
        inner.alloc.open_closed(region);
        inner.reclaim_all()?;
        self.dissolve_empty_slabs(true)?;
        let mut room = Room { grow: &|least, _| Err(no_chunk(inner, least)), kept_chunks };
        match inner.alloc.reserve(region, &mut self.arena, wanted, &room) {
            Err(e) if e.is_full() && kept_space != KeptSpace::None => {}
            outcome => return outcome.map_err(|_| full),
        }
        room.kept_chunks = usable;
        let found = inner.alloc.reserve(region, &mut self.arena, wanted, &room);
        self.or_reserve_larger(found, wanted, &room).map_err(|_| full)
    }

    /// Where no slab fits any more, a larger block or a chunk may.
    fn or_reserve_larger(&mut self, found: Result<Block>, wanted: Wanted, room: &Room<'_>) -> Result<Block> {
        let inner: &PoolInner = &self.pool.inner;
        match (found, wanted) {
            (Err(e), Wanted::Bytes(bytes) | Wanted::Words(bytes)) if e.is_full() => {
                let larger = inner.alloc.reserve_larger(&mut self.arena, bytes);
                let chunks = || inner.alloc.reserve_whole_chunks(&inner.log.region, bytes, room);
                larger.map_or_else(chunks, Ok)
            }
            (outcome, _) => outcome,
        }
    }

    /// Makes the chunks of slabs without blocks free, with a record of its own. Returns their number. `all`
    /// looks at every slab of the pool.
    pub(crate) fn dissolve_empty_slabs(&mut self, all: bool) -> Result<usize> {
        let pool = self.pool.clone();
        let inner: &PoolInner = &pool.inner;
        let slabs = inner.alloc.take_empty_slabs(&inner.log.region, all)?;
        self.dissolve(slabs)
    }

    /// As [`dissolve_empty_slabs`](Self::dissolve_empty_slabs), of some slabs from this place on; returns the
    /// place to go on at, if there may be more.
    pub(crate) fn dissolve_some(&mut self, from: SlabPlace) -> Result<Option<SlabPlace>> {
        let pool = self.pool.clone();
        let (slabs, next) = pool.inner.alloc.take_some_empty_slabs(&pool.inner.log.region, from)?;
        self.dissolve(slabs)?;
        Ok(next)
    }

    /// Makes the chunks of slabs that were taken free; returns the number of slabs.
    fn dissolve(&mut self, slabs: Vec<Arc<Slab>>) -> Result<usize> {
        let pool = self.pool.clone();
        let inner: &PoolInner = &pool.inner;
        let geometry = &inner.log.geometry;
        let mut done = 0;
        // Each record dissolves a few slabs only, so that it fits into its lane.
        let room = geometry.half_bytes() - size_of::<PmRecord>() as u64;
        let group_len = room / (MAX_SLAB_CHUNKS * size_of::<PmEntry>() as u64);
        for group in slabs.chunks(group_len.clamp(1, 8) as usize) {
            let outcome = self.with_writes_aside(|lane| {
                for slab in group {
                    for (chunk, _) in slab.chunk_words() {
                        lane.writes.steps.push_redo(geometry.chunk_word_off(slab.zone, chunk), 0);
                    }
                }
                commit(lane)?;
                // L2: the chunk words and bitmaps may be in live records, and the chunks are reused at once.
                inner.log.checkpoint(lane.number).map(drop)
            });
            if let Err(e) = outcome {
                inner.alloc.restore_slabs(slabs[done..].to_vec());
                return Err(e);
            }
            inner.alloc.forget_slabs(group);
            done += group.len();
        }
        Ok(done)
    }

    /// Runs an internal transaction while the user's is open.
    pub(super) fn with_writes_aside<T>(&mut self, body: impl FnOnce(&mut Lane) -> T) -> T {
        let aside = std::mem::take(&mut self.writes);
        let outcome = body(self);
        self.writes = aside;
        outcome
    }
}

fn no_chunk(inner: &PoolInner, least_bytes: u64) -> Error {
    ErrorKind::Full {
        needed_bytes: least_bytes.saturating_sub(inner.log.region.len()),
        why: "no free chunk".to_owned(),
    }
    .into()
}
