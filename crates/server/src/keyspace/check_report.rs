//! The findings of a check of a pool's databases.

/// The findings of a complete [`check`](super::check::check).
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The databases that exist, in order of their numbers.
    pub databases: Vec<DatabaseReport>,
    /// The large collections of all of them.
    pub collections: CollectionsReport,
    /// Beginnings of keys that cursors of scans refer to.
    pub scan_prefixes: u64,
    /// Tokens whose replies are remembered.
    pub tokens: u64,
    /// The server was a replica.
    pub is_replica: bool,
    /// Bytes of the stream that are kept for replicas.
    pub backlog_bytes: u64,
    /// Bytes of the stream that the file beside the pool lacks, after a failure of power or without the
    /// file. Replicas that need them take a whole copy.
    pub missing_backlog_bytes: u64,
    /// Scripts of SCRIPT LOAD.
    pub scripts: u64,
    /// States that were replaced and are kept, and their keys.
    pub kept: (u64, u64),
    /// The pool is that of a cluster's node: the version of its topology, if it has one.
    pub cluster: Option<Option<u64>>,
}

/// The large collections of a [`CheckReport`]: those whose elements are records of their own.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionsReport {
    /// The number of large collections.
    pub large: u64,
    /// The elements of the large collections.
    pub elements: u64,
    /// Collections that were removed and still have elements, which the server removes in later turns.
    pub doomed: u64,
    /// Collections that a command was building in parts when the server stopped. They are removed like the
    /// doomed ones.
    pub under_construction: u64,
    /// The elements of the doomed ones and of those under construction.
    pub doomed_elements: u64,
}

/// One database of a [`CheckReport`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseReport {
    /// Its number, as SELECT takes it.
    pub number: usize,
    /// Its keys, expired ones included.
    pub keys: u64,
    /// The number of its keys that have an expiry time.
    pub expires: u64,
}

/// Damage in a pool's databases. Keys are shown with escapes.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A value does not begin with a header that this version knows.
    #[error("database {database}: the value of key \"{key}\" is malformed")]
    Malformed {
        /// The database's number.
        database: usize,
        /// The key.
        key: String,
    },
    /// A key would not expire in time: it is missing from the list of deadlines.
    #[error("database {database}: key \"{key}\" expires, and is not in the list of expiry times")]
    Unlisted {
        /// The database's number.
        database: usize,
        /// The key.
        key: String,
    },
    /// The list of deadlines names a key that does not have that deadline.
    #[error("database {database}: the list of expiry times has an entry \"{entry}\" for no key")]
    Stale {
        /// The database's number.
        database: usize,
        /// The entry: 8 bytes of time, then the key.
        entry: String,
    },
    /// A key of a cluster's node is not where its slot is, or is in another database than 0.
    #[error("database {database}: the entry \"{entry}\" is not a key behind its slot, in database 0")]
    Misplaced {
        /// The database's number.
        database: usize,
        /// The entry: 2 bytes of the slot, then the key.
        entry: String,
    },
    /// A large collection, or the list of large collections, is not as it should be.
    #[error("{place}: {what}")]
    Collection {
        /// The key, the id or the entry of the list.
        place: String,
        /// The fault.
        what: String,
    },
    /// The pool itself is damaged.
    #[error(transparent)]
    Pool(#[from] tembo::Error),
}
