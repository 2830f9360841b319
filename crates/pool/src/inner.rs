//! The state that all users of an open pool share: its handles, lanes and pins.

use crate::alloc::Allocator;
use crate::feature::{Feature, unknown};
use crate::file::features;
use crate::file::opening::Opened;
use crate::layout::{COMMITTED_BITS, Geometry, PAGE_BYTES, PmHeader, seal};
use crate::log::handle::Log;
use crate::log::recover::Recovery;
use crate::{ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tembo_pmem::{OfProcess, Region, RegionError, offset_of};
use uuid::Uuid;

/// An open pool. Cheap to clone; closed when the last clone, lane and pin is dropped.
#[derive(Clone)]
pub struct Pool {
    pub(crate) inner: Arc<OfProcess<PoolInner>>,
}

pub(crate) struct PoolInner {
    /// Records, lanes, and the memory that they change.
    pub log: Log,
    /// Where the pool's own header, roots and lanes end.
    pub first_zone_off: u64,
    pub alloc: Allocator,
    /// Bits of the features that the pool has.
    pub features: Mutex<u64>,
    /// Objects that may be open only once in this process, and are ([`Pool::claim`]).
    pub open_objects: Mutex<HashSet<u64>>,
    pub opened: Opened,
    pub uuid: Uuid,
    pub recovery: Recovery,
    /// The length below which the pool is not cut.
    pub min_bytes: AtomicU64,
}

impl Pool {
    /// The mapped memory.
    #[inline(always)]
    pub fn region(&self) -> &Region {
        &self.inner.log.region
    }

    /// The sizes that were chosen when it was created.
    pub fn geometry(&self) -> &Geometry {
        &self.inner.log.geometry
    }

    /// Whether the pool was opened by the process that this one was forked from. Nothing can be done with it
    /// here.
    #[inline(always)]
    pub fn was_left_behind(&self) -> bool {
        self.region().is_empty()
    }

    /// Refuses a pool that [was left behind](Self::was_left_behind); two instructions otherwise.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Forked`].
    #[inline(always)]
    pub fn check_process(&self) -> Result<()> {
        if self.was_left_behind() { Err(ErrorKind::Forked.into()) } else { Ok(()) }
    }

    /// As [`check_process`](Self::check_process), for a caller that cannot return an error.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    #[inline(always)]
    #[track_caller]
    pub fn assert_process(&self) {
        if self.was_left_behind() {
            panic!("{}", ErrorKind::Forked);
        }
    }

    /// Sets the bit of a feature, before the first thing that it stands for is written. Durable on return,
    /// and never undone; does nothing if the bit is set already.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ReadOnly`], and those of a fence.
    pub fn enable(&self, feature: Feature) -> Result<()> {
        self.inner.check_usable()?;
        let mut features = self.inner.features.lock();
        if *features & feature.bit() == 0 {
            features::set(self.region(), *features | feature.bit())?;
            *features |= feature.bit();
        }
        Ok(())
    }

    /// Whether a feature was [enabled](Self::enable).
    pub fn has(&self, feature: Feature) -> bool {
        *self.inner.features.lock() & feature.bit() != 0
    }

    /// The feature bits that this build does not know, but that do not keep it from opening the pool.
    pub fn unknown_features(&self) -> u64 {
        unknown(*self.inner.features.lock())
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("path", &self.inner.opened.path)
            .field("region", self.region())
            .finish_non_exhaustive()
    }
}

impl PoolInner {
    /// Refuses a pool that cannot be written to.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.log.region.is_empty() {
            return Err(ErrorKind::Forked.into());
        }
        if self.opened.read_only {
            return Err(ErrorKind::ReadOnly.into());
        }
        if self.log.has_failed() {
            // PERSIST(I6): no store is pending. The fence reports whether the device failed: such a region
            // refuses every fence.
            self.log.region.fence()?;
        }
        Ok(())
    }

    /// Makes the pool longer: to `wanted` bytes if possible, else to `least`.
    pub(crate) fn grow(&self, least: u64, wanted: u64) -> Result<()> {
        let region = &self.log.region;
        let old = region.len();
        let most = region.max_bytes();
        let outcome = match region.grow(wanted.min(most).max(least)) {
            Err(RegionError::NoSpace { .. } | RegionError::FileSizeLimit { .. }) => region.grow(least),
            outcome => outcome,
        };
        outcome.map_err(|e| crate::alloc::full(least.saturating_sub(old), &e))?;
        // PERSIST(I5): the file has its new length before this word says so, and the new part is not used
        // before the word is durable.
        self.commit_length(region.len())
    }

    /// Makes a length durable.
    pub(crate) fn commit_length(&self, bytes: u64) -> Result<()> {
        let region = &self.log.region;
        let off = offset_of!(PmHeader, committed) as u64;
        region.store_u64(off, seal(bytes / PAGE_BYTES, COMMITTED_BITS))?;
        // PERSIST(I5): before a new part is used, and before an old one is given up.
        region.persist(off, 8)?;
        Ok(())
    }

    /// Makes everything durable, so that the next opening has nothing to do.
    fn close(&self) -> Result<()> {
        self.log.close()?;
        self.opened.opening.as_ref().map_or(Ok(()), |opening| opening.mark_closed(&self.log.region))
    }

    /// Takes back the blocks in the limbos of all lanes, as far as readers allow.
    pub(crate) fn reclaim_all(&self) -> Result<()> {
        self.log.reclaim_all(&self.alloc)
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        if !self.opened.read_only && !self.log.has_failed() {
            // A failure here loses nothing: the records are durable, and the next opening replays them. The
            // pool is then not marked as closed.
            let _ = self.close();
        }
        self.log.region.unlock_file();
    }
}
