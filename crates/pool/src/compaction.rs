//! Compaction: blocks move from sparse slabs into fuller ones, so that the sparse ones become free space.
//!
//! The pool chooses the slabs and closes them to allocation. Structures move their own blocks: each asks
//! [`Compaction::has`] of its blocks, copies those that lie in closed slabs into new blocks, which therefore
//! lie elsewhere, and frees the old ones, in transactions like any other. A crash at any moment leaves either
//! the old block or the new one, so there is nothing to recover.
//!
//! The blocks to move are those of sparse slabs (`alloc/sparse.rs`), or of a run of chunks: the end of the
//! pool, or the run that costs least to empty (`alloc/evacuation.rs`). A free end is cut off ([`Pool::cut`]).
//! Its layout, commit point and recovery are in the head of `alloc/tail.rs`.

use crate::alloc::classes::MAX_SLAB_CHUNKS;
use crate::alloc::{Allocator, CloseLimits, CutRule};
use crate::{Pool, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use tembo_pmem::Region;

/// Slabs that are being emptied. Dropping it allows allocations from them again.
#[derive(Debug)]
pub struct Compaction {
    pool: Pool,
    /// Where the blocks of closed slabs lie, in ascending order.
    spans: Vec<Range<u64>>,
    /// Whether the compaction is to empty a run of chunks.
    is_of_run: bool,
    /// A block stayed for a time only.
    has_held: AtomicBool,
}

impl Compaction {
    /// Whether the block at `off` is to be moved. O(log n) of the number of closed slabs. Nothing is after
    /// the pool was found full, as new blocks may lie in these slabs again.
    pub fn has(&self, off: u64) -> bool {
        if !self.pool.inner.alloc.has_closed() {
            return false;
        }
        let after = self.spans.partition_point(|span| span.start <= off);
        after > 0 && self.spans[after - 1].contains(&off)
    }

    /// Whether it is a compaction of this pool.
    pub fn is_of(&self, pool: &Pool) -> bool {
        std::sync::Arc::ptr_eq(&self.pool.inner, &pool.inner)
    }

    /// Notes that a snapshot holds a block of the compaction, which therefore stays for now.
    pub fn note_held(&self) {
        self.has_held.store(true, Ordering::Relaxed);
    }

    /// Ends it once every structure has moved its blocks. Later ones leave alone what stayed there, until
    /// some of it is freed or the pool has grown by a sixteenth. Of a run of chunks whose compaction was
    /// called off, because there was no room elsewhere, that is the lower half; of sparse slabs nothing.
    ///
    /// # Errors
    ///
    /// As for a commit: of lanes whose freed blocks become free.
    pub fn complete(self) -> Result<()> {
        self.pool.inner.reclaim_all()?;
        if !self.has_held.load(Ordering::Relaxed) {
            let alloc = &self.pool.inner.alloc;
            let is_sure = alloc.has_closed();
            let of = match (is_sure, self.is_of_run) {
                (true, _) => self.spans.len(),
                // The next compaction is content with a shorter run.
                (false, true) => self.spans.len().div_ceil(2),
                (false, false) => 0,
            };
            alloc.note_stuck(self.pool.region(), &self.spans[..of], is_sure);
        }
        Ok(())
    }

    /// Whether it was called off because the pool was found full: [`has`](Self::has) is false from then on,
    /// so that nothing is left to move.
    pub fn is_called_off(&self) -> bool {
        !self.is_empty() && !self.pool.inner.alloc.has_closed()
    }

    /// Whether there is nothing to gain.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.pool.inner.alloc.end_compaction();
    }
}

impl Pool {
    /// Closes the sparse slabs whose blocks find room in fuller ones; where there are none, the end of the
    /// pool, if that can be emptied. After a large block has found no run of chunks, closes the run that
    /// costs least to empty instead. `None` if a compaction is under way. Reads every slab of the pool.
    ///
    /// Lanes give the slabs up that they allocate from when they begin their next transaction, so the next
    /// compaction can close these, too.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the pool is damaged;
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly), [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    pub fn compaction(&self) -> Result<Option<Compaction>> {
        self.close(|alloc, region, limits| alloc.close(region, limits))
    }

    /// Closes the end of the pool, if it can be emptied and the file would become much shorter; otherwise as
    /// [`compaction`](Self::compaction).
    ///
    /// # Errors
    ///
    /// As for [`compaction`](Self::compaction).
    pub fn tail_compaction(&self) -> Result<Option<Compaction>> {
        self.close(|alloc, region, limits| alloc.close_tail(region, limits))
    }

    fn close(
        &self,
        close: impl FnOnce(&Allocator, &Region, CloseLimits) -> Result<Option<Vec<Range<u64>>>>,
    ) -> Result<Option<Compaction>> {
        self.check_process()?;
        if self.is_read_only() {
            return Err(crate::ErrorKind::ReadOnly.into());
        }
        self.recall_slabs();
        self.inner.reclaim_all()?;
        let floor_bytes = if self.region().can_shrink() { self.min_bytes() } else { u64::MAX };
        let limits = CloseLimits { floor_bytes, fixed: self.journal_off()? };
        let spans = close(&self.inner.alloc, self.region(), limits)?;
        let is_of_run = self.inner.alloc.is_evacuating();
        Ok(spans.map(|spans| Compaction {
            pool: self.clone(),
            spans,
            is_of_run,
            has_held: AtomicBool::new(false),
        }))
    }

    /// Asks all lanes to give up the slabs that they allocate from. Each does when it begins its next
    /// transaction.
    pub fn recall_slabs(&self) {
        // ORDER: a lane that misses this store gives its slabs up a transaction later.
        self.inner.alloc.recalls.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the pool has grown since the last call although holes had at least 16 MiB, and a quarter of
    /// the space in use: a compaction could have made room. One load.
    pub fn take_outgrown_waste(&self) -> bool {
        self.inner.alloc.take_outgrown_waste()
    }

    /// What [`take_outgrown_waste`](Self::take_outgrown_waste) would return; the next call returns it again.
    pub fn has_outgrown_waste(&self) -> bool {
        self.inner.alloc.has_outgrown_waste()
    }

    /// Gives the free end of the pool up, but for `slack_bytes`, if it is at least `least_bytes` long, and
    /// cuts the file there. The pool keeps its [least length](Self::min_bytes), and can grow again. Commits
    /// wait while the length changes; the file is cut after that. Where there is a journal, it is written
    /// home first. Returns the bytes by which the pool became shorter. `alloc/tail.rs` proves that no block
    /// is in that part, and covers every moment of a crash.
    ///
    /// # Errors
    ///
    /// As for a commit. If the file cannot be cut, it stays longer than the pool.
    pub fn cut(&self, least_bytes: u64, slack_bytes: u64) -> Result<u64> {
        self.cut_by(least_bytes, slack_bytes, u64::MAX)
    }

    /// As [`cut`](Self::cut), by about `most_bytes` at most, for a thread that others wait for: to free a
    /// gibibyte may take tmpfs a third of a second. Where there is a journal, all goes at once, since each
    /// step would write the journal home. Steps after the first need a `least_bytes` of 1 to come to the end.
    ///
    /// # Errors
    ///
    /// As for [`cut`](Self::cut).
    pub fn cut_by(&self, least_bytes: u64, slack_bytes: u64, most_bytes: u64) -> Result<u64> {
        self.inner.check_usable()?;
        let (region, alloc) = (self.region(), &self.inner.alloc);
        let most_bytes = if self.journal().is_some() { u64::MAX } else { most_bytes };
        let rule = CutRule { floor_bytes: self.min_bytes(), slack_bytes, least_bytes, most_bytes };
        if !region.can_shrink() || alloc.length_to_cut(region, rule).is_none() {
            return Ok(0);
        }
        let mut cut_bytes = 0;
        self.write_journal_home()?;
        self.inner.log.while_quiet(|| {
            alloc.cut(region, rule, |length| {
                cut_bytes = region.len() - length;
                self.inner.commit_length(length)?;
                Ok(region.shrink(length)?)
            })
        })?;
        if cut_bytes > 0 {
            // A file that stays longer does no harm.
            let _ = region.cut_file();
        }
        Ok(cut_bytes)
    }

    /// The length below which the pool is not [cut](Self::cut).
    pub fn min_bytes(&self) -> u64 {
        self.inner.min_bytes.load(Ordering::Relaxed)
    }

    /// Sets [`min_bytes`](Self::min_bytes), until the pool is closed.
    pub fn set_min_bytes(&self, bytes: u64) {
        self.inner.min_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The length of the run of chunks that a large block, or a slab of several chunks, did not find
    /// recently; 0 if no run is missed. Also 0 if a slab misses it, and less than an eighth of the pool is
    /// unused: the pool is full then. The next compaction, or the one after it, empties such a run. Takes a
    /// few locks.
    pub fn missed_run_bytes(&self) -> u64 {
        const UNUSED_PART: u64 = 8;
        let missed = self.inner.alloc.missed_chunks();
        let is_full = || {
            let stats = self.stats();
            stats.unused_bytes < stats.pool_bytes / UNUSED_PART
        };
        if missed <= MAX_SLAB_CHUNKS && (missed == 0 || is_full()) {
            return 0;
        }
        missed * self.geometry().chunk()
    }

    /// Whether the last compaction was to empty a run of chunks, and did.
    pub fn has_made_run(&self) -> bool {
        self.inner.alloc.has_made_run(self.region())
    }

    /// Whether a compaction was to empty a run of chunks since the last call, and no allocation has found one
    /// since that is as long as the missed one.
    pub fn take_tried_run(&self) -> bool {
        self.inner.alloc.take_tried_run()
    }

    /// Bytes of free blocks in slabs that also have allocated ones, as far as this process knows them.
    pub fn spare_bytes(&self) -> u64 {
        self.inner.alloc.spare_bytes()
    }

    /// As [`spare_bytes`](Self::spare_bytes), for a thread that others wait for: looks at some slabs only,
    /// and returns the bytes that the last whole survey found, and whether this call has ended one. Exact in
    /// a pool of at most 1,024 slabs with holes.
    pub fn survey_spare(&self) -> (u64, bool) {
        self.inner.alloc.survey_spare()
    }

    /// Reads up to `limit` slabs that this process does not know yet; returns whether there may be more.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the pool is damaged;
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    pub fn learn_slabs(&self, limit: usize) -> Result<bool> {
        self.check_process()?;
        self.inner.alloc.read_some(self.region(), limit)
    }
}
