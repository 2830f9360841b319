//! A versioned, transactional key-value store in a Tembo pool: snapshot isolation, and one fence per commit.
//!
//! A [`Store`] is a sequence of *snapshots*. A [`Transaction`] reads one snapshot and collects its writes in
//! memory; its commit makes the next snapshot, which is durable and visible when [`Transaction::commit`]
//! returns. Of two transactions that write the same key at the same time, the first to commit wins, and the
//! other gets [`Error::Conflict`]. Readers never wait.
//!
//! ```
//! # fn main() -> Result<(), tembo_store::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("example.pool");
//! use tembo_pool::{Options, Pool};
//! use tembo_store::Store;
//!
//! let mut options = Options::new();
//! options.create = true;
//! let store = Store::open(&Pool::open(&path, &options)?, "bank")?;
//! let accounts = store.keyspace("accounts")?;
//!
//! let mut tx = store.begin();
//! tx.put(&accounts, "ann", "100")?;
//! tx.put(&accounts, "bob", "20")?;
//! let opening = tx.commit()?; // durable, and visible, from here on
//! store.keep(opening, "opening")?;
//!
//! store.transact(|tx| {
//!     tx.put(&accounts, "ann", "70")?;
//!     tx.put(&accounts, "bob", "50")
//! })?;
//! assert_eq!(store.snapshot().get(&accounts, "ann")?.as_deref(), Some(b"70".as_slice()));
//! assert_eq!(store.at_name("opening")?.get(&accounts, "ann")?.as_deref(), Some(b"100".as_slice()));
//! # Ok(())
//! # }
//! ```
//!
//! # Media layout
//!
//! ```text
//! root -> PmStore -> keyspaces (tree: name -> PmKeyspace) -> index (tree: key -> PmKey)
//!                 -> kept snapshots (tree: name or number -> number)
//! PmKey, the version table of a key:  PmVersion x 3, or one PmVector of more
//! PmVersion: the number of the commit, and the value: in the word itself, a tombstone, or a PmValue
//! ```
//!
//! `layout.rs` has the structs.
//!
//! # Invariants
//!
//! * I1: the numbers in a version table ascend, and none is higher than `PmStore::current`; behind the last
//!   version all slots are zero.
//! * I2: a slot that has a number never changes, but that its value may become *collected*. So readers need
//!   no lock.
//! * I3: a version is collected only if no snapshot that can be read lies between it and its successor.
//! * I4: a table is removed with its key only if its last version is a tombstone that no snapshot, and no
//!   transaction, is older than. So the last writer of a key is known to every transaction that it conflicts
//!   with.
//! * I5: every block is reachable exactly once.
//!
//! # Commit point
//!
//! One record of the pool makes a group of transactions: their values, version tables, new keys in indexes,
//! and `PmStore::current`. It is durable with one fence (two, if the group has more than 2 KiB of new data).
//! Readers see the group when the number in memory is raised, which is after that.
//!
//! # Recovery
//!
//! Opening reads `PmStore` and the kept snapshots. The pool's recovery completes what the last record began.
//!
//! # Concurrency
//!
//! A transaction that commits enters a queue and takes the lock of commits; the holder commits all that it
//! finds in the queue, in its order (`commit.rs`). Conflicts are looked for under that lock, before anything
//! is written. Readers register the number of their snapshot (`active.rs`), so that its versions are kept,
//! and pin the pool while they read.
//!
//! # Source
//!
//! Echo (INFLOW'13) 2 and 3. Deviations:
//!
//! * D1: a worker does not merge by itself after its commit record was logged: the record of the pool is the
//!   commit record, and the holder of the commit lock merges for all that wait. The paper leaves conflicts
//!   open; here they are found before the commit is durable.
//! * D2: versions that no snapshot needs go with the next change of their key, or with a later commit, and
//!   not by a collector with a thread of its own.
//!
//! # Reading order
//!
//! `layout.rs`, `versions.rs` (version tables), `active.rs` (which snapshots are needed), `retention.rs`,
//! `commit.rs`, `transaction.rs`, `snapshot.rs`, `keyspace.rs`, `store.rs`, `check.rs`; `backup`, `bulk.rs`,
//! `tuple.rs` and `typed.rs` use the rest as a program does.

#![forbid(unsafe_code)]

mod active;
mod backup;
mod bulk;
mod check;
mod commit;
mod entries;
mod error;
#[doc(hidden)]
pub mod format;
mod handle;
mod keyspace;
mod layout;
mod retention;
mod snapshot;
mod store;
mod transaction;
pub mod tuple;
mod typed;
mod versions;
mod writer_lane;

pub use backup::{BackupSummary, Restoring};
pub use bulk::BulkLoad;
pub use check::Report;
pub use commit::Commit;
pub use entries::{Entries, Entry};
pub use error::{Error, Result};
pub use format::Format;
pub use handle::WeakStore;
pub use keyspace::Keyspace;
pub use retention::Retention;
pub use snapshot::{Kept, Snapshot};
pub use store::{KeyVersion, Store};
pub use transaction::{Savepoint, Transaction};
pub use typed::{TypedEntries, TypedKeyspace};
