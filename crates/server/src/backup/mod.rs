//! Backups of a running server: a whole copy, and what happened since an earlier one.
//!
//! ```text
//!   capture  a client of the replication protocol: PSYNC, the copy or the stream
//!   |- units       where in a stream a command, or an EXEC, ends
//!   |- container   records with checksums, to the file and from it
//!   verify   reads a whole file; whether several fit together
//!   restore  files into a pool that is empty
//! ```
//!
//! A backup is taken as a replica would take it, because the protocol of replicas has what a backup needs: a
//! copy that is a point in time, with its place in the stream of effects, and the stream from a place on. The
//! server keeps running, the backup may run on another machine, a replica or a Redis may be its source, and
//! no second program reads the server's memory.
//!
//! # Format
//!
//! A file is written from the beginning to the end, and needs no length in advance. All numbers are little
//! endian.
//!
//! ```text
//!   file     = "TEMBOBAK" record...            the head, data, the end; nothing follows
//!   record   = type length payload checksum    1, 4, length and 8 bytes
//!   type     = 'h' | 'd' | 'e'
//!   checksum = XXH3 of type, length and payload; its seed is the checksum of the record before,
//!              0 for the head and for the end
//!
//!   head     = version kind flags id offset time name
//!                2   version    1
//!                1   kind       1: a whole copy; 2: the stream since an earlier backup
//!                1   flags      bit 0: the server is a node of a cluster
//!               40   id         the history of the stream (replication id)
//!                8   offset     of a copy, its place in the stream; else the place where the stream begins
//!                8   time       milliseconds since the Unix epoch, by the clock of who took it
//!                    name       the server's version, at most 64 bytes
//!   data     = 1 to 65536 bytes: of a file of Redis's format (RDB), or of a stream of commands
//!   end      = bytes id offset chain
//!                8   bytes      all bytes of the data
//!               40   id         the history, which may have got another name meanwhile
//!                8   offset     the place in the stream up to which the backup goes
//!                8   chain      the checksum of the record before
//! ```
//!
//! # Invariants
//!
//! - Each record is proved by its checksum, and its place by the seed: a record that is changed, left out,
//!   taken twice or of another file is found at its offset.
//! - A file without its end was cut; the offset of the cut is the length of the file. Bytes after the end are
//!   an error.
//! - The end has a seed of its own, so that it can be read alone: `--since` reads the head and the last
//!   77 bytes of an earlier backup, and not all of it. `chain` ties it to the rest.
//! - The data of an incremental backup are exactly the bytes of the stream from the offset of the head to
//!   that of the end, which is the end of a unit: of a command, or of an EXEC.
//!
//! # A chain
//!
//! A backup follows another one if it begins with the id and the offset with which that one ends. A whole
//! copy and those that follow it, one after the other, are the state at the end of the last one.

mod capture;
pub(crate) mod container;
mod restore;
#[cfg(test)]
mod tests;
pub(crate) mod units;
mod verify;

use std::{fmt, io};

use crate::keyspace::history::Id;

pub use capture::{Source, SourcePlace, take};
pub use restore::{Restored, Restoring, restore};
pub use verify::{expect_chain, summary_of_end, verify};

/// The contents of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupKind {
    /// A whole copy.
    Full,
    /// The stream since an earlier backup.
    Incremental,
}

/// A place in the stream of a history.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StreamPlace {
    pub(crate) id: Id,
    /// The bytes of the stream before it.
    pub offset: u64,
}

impl StreamPlace {
    /// The name of the history, its replication id.
    pub fn id(&self) -> &str {
        str::from_utf8(&self.id).unwrap_or_default()
    }
}

impl fmt::Debug for StreamPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id(), self.offset)
    }
}

/// The facts about a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupSummary {
    /// The contents.
    pub kind: BackupKind,
    /// The place in the stream where the backup begins; of a full backup, where it ends.
    pub from: StreamPlace,
    /// The place in the stream where the backup ends.
    pub to: StreamPlace,
    /// When it was taken, in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// The version of the server.
    pub server: String,
    /// The server is a node of a cluster.
    pub is_node: bool,
    /// The bytes of the copy or of the stream.
    pub data_bytes: u64,
    /// The number of keys of a full backup, if it was read to its end.
    pub keys: Option<u64>,
}

/// Why a backup was not taken, is not sound, or was not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The file does not begin as a backup.
    #[error("this is no backup: it does not begin with TEMBOBAK")]
    NotABackup,
    /// A later version of the format.
    #[error("the backup has version {0} of the format, and this program knows version 1")]
    NewerVersion(u16),
    /// The file has no end.
    #[error("it was cut: it ends at byte {offset}, before its end")]
    Cut {
        /// Its length.
        offset: u64,
    },
    /// The file was changed after it was written.
    #[error("at byte {offset}: {what}")]
    Damaged {
        /// The place of the record.
        offset: u64,
        /// The fault.
        what: String,
    },
    /// The copy in the file is broken, although its records are as they were written.
    #[error("the copy in it is broken, {0}")]
    Copy(tembo_rdb::Error),
    /// The data have values that a pool cannot hold.
    #[error("it holds what the server lacks: {0}")]
    LeftOut(String),
    /// The files do not fit together.
    #[error("{0}")]
    Chain(String),
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// The backup cannot be written.
    #[error("the backup cannot be written: {0}")]
    Write(io::Error),
    /// The connection failed, or the server broke the protocol.
    #[error("{0}")]
    Connection(String),
    /// The server refused.
    #[error("the server refused {command}: {reply}")]
    Refused {
        /// The command.
        command: &'static str,
        /// The reply, without the `-`.
        reply: String,
    },
    /// The server no longer has the stream since the earlier backup.
    #[error("{0}; take a full backup")]
    Gone(String),
    /// A command of the stream, or a value, cannot be stored.
    #[error("it cannot be restored: {0}")]
    Restore(String),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] tembo::Error),
}

impl BackupError {
    /// Whether the file is to blame.
    pub fn is_damage(&self) -> bool {
        matches!(self, BackupError::Cut { .. } | BackupError::Damaged { .. } | BackupError::Copy(_))
    }
}

pub(crate) fn damaged(offset: u64, what: impl Into<String>) -> BackupError {
    BackupError::Damaged { offset, what: what.into() }
}
