//! The faults of files, and their places.

use std::fmt;
use std::io;

/// Why a file or a payload was not read to its end.
///
/// An error ends the reading: the bytes after it have no meaning that is known.
#[derive(Debug)]
pub struct Error {
    offset: u64,
    key: Option<Box<[u8]>>,
    problem: Problem,
}

/// A fault of a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The source could not be read.
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The input ends in the middle of something.
    #[error("the file ends too early; it was cut short")]
    CutShort,
    /// The first bytes are not those of a file of this format.
    #[error("this is not an RDB file: it does not begin with `REDIS` or `VALKEY` and a version")]
    NotRdb,
    /// A version that this crate does not know.
    #[error("the file has version {0} of the format; versions 1 to 12, and 80 of Valkey, are understood")]
    UnknownVersion(u32),
    /// A byte that is neither a type nor an instruction.
    #[error("unknown type or instruction {0}")]
    UnknownType(u8),
    /// A byte in the place of a length that begins none.
    #[error("{0:#04x} is no length")]
    BadLength(u8),
    /// A string in an unknown encoding.
    #[error("a string has the unknown encoding {0}")]
    UnknownStringEncoding(u8),
    /// A string that is longer than the reader takes.
    #[error("a string of {bytes} bytes is longer than the limit of {max}")]
    TooLong {
        /// Its announced length.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// A compressed string that does not decompress to its announced length.
    #[error("a compressed string is damaged: {0}")]
    Lzf(&'static str),
    /// A score that is no number.
    #[error("a score is no number")]
    BadScore,
    /// A packed value that breaks its own rules.
    #[error("a {format} is damaged at its byte {at}: {what}")]
    Malformed {
        /// The packed format, by Redis's name.
        format: &'static str,
        /// Where in the packed value.
        at: usize,
        /// The rule that the file breaks.
        what: &'static str,
    },
    /// A value of the first modules, which does not say where it ends.
    #[error("a value of a module of Redis 4.0's release candidates cannot be skipped")]
    OldModule,
    /// The checksum does not match the contents of the file.
    #[error("the checksum does not match: the file says {stored:016x}, its contents have {computed:016x}")]
    Checksum {
        /// The checksum in the file.
        stored: u64,
        /// The checksum of the file's contents.
        computed: u64,
    },
    /// Bytes after the end of a payload's value.
    #[error("bytes follow the end of the value")]
    Trailing,
}

impl Error {
    pub(crate) fn new(offset: u64, problem: Problem) -> Self {
        Error { offset, key: None, problem }
    }

    /// Says that the key at hand is `key`.
    pub(crate) fn of_key(mut self, key: &[u8]) -> Self {
        self.key.get_or_insert_with(|| key.into());
        self
    }

    /// The place of the error, or of the value that has it, in bytes from the beginning.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The key whose value was being read.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// The fault.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}", self.offset)?;
        if let Some(key) = &self.key {
            write!(f, ", in the key `{}`", key.escape_ascii())?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// A packed value that breaks its own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) at: usize,
    pub(crate) what: &'static str,
}
