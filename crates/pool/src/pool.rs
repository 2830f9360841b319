//! The pool: opening, creating, locking, and what all its users share.

use crate::alloc::Allocator;
use crate::file::features::{self, Feature};
use crate::file::header::{self, Header};
use crate::file::opening::{Ending, Here, Opening};
use crate::file::{create, file_lock};
use crate::layout::{COMMITTED_BITS, Geometry, PAGE_BYTES, PmHeader, seal};
use crate::log::lane::{Lane, LaneSlot};
use crate::log::line_owners::TouchTable;
use crate::log::recover::{self, Recovery};
use crate::{Error, Options, Result};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tembo_pmem::{Access, LINE_BYTES, OfProcess, Region, RegionError, offset_of};
use tembo_sync::{Epochs, PinSlot, register_heavy_fence};
use uuid::Uuid;

/// An open pool. Cheap to clone; closed when the last clone, lane and pin is gone.
#[derive(Clone)]
pub struct Pool {
    pub(crate) inner: Arc<OfProcess<PoolInner>>,
}

pub(crate) struct PoolInner {
    pub region: Region,
    pub geometry: Geometry,
    /// Where the pool's own header, roots and lanes end.
    pub first_zone_off: u64,
    /// Makes this pool's checksums differ from those of other pools.
    pub seed: u64,
    pub alloc: Allocator,
    pub lanes: Box<[LaneSlot]>,
    pub touches: TouchTable,
    pub epochs: Epochs,
    /// Bits of the features that the pool has.
    pub features: Mutex<u64>,
    /// Objects that are open once ([`Pool::claim`]).
    claims: Mutex<HashSet<u64>>,
    /// Set when the device failed.
    pub failed: AtomicBool,
    opened: Opened,
    uuid: Uuid,
    recovery: Recovery,
}

/// How a pool was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub read_only: bool,
    pub path: Option<PathBuf>,
    /// How its last use had ended.
    pub ending: Ending,
    /// Of a file that is to be marked as open before anything is stored.
    pub to_mark: Option<Here>,
    /// Of a file that is marked so.
    pub opening: Option<Opening>,
}

impl Default for Opened {
    fn default() -> Opened {
        Opened { read_only: false, path: None, ending: Ending::Unknown, to_mark: None, opening: None }
    }
}

/// Sizes of a pool that are known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Length of the file in use.
    pub pool_bytes: u64,
    /// The length up to which it may grow.
    pub max_bytes: u64,
    /// Bytes in chunks that are known to be free: never used, or freed since the pool was opened.
    pub unused_bytes: u64,
}

/// Keeps memory that is freed from now on from being used again while it lives.
///
/// Pinning costs about ten nanoseconds and never waits. A pin may be sent to another thread. One that
/// lives long keeps freed memory from being reused.
pub struct Pin {
    inner: Arc<OfProcess<PoolInner>>,
    place: PinSlot<'static>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.inner.epochs.unpin(self.place);
    }
}

impl Pin {
    /// The pool that is pinned.
    pub fn region(&self) -> &Region {
        &self.inner.region
    }
}

/// A pin that lives no longer than a borrow of its pool, and stays on its thread.
pub struct BriefPin<'p> {
    epochs: &'p Epochs,
    place: PinSlot<'p>,
    thread: PhantomData<*const ()>,
}

impl Drop for BriefPin<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.epochs.unpin(self.place);
    }
}

impl std::fmt::Debug for BriefPin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BriefPin")
    }
}

/// An object that is open once ([`Pool::claim`]), until this is dropped.
pub struct Claim {
    pool: Pool,
    off: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.pool.was_left_behind() {
            self.pool.inner.claims.lock().remove(&self.off);
        }
    }
}

impl Claim {
    /// Ends the current epoch, and returns it: what was made unreachable before this call is not looked at any more as
    /// soon as [`oldest_pin`](Self::oldest_pin) is higher.
    ///
    /// For what structures keep beside the pool; blocks of the pool wait by themselves.
    pub fn end_epoch(&self) -> u64 {
        self.pool.inner.epochs.retire(false)
    }

    /// The epoch of the oldest pin there is, or the current one.
    pub fn oldest_pin(&self) -> u64 {
        self.pool.inner.epochs.safe_before()
    }
}

/// An object that is open once ([`Pool::hold`]), until this is dropped.
#[derive(Debug)]
pub struct Hold {
    pool: Pool,
    off: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.pool.was_left_behind() {
            self.pool.inner.claims.lock().remove(&self.off);
        }
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("off", &self.off).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

impl Pool {
    /// Opens the pool at `path`, or creates it, as the options say. Takes time that does not depend on the
    /// size of the pool. A file that is refused is not changed.
    ///
    /// # Errors
    ///
    /// Everything that can be wrong with the file has its own [`Error`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Pool> {
        let path = path.as_ref();
        if options.read_only && (options.create || options.create_new) {
            return Err(Error::Options { what: "a pool cannot be created for reading only".to_owned() });
        }
        if options.create_new {
            return create::create_file(path, options);
        }
        match header::open_file(path, options.read_only) {
            Err(Error::NotFound { .. }) if options.create => match create::create_file(path, options) {
                // Someone else created it meanwhile.
                Err(Error::AlreadyExists { .. }) => Pool::open_existing(path, options),
                outcome => outcome,
            },
            Err(e) => Err(e),
            Ok(file) => Pool::open_locked(file, path, options),
        }
    }

    /// Makes a pool of an empty file that is open for reading and writing. `path` is the one that the file has or is to get, for messages and
    /// for [`path`](Self::path): so a program can fill a pool before it gives the file its name.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn create_in_file(file: &File, path: impl AsRef<Path>, options: &Options) -> Result<Pool> {
        create::create_in_file(file, path.as_ref(), options)
    }

    fn open_existing(path: &Path, options: &Options) -> Result<Pool> {
        Pool::open_locked(header::open_file(path, options.read_only)?, path, options)
    }

    fn open_locked(file: File, path: &Path, options: &Options) -> Result<Pool> {
        file_lock::lock(&file, path, !options.read_only)?;
        let length = file.metadata().map_err(|e| Error::io("reading the length of", path, e))?.len();
        let mut page = vec![0; length.min(PAGE_BYTES) as usize];
        file.read_exact_at(&mut page, 0).map_err(|e| Error::io("reading", path, e))?;
        let header = Header::parse(&page, length)?;
        let here = Here::of(&file, path)?;
        let ending = here.judge(header.opening)?;
        if ending.is_unclean() && !options.accept_unclean {
            return Err(Error::Unclean { path: path.to_owned(), ending });
        }
        let mut region_options = options.region.clone();
        region_options.max_bytes = options.max_bytes.map(|b| b.max(header.committed_bytes));
        let access = if options.read_only { Access::Private } else { Access::ReadWrite };
        let region = Region::map_file(file, header.committed_bytes, &region_options, access)?;
        let read_only = options.read_only;
        let to_mark = if read_only { None } else { Some(here) };
        let opened = Opened { read_only, path: Some(path.to_owned()), ending, to_mark, opening: None };
        Pool::start(region, header, opened)
    }

    /// Opens the pool in a region that is mapped already: for images and the crash simulator.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_in(mut region: Region) -> Result<Pool> {
        // SAFETY: nobody else has the region yet.
        let page = unsafe { region.bytes(0, region.len().min(PAGE_BYTES))? }.to_vec();
        let header = Header::parse(&page, region.len())?;
        region.truncate(header.committed_bytes);
        Pool::start(region, header, Opened::default())
    }

    /// Makes a new pool in a region, which reads as zero: for tests and the crash simulator.
    ///
    /// # Errors
    ///
    /// [`Error::Options`] if the region is too small for the geometry.
    pub fn create_in(region: Region, geometry: &Geometry) -> Result<Pool> {
        let header = create::format(&region, geometry, 0)?;
        Pool::start(region, header, Opened::default())
    }

    pub(crate) fn start(region: Region, header: Header, mut opened: Opened) -> Result<Pool> {
        let Header { geometry, uuid, mut features, mut lacks_features, .. } = header;
        features::accept(features, opened.read_only)?;
        let seed = uuid.as_u64_pair().0;
        let is_writable = !opened.read_only;
        let (seq, recovery) = recover::recover(&region, &geometry, seed, || {
            if opened.to_mark.is_some() && features & Feature::Opening.bit() == 0 {
                (features, lacks_features) = (features | Feature::Opening.bit(), true);
            }
            // The features first: the word of the opening is one of them.
            if lacks_features && is_writable {
                features::set(&region, features)?;
            }
            if let Some(here) = opened.to_mark.take() {
                opened.opening = Some(Opening::mark_open(&region, here, false, opened.ending)?);
            }
            Ok(())
        })?;
        let mut alloc = Allocator::open(&region, geometry);
        alloc.classes.has_later = features::has_unknown_classes(features);
        // Takes long the first time when there are other threads already: not by the first reader.
        register_heavy_fence();
        let lanes = (0..geometry.lane_count).map(|number| LaneSlot::new(number, seq)).collect();
        let inner = PoolInner {
            region,
            geometry,
            first_zone_off: geometry.zones_off(),
            seed,
            alloc,
            lanes,
            touches: TouchTable::new(geometry.lane_count),
            epochs: Epochs::default(),
            features: Mutex::new(features),
            claims: Mutex::default(),
            failed: AtomicBool::new(false),
            opened,
            uuid,
            recovery,
        };
        let inner = Arc::new(OfProcess::new(inner));
        // SAFETY: nobody takes it out of the `Arc`, and a child never drops it.
        unsafe { inner.region.be_empty_in_children() };
        Ok(Pool { inner })
    }

    /// The mapped memory.
    #[inline(always)]
    pub fn region(&self) -> &Region {
        &self.inner.region
    }

    /// The path it was opened by, if it is a file.
    pub fn path(&self) -> Option<&Path> {
        self.inner.opened.path.as_deref()
    }

    /// The pool's identity, which copies of the file share.
    pub fn uuid(&self) -> Uuid {
        self.inner.uuid
    }

    /// The sizes that were chosen when it was created.
    pub fn geometry(&self) -> &Geometry {
        &self.inner.geometry
    }

    /// What recovery did when the pool was opened.
    pub fn recovery(&self) -> Recovery {
        self.inner.recovery
    }

    /// How the pool's last use for writing had ended when it was opened.
    pub fn last_ending(&self) -> Ending {
        self.inner.opened.ending
    }

    /// Whether the pool was opened by the process that this one was forked from. Nothing can be done with it here.
    #[inline(always)]
    pub fn was_left_behind(&self) -> bool {
        self.inner.region.is_empty()
    }

    /// Refuses a pool that [was left behind](Self::was_left_behind); two instructions otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    #[inline(always)]
    pub fn check_process(&self) -> Result<()> {
        if self.was_left_behind() { Err(Error::Forked) } else { Ok(()) }
    }

    /// As [`check_process`](Self::check_process), where there is no way to return an error.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    #[inline(always)]
    #[track_caller]
    pub fn assert_process(&self) {
        if self.was_left_behind() {
            panic!("{}", Error::Forked);
        }
    }

    /// Whether the pool was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.inner.opened.read_only
    }

    /// The largest block that the pool can hold, in bytes.
    pub fn max_block_bytes(&self) -> u64 {
        self.inner.alloc.max_block_bytes()
    }

    /// Pins the current epoch.
    #[inline]
    pub fn pin(&self) -> Pin {
        Pin { place: self.inner.epochs.pin(), inner: self.inner.clone() }
    }

    /// As [`pin`](Self::pin), for a short while on one thread: does not keep the pool open by itself, and costs no locked
    /// instruction.
    #[inline(always)]
    pub fn pin_briefly(&self) -> BriefPin<'_> {
        BriefPin { place: self.inner.epochs.pin_briefly(), epochs: &self.inner.epochs, thread: PhantomData }
    }

    /// As [`pin_briefly`](Self::pin_briefly), where that takes a few instructions, as it mostly does; else `None`.
    #[inline(always)]
    pub fn try_pin_briefly(&self) -> Option<BriefPin<'_>> {
        let epochs = &self.inner.epochs;
        epochs.try_pin_briefly().map(|place| BriefPin { place, epochs, thread: PhantomData })
    }

    /// As [`pin_briefly`](Self::pin_briefly), for writers beside each other: it costs a locked instruction, and spares the others
    /// the barriers that brief pins want of every thread now and then.
    #[inline]
    pub fn pin_for_writing(&self) -> BriefPin<'_> {
        BriefPin { place: self.inner.epochs.pin(), epochs: &self.inner.epochs, thread: PhantomData }
    }

    /// Claims an object for a structure that keeps volatile state beside it, such as locks, and hence must not be
    /// opened twice by one process; `None` if it is claimed already.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn claim(&self, off: u64) -> Result<Option<Claim>> {
        self.check_process()?;
        // ORDER: from here on no lane believes to be alone, so that a claim can end epochs beside it.
        self.inner.touches.turn_on(&self.inner, 0)?;
        Ok(self.inner.claims.lock().insert(off).then(|| Claim { pool: self.clone(), off }))
    }

    /// As [`claim`](Self::claim), for a structure that ends no epochs: costs the pool's writers nothing.
    pub fn hold(&self, off: u64) -> Option<Hold> {
        self.assert_process();
        self.inner.claims.lock().insert(off).then(|| Hold { pool: self.clone(), off })
    }

    /// Takes a lane, to write with.
    ///
    /// # Errors
    ///
    /// [`Error::NoLane`] if all are in use, [`Error::ReadOnly`].
    pub fn lane(&self) -> Result<Lane> {
        self.inner.check_usable()?;
        Ok(Lane::new(self.clone(), self.inner.take_lane()?))
    }

    /// Takes a lane for whoever could do without one: `None` if half of them are in use, or a little more, where threads ask at once.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], or that the pool cannot be used any more.
    pub fn spare_lane(&self) -> Result<Option<Lane>> {
        self.check_process()?;
        let lanes = &self.inner.lanes;
        let in_use = lanes.iter().filter(|lane| lane.in_use.load(Ordering::Relaxed)).count();
        if 2 * in_use >= lanes.len() {
            return Ok(None);
        }
        match self.lane() {
            Err(Error::NoLane { .. }) => Ok(None),
            lane => lane.map(Some),
        }
    }

    /// How long the pool is, and how much of that is not used. Takes time with the number of zones only.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    pub fn stats(&self) -> Stats {
        self.assert_process();
        let unused_bytes = self.inner.alloc.unused_bytes(&self.inner.region);
        let (pool_bytes, max_bytes) = (self.inner.region.len(), self.inner.region.max_bytes());
        Stats { pool_bytes, max_bytes, unused_bytes }
    }

    /// Gives unused space back to the file system, in runs of at least 1 MiB. Returns the bytes. Reads every
    /// slab of the pool; other writers wait meanwhile only when they need a new slab.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn trim(&self) -> Result<u64> {
        let mut lane = self.lane()?;
        self.inner.reclaim_all()?;
        lane.dissolve_empty_slabs(true)?;
        Ok(self.inner.alloc.punch(&self.inner.region, 1 << 20))
    }

    /// Bytes of freed blocks that wait for readers or records before they can be used again.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    pub fn limbo_bytes(&self) -> u64 {
        self.assert_process();
        self.inner.lanes.iter().map(LaneSlot::limbo_bytes).sum()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("path", &self.inner.opened.path)
            .field("region", &self.inner.region)
            .finish_non_exhaustive()
    }
}

impl PoolInner {
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.region.is_empty() {
            return Err(Error::Forked);
        }
        if self.opened.read_only {
            return Err(Error::ReadOnly);
        }
        if self.failed.load(Ordering::Acquire) {
            // PERSIST(I6): nothing to wait for; a region whose device failed refuses every fence.
            self.region.fence()?;
        }
        Ok(())
    }

    /// Makes the pool longer: to `wanted` bytes if possible, else to `least`.
    pub(crate) fn grow(&self, least: u64, wanted: u64) -> Result<()> {
        let old = self.region.len();
        let most = self.region.max_bytes();
        let outcome = match self.region.grow(wanted.min(most).max(least)) {
            Err(RegionError::NoSpace { .. } | RegionError::FileSizeLimit { .. }) => self.region.grow(least),
            outcome => outcome,
        };
        outcome.map_err(|e| crate::alloc::full(least.saturating_sub(old), &e))?;
        let off = offset_of!(PmHeader, committed) as u64;
        self.region.store_u64(off, seal(self.region.len() / PAGE_BYTES, COMMITTED_BITS))?;
        // PERSIST(I5): the file is long enough before this, and nothing in the new part is used before this.
        self.region.persist(off, 8)?;
        Ok(())
    }

    /// Makes everything durable, so that the next opening has nothing to do.
    fn close(&self) -> Result<()> {
        if self.lanes.iter().any(|lane| lane.lock().commits > 0) {
            self.retire_records()?;
        }
        self.opened.opening.as_ref().map_or(Ok(()), |opening| opening.mark_closed(&self.region))
    }

    /// Declares all records dead.
    fn retire_records(&self) -> Result<()> {
        let mut seq = 0;
        for lane in &self.lanes {
            let state = lane.lock();
            seq = seq.max(state.seq);
            state.home_lines.iter().for_each(|line| self.region.flush(line * LINE_BYTES, 1));
        }
        // PERSIST(I6): the home words are durable before the watermark declares their records dead.
        self.region.fence()?;
        recover::write_watermark(&self.region, seq)
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        if !self.opened.read_only && !self.failed.load(Ordering::Acquire) {
            // A failure here loses nothing: the records are durable, and the next opening replays them. The pool is not marked as
            // closed then.
            let _ = self.close();
        }
        self.region.unlock_file();
    }
}
