//! Errors of a pool, worded so that a person knows what to do.

use crate::ending::Ending;
use std::fmt;
use std::io;
use std::path::PathBuf;
use tembo_pmem::{OutOfBounds, RegionError, SyncError};

/// Result of pool operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

// The result of code that runs after a commit's fence fits into a register. A longer one would be written to
// memory by words and copied by more than a word at a time, and a load of bytes that two stores have written
// waits for both, hence for the fence.
const _: () = assert!(size_of::<Result<()>>() == size_of::<usize>());

/// An error of a pool, in one word. Its [`kind`](Self::kind) says the cause and has the details.
///
/// ```
/// use tembo_pool::{ErrorKind, Options, Pool};
///
/// match Pool::open("no such directory/a.pool", &Options::default()) {
///     Err(e) if e.is_full() => println!("make room: {e}"),
///     Err(e) => match e.kind() {
///         ErrorKind::NoDirectory { directory, .. } => println!("make {}", directory.display()),
///         _ => panic!("{e}"),
///     },
///     Ok(_) => unreachable!("there is no such directory"),
/// }
/// ```
pub struct Error(Box<ErrorKind>);

/// The cause of an [`Error`], with its details.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A system call failed.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The path names something that is not an ordinary file.
    #[error("{} is {found}, not a pool file; name another path", path.display())]
    NotAFile {
        /// The path given.
        path: PathBuf,
        /// The kind of thing that the path names.
        found: &'static str,
    },
    /// There is no such file, and creation was not asked for.
    #[error("there is no pool at {}; create one there, or name another path", path.display())]
    NotFound {
        /// The path given.
        path: PathBuf,
    },
    /// The path leads through something that is no directory.
    #[error(
        "{} {}, or name another path", directory.display(),
        if *exists { "is not a directory; move it away" } else { "does not exist; make that directory" }
    )]
    NoDirectory {
        /// The path that should be a directory.
        directory: PathBuf,
        /// Whether something that is not a directory has this path.
        exists: bool,
    },
    /// The path is a symbolic link that leads nowhere.
    #[error(
        "{} is a symbolic link to {}, where there is nothing; remove the link, or name the path that it leads to",
        path.display(), target.display()
    )]
    DanglingLink {
        /// The path given.
        path: PathBuf,
        /// The file to which the link leads, as the link says it.
        target: PathBuf,
    },
    /// A new pool was asked for, and the path is taken.
    #[error("{} exists already; choose another path, or open it", path.display())]
    AlreadyExists {
        /// The path given.
        path: PathBuf,
    },
    /// Another process has the pool open.
    #[error("the pool {} is in use by {holder}; stop that process, or work on a copy of the file", path.display())]
    Locked {
        /// The path given.
        path: PathBuf,
        /// The process, as well as it can be named.
        holder: String,
    },
    /// The file is empty.
    #[error("the file is empty, so it is not a pool; remove it, and a pool can be created in its place")]
    Empty,
    /// The file does not begin as pools do.
    #[error("the file is not a Tembo pool: it begins with {found}")]
    NotAPool {
        /// The first bytes, in printable form.
        found: String,
    },
    /// The file was written by a machine of the other byte order.
    #[error(
        "the pool was written on a machine of the other byte order; dump it there and load the dump here"
    )]
    ForeignByteOrder,
    /// The file has a format that this version does not know.
    #[error(
        "the pool has format version {found}, and this program knows versions up to {known}; use a newer Tembo"
    )]
    NewerVersion {
        /// The version in the header.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The file uses features that this version does not know.
    #[error(
        "the pool has {} that this program does not know (feature bits {unknown:#x}); use a newer Tembo",
        crate::feature::in_words(*unknown)
    )]
    UnknownFeatures {
        /// The unknown bits.
        unknown: u64,
    },
    /// The pool has blocks of a size class that this version does not know. Nothing is damaged.
    #[error(
        "the chunk word at offset {off:#x} names size class {class}, which this program does not know; use a newer Tembo"
    )]
    UnknownClass {
        /// The class.
        class: u64,
        /// The place of the chunk word, in bytes from the start of the file.
        off: u64,
    },
    /// The header does not match its checksum, or holds impossible values.
    #[error("the pool's header is damaged ({what}); restore the file from a copy")]
    HeaderDamaged {
        /// The damage.
        what: String,
    },
    /// The file is shorter than the pool in it.
    #[error(
        "the pool file was cut short: it has {found_bytes} bytes and needs {expected_bytes}; restore it from a copy"
    )]
    Truncated {
        /// The bytes that there should be.
        expected_bytes: u64,
        /// The bytes that were found.
        found_bytes: u64,
    },
    /// The pool was open, and the file's pages may be of different ages.
    #[error(
        "the pool {} was last {}; restore it from a copy that was made when it was closed, or open it with \
         Options::accept_unclean, which proves its structure first, and cannot prove its values",
        path.display(), ending.meaning()
    )]
    Unclean {
        /// The path given.
        path: PathBuf,
        /// How the pool's last use ended.
        ending: Ending,
    },
    /// An invariant of the pool does not hold: media is damaged.
    #[error(
        "the pool is damaged: {what} at offset {off:#x}: expected {expected}, found {found}; restore it from a copy, or dump what can still be read"
    )]
    Corrupt {
        /// The structure concerned.
        what: &'static str,
        /// Where, in bytes from the start of the file.
        off: u64,
        /// The right contents.
        expected: String,
        /// The actual contents.
        found: String,
    },
    /// A bug: the program broke a rule of this library, or the library broke one of its own. Media is intact,
    /// and the operation changed nothing.
    #[error(
        "internal error: {what} at offset {off:#x}: expected {expected}, found {found}; this is a bug of the program, not damage of the pool: please report it"
    )]
    Internal {
        /// The operation.
        what: &'static str,
        /// Where, in bytes from the start of the file.
        off: u64,
        /// The contents that the operation needs.
        expected: String,
        /// The actual contents.
        found: String,
    },
    /// The pool has no room and may not grow.
    #[error(
        "the pool is full: {needed_bytes} more bytes are needed ({why}); remove something, or allow it to grow"
    )]
    Full {
        /// How much was asked for.
        needed_bytes: u64,
        /// Why the pool did not grow.
        why: String,
    },
    /// The program asked for a block that is larger than any that the pool can hold.
    #[error(
        "a block of {asked_bytes} bytes was asked for; this pool holds blocks of up to {max_bytes} bytes"
    )]
    TooLarge {
        /// The size asked for.
        asked_bytes: u64,
        /// The largest possible block.
        max_bytes: u64,
    },
    /// The process has no memory for a transaction's list of the lines of its large blocks.
    #[error("there is no memory for {bytes} bytes; change less at a time, or let the process have more")]
    OutOfMemory {
        /// How much was needed at once.
        bytes: u64,
    },
    /// Every lane is taken.
    #[error(
        "all {lanes} lanes of the pool are in use, by writers and by structures that are open; close one first"
    )]
    NoLane {
        /// How many lanes the pool has.
        lanes: u32,
    },
    /// Every entry of the root directory is taken.
    #[error(
        "the pool has names for {roots} maps and heaps, and all are taken; drop a map, or make a pool with a larger root_count and load a dump into it"
    )]
    NoRoot {
        /// How many roots the pool can name.
        roots: u32,
    },
    /// A root's name is empty or too long.
    #[error("a name in a pool has 1 to {max_bytes} bytes; {} has {}", Quoted(name), name.len())]
    RootName {
        /// The name given.
        name: String,
        /// The longest name allowed.
        max_bytes: usize,
    },
    /// A root has another kind of object than was asked for.
    #[error("{} is of kind {found:#x}, not {expected:#x}", Quoted(name))]
    RootKind {
        /// The root.
        name: String,
        /// The kind asked for.
        expected: u32,
        /// The kind that was found.
        found: u32,
    },
    /// The pool was opened for reading only.
    #[error("the pool was opened for reading only")]
    ReadOnly,
    /// The pool was opened by the process that this one was forked from.
    #[error(
        "this process was forked from the one that opened the pool, and cannot use what that one has open; open the pool in \
         this process, when the other one has closed it"
    )]
    Forked,
    /// A new pool would be longer than it may become.
    #[error(
        "a new pool would have {needed_bytes} bytes, more than its maximum of {max_bytes}; allow it more"
    )]
    MaximumTooSmall {
        /// The length that it would have.
        needed_bytes: u64,
        /// The length up to which it may grow.
        max_bytes: u64,
    },
    /// The options contradict each other or are out of range.
    #[error("{what}")]
    Options {
        /// The contradiction, in words.
        what: String,
    },
    /// Mapping or growing the file failed.
    #[error(transparent)]
    Region(RegionError),
    /// The device failed; the outcome of the last commit is unknown until the pool is opened again.
    #[error(transparent)]
    Sync(SyncError),
}

/// A name or another text from outside, for messages: in quotes, escaped, and cut if it is long.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'t>(pub &'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_CHARS: usize = 40;
        match self.0.char_indices().nth(SHOWN_CHARS) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}...", &self.0[..end]),
        }
    }
}

impl Error {
    /// The cause.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// The cause, to take its details out.
    pub fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// Whether the pool has no room ([`ErrorKind::Full`]).
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), ErrorKind::Full { .. })
    }

    /// Whether every lane is taken ([`ErrorKind::NoLane`]).
    pub fn is_no_lane(&self) -> bool {
        matches!(self.kind(), ErrorKind::NoLane { .. })
    }

    /// Whether something in the pool is not as it must be ([`ErrorKind::Corrupt`]).
    pub fn is_corrupt(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corrupt { .. })
    }

    /// Whether the file is damaged: something in the pool ([`ErrorKind::Corrupt`]), its header
    /// ([`ErrorKind::HeaderDamaged`]), or its length ([`ErrorKind::Truncated`]).
    pub fn is_damage(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Corrupt { .. } | ErrorKind::HeaderDamaged { .. } | ErrorKind::Truncated { .. }
        )
    }

    /// Whether the file's pages may be of different ages ([`ErrorKind::Unclean`]).
    pub fn is_unclean(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unclean { .. })
    }

    /// Media damage at `off`.
    #[cold]
    pub fn corrupt(what: &'static str, off: u64, expected: impl ToString, found: impl ToString) -> Error {
        ErrorKind::Corrupt { what, off, expected: expected.to_string(), found: found.to_string() }.into()
    }

    /// A bug in this library or in a structure built on it. For damage on media there is
    /// [`corrupt`](Self::corrupt).
    #[cold]
    pub fn internal(what: &'static str, off: u64, expected: impl ToString, found: impl ToString) -> Error {
        ErrorKind::Internal { what, off, expected: expected.to_string(), found: found.to_string() }.into()
    }

    #[cold]
    pub(crate) fn io(what: &'static str, path: &std::path::Path, source: impl Into<io::Error>) -> Error {
        ErrorKind::Io { what, path: path.to_owned(), source: source.into() }.into()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.kind(), f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.kind(), f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind().source()
    }
}

impl From<ErrorKind> for Error {
    #[cold]
    fn from(kind: ErrorKind) -> Error {
        Error(Box::new(kind))
    }
}

impl From<RegionError> for Error {
    #[cold]
    fn from(e: RegionError) -> Error {
        ErrorKind::Region(e).into()
    }
}

impl From<SyncError> for Error {
    #[cold]
    fn from(e: SyncError) -> Error {
        ErrorKind::Sync(e).into()
    }
}

impl From<OutOfBounds> for Error {
    /// Offsets come from media, so one that leads nowhere is damage; unless none leads anywhere, after a
    /// fork. (Writes to a transaction's own blocks, whose offsets are the program's, give
    /// [`ErrorKind::Internal`] instead.)
    #[cold]
    fn from(e: OutOfBounds) -> Error {
        if e.was_left_behind() {
            return ErrorKind::Forked.into();
        }
        Error::corrupt(
            "an offset",
            e.off,
            format!("{} aligned bytes inside the pool of {} bytes", e.bytes, e.region_bytes),
            "an offset that leads outside it",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_text_and_the_source_of_its_kind() {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = Error::io("opening", std::path::Path::new("a.pool"), source);
        assert_eq!(error.to_string(), "opening a.pool: permission denied");
        assert_eq!(format!("{error:?}"), format!("{:?}", error.kind()));
        let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::PermissionDenied));
        assert!(matches!(error.into_kind(), ErrorKind::Io { what: "opening", .. }));
    }
}
