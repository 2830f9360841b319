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
//! root -> PmStore -> keyspaces (tree: name -> PmKeyspace) -> index (tree: key -> PmTable)
//!                 -> kept snapshots (tree: name or number -> number)
//!                 -> PmHistory, the log of commits (log.rs)
//!                    a PmLast for each lane: the number of its last commit
//! PmTable, the version table of a key: PmVersion x 2, or one PmVector of more
//! PmVersion: the number of the commit, and the value: in the word itself, a tombstone, or a PmValue
//! ```
//!
//! A version table lies in the key's record in the index, and its words change in place: an update changes
//! nothing of the index, and a key has one block and costs a reader one miss below the index's leaf. An
//! update of a short value allocates nothing. A tombstone that finds no slot goes into a word that each table
//! has for one, so that no deletion allocates. `layout.rs` has the structs.
//!
//! # Invariants
//!
//! * I1: each version of a table has another number, and none is higher than the highest `PmLast`. A slot
//!   without a version is zero. In a vector of more than eight, numbers ascend, and empty slots come last. A
//!   tombstone beside the slots is the last version.
//! * I2: a version that a snapshot needs which can be read never changes. So readers need no lock.
//! * I3: a version is collected, or its slot used again, only if no snapshot that can be read lies between it
//!   and its successor.
//! * I4: a key is removed only if its last version is a tombstone that no snapshot, and no transaction, is
//!   older than. So the last writer of a key is known to every transaction that it conflicts with.
//! * I5: every block is reachable exactly once.
//! * I6: a version that only snapshots before `PmKeyspace::cut` have is collected after the cut is durable.
//!   Hence a snapshot that lacks versions is not taken for a whole one.
//!
//! `log.rs` has those of the log, `dropped.rs` those of stores that were dropped.
//!
//! # Commit point
//!
//! One record of the pool makes a transaction, or a group: values, versions, new keys in indexes, and the
//! lane's `PmLast`. It is durable with one fence (two, if there is more than 2 KiB of new data). Readers see
//! it when the number in memory is raised, which is after that, and after all lower numbers were decided
//! (`sequence.rs`).
//!
//! # Recovery
//!
//! Opening reads `PmStore` and the kept snapshots; the last number is the highest of all lanes. The pool's
//! recovery completes what the last records began. A number below that without a commit is a gap that nobody
//! has ever seen (`sequence.rs`, Gaps).
//!
//! # Concurrency
//!
//! Commits run on several lanes at once, each under locks of its keys; everything that is rarer keeps all
//! lanes from committing (`commit.rs`). Conflicts are looked for under the locks, before anything is written.
//! Readers register the number of their snapshot (`active.rs`), so that its versions are kept, and pin the
//! pool while they read. A get of the current value registers nothing, and tries again if it has met a
//! change. A snapshot may be revoked (`limits.rs`): a reader looks for that after it has read, and then
//! returns nothing of it. While a store has a log, limits, or somebody who watches or counts, commits do not
//! run beside each other.
//!
//! A store takes one lane of the pool, and more, up to one for each processor, once threads have often found
//! none free, and if the pool has them to spare.
//!
//! # Source
//!
//! Echo (INFLOW'13) 2 and 3. Deviations:
//!
//! * D1: a worker does not merge by itself after its commit record was logged: the record of the pool is the
//!   commit record, and it makes the merge, too. The paper leaves conflicts open; here they are found before
//!   the commit is durable.
//! * D2: versions that no snapshot needs go with the next change of their key, or with a later commit, which
//!   takes a small step while there is something to walk for. A collector with a thread of its own is there
//!   for stores that nobody commits to ([`Store::collector`]).
//! * D3: the paper's version table is a vector of pointers beside a hash index. Here the first two versions
//!   lie in the index's record.
//!
//! # Reading order
//!
//! A file names only files below it. From the bottom: `layout.rs`, `sequence.rs` (numbers), `active.rs`
//! (which snapshots are needed), `retention.rs`, `versions.rs` (version tables), `keyspace.rs`, `space.rs`
//! (accounts), `keep.rs`, `table_writer.rs`. What a commit tells others: `log_entry.rs`, `log.rs`,
//! `limiter.rs`, `watches.rs`, and `history.rs`, which has them. What commits share: `read_write_sets.rs`,
//! `key_locks.rs`, `garbage.rs`, `schedule.rs`, `handover.rs`, `commit_queue.rs`. All of that is in the store
//! (`handle.rs`).
//!
//! Above the store: `snapshot.rs`, `entries.rs`, `walk.rs`, `collect.rs`, `apply.rs`, `commit.rs`,
//! `transaction.rs`, `check.rs`, `dropped.rs`, `store.rs`. Then the history: `changes.rs`, `audit.rs`,
//! `limits.rs`, `collector.rs`, `committer.rs`, `watch.rs`, `compaction.rs`. `remote` has the store that
//! several processes use. The files `backup`, `bulk.rs`, `tuple.rs` and `typed.rs` use the rest as a program
//! does; `copy.rs` fills a hidden store, as `backup` does.
//!
//! # Index
//!
//! A keyspace's index is a `WbTree`, where the paper takes a hash index. The store needs four things of it:
//!
//! * Its words go into the record of a transaction. So a new key costs no fence of its own, and is there or
//!   not with all else that the transaction writes.
//! * A lookup leads to words that the store changes in place: a key's version table lies in the index's
//!   record. So an update leaves the index alone, and a reader has one miss below it.
//! * Lanes that add keys to one index commit side by side.
//! * A walk can stop at a key and go on from there after others have changed the index: collections, counts,
//!   compactions, comparisons and backups take steps.
//!
//! The other structures lack some of these:
//!
//! * `U64Tree` has keys of 8 bytes, and changes its leaves directly: no redo record may cover them (its I5).
//!   Its changes are durable by a fence of their own, and belong to no transaction.
//! * `VersionedHash`, the hash table, is a trie whose nodes and records never change, because versions share
//!   them. Each change is a version with a record of its own; only the versioned tree can be a part of a
//!   caller's transaction (`tree/part.rs`). A version table would be a block of its own, and a reader would
//!   have a miss more. It has one writer at a time, and a new key copies all nodes on its path and enters the
//!   old ones into a queue, where a `WbTree` stores some words. Its walks go over a version that is held
//!   meanwhile, and begin at its beginning.
//!
//! So the hash table would serve, with one writer at a time, after it was given a form without versions: one
//! whose head lies in `PmKeyspace`, whose changes go into a caller's transaction, whose records may change in
//! place, and whose walks go on from a hash. Of what exists, that would take the trie's nodes and its search.
//!
//! A hash index would save a part of a lookup's descent. It would have no order: such a keyspace would refuse
//! ranges, prefixes and deletions of ranges, also to serializable transactions.

#![forbid(unsafe_code)]

mod active;
#[cfg(test)]
mod active_tests;
mod apply;
mod audit;
mod backup;
mod bulk;
mod changes;
mod check;
mod collect;
mod collector;
mod commit;
mod committer;
mod compaction;
mod copy;
mod dropped;
mod entries;
mod error;
#[doc(hidden)]
pub mod format;
mod handle;
mod handover;
mod history;
mod key_locks;
mod keyspace;
mod layout;
mod limits;
mod log_entry;

mod commit_queue;
mod garbage;
mod keep;
mod limiter;
mod log;
mod primitives;
mod read_write_sets;
pub mod remote;
mod retention;
mod retry;
mod schedule;
mod sequence;
mod snapshot;
mod space;
mod store;
mod table_writer;
mod transaction;
pub mod tuple;
mod typed;
mod versions;
mod walk;
mod watch;
mod watches;
mod writer_lane;

pub use audit::{AuditRecord, AuditTrail, AuditedChange, LoggedCommits};
pub use backup::{BackupSummary, Restoring};
pub use bulk::BulkLoad;
pub use changes::{Change, Changes};
pub use check::{Report, SnapshotReport};
pub use collector::{Collector, CollectorOptions};
pub use commit::Commit;
pub use committer::Committer;
pub use compaction::{StoreCompactionStep, StorePlace};
pub use entries::{Entries, Entry};
pub use error::{Error, Result};
pub use format::Format;
pub use handle::{Store, WeakStore};
pub use keyspace::Keyspace;
pub use limiter::Limits;
pub use log::Audit;
pub use log_entry::{ChangedKey, LoggedCommit};
pub use retention::Retention;
pub use snapshot::{Kept, Snapshot};
pub use space::Space;
pub use store::KeyVersion;
pub use transaction::{Savepoint, Transaction};
pub use typed::{TypedEntries, TypedKeyspace};
pub use watch::Watch;
pub use watches::{Changed, Event};

/// Handles go to other threads, and own what they read.
const _: () = {
    const fn is_owned<T: Send + 'static>() {}
    const fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Store>();
    is_shared::<Keyspace>();
    is_shared::<Snapshot>();
    is_owned::<Transaction>();
    is_owned::<Entries>();
    is_owned::<Changes>();
    is_owned::<AuditTrail>();
    is_owned::<LoggedCommits>();
    is_owned::<Commit>();
    is_owned::<Watch>();
    is_owned::<Collector>();
    is_owned::<Committer>();
    is_owned::<remote::RemoteStore>();
    is_owned::<remote::RemoteSnapshot>();
    is_owned::<remote::RemoteTransaction>();
    is_owned::<remote::RemoteEntries>();
    is_owned::<remote::RemoteChanges>();
};
