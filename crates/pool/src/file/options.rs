//! How a pool is opened.

use crate::Geometry;
use tembo_pmem::{Durability, FlushInstruction, RegionOptions};

/// How a pool is opened or created: a builder with public fields.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use tembo_pool::{Options, Pool};
/// let pool = Pool::open(dir.path().join("a.pool"), &Options::new().create(true).max_bytes(1 << 30))?;
/// # Ok::<_, tembo_pool::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// Create the pool if there is none.
    pub create: bool,
    /// Create the pool; an existing one is an error.
    pub create_new: bool,
    /// Open for reading only. The file is not changed: recovery works in private memory.
    pub read_only: bool,
    /// Open a pool even if [its last use](crate::Ending::is_unclean) may have left pages of different ages.
    /// Such a pool cannot be relied on before it is checked as a whole, as `tembo::Options` does.
    pub accept_unclean: bool,
    /// Length of a new pool in bytes, its space allocated.
    pub initial_bytes: u64,
    /// The length up to which the pool may grow.
    pub max_bytes: Option<u64>,
    /// The length below which the pool is not cut while it is open; `None`: `initial_bytes`. It is no part of
    /// the pool: each opening chooses its own.
    pub min_bytes: Option<u64>,
    /// The sizes of a new pool's parts; `None` chooses by `max_bytes`: [`Geometry::small`] below 64 MiB.
    pub geometry: Option<Geometry>,
    /// How many names a new pool has room for, 1 to 4096; `None` leaves this to `geometry`.
    pub root_count: Option<u32>,
    /// Bytes of the journal that a pool gets when it is first opened with a durability that needs one;
    /// `None`: 4 MiB, which grow to 256 MiB, or to an eighth of [`max_bytes`](Self::max_bytes) if that is
    /// less.
    pub journal_bytes: Option<u64>,
    /// How the file is mapped.
    pub region: RegionOptions,
}

impl Default for Options {
    /// Opens an existing pool for writing; a new one would have 64 MiB and grow without limit.
    fn default() -> Self {
        Options {
            create: false,
            create_new: false,
            read_only: false,
            accept_unclean: false,
            initial_bytes: 64 << 20,
            max_bytes: None,
            min_bytes: None,
            geometry: None,
            root_count: None,
            journal_bytes: None,
            region: RegionOptions::default(),
        }
    }
}

impl Options {
    /// As [`Options::default`].
    pub fn new() -> Options {
        Options::default()
    }

    /// The sizes that a new pool gets.
    pub(crate) fn chosen_geometry(&self) -> Geometry {
        let is_small = self.max_bytes.is_some_and(|bytes| bytes < 64 << 20);
        let usual = if is_small { Geometry::small() } else { Geometry::default() };
        let geometry = self.geometry.unwrap_or(usual);
        Geometry { root_count: self.root_count.unwrap_or(geometry.root_count), ..geometry }
    }

    /// Creates the pool if there is none.
    pub fn create(mut self, create: bool) -> Options {
        self.create = create;
        self
    }

    /// Creates the pool; an existing one is an error.
    pub fn create_new(mut self, create_new: bool) -> Options {
        self.create_new = create_new;
        self
    }

    /// Opens for reading only; the file is not changed.
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }

    /// Length of a new pool in bytes (default: 64 MiB).
    pub fn initial_bytes(mut self, bytes: u64) -> Options {
        self.initial_bytes = bytes;
        self
    }

    /// The length up to which the pool may grow (default: the limit of the file system).
    pub fn max_bytes(mut self, bytes: u64) -> Options {
        self.max_bytes = Some(bytes);
        self
    }

    /// The length below which the pool is not cut while it is open (default: `initial_bytes`).
    pub fn min_bytes(mut self, bytes: u64) -> Options {
        self.min_bytes = Some(bytes);
        self
    }

    /// Bytes of the journal, if the pool gets one.
    pub fn journal_bytes(mut self, bytes: u64) -> Options {
        self.journal_bytes = Some(bytes);
        self
    }

    /// Bytes of private memory beyond which pages are given back, where there is a journal.
    pub fn private_bytes_max(mut self, bytes: u64) -> Options {
        self.region.private_bytes_max = Some(bytes);
        self
    }

    /// The sizes of a new pool's parts.
    pub fn geometry(mut self, geometry: Geometry) -> Options {
        self.geometry = Some(geometry);
        self
    }

    /// Counts words, lines and fences.
    pub fn count(mut self, count: bool) -> Options {
        self.region.count = count;
        self
    }

    /// Sets the durability asked for.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.region.durability = durability;
        self
    }

    /// Forces a flush instruction, whatever the processor reports.
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Options {
        self.region.flush_instruction = Some(instruction);
        self
    }
}

/// Lets every function that opens a pool take the options of any layer.
impl AsRef<Options> for Options {
    fn as_ref(&self) -> &Options {
        self
    }
}
