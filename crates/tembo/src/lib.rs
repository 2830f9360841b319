//! **Tembo**: an embedded, ordered key-value store that lives, once, in persistent memory, or in a file mapped
//! into memory.
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
//! A pool holds maps, which any number of threads may read and write at once. A [`Map`] has byte strings of any
//! length for keys and values; changes of several maps can be grouped in a [`Batch`]. A [`FixedMap`] has 8-byte keys
//! and values, and each change costs one cache line and one fence. A [`HashTable`] has byte strings again, no order, and snapshots.
//!
//! A [`Map`] that was created [with versions](MapOptions::versioned) can be read as it was: a [`Snapshot`] holds a version as long as it lives, or, with
//! a name, until it is dropped by that, and the map can be rolled back to it. It has all operations of the other kind; it has one writer at a time, a
//! removal may need space, and while it is open it takes one of the pool's lanes (`examples/snapshots.rs`).
//!
//! A pool has names for 128 maps unless it was made with [more](Options::root_count). [`Pool::list`] tells what it has, and [`Pool::drop_map`]
//! takes a map away.
//!
//! A pool belongs to the process that opened it. In a child that `fork` made, every operation on what the parent had open is refused with
//! [`PoolError::Forked`], or, where there is no error to return, by a panic that says the same; a [`Value`] or an [`Entry`] from before the fork panics
//! when it is read. All handles may be dropped there, and the child may return from `main`: that touches neither the pool nor its lock. The child opens the pool
//! itself when the parent has closed it. A byte slice that was borrowed from a value before the fork must not be read in the child, which
//! ends by SIGSEGV if it does; nothing that a child does reaches the file.
//!
//! A pool that was open in the page cache when the machine stopped may have pages of different ages. It is refused ([`PoolError::Unclean`]) unless
//! [`Options::accept_unclean`] is called, and so is a copy that was made while a pool was open.
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
mod open;
mod options;
mod pool;
mod records;
mod snapshot;

/// Persistent objects: a program's own structs, linked by pointers, changed in transactions, and there again after a crash.
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
/// `docs/heap.md` is the tutorial. The crate underneath is `tembo-heap`, whose first page says what lies where; all of it is here.
/// Where a program knows this crate by another name, types say so beside their derives: `#[persist(crate = other::heap)]`.
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
pub use tembo_index::{
    KeptVersion as KeptSnapshot, VersionedChange as Change, VersionedReport as VersionsReport,
    VersionedStats as VersionsStats,
};
pub use tembo_index::{MAX_KEY_BYTES, MAX_VALUE_BYTES, PREFETCH_KEYS_MAX};
pub use tembo_pmem::RegionError;
pub use tembo_pmem::{Counts, Domain, Durability, FlushInstruction, snapshot};
pub use tembo_pool::Error as PoolError;
pub use tembo_pool::{Ending, Geometry, Quoted, Recovery, Stats, Usage};
