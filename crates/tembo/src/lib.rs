//! **Tembo**: embedded stores whose only copy of the data lies in persistent memory, or in a file mapped into
//! memory.
//!
//! There is no log to replay, no second copy and no serialisation: opening a store takes milliseconds at any
//! size, also after a crash, and a write is durable when its call returns. Which failures it then survives
//! depends on the file: [`Pool::survives`] says so.
//!
//! ```
//! # fn main() -> Result<(), tembo::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("example.pool");
//! use tembo::Options;
//!
//! let pool = Options::new().create(true).open(&path)?;
//! let bank = pool.open_store("bank")?;
//! let accounts = bank.keyspace("accounts")?;
//! let yesterday = bank.put(&accounts, "ann", "100")?; // durable when it returns
//! bank.keep(yesterday, "yesterday")?;
//!
//! bank.transact(|tx| {
//!     tx.put(&accounts, "ann", "70")?;
//!     tx.put(&accounts, "bob", "30") // both or neither
//! })?;
//! assert_eq!(bank.get(&accounts, "ann")?.as_deref(), Some(&b"70"[..]));
//! assert_eq!(bank.at_name("yesterday")?.get(&accounts, "ann")?.as_deref(), Some(&b"100"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # Which to take
//!
//! | you want | take | |
//! |---|---|---|
//! | transactions: many keys at once, from any number of threads; history; backups | [`Pool::open_store`] | [`store`] |
//! | one sorted map, the cheapest single write and lookups without a copy | [`Pool::open_map`] | [`Map`] |
//! | the same with numbers of 64 bits | [`Pool::open_fixed_map`] | [`FixedMap`] |
//! | one sorted map with snapshots that are compared and gone back to, and one writer | [`Pool::open_map_with`] | [`MapOptions::versioned`] |
//! | the same without an order | [`Pool::open_hash_table`] | [`HashTable`] |
//! | a program's own structs, linked by pointers | [`Pool::open_heap`] | [`heap`] |
//!
//! A [`store`] is **the** answer to "I want transactions". Its transactions are isolated from each other
//! (snapshot isolation, or serializable), cover any number of its keyspaces, run in any number of threads at
//! once, and cost one fence. All past that its user wants to keep can be read.
//!
//! A [`Batch`] is less: it makes changes of several maps atomic after a crash, excludes all other writers of
//! maps while it lasts, and isolates no reads. It remains for programs that have maps. New programs that
//! change several keys together take a store, and [`Pool::convert_map`] copies a map into one, with its named
//! snapshots.
//!
//! A pool holds any number of each, by name. Maps take any number of threads that read and write at once; a
//! change of a [`FixedMap`] costs one cache line and one fence. A [`Map`] that was created [with
//! versions](MapOptions::versioned) keeps its past: a [`Snapshot`] holds a version as long as it lives, or,
//! if it has a name, until the name is dropped; and the map can be rolled back to it. Such a map has one
//! writer at a time, a removal may need space, and while it is open it takes one of the pool's lanes, as does
//! a store (`examples/snapshots.rs`).
//!
//! A pool has names for 128 structures, or for [more](Options::root_count) if it was created so.
//! [`Pool::list`] lists its contents, and [`Pool::drop_map`] drops a map.
//!
//! A pool belongs to the process that opened it. In a child of `fork`, every operation on the parent's
//! handles fails with [`PoolErrorKind::Forked`], or panics with the same message where no error can be
//! returned; a [`Value`] or an [`Entry`] from before the fork panics when it is read. The child may drop all
//! handles and return from `main`: that touches neither the pool nor its lock. It can open the pool itself
//! once the parent has closed it. A byte slice that was borrowed from a value before the fork must not be
//! read in the child: the child would end by SIGSEGV. Nothing that a child does with the parent's handles
//! reaches the file.
//!
//! [`Durability::Auto`], the default, keeps a pool on a disk in a journal: a power failure costs the last
//! second at most, and damages nothing. If the machine stops while a pool is open in the page cache
//! ([`Durability::PageCache`]), the file may have pages of different ages. Such a pool is refused
//! ([`PoolErrorKind::Unclean`]) unless [`Options::accept_unclean`] is called. So is a copy that was made
//! while the pool was open.
//!
//! A program's own structs, linked by pointers and changed in transactions, live in a [`heap`].
#![forbid(unsafe_code)]

mod auto_compaction;
mod batch;
mod check;
mod check_report;
mod compaction;
mod contents;
mod converting;
mod dropped;
mod dropping;
mod error;
mod fixed;
mod hash;
mod kinds;
mod map;
mod open_stores;
mod open_trees;
mod opening;
mod options;
mod plain_maps;
mod pool;
mod records;
mod serving;
mod snapshot;
mod stores;

/// Persistent objects: a program's own structs, linked by pointers, changed in transactions, and preserved
/// across crashes.
///
/// ```
/// use tembo::Options;
/// use tembo::heap::{Heap, PRc, Persist, brand};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Node {
///     value: u64,
///     next: PRc<Node>,
/// }
///
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct List {
///     first: PRc<Node>,
/// }
///
/// brand!(MyList);
///
/// # fn main() -> Result<(), tembo::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("list.heap");
/// let heap = Heap::<MyList, List>::open(&path, Options::new().create(true))?;
/// heap.write(|tx, list| {
///     let node = tx.alloc(Node { value: 7, next: PRc::null() })?;
///     let first = tx.load(list.first())?;
///     tx.link(node.next(), first)?;
///     tx.link(list.first(), node)
/// })?; // durable from here on
/// # Ok(())
/// # }
/// ```
///
/// `docs/guide/heap.md` is the tutorial. This module exports all of the crate `tembo-heap`, whose first page
/// has an overview. In a program that renames this crate, types name it next to their derives:
/// `#[persist(crate = other::heap)]`.
pub mod heap {
    #[doc(inline)]
    pub use tembo_heap::*;

    #[doc(inline)]
    pub use crate::Options;
    // The derives whose code finds the heap in this crate.
    #[doc(inline)]
    pub use tembo_heap::derives_of_tembo::{PersistOfTembo as Persist, PlainOfTembo as Plain};
}

/// The versioned, transactional store: keyspaces, transactions with snapshot isolation, and history.
///
/// ```
/// # fn main() -> Result<(), tembo::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
/// let store = pool.open_store("shop")?;
/// let (stock, orders) = (store.keyspace("stock")?, store.keyspace("orders")?);
/// store.put(&stock, "lamp", "1")?;
///
/// let (mut ann, mut bob) = (store.begin(), store.begin());
/// for (tx, name) in [(&mut ann, "ann"), (&mut bob, "bob")] {
///     assert_eq!(tx.get(&stock, "lamp")?.as_deref(), Some(&b"1"[..]));
///     tx.put(&stock, "lamp", "0")?;
///     tx.put(&orders, name, "lamp")?;
/// }
/// ann.commit()?;
/// assert!(bob.commit().is_err_and(|e| e.is_conflict())); // the lamp was sold once
/// # Ok(())
/// # }
/// ```
///
/// [`Store::transact`](store::Store::transact) runs a transaction again until it does not conflict.
/// `docs/guide/store.md` is the guide, and `examples/bank_with_history.rs` a program. This module exports all
/// of the crate `tembo-store`, whose first page has an overview.
pub mod store {
    #[doc(inline)]
    pub use tembo_store::*;
}

/// The README's programs compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub use auto_compaction::MissedRun;
pub use batch::{Batch, Savepoint};
pub use check_report::CheckReport;
pub use compaction::{Compacted, Compaction};
pub use converting::Converted;
pub use error::{Error, Result};
pub use fixed::{FixedIter, FixedMap};
pub use hash::{HashTable, TableBatch, TableIter, TableSnapshot};
pub use kinds::{Kind, Listed, Unknown};
pub use map::Map;
pub use options::{MapOptions, Options};
pub use pool::{Pool, Trimming};
pub use records::{Cursor, Entry, Iter, Value};
pub use snapshot::Snapshot;
pub use tembo_index::Error as IndexError;
pub use tembo_index::Records;
pub use tembo_index::{Counting, NearRecord, Ranked, WEIGHT_BYTES};
pub use tembo_index::{
    KeptVersion as KeptSnapshot, VersionedChange as Change, VersionedReport as VersionsReport,
    VersionedStats as VersionsStats,
};
pub use tembo_index::{MAX_KEY_BYTES, MAX_VALUE_BYTES, PREFETCH_KEYS_MAX};
pub use tembo_pmem::RegionError;
pub use tembo_pmem::journal::JournalStats;
pub use tembo_pmem::{
    Counts, Domain, Durability, FlushInstruction, WriteBacks, report_bus_errors, snapshot, write_backs,
};
pub use tembo_pool::{ClassUsage, Ending, Geometry, Quoted, Reached, Recovery, Stats, Usage};
pub use tembo_pool::{Error as PoolError, ErrorKind as PoolErrorKind};
