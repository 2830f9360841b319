//! **Tembo**: an embedded, ordered key-value store. Its only copy of the data lies in persistent memory, or
//! in a file mapped into memory.
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
//! let planets = pool.open_map("planets")?;
//! planets.put("mars", "red")?;
//! planets.put("earth", "blue")?;
//! assert_eq!(planets.get("earth")?.as_deref(), Some(b"blue".as_slice()));
//! for entry in planets.range("a".."f") {
//!     let entry = entry?;
//!     println!("{} is {}", entry.key().escape_ascii(), entry.value().escape_ascii());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A pool holds maps, which any number of threads may read and write at once. A [`Map`] has byte strings for
//! keys and values; a [`Batch`] groups changes of several maps. A [`FixedMap`] has 8-byte keys and values,
//! and each change costs one cache line and one fence. A [`HashTable`] has byte strings, no order, and
//! snapshots.
//!
//! A [`Map`] that was created [with versions](MapOptions::versioned) keeps its past: a [`Snapshot`] holds a
//! version as long as it lives, or, if it has a name, until the name is dropped; and the map can be rolled
//! back to it. Such a map has all operations of the other kind. It has one writer at a time, a removal may
//! need space, and while it is open it takes one of the pool's lanes (`examples/snapshots.rs`).
//!
//! A pool has names for 128 maps, or for [more](Options::root_count) if it was created so. [`Pool::list`]
//! lists its contents, and [`Pool::drop_map`] drops a map.
//!
//! A pool belongs to the process that opened it. In a child of `fork`, every operation on the parent's
//! handles fails with [`PoolErrorKind::Forked`], or panics with the same message where no error can be
//! returned; a [`Value`] or an [`Entry`] from before the fork panics when it is read. The child may drop all
//! handles and return from `main`: that touches neither the pool nor its lock. It can open the pool itself
//! once the parent has closed it. A byte slice that was borrowed from a value before the fork must not be
//! read in the child: the child would end by SIGSEGV. Nothing that a child does with the parent's handles
//! reaches the file.
//!
//! If the machine stops while a pool is open in the page cache, the file may have pages of different ages.
//! Such a pool is refused ([`PoolErrorKind::Unclean`]) unless [`Options::accept_unclean`] is called. So is a
//! copy that was made while the pool was open.
//!
//! A program's own structs, linked by pointers and changed in transactions, live in a [`heap`].
#![forbid(unsafe_code)]

mod batch;
mod contents;
mod dropping;
mod error;
mod fixed;
mod hash;
mod map;
mod open_trees;
mod options;
mod pool;
mod records;
mod snapshot;

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

pub use batch::{Batch, Savepoint};
pub use contents::{Kind, Listed, Unknown};
pub use error::{Error, Result};
pub use fixed::{FixedIter, FixedMap};
pub use hash::{HashTable, TableBatch, TableIter, TableSnapshot};
pub use map::Map;
pub use options::{MapOptions, Options};
pub use pool::{CheckReport, Pool};
pub use records::{Cursor, Entry, Iter, Value};
pub use snapshot::Snapshot;
pub use tembo_index::Error as IndexError;
pub use tembo_index::Records;
pub use tembo_index::{Counting, Ranked, WEIGHT_BYTES};
pub use tembo_index::{
    KeptVersion as KeptSnapshot, VersionedChange as Change, VersionedReport as VersionsReport,
    VersionedStats as VersionsStats,
};
pub use tembo_index::{MAX_KEY_BYTES, MAX_VALUE_BYTES, PREFETCH_KEYS_MAX};
pub use tembo_pmem::RegionError;
pub use tembo_pmem::{Counts, Domain, Durability, FlushInstruction, snapshot};
pub use tembo_pool::{Ending, Geometry, Quoted, Recovery, Stats, Usage};
pub use tembo_pool::{Error as PoolError, ErrorKind as PoolErrorKind};
