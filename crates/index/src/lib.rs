//! Ordered persistent indexes in a Tembo pool.
//!
//! The only copy of an index lies in the pool: there is nothing to load when the pool is opened and nothing
//! to write when it is closed. Lookups never wait. Operations that read several records as of one moment may
//! ([`WbTree::scan`], [`U64Tree`]).
//!
//! [`WbTree`] maps byte strings to byte strings, and is changed by transactions, or record by record by
//! many threads that share [`Writers`]. [`U64Tree`] maps 8-byte keys to 8-byte values, and is changed by
//! any number of threads at once, each change a transaction of its own. [`VersionedTree`] maps byte strings
//! to byte strings and keeps every version that a snapshot holds: each change, or batch of changes, makes a
//! version. [`VersionedHash`] does the same without an order. Start with the heads of
//! `wbtree/mod.rs`, `u64tree/mod.rs` and `versioned/mod.rs`.

mod direction;
mod dropped;
mod error;
pub mod format;
mod key_edit;
mod key_prefix;
mod map_kind;
mod record;
mod u64tree;
mod versioned;
mod wbtree;

use tembo_pool::turns;

pub use dropped::{check_dropped, drop_map, has_dropped, reclaim_dropped};
pub use error::{Error, Result};
pub use map_kind::{MapFormat, MapKind};
pub use record::{MAX_KEY_BYTES, MAX_VALUE_BYTES, ValuePlace};
#[doc(hidden)]
pub use tembo_pool::turns::HeldHere;
#[cfg(feature = "research")]
pub use u64tree::DramAccess;
pub use u64tree::{Records, U64CompactionStep, U64Range, U64Tree};
pub use versioned::{
    HashStructure, KeptVersion, TreeStructure, VersionedBatch, VersionedBytes, VersionedChange,
    VersionedCursor, VersionedEntry, VersionedHash, VersionedHashIter, VersionedMap, VersionedPart,
    VersionedPinnedEntry, VersionedPinnedRange, VersionedRange, VersionedReader, VersionedReport,
    VersionedSnapshot, VersionedStats, VersionedStructure, VersionedTree, VersionedValue,
};
pub use wbtree::{
    CompactionStep, ConcurrentWriter, Cursor, Entry, InsertHeld, InsertHint, KeyPlace, OwnedRecord,
    PREFETCH_KEYS_MAX, Range, Value, WbTree, WriterLocks, Writers,
};
pub use wbtree::{Counting, NearRecord, Ranked, WEIGHT_BYTES};
