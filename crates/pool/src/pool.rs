//! An open pool as its user sees it: opening, creating, lanes, roots and figures.

use crate::alloc::check::Marks;
use crate::alloc::{Allocator, SlabPlace};
use crate::ending::Ending;
use crate::feature::{Feature, has_unknown_classes};
use crate::file::create::{self, NewPool};
use crate::file::header::{self, Header, seed_of};
use crate::file::opening::{Found, Here, Opened, Opening};
use crate::file::options::Options;
use crate::file::roots::{self, Root};
use crate::file::{features, file_lock, journal};
use crate::inner::{Pool, PoolInner};
use crate::layout::{DROPPED_OFF, Geometry, PAGE_BYTES};
use crate::log::handle::Log;
use crate::log::recover::{self, Recovery};
use crate::tx::Tx;
use crate::tx::lane::Lane;
use crate::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tembo_pmem::{Access, Durability, OfProcess, Region};
use tembo_sync::register_heavy_fence;
use uuid::Uuid;

/// The shortest run of free space that is returned to the file system.
const RUN_BYTES_MIN: u64 = 1 << 20;
/// So much is given back while others wait for the allocator's lock.
const STEP_BYTES: u64 = 4 << 20;

/// Sizes of a pool that are known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Length of the file in use.
    pub pool_bytes: u64,
    /// The length up to which it may grow.
    pub max_bytes: u64,
    /// Bytes in chunks that are known to be free: never used, or freed since the pool was opened.
    pub unused_bytes: u64,
    /// Bytes that are set aside for its journal, most of them without space in the file system while it is
    /// short; 0 if it has none.
    pub journal_bytes: u64,
}

impl Stats {
    /// Bytes of chunks that have data, or had: neither unused nor the journal's.
    pub fn used_bytes(&self) -> u64 {
        self.pool_bytes.saturating_sub(self.unused_bytes).saturating_sub(self.journal_bytes)
    }
}

impl Pool {
    /// Opens the pool at `path`, or creates it, as the options say. Takes time that does not depend on the
    /// size of the pool. A file that is refused is not changed.
    ///
    /// # Errors
    ///
    /// Everything that can be wrong with the file has its own [`ErrorKind`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Pool> {
        let path = path.as_ref();
        if options.read_only && (options.create || options.create_new) {
            return Err(
                ErrorKind::Options { what: "a pool cannot be created for reading only".to_owned() }.into()
            );
        }
        let pool = match options.region.durability {
            _ if options.read_only => Pool::open_simply(path, options),
            Durability::Auto => Pool::open_by_medium(path, options),
            durability if durability.needs_journal() => Pool::open_journaled(path, options),
            _ => Pool::open_simply(path, options),
        };
        pool.map(|pool| pool.with_length_of(options))
    }

    /// Takes the least length from the options, and cuts the part of the file that a crash has left behind
    /// the pool's end.
    fn with_length_of(self, options: &Options) -> Pool {
        self.set_min_bytes(options.min_bytes.unwrap_or(options.initial_bytes));
        if !options.read_only {
            // A file that stays longer does no harm.
            let _ = self.region().cut_file();
        }
        self
    }

    /// As [`open`](Self::open), in a domain without a journal.
    pub(crate) fn open_simply(path: &Path, options: &Options) -> Result<Pool> {
        if options.create_new {
            return create::create_file(path, options).and_then(Pool::start_new);
        }
        match header::open_file(path, options.read_only) {
            Err(e) if options.create && matches!(e.kind(), ErrorKind::NotFound { .. }) => {
                match create::create_file(path, options) {
                    // Another process created the pool meanwhile.
                    Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists { .. }) => {
                        Pool::open_existing(path, options)
                    }
                    outcome => outcome.and_then(Pool::start_new),
                }
            }
            Err(e) => Err(e),
            Ok(file) => Pool::open_locked(file, path, options, None),
        }
    }

    /// Makes a pool of an empty file that is open for reading and writing. `path` is the path that the file
    /// has or will get, for messages and for [`path`](Self::path). This allows a program to fill a pool
    /// before it names the file.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn create_in_file(file: &File, path: impl AsRef<Path>, options: &Options) -> Result<Pool> {
        let durability = options.region.durability;
        let pool = if durability.needs_journal() {
            Pool::create_journaled_in_file(file, path.as_ref(), options)
        } else {
            create::create_in_file(file, path.as_ref(), options).and_then(Pool::start_new)
        };
        let pool = if durability == Durability::Auto {
            pool.and_then(|pool| pool.with_journal_on_disk(path.as_ref(), options))
        } else {
            pool
        };
        pool.map(|pool| pool.with_length_of(options))
    }

    fn start_new((region, header, opened): NewPool) -> Result<Pool> {
        Pool::start(region, header, opened)
    }

    fn open_existing(path: &Path, options: &Options) -> Result<Pool> {
        Pool::open_locked(header::open_file(path, options.read_only)?, path, options, None)
    }

    /// Locks and opens an existing file. `ending`: how its last use had ended, if that is known.
    pub(crate) fn open_locked(
        file: File,
        path: &Path,
        options: &Options,
        ending: Option<Ending>,
    ) -> Result<Pool> {
        file_lock::lock(&file, path, !options.read_only)?;
        let length = file.metadata().map_err(|e| Error::io("reading the length of", path, e))?.len();
        let mut page = vec![0; length.min(PAGE_BYTES) as usize];
        file.read_exact_at(&mut page, 0).map_err(|e| Error::io("reading", path, e))?;
        let mut header = Header::parse(&page, length)?;
        let word_at_home = header.opening;
        let mut newer = None;
        if let Some(place) = header.journal {
            let read = journal::read(&file, path, &mut page, length, place, options.read_only)?;
            (header, newer) = (read.0, Some(read.1));
        }
        let here = Here::of(&file, path)?;
        let judged = here.judge(header.opening)?;
        let ending = ending.unwrap_or(judged);
        if ending.is_unclean() && !options.accept_unclean {
            return Err(ErrorKind::Unclean { path: path.to_owned(), ending }.into());
        }
        let mut region_options = options.region.clone();
        region_options.max_bytes = options.max_bytes.map(|b| b.max(header.committed_bytes));
        region_options.journal = header.journal;
        path.clone_into(&mut region_options.path);
        let access = if options.read_only { Access::Private } else { Access::ReadWrite };
        let needs_journal = options.region.durability.needs_journal() && !options.read_only;
        let is_left = [word_at_home, header.opening].into_iter().all(|word| here.is_left_with_journal(word));
        let goes_on = is_left && ending == Ending::Killed;
        let records = newer.as_ref().and_then(|newer| newer.records).filter(|_| needs_journal);
        let was_closed = judged == Ending::Closed && records.is_some_and(|records| records.is_empty());
        region_options.resumes = records.filter(|_| goes_on || was_closed);
        let resumes = goes_on && region_options.resumes.is_some();
        let is_replayed_now = !options.read_only && !needs_journal;
        let journal_lines = newer.as_ref().map(|newer| newer.count);
        if let Some(place) = header.journal.filter(|_| is_replayed_now && journal_lines > Some(0)) {
            journal::replay(&file, path, place)?;
        }
        let mut region = Region::map_file(file, header.committed_bytes, &region_options, access)?;
        if let Some(newer) = newer.filter(|_| options.read_only) {
            journal::apply(&mut region, &newer.lines)?;
        }
        let read_only = options.read_only;
        let found = if was_closed { Found::Synchronised } else { Found::Left };
        let to_mark = (!read_only && !resumes).then_some((here, found));
        let path = Some(path.to_owned());
        let opening = resumes.then(Opening::resumed);
        let opened = Opened { read_only, path, ending, journal_lines, to_mark, opening };
        Pool::start(region, header, opened)
    }

    /// Opens the pool in a region that is already mapped. For crash images and the crash simulator.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_in(mut region: Region) -> Result<Pool> {
        // SAFETY: no other code has the region yet.
        let page = unsafe { region.bytes(0, region.len().min(PAGE_BYTES))? }.to_vec();
        let header = Header::parse(&page, region.len())?;
        region.truncate(header.committed_bytes);
        Pool::start(region, header, Opened::default())
    }

    /// Makes a new pool in a region that reads as zero. For tests and the crash simulator.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Options`] if the region is too small for the geometry.
    pub fn create_in(region: Region, geometry: &Geometry) -> Result<Pool> {
        let header = create::format(&region, geometry, 0)?;
        Pool::start(region, header, Opened::default())
    }

    fn start(region: Region, header: Header, mut opened: Opened) -> Result<Pool> {
        let Header { geometry, uuid, journal, mut features, mut lacks_features, .. } = header;
        features::accept(features, opened.read_only)?;
        let seed = seed_of(uuid);
        let is_writable = !opened.read_only;
        // Fences of recovery wait for no device: it stores the same again after a failure, before anything
        // that follows it.
        region.journal().iter().for_each(|journal| journal.put_off(true));
        let recovered = recover::recover(&region, &geometry, seed, || {
            let is_writable_file = opened.to_mark.is_some() || opened.opening.is_some();
            if is_writable_file && features & features::of_files(&geometry) != features::of_files(&geometry) {
                (features, lacks_features) = (features | features::of_files(&geometry), true);
            }
            // Features come first, because a feature bit announces the word `opening`.
            if lacks_features && is_writable {
                features::set(&region, features)?;
            }
            if let Some((here, found)) = opened.to_mark.take() {
                opened.opening = Some(Opening::mark_open(&region, here, found)?);
            }
            Ok(())
        });
        region.journal().iter().for_each(|journal| journal.put_off(false));
        let (seq, recovery) = recovered?;
        let has = |feature: Feature| features & feature.bit() != 0;
        let used = (has(Feature::FineClasses), has(Feature::WideClasses));
        let mut alloc = Allocator::open(&region, geometry, used);
        alloc.classes.has_later = has_unknown_classes(features);
        alloc.set_aside_bytes = journal.map_or(0, |place| alloc.extent_bytes(&region, place.off));
        // The first registration takes long if there are other threads; it is done here so that no reader
        // pays for it.
        register_heavy_fence();
        let inner = PoolInner {
            log: Log::new(region, geometry, seed, seq),
            first_zone_off: geometry.zones_off(),
            alloc,
            features: Mutex::new(features),
            open_objects: Mutex::default(),
            opened,
            uuid,
            recovery,
            min_bytes: AtomicU64::new(0),
        };
        let inner = Arc::new(OfProcess::new(inner));
        // SAFETY: no code moves the region out of the `Arc`, and a child never drops it.
        unsafe { inner.log.region.be_empty_in_children() };
        Ok(Pool { inner })
    }

    /// The path by which it was opened, if it lies in a file.
    pub fn path(&self) -> Option<&Path> {
        self.inner.opened.path.as_deref()
    }

    /// The pool's identity, which copies of the file share.
    pub fn uuid(&self) -> Uuid {
        self.inner.uuid
    }

    /// The work of recovery when the pool was opened.
    pub fn recovery(&self) -> Recovery {
        self.inner.recovery
    }

    /// How the pool's last use for writing had ended when it was opened.
    pub fn last_ending(&self) -> Ending {
        self.inner.opened.ending
    }

    /// Whether the pool was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.inner.opened.read_only
    }

    /// The largest block that the pool can hold, in bytes.
    pub fn max_block_bytes(&self) -> u64 {
        self.inner.alloc.max_block_bytes()
    }

    /// Takes a lane, which is needed to write.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoLane`] if all are in use, [`ErrorKind::ReadOnly`].
    pub fn lane(&self) -> Result<Lane> {
        self.inner.check_usable()?;
        Ok(Lane::new(self.clone(), self.inner.log.take_lane()?))
    }

    /// Every root, in no particular order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`].
    pub fn roots(&self) -> Result<Vec<Root>> {
        roots::all(self.geometry(), &|off| Ok(self.region().load_u64(off)?))
    }

    /// The root of this name, if there is one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`].
    pub fn root(&self, name: &str) -> Result<Option<Root>> {
        Ok(self.roots()?.into_iter().find(|root| root.name == name))
    }

    /// The first of the objects that have no name any more and are still to be freed, or 0.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`].
    pub fn dropped(&self) -> Result<u64> {
        roots::dropped_of(self.region().load_u64(DROPPED_OFF)?)
    }

    /// Reads the allocator's structures and checks them. Nothing else may write meanwhile.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] with the first violation found.
    pub fn marks(&self) -> Result<Marks> {
        let mut marks = Marks::read(self.region(), self.geometry(), &self.inner.alloc.classes)?;
        if let Some(off) = self.journal_off()? {
            marks.reach(off, 1)?;
        }
        Ok(marks)
    }

    /// The sizes of the pool. Takes time in proportion to the number of zones only.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    pub fn stats(&self) -> Stats {
        self.assert_process();
        let unused_bytes = self.inner.alloc.unused_bytes(self.region());
        let (pool_bytes, max_bytes) = (self.region().len(), self.region().max_bytes());
        Stats { pool_bytes, max_bytes, unused_bytes, journal_bytes: self.inner.alloc.set_aside_bytes }
    }

    /// Gives runs of at least 1 MiB of unused space back to the file system, and returns how many bytes that
    /// are. Reads every slab of the pool; other writers wait only if they need a new slab.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn trim(&self) -> Result<u64> {
        self.trim_runs(RUN_BYTES_MIN)
    }

    /// As [`trim`](Self::trim), with runs of at least this many bytes.
    pub(crate) fn trim_runs(&self, least_bytes: u64) -> Result<u64> {
        // The second lane that is ever taken makes the records of the first dead.
        let mut lane = self.lane()?;
        self.inner.reclaim_all()?;
        lane.dissolve_empty_slabs(true)?;
        drop(lane);
        self.punch_all(least_bytes)
    }

    /// As [`trim`](Self::trim), in the lane of a transaction that has changed nothing. A pool with one writer
    /// keeps one lane in this way; the writer waits meanwhile.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn trim_in(&self, mut tx: Tx<'_>) -> Result<u64> {
        self.inner.reclaim_all()?;
        tx.dissolve_empty_slabs()?;
        drop(tx);
        self.punch_all(RUN_BYTES_MIN)
    }

    /// The beginning of a [`trim`](Self::trim) in steps, for a thread that others wait for.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn begin_trim(&self) -> Result<TrimPlace> {
        self.inner.reclaim_all()?;
        Ok(TrimPlace(Stage::Slabs(SlabPlace::default())))
    }

    /// A step of about a millisecond, or of 16 commits that wait for the device, in the lane of a transaction
    /// that has changed nothing, if there is one. Returns the bytes given back, and the place to go on at, if
    /// there may be more to do. Where there is a journal, the step that gives back takes as long as all: each
    /// would write the journal home.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn trim_step(&self, tx: Option<Tx<'_>>, place: TrimPlace) -> Result<(u64, Option<TrimPlace>)> {
        let stage = match place.0 {
            Stage::Slabs(place) => {
                let next = match tx {
                    Some(mut tx) => tx.dissolve_some(place)?,
                    None => self.lane()?.dissolve_some(place)?,
                };
                return Ok((0, Some(TrimPlace(next.map_or(Stage::Runs(0), Stage::Slabs)))));
            }
            Stage::Runs(from) => from,
        };
        drop(tx);
        let (bytes, next) = self.punch(RUN_BYTES_MIN, stage)?;
        Ok((bytes, next.map(|from| TrimPlace(Stage::Runs(from)))))
    }

    /// Whether commits need not look for lines of other lanes. Once a thread has written in a second lane, or
    /// for another reason, they must, and a commit takes longer until the pool is opened again.
    pub fn has_one_lane(&self) -> bool {
        !self.inner.log.line_owners.is_on()
    }

    fn punch_all(&self, least_bytes: u64) -> Result<u64> {
        let (mut sum, mut next) = (0, Some(0));
        while let Some(from) = next {
            let (bytes, then) = self.punch(least_bytes, from)?;
            (sum, next) = (sum + bytes, then);
        }
        Ok(sum)
    }

    fn punch(&self, least_bytes: u64, from: u64) -> Result<(u64, Option<u64>)> {
        if !self.inner.alloc.has_free_run(least_bytes, from) {
            return Ok((0, None));
        }
        let most_bytes = if self.journal().is_some() { u64::MAX } else { STEP_BYTES };
        self.write_journal_home()?;
        Ok(self.inner.alloc.punch(self.region(), (least_bytes, most_bytes), from))
    }

    /// Bytes of freed blocks that wait for readers or records before they can be used again.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    pub fn limbo_bytes(&self) -> u64 {
        self.assert_process();
        self.inner.log.limbo_bytes()
    }
}

/// The place at which a trim in steps goes on ([`Pool::begin_trim`]).
#[derive(Debug, Clone, Copy)]
pub struct TrimPlace(Stage);

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Empty slabs become unused space.
    Slabs(SlabPlace),
    /// Unused space from this offset on goes to the file system.
    Runs(u64),
}

impl TrimPlace {
    /// Whether empty slabs may be left that are no unused space yet.
    pub fn has_slabs(&self) -> bool {
        matches!(self.0, Stage::Slabs(_))
    }
}
