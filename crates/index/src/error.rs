//! Errors of indexes.

use tembo_pmem::OutOfBounds;
use tembo_pool::Quoted;
use tembo_pool::turns::WouldWait;

/// Result of index operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an index. An operation that fails has changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is longer than keys may be.
    #[error("the key has {bytes} bytes; keys have at most {max_bytes}")]
    KeyTooLong {
        /// The key's length.
        bytes: u64,
        /// The longest key allowed.
        max_bytes: u64,
    },
    /// The value is longer than values may be.
    #[error("the value has {bytes} bytes; values have at most {max_bytes}")]
    ValueTooLong {
        /// The value's length.
        bytes: u64,
        /// The longest value allowed.
        max_bytes: u64,
    },
    /// The value is too short to begin with a weight, in a tree that counts weights.
    #[error("the value has {bytes} bytes; it begins with its weight, which has {min_bytes}")]
    ValueTooShort {
        /// The value's length.
        bytes: u64,
        /// The shortest value allowed.
        min_bytes: u64,
    },
    /// Something has this name already.
    #[error("there is something named {} already; open that, or choose another name", Quoted(name))]
    Exists {
        /// The name.
        name: String,
    },
    /// No snapshot holds this version.
    #[error("version {version} is not held; hold it by a snapshot before it is changed")]
    NoSuchVersion {
        /// The version asked for.
        version: u64,
    },
    /// A snapshot's name is empty or too long.
    #[error("a snapshot's name has 1 to {max_bytes} bytes; {} has {}", Quoted(name), name.len())]
    SnapshotName {
        /// The name given.
        name: String,
        /// The longest name allowed.
        max_bytes: u64,
    },
    /// A batch was used after one of its changes had failed; or a thread panicked while it made the changes
    /// of several threads.
    #[error(
        "a change failed half-way that was made together with this one, so that neither was made; make it again"
    )]
    Abandoned,
    /// The map was made by a version of this library that uses another format.
    #[error(
        "the map has format version {found}, and this program reads version {supported}; {}",
        if found > supported { "use a newer Tembo" } else { "dump it with the program that made it, and load the dump" }
    )]
    FormatVersion {
        /// The version that it has.
        found: u64,
        /// The version that can be read.
        supported: u64,
    },
    /// The process has no memory for the data that the operation gathers, which grows with its arguments or
    /// its result.
    #[error("there is no memory for {bytes} bytes; ask for less at a time, or let the process have more")]
    OutOfMemory {
        /// How much was needed at once.
        bytes: u64,
    },
    /// The structure is already open. It keeps state in memory that must exist only once.
    #[error("the tree is open already in this process; clone the handle that is open")]
    InUse,
    /// The thread already holds the lock that it asks for: waiting would be a deadlock.
    #[error(
        "this thread holds {holds}, and asks for {asks}, for which it would wait for ever; make the change by what it holds, or end that first"
    )]
    WouldWait {
        /// The lock or turn that the thread holds.
        holds: &'static str,
        /// The lock or turn that it asks for.
        asks: &'static str,
    },
    /// A rank was asked for in a tree that does not count.
    #[error("the map does not count its records; choose `counting` when a map is made")]
    CountsNothing,
    /// The pool failed: it is full, damaged, or its device is; or there is a bug
    /// ([`Internal`](tembo_pool::ErrorKind::Internal)).
    #[error(transparent)]
    Pool(#[from] tembo_pool::Error),
}

impl Error {
    /// Whether there was no space.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Error::Pool(e) if e.is_full())
    }
}

impl From<WouldWait> for Error {
    fn from(WouldWait { holds, asks }: WouldWait) -> Error {
        Error::WouldWait { holds, asks }
    }
}

impl From<tembo_pool::ErrorKind> for Error {
    #[cold]
    fn from(kind: tembo_pool::ErrorKind) -> Error {
        Error::Pool(kind.into())
    }
}

impl From<OutOfBounds> for Error {
    /// Offsets come from media, so an offset outside of the pool is damage.
    #[cold]
    fn from(e: OutOfBounds) -> Error {
        Error::Pool(e.into())
    }
}

/// Media damage at `off`.
#[cold]
pub(crate) fn corrupt(what: &'static str, off: u64, expected: impl ToString, found: impl ToString) -> Error {
    Error::Pool(tembo_pool::Error::corrupt(what, off, expected, found))
}

/// A bug: the value found is from this crate's own state, not from media.
#[cold]
pub(crate) fn internal(what: &'static str, off: u64, expected: impl ToString, found: impl ToString) -> Error {
    Error::Pool(tembo_pool::Error::internal(what, off, expected, found))
}
