//! Errors of a store.

use std::time::Duration;
use tembo_pmem::OutOfBounds;
use tembo_pool::Quoted;

/// Result of store operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a store. An operation that fails has changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction wrote the key after this one's snapshot, and was committed first. Run the
    /// transaction again: [`Store::transact`](crate::Store::transact) does.
    #[error(
        "the key {} of the keyspace {} was written by commit {by}, after snapshot {snapshot} that this transaction reads; run the transaction again",
        key.escape_ascii(),
        Quoted(keyspace)
    )]
    Conflict {
        /// The keyspace.
        keyspace: String,
        /// The key, shortened to its first 64 bytes.
        key: Vec<u8>,
        /// The commit that was first.
        by: u64,
        /// The snapshot of the transaction.
        snapshot: u64,
    },
    /// A transaction conflicted as often as [`Store::transact`](crate::Store::transact) tries it.
    #[error("the transaction conflicted {attempts} times within {} ms; change less at once, or try again later", within.as_millis())]
    Contended {
        /// How often it was tried.
        attempts: u32,
        /// For how long.
        within: Duration,
        /// The last conflict.
        #[source]
        last: Box<Error>,
    },
    /// The snapshot is neither the current one nor kept, or it was revoked by a
    /// [limit](crate::Limits).
    #[error(
        "snapshot {number} is gone, or was never there: the current one is {current}; keep a snapshot to read it later"
    )]
    SnapshotGone {
        /// The number asked for.
        number: u64,
        /// The current one.
        current: u64,
    },
    /// The keyspace does not retain the snapshot.
    #[error(
        "the keyspace {} does not retain snapshot {number}; retain more by `set_retention`, or keep snapshots that are to be read later",
        Quoted(keyspace)
    )]
    NotRetained {
        /// The snapshot.
        number: u64,
        /// The keyspace.
        keyspace: String,
    },
    /// Kept snapshots hold as much as old versions may take ([`Limits::old_bytes`](crate::Limits)), so that
    /// only deletions are committed.
    #[error(
        "kept snapshots hold {kept_bytes} bytes, and old versions may take {max_bytes}; delete kept snapshots, or raise the limit"
    )]
    HistoryFull {
        /// The bytes that kept snapshots hold.
        kept_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// A transaction writes more than it may ([`Limits::transaction_bytes`](crate::Limits)).
    #[error(
        "the transaction would write {bytes} bytes of keys and values, and may write {max_bytes}; commit it in parts, or raise the limit"
    )]
    TransactionTooLarge {
        /// The bytes that it would have written.
        bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// A transaction is used for longer than it may be ([`Limits::transaction_age`](crate::Limits)).
    #[error(
        "the transaction began {} ms ago, and may take {} ms; run it again, or raise the limit",
        age.as_millis(),
        max_age.as_millis()
    )]
    TransactionTooOld {
        /// The time since its first operation.
        age: Duration,
        /// The limit.
        max_age: Duration,
    },
    /// The system has no thread for a collector.
    #[error("a thread could not be started: {0}")]
    Thread(#[source] std::io::Error),
    /// No kept snapshot has this name.
    #[error("no snapshot is kept under the name {}; the kept ones are listed by `kept`", Quoted(name))]
    NoSuchSnapshot {
        /// The name asked for.
        name: String,
    },
    /// A snapshot is kept under this name already.
    #[error(
        "a snapshot is kept under the name {} already; choose another, or delete that first",
        Quoted(name)
    )]
    SnapshotExists {
        /// The name.
        name: String,
    },
    /// A name is empty or too long.
    #[error("the name of a {what} has 1 to {max_bytes} bytes; this one has {bytes}")]
    Name {
        /// The kind of object that was to have it.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The longest name allowed.
        max_bytes: usize,
    },
    /// A keyspace of another store was given.
    #[error("the keyspace {} is one of another store", Quoted(name))]
    OtherStore {
        /// Its name.
        name: String,
    },
    /// The keyspace was dropped.
    #[error("the keyspace {} was dropped", Quoted(name))]
    KeyspaceDropped {
        /// Its name.
        name: String,
    },
    /// The store was made by another version of this library, whose format is another.
    #[error(
        "the store has format version {found}, and this program reads version {supported}; use a newer Tembo"
    )]
    FormatVersion {
        /// The version that it has.
        found: u64,
        /// The version that can be read.
        supported: u64,
    },
    /// The store is open in this process, and keeps state in memory that must exist once.
    #[error(
        "the store {} is open in this process; clone the handle that is open, or let go of it, its snapshots \
             and its transactions",
        Quoted(name)
    )]
    InUse {
        /// Its name.
        name: String,
    },
    /// The commit of the whole group failed, of which this transaction was one.
    #[error("the commit failed, together with those of other threads: {reason}")]
    Group {
        /// The error that one of them got.
        reason: String,
    },
    /// A key or value of a typed keyspace is not of its type.
    #[error("a {what} of the keyspace {} is not of the expected type: {source}", Quoted(keyspace))]
    NotDecoded {
        /// The keyspace.
        keyspace: String,
        /// Whether it is a key or a value.
        what: &'static str,
        /// The part that is not as expected.
        source: crate::tuple::DecodeError,
    },
    /// The input of a bulk load is not sorted, or has a key twice.
    #[error(
        "the key {} is not higher than the one before it; sort the input, with each key once ({loaded} keys before it were loaded)",
        key.escape_ascii()
    )]
    NotSorted {
        /// The key, shortened to its first 64 bytes.
        key: Vec<u8>,
        /// How many keys were loaded, and stay.
        loaded: u64,
    },
    /// A backup could not be written or read.
    #[error("{doing}: {source}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The error of the writer or reader.
        source: std::io::Error,
    },
    /// A backup is damaged, or ends too early.
    #[error("the backup is damaged or cut off at byte {off}: {why}; take another copy of it")]
    DamagedBackup {
        /// The start of the damaged part, in bytes from the start of the backup.
        off: u64,
        /// The damage.
        why: String,
    },
    /// A backup has another format.
    #[error(
        "the backup has format version {found}, and this program reads version {supported}; use a newer Tembo"
    )]
    BackupVersion {
        /// The version that it has.
        found: u8,
        /// The version that can be read.
        supported: u8,
    },
    /// A backup is not the one that has to come next.
    #[error(
        "the backup does not follow: {why}; give the whole backup first, then each difference to the one before it"
    )]
    BackupOrder {
        /// The reason.
        why: String,
    },
    /// A store of this name exists.
    #[error("there is {} already; restore under another name, or into another pool", Quoted(name))]
    StoreExists {
        /// The name.
        name: String,
    },
    /// The process that owns the store is not there, or is there no more. A commit that was under way was
    /// made as a whole, or not at all.
    #[error("{doing}: {source}; the process that serves the store is gone, or not there yet: connect again")]
    Disconnected {
        /// The operation.
        doing: &'static str,
        /// The error of the connection.
        source: std::io::Error,
    },
    /// The process that owns the store does not do this for this client.
    #[error("the process that serves the store refuses: {why}")]
    Refused {
        /// The reason.
        why: String,
    },
    /// The process that owns the store came across an error that has no type for clients.
    #[error("the process that serves the store answers: {message}")]
    Remote {
        /// The error's text.
        message: String,
        /// Whether there was no space.
        is_full: bool,
    },
    /// A request or a reply does not fit a message.
    #[error(
        "a message would have {bytes} bytes, and has at most {max_bytes}; ask for less at once, or let the owner do it"
    )]
    FrameTooLarge {
        /// Its length.
        bytes: u64,
        /// The longest one.
        max_bytes: u64,
    },
    /// No store of this name is served.
    #[error("no store {} is served here", Quoted(name))]
    NoSuchStore {
        /// The name asked for.
        name: String,
    },
    /// An index failed: a key or value that is too long, or damage.
    #[error(transparent)]
    Index(#[from] tembo_index::Error),
    /// The pool failed: it is full, damaged, or its device is.
    #[error(transparent)]
    Pool(#[from] tembo_pool::Error),
}

impl Error {
    /// Whether the same transaction may succeed when it is run again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }
}

impl Error {
    /// Whether there was no space in the pool, or in what old versions may take.
    pub fn is_full(&self) -> bool {
        match self {
            Error::HistoryFull { .. } | Error::Remote { is_full: true, .. } => true,
            Error::Pool(e) | Error::Index(tembo_index::Error::Pool(e)) => e.is_full(),
            _ => false,
        }
    }
}

impl From<OutOfBounds> for Error {
    /// Offsets come from media, so one that leads nowhere is damage.
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
