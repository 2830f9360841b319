//! Builders of the options with which pools and maps are opened.

use crate::{Counting, Error, Map, Pool, Result};
use std::path::Path;
use tembo_pmem::{Durability, FlushInstruction};
use tembo_pool::Geometry;

/// Opens or creates a [`Pool`]; also the options of [`Heap::open`](crate::heap::Heap::open).
///
/// ```no_run
/// # fn main() -> Result<(), tembo::Error> {
/// use tembo::{Durability, Options};
/// let pool = Options::new().create(true).durability(Durability::Synced).open("data.pool")?;
/// println!("an acknowledged write survives {}", pool.survives());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Options {
    inner: tembo_pool::Options,
    compacts_when_asked_only: bool,
}

impl Options {
    /// Opens an existing pool for writing, with the durability that the file offers.
    pub fn new() -> Options {
        Options::default()
    }

    /// Creates the pool if there is none.
    pub fn create(mut self, create: bool) -> Options {
        self.inner.create = create;
        self
    }

    /// Creates the pool; an existing one is an error.
    pub fn create_new(mut self, create_new: bool) -> Options {
        self.inner.create_new = create_new;
        self
    }

    /// Opens for reading only; the file is not changed. Several readers may have it open, and no writer.
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.inner.read_only = read_only;
        self
    }

    /// The number of maps that a new pool has names for, 1 to 4096 (default: 128, or 64 if the pool's maximum
    /// is 64 MiB or less). Each name takes 64 bytes, and the number cannot be changed later.
    pub fn root_count(mut self, count: u32) -> Options {
        self.inner.root_count = Some(count);
        self
    }

    /// Accepts a pool whose pages may be of [different ages](crate::Ending::is_unclean): the machine stopped
    /// while the pool was open in the page cache, or the file is a copy that was made while the pool was
    /// open. By default it is refused with [`PoolErrorKind::Unclean`](crate::PoolErrorKind::Unclean).
    ///
    /// Such a pool is [checked](Pool::check) first, which reads all of it and changes nothing, and refused if
    /// it is damaged. The check proves the structure. It cannot prove the values: any value may be an older
    /// one, or partly so if it was being written. Other pools are opened as without this option.
    pub fn accept_unclean(mut self, accept: bool) -> Options {
        self.inner.accept_unclean = accept;
        self
    }

    /// Whether [unclean](Self::accept_unclean) pools are accepted.
    pub fn accepts_unclean(&self) -> bool {
        self.inner.accept_unclean
    }

    /// The durability asked for; [`Durability::Auto`] unless this is called.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.inner.region.durability = durability;
        self
    }

    /// Bytes of the journal that a pool gets when it is first opened with [`Durability::Relaxed`] or
    /// [`Durability::Journaled`] (default: 4 MiB, which grow to 256 MiB, or to an eighth of
    /// [`max_bytes`](Self::max_bytes) if that is less). A pool keeps the journal that it has.
    pub fn journal_bytes(mut self, bytes: u64) -> Options {
        self.inner.journal_bytes = Some(bytes);
        self
    }

    /// Bytes of private memory beyond which an open pool with a journal drops copies of pages that the file
    /// has by then (default: a sixth of the pool and at least 768 MiB, but at most a quarter of the memory
    /// that the process may use, its control group considered). Beyond it commits are slowed, by 4 ms from a
    /// quarter above it on.
    pub fn private_bytes_max(mut self, bytes: u64) -> Options {
        self.inner.region.private_bytes_max = Some(bytes);
        self
    }

    /// Forces a flush instruction, whatever the processor reports. The environment variable `TEMBO_FLUSH`
    /// overrides it.
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Options {
        self.inner.region.flush_instruction = Some(instruction);
        self
    }

    /// Whether large values may be written past the caches (default: yes). The environment variable
    /// `TEMBO_NON_TEMPORAL` overrides it.
    pub fn non_temporal(mut self, non_temporal: bool) -> Options {
        self.inner.region.non_temporal = Some(non_temporal);
        self
    }

    /// Whether to map every page when the pool is opened, and when it grows, rather than at the first access
    /// (default: no). Opening then takes about 0.3 s per GiB; the first access to each 4 KiB saves a page
    /// fault, about a microsecond.
    pub fn prefault(mut self, prefault: bool) -> Options {
        self.inner.region.prefault = prefault;
        self
    }

    /// Whether a pool on tmpfs lies in huge pages of 2 MiB (default: no). No effect on other pools. With
    /// fewer TLB misses, random reads of large pools take a fifth to a quarter less time. Needs Linux 6.1 or
    /// later; without huge pages in the system, small ones are used.
    ///
    /// An existing pool is moved into huge pages when it is opened. The first time, that takes about 0.5 s
    /// per GiB, and may allocate space again that the pool had given back. In virtual machines whose host
    /// reclaims free memory, a pool with huge pages may take up to twice as long to grow.
    pub fn huge_pages(mut self, huge_pages: bool) -> Options {
        self.inner.region.huge_pages = huge_pages;
        self
    }

    /// Length of a new pool in bytes (default: 64 MiB).
    pub fn initial_bytes(mut self, bytes: u64) -> Options {
        self.inner.initial_bytes = bytes;
        self
    }

    /// The length up to which the pool may grow (default: the limit of the file system, at most 4 TiB).
    pub fn max_bytes(mut self, bytes: u64) -> Options {
        self.inner.max_bytes = Some(bytes);
        self
    }

    /// The length below which the file is not [cut](Pool::cut) while the pool is open (default: that of
    /// [`initial_bytes`](Self::initial_bytes), whatever a new pool would have). It is kept in memory only: a
    /// property of the program that has the pool open, as the maximum is, so that no copy of the file and no
    /// later program inherits it unknowingly.
    pub fn min_bytes(mut self, bytes: u64) -> Options {
        self.inner.min_bytes = Some(bytes);
        self
    }

    /// The sizes of a new pool's parts. By default they are chosen by the maximum size.
    pub fn geometry(mut self, geometry: Geometry) -> Options {
        self.inner.geometry = Some(geometry);
        self
    }

    /// Whether changes of maps compact the pool when they find no space, or when it has grown although at
    /// least 16 MiB, and a quarter of the bytes in use, lay in holes (default: yes). The change then takes as
    /// long as [`Pool::compact`].
    pub fn compact_unasked(mut self, compact: bool) -> Options {
        self.compacts_when_asked_only = !compact;
        self
    }

    /// Counts words, lines and fences ([`snapshot`](crate::snapshot)).
    pub fn count(mut self, count: bool) -> Options {
        self.inner.region.count = count;
        self
    }

    /// Opens the pool. Takes milliseconds at any size, also after a crash, unless
    /// [`prefault`](Self::prefault) or [`huge_pages`](Self::huge_pages) asks for more work.
    ///
    /// # Errors
    ///
    /// Each problem of the file has an error and a message of its own. A file that is refused is not changed.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let path = path.as_ref();
        if !self.inner.accept_unclean {
            return Ok(self.pool(tembo_pool::Pool::open(path, &self.inner)?));
        }
        // A clean pool is opened as usual. An unclean one is checked as it is: no recovery has changed it.
        let plain = tembo_pool::Options { accept_unclean: false, ..self.inner.clone() };
        match tembo_pool::Pool::open(path, &plain) {
            Err(e) if e.is_unclean() => {}
            outcome => return Ok(self.pool(outcome?)),
        }
        let reader = self.open_to_inspect(path)?;
        reader.check()?;
        if self.inner.read_only {
            return Ok(reader);
        }
        drop(reader);
        Ok(self.pool(tembo_pool::Pool::open(path, &self.inner)?))
    }

    fn pool(&self, pool: tembo_pool::Pool) -> Pool {
        let pool = Pool::new(pool);
        pool.shared.compacting.switch(!self.compacts_when_asked_only);
        pool
    }

    /// Opens a pool for reading only, however its last use ended: for [`check`](Pool::check) and for a look
    /// at its structure. Its values are reliable only if [`last_ending`](Pool::last_ending) is not
    /// [unclean](crate::Ending::is_unclean).
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), but for [`PoolErrorKind::Unclean`](crate::PoolErrorKind::Unclean).
    pub fn open_to_inspect(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let mut options = self.inner.clone();
        (options.create, options.create_new) = (false, false);
        (options.read_only, options.accept_unclean) = (true, true);
        Ok(Pool::new(tembo_pool::Pool::open(path, &options)?))
    }

    /// Creates a pool in an empty file that is open for reading and writing. `path` is the present or future
    /// path of the file, for messages and for [`Pool::path`]: a program can fill a pool before it gives the
    /// file its name.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn create_in_file(&self, file: &std::fs::File, path: impl AsRef<Path>) -> Result<Pool> {
        Ok(self.pool(tembo_pool::Pool::create_in_file(file, path, &self.inner)?))
    }
}

impl AsRef<tembo_pool::Options> for Options {
    fn as_ref(&self) -> &tembo_pool::Options {
        &self.inner
    }
}

/// The kind of [`Map`] to [open or create](Pool::open_map_with).
///
/// ```
/// # fn main() -> Result<(), tembo::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
/// use tembo::MapOptions;
/// let stock = pool.open_map_with("stock", MapOptions::new().versioned(true))?;
/// let yesterday = stock.snapshot()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MapOptions {
    versioned: Option<bool>,
    counting: Option<Counting>,
}

impl MapOptions {
    /// Opens a map of either kind, or creates one that keeps no versions.
    pub fn new() -> MapOptions {
        MapOptions::default()
    }

    /// Whether the map keeps the versions that snapshots hold. Such a map is a CDDS B-Tree; the other kind is
    /// a wB+-Tree, whose changes are faster and run concurrently. An existing map of the other kind is an
    /// error.
    pub fn versioned(mut self, versioned: bool) -> MapOptions {
        self.versioned = Some(versioned);
        self
    }

    /// The sums that a map without versions keeps, so that a [`Batch`](crate::Batch) can ask for ranks. A map
    /// that counts has one writer at a time, and each insertion and removal changes a word in each of the
    /// few nodes above a leaf. An existing map that counts something else is an error.
    pub fn counting(mut self, counting: Counting) -> MapOptions {
        self.counting = Some(counting);
        self
    }

    pub(crate) fn wants_counting(self) -> Counting {
        self.counting.unwrap_or_default()
    }

    pub(crate) fn wants_versions(self) -> bool {
        self.versioned == Some(true)
    }

    /// The map, if it is of the kind that was asked for.
    pub(crate) fn accept(self, name: &str, map: Map) -> Result<Map> {
        match self.versioned {
            Some(asked) if asked != map.is_versioned() => {
                Err(Error::MapKind { name: name.to_owned(), is_versioned: map.is_versioned() })
            }
            _ if self.counting.is_some_and(|asked| asked != map.counting()) => {
                Err(Error::MapCounting { name: name.to_owned(), found: map.counting() })
            }
            _ => Ok(map),
        }
    }
}
