//! The errors of regions.

use std::io;

/// An offset read from media, or computed from one, does not lie in the region or is not aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct OutOfBounds {
    /// The first byte asked for.
    pub off: u64,
    /// The number of bytes asked for.
    pub bytes: u64,
    /// The length of the region at that time.
    pub region_bytes: u64,
}

impl OutOfBounds {
    /// Whether the region belongs to the process that this one was forked from, and is empty here.
    pub fn was_left_behind(&self) -> bool {
        self.region_bytes == 0
    }

    fn text(&self) -> String {
        let OutOfBounds { off, bytes, region_bytes } = self;
        if self.was_left_behind() {
            return FORKED.to_owned();
        }
        format!("offset {off} (+{bytes} bytes) is outside the region of {region_bytes} bytes, or not aligned")
    }
}

/// Synchronising to the storage device failed, so that nothing more can be promised.
///
/// The kernel may have dropped the dirty pages then. A retry that succeeds proves nothing: the region stays
/// failed until it is opened again.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "writing the mapped file back to its device failed ({message}); close the pool, check the device and open it again"
)]
pub struct SyncError {
    /// The operating system's message.
    pub message: String,
}

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file could not be read or written.
    #[error("the journal could not be read or written: {0}")]
    Io(#[from] io::Error),
    /// The ring makes no sense.
    #[error("the journal at offset {off} is damaged: {what}")]
    Damaged {
        /// Where the journal lies.
        off: u64,
        /// The fault.
        what: String,
    },
}

/// The message for the use of a handle in a child.
pub(crate) const FORKED: &str = "this process was forked from the one that opened the pool, and cannot use what that one has \
                                 open; open the pool in this process, when the other one has closed it";

/// Why a region could not be mapped or grown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The file system is full, or a quota is.
    #[error("{} for {needed_bytes} more bytes; free some space there", NO_SPACE)]
    NoSpace {
        /// The number of bytes that growth asked for.
        needed_bytes: u64,
    },
    /// The process's file-size limit (`ulimit -f`) is smaller than the new length.
    #[error(
        "{}, and {wanted_bytes} bytes are needed; raise the limit", file_size_limit(*limit_bytes)
    )]
    FileSizeLimit {
        /// The limit in force.
        limit_bytes: u64,
        /// The length asked for.
        wanted_bytes: u64,
    },
    /// The reserved address range is used up.
    #[error(
        "{}, and {wanted_bytes} are needed; allow it more", at_maximum(*max_bytes)
    )]
    AtMaximum {
        /// The length of the reserved range.
        max_bytes: u64,
        /// The length asked for.
        wanted_bytes: u64,
    },
    /// `Durability::Dax` was asked for, and the file does not support it.
    #[error(
        "the file is not on a DAX file system (MAP_SYNC is refused), so durability `dax` cannot be had; mount with -o dax, or use `auto`, `synced` or `emulated`"
    )]
    NotDax,
    /// The processor has no instruction that writes a cache line back.
    #[error(
        "this processor has no known cache-line flush instruction; use durability `page-cache` or `synced`"
    )]
    NoFlushInstruction,
    /// A durability with a journal was asked for, and the file has none.
    #[error("the file has no journal, which durability `relaxed` and `journaled` need")]
    NoJournal,
    /// The journal could not be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The region was mapped by the process that this one was forked from.
    #[error("{FORKED}")]
    Forked,
    /// An environment variable has a value that is not understood.
    #[error("environment variable {name}={value:?} is not understood; expected {expected}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The accepted values.
        expected: &'static str,
    },
}

impl RegionError {
    /// The failure without the advice, for an error that gives its own.
    pub fn reason(&self) -> String {
        match self {
            RegionError::NoSpace { .. } => NO_SPACE.to_owned(),
            RegionError::FileSizeLimit { limit_bytes, .. } => file_size_limit(*limit_bytes),
            RegionError::AtMaximum { max_bytes, .. } => at_maximum(*max_bytes),
            other => other.to_string(),
        }
    }

    pub(crate) fn io(what: &'static str, source: impl Into<io::Error>) -> Self {
        RegionError::Io { what, source: source.into() }
    }
}

const NO_SPACE: &str = "no space left on the device";

fn file_size_limit(limit_bytes: u64) -> String {
    format!("the file-size limit of this process is {limit_bytes} bytes, see `ulimit -f`")
}

fn at_maximum(max_bytes: u64) -> String {
    format!("its maximum is {max_bytes} bytes")
}
