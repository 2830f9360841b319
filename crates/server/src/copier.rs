//! Copies of all databases as a file of Redis, in steps between the turns of clients: for SAVE and BGSAVE
//! ([`crate::saving`]) and for replicas ([`crate::master::copy`]). One at a time.
//!
//! # Consistency
//!
//! A copy begins between two commits, and has what is committed then. While it is written, commands go on;
//! the [point in time](crate::keyspace::point) keeps what they change. There is no thread and no fork, and no
//! memory but for one key, or one record of a large collection, and a number for each large collection.
//!
//! A step takes a millisecond, or as long as one key takes. A copy that needs a database which a command
//! clears is begun anew; after the second time it is written in one turn.
//!
//! If the pool has no room for the records that a copy keeps, the server gives up the copy and not the
//! command.

use std::fs::File;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client_ref::ClientRef;
use crate::export::{Export, ExportError};
use crate::keyspace::history::Position;
use crate::keyspace::point::Lost;

/// The receiver of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// A file under this name. When it is complete, it gets the name in the settings.
    Save(PathBuf),
    /// Replicas, whose stream then goes on from this position.
    Replicas(Position),
}

/// A copy that is under way.
pub(crate) struct RunningCopy {
    pub(crate) export: Export<File>,
    pub(crate) purpose: Purpose,
    pub(crate) begun: Instant,
}

/// A file that is whole, and that a thread forces to the device.
#[derive(Debug)]
pub(crate) struct Forcing {
    pub(crate) thread: JoinHandle<std::io::Result<()>>,
    pub(crate) keys: u64,
    pub(crate) begun: Instant,
}

/// The copy under way, and the clients that wait.
#[derive(Debug, Default)]
pub(crate) struct Copier {
    pub(crate) running: Option<Box<RunningCopy>>,
    pub(crate) restarts: u32,
    pub(crate) forcing: Option<Forcing>,
    /// Clients in SAVE.
    pub(crate) saving: Vec<ClientRef>,
    /// Bytes that the point of the running copy keeps.
    pub(crate) old_bytes: u64,
    /// The longest step since the start.
    pub(crate) longest_step: Duration,
}

impl std::fmt::Debug for RunningCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RunningCopy { export, purpose, begun } = self;
        let stand = (export.seen, export.total, begun);
        f.debug_struct("RunningCopy").field("purpose", purpose).field("stand", &stand).finish()
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stand {
    pub(crate) seen: u64,
    pub(crate) total: u64,
    pub(crate) running_for: Duration,
}

impl Copier {
    /// Whether a copy is being written, which takes a step in each turn.
    pub(crate) fn is_writing(&self) -> bool {
        self.running.is_some()
    }

    /// Whether SAVE or BGSAVE is under way.
    pub(crate) fn is_saving(&self) -> bool {
        self.forcing.is_some()
            || self.running.as_ref().is_some_and(|running| matches!(running.purpose, Purpose::Save(_)))
    }

    /// Where replicas go on that get the copy which is being written.
    pub(crate) fn position(&self) -> Option<&Position> {
        match &self.running.as_ref()?.purpose {
            Purpose::Replicas(position) => Some(position),
            Purpose::Save(_) => None,
        }
    }

    pub(crate) fn stand(&self, now: Instant) -> Option<Stand> {
        let RunningCopy { export, begun, .. } = self.running.as_deref()?;
        let running_for = now.saturating_duration_since(*begun);
        Some(Stand { seen: export.seen, total: export.total, running_for })
    }
}

/// Why there is no copy.
#[derive(Debug)]
pub(crate) enum NoCopy {
    Export(ExportError),
    Lost(Lost),
    /// No replica waits for the copy any more.
    Unwanted,
}

impl std::fmt::Display for NoCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            // The message of this error would show a key.
            NoCopy::Export(ExportError::Malformed { .. }) => "a value is damaged; run `tembo check`",
            NoCopy::Export(error) => return error.fmt(f),
            NoCopy::Lost(Lost::NoRoom) => {
                "the pool is too full to keep what commands change meanwhile; make room, or raise its maximum"
            }
            NoCopy::Lost(Lost::Cleared) => "the databases were cleared meanwhile",
            NoCopy::Lost(Lost::Replaced) => "other data have come from a master meanwhile",
            NoCopy::Unwanted => "no replica waits for it any more",
        })
    }
}

impl<E: Into<ExportError>> From<E> for NoCopy {
    fn from(error: E) -> Self {
        NoCopy::Export(error.into())
    }
}
