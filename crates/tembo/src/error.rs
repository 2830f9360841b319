//! The errors of the store.

use crate::check_report::CheckReport;
use crate::kinds::Unknown;
use tembo_index::{Counting, U64Tree, VersionedHash, VersionedTree, WbTree};
use tembo_pool::{ErrorKind, Quoted};
use tembo_store::Store;

/// Result of store operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the store. An operation that fails has changed nothing, unless its documentation says
/// otherwise.
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
    /// The pool has no room and could not grow: the disk, a limit of the process or the pool's own maximum.
    #[error(
        "the pool is full: {needed_bytes} more bytes are needed ({why}); remove something, or let it grow"
    )]
    Full {
        /// The bytes asked for.
        needed_bytes: u64,
        /// The reason why the pool did not grow.
        why: String,
    },
    /// The map exists and is not of the kind that was asked for.
    #[error(
        "the map {} {}; open it without asking for a kind, or write {} in the line of a dump that names it, and load that into another pool",
        Quoted(name),
        if *is_versioned { "keeps versions" } else { "keeps no versions" },
        if *is_versioned { "map in place of versioned_map" } else { "versioned_map in place of map" }
    )]
    MapKind {
        /// The map's name.
        name: String,
        /// Whether it keeps versions.
        is_versioned: bool,
    },
    /// The map counts something else than was asked for.
    #[error(
        "the map {} counts {found}; open it without asking for that, or choose another name",
        Quoted(name)
    )]
    MapCounting {
        /// The map's name.
        name: String,
        /// The sums that it keeps.
        found: Counting,
    },
    /// The name belongs to a structure that this version of the library cannot read.
    #[error("{0}")]
    Unknown(Box<Unknown>),
    /// A check found no damage, but could not account for all blocks, because the pool holds a structure that
    /// this version of the library cannot read.
    #[error("no damage was found, but {} of {} blocks cannot be proved to belong anywhere: {}",
        report.unreached_blocks, report.usage.allocated_blocks, listed(&report.unknown))]
    Unproved {
        /// The findings, including `unknown`.
        report: Box<CheckReport>,
    },
    /// The map is open, so that it cannot be dropped.
    #[error(
        "the map {name:?} is open in this process; let go of its handles, snapshots, batches and iterators, and drop it then"
    )]
    MapOpen {
        /// The map's name.
        name: String,
    },
    /// The name belongs to a heap or a store, which are not dropped so.
    #[error(
        "{name:?} is a {found}, not a map, and cannot be dropped so; {}",
        if *found == "store" { "drop it as a store" } else { "remove the pool's file to be rid of it" }
    )]
    NotAMap {
        /// The name.
        name: String,
        /// The kind found.
        found: &'static str,
    },
    /// The name belongs to another kind of structure.
    #[error("{} is {found}, not {expected}; open it as what it is, or choose another name", Quoted(name))]
    OtherKind {
        /// The name.
        name: String,
        /// The kind found, with an article.
        found: String,
        /// The kind asked for, with an article.
        expected: String,
    },
    /// A map cannot be converted into this keyspace.
    #[error("the keyspace {} {why}", Quoted(keyspace))]
    Occupied {
        /// The keyspace.
        keyspace: String,
        /// The reason, with advice.
        why: String,
    },
    /// Open maps have all lanes of the pool.
    #[error(
        "all {lanes} lanes of the pool are in use: {open} of its maps with versions, fixed maps, hash tables and stores are open, and each holds one or \
         more; close some first"
    )]
    TooManyOpen {
        /// The number of open maps that have lanes.
        open: usize,
        /// The number of lanes of the pool.
        lanes: u32,
    },
    /// The process has no memory for the records that the operation has to collect.
    #[error("there is no memory for {bytes} bytes; ask for less at a time, or let the process have more")]
    OutOfMemory {
        /// The bytes that were needed at once.
        bytes: u64,
    },
    /// Snapshots were asked for of a map that keeps no versions.
    #[error(
        "the map keeps no versions; snapshots need one that was created with MapOptions::new().versioned(true)"
    )]
    NotVersioned,
    /// A batch was to walk a map that keeps versions.
    #[error("the map keeps versions, and a batch walks only maps that do not; take a snapshot and walk that")]
    KeepsVersions,
    /// There is no snapshot of this name.
    #[error(
        "there is no snapshot named {}; keep one by that name, or list those that there are",
        Quoted(name)
    )]
    NoSuchSnapshot {
        /// The name asked for.
        name: String,
    },
    /// A snapshot of one map was used with another.
    #[error("the snapshot is of another map; take one of this map")]
    ForeignSnapshot,
    /// A map of one pool was used with a batch of another.
    #[error("the map is of another pool; a batch reads and changes maps of the pool that it was begun on")]
    ForeignMap,
    /// The thread would wait for itself for ever. Nothing was changed.
    #[error(
        "this thread holds {holds}, and asks for {asks}, for which it would wait for ever; make the change by what it holds, or end that first"
    )]
    WouldWait {
        /// The thing that the thread holds: a batch, or a map in a closure that one of its functions calls.
        holds: &'static str,
        /// The thing that the thread asks for.
        asks: &'static str,
    },
    /// The pool was opened for reading only.
    #[error("the pool was opened for reading only")]
    ReadOnly,
    /// A bug in the library. The data on media is sound, and nothing was changed; please report it.
    #[error("internal error: {what}; this is a bug of the program, not damage of the pool: please report it")]
    Internal {
        /// The operation, and what it expected and found.
        what: String,
    },
    /// The pool cannot be opened, is damaged, or its device failed. The error's
    /// [`kind`](tembo_pool::Error::kind) says the cause and has the details:
    ///
    /// ```
    /// use tembo::{Error, Options, PoolErrorKind};
    ///
    /// match Options::new().open("no such directory/a.pool") {
    ///     Err(Error::Pool(e)) if matches!(e.kind(), PoolErrorKind::NoDirectory { .. }) => {}
    ///     outcome => panic!("{outcome:?}"),
    /// }
    /// ```
    #[error(transparent)]
    Pool(tembo_pool::Error),
    /// A heap could not be opened, or a transaction on it has failed.
    #[error(transparent)]
    Heap(tembo_heap::Error),
    /// The index refused the operation.
    #[error(transparent)]
    Index(tembo_index::Error),
    /// A [store](crate::store) refused the operation: a conflict, a snapshot that has ended, a name.
    #[error(transparent)]
    Store(tembo_store::Error),
}

impl Error {
    /// Whether a transaction conflicted, and may succeed when it is run again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Store(e) if e.is_conflict())
    }
}

impl From<tembo_store::Error> for Error {
    fn from(e: tembo_store::Error) -> Error {
        match e {
            tembo_store::Error::Pool(e) => e.into(),
            tembo_store::Error::Index(e) => e.into(),
            other => Error::Store(other),
        }
    }
}

impl From<tembo_heap::Error> for Error {
    fn from(e: tembo_heap::Error) -> Error {
        match e.into_kind() {
            tembo_heap::ErrorKind::Pool(e) => e.into(),
            other => Error::Heap(other.into()),
        }
    }
}

impl From<Error> for tembo_heap::Error {
    /// For transactions on a heap that also use a map: an error of the map ends them.
    fn from(e: Error) -> tembo_heap::Error {
        match e {
            Error::Heap(e) => e,
            Error::Pool(e) => e.into(),
            other => tembo_heap::Error::user(other),
        }
    }
}

impl From<tembo_pool::Error> for Error {
    fn from(e: tembo_pool::Error) -> Error {
        match e.into_kind() {
            ErrorKind::Full { needed_bytes, why } => Error::Full { needed_bytes, why },
            ErrorKind::TooLarge { asked_bytes, max_bytes } => Error::Full {
                needed_bytes: asked_bytes,
                why: format!("blocks have at most {max_bytes} bytes"),
            },
            ErrorKind::RootKind { name, expected, found } => {
                Error::OtherKind { name, found: kind_name(found), expected: kind_name(expected) }
            }
            ErrorKind::OutOfMemory { bytes } => Error::OutOfMemory { bytes },
            ErrorKind::ReadOnly => Error::ReadOnly,
            ErrorKind::Internal { what, off, expected, found } => Error::Internal {
                what: format!("{what} at offset {off:#x}: expected {expected}, found {found}"),
            },
            other => Error::Pool(other.into()),
        }
    }
}

impl From<tembo_index::Error> for Error {
    fn from(e: tembo_index::Error) -> Error {
        match e {
            tembo_index::Error::KeyTooLong { bytes, max_bytes } => Error::KeyTooLong { bytes, max_bytes },
            tembo_index::Error::ValueTooLong { bytes, max_bytes } => Error::ValueTooLong { bytes, max_bytes },
            tembo_index::Error::WouldWait { holds, asks } => Error::WouldWait { holds, asks },
            tembo_index::Error::OutOfMemory { bytes } => Error::OutOfMemory { bytes },
            tembo_index::Error::Pool(e) => e.into(),
            other => Error::Index(other),
        }
    }
}

fn listed(unknown: &[Unknown]) -> String {
    unknown.iter().map(Unknown::to_string).collect::<Vec<_>>().join(". ")
}

/// The name of a kind of root, with an article.
fn kind_name(kind: u32) -> String {
    match kind {
        WbTree::ROOT_KIND => "a map".to_owned(),
        VersionedTree::ROOT_KIND => "a map that keeps versions".to_owned(),
        U64Tree::ROOT_KIND => "a fixed map".to_owned(),
        VersionedHash::ROOT_KIND => "a hash table".to_owned(),
        Store::ROOT_KIND => "a store".to_owned(),
        Store::DROPPED_ROOT_KIND => "the list of dropped stores".to_owned(),
        tembo_heap::ROOT_KIND => "a heap".to_owned(),
        unknown => format!("of a kind that this version does not know ({unknown:#x})"),
    }
}
