//! Ordered persistent indexes in a Tembo pool.
//!
//! The only copy of an index lies in the pool: there is nothing to load when the pool is opened and nothing to write when
//! it is closed. Lookups never wait; what reads several records as they were at one moment may ([`WbTree::scan`], [`FixedTree`]).
//!
//! [`WbTree`] maps byte strings to byte strings, and is changed by transactions, or record by record by many threads that share
//! [`Writers`]. [`FixedTree`] maps 8-byte keys to 8-byte
//! values, and is changed by any number of threads at once, each change a transaction of its own. [`CddsTree`] maps byte strings
//! to byte strings and keeps every version that a snapshot holds: each change, or batch of changes, makes a version. [`CddsHash`] does
//! the same without an order. Start with
//! the module essays in `wbtree/mod.rs`, `fixed/mod.rs` and `cdds/mod.rs`.

mod cdds;
mod dropped;
mod error;
mod fixed;
pub mod format;
mod wbtree;

use tembo_pool::turns;

pub use cdds::{
    CddsBatch, CddsBytes, CddsChange, CddsCursor, CddsEntry, CddsHash, CddsHashIter, CddsHashed, CddsKept,
    CddsMap, CddsOrdered, CddsPart, CddsPinnedEntry, CddsPinnedRange, CddsRange, CddsReader, CddsReport,
    CddsSnapshot, CddsStats, CddsStructure, CddsTree, CddsValue,
};
pub use dropped::{MapFormat, MapKind, check_dropped, drop_map, has_dropped, reclaim_dropped};
pub use error::{Error, Result};
#[doc(hidden)]
pub use fixed::DramAccess;
pub use fixed::{FixedRange, FixedTree, Records};
#[doc(hidden)]
pub use tembo_pool::turns::HeldHere;
pub use wbtree::layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use wbtree::{Beside, Cursor, Entry, OwnedRecord, PREFETCH_KEYS_MAX, Range, Value, WbTree, Writers};
