//! Versioned maps of byte strings: every held version can be read. They are the B-Tree (`tree`) and the hash
//! table (`hash`) of the CDDS paper, *Consistent and Durable Data Structures*.
//!
//! A structure defines how it finds its keys, and which of its nodes a change replaces (`structure.rs`).
//! Versions, snapshots, collection and commits are the same for all.
//!
//! # Media layout
//!
//! ```text
//! PmVersionedHead ──root──▶ the structure's nodes, which lead to PmVersionedRecord: key, value
//!   │ version, length
//!   ├──kept──▶ PmVersionedKept: a named snapshot (version, root, length) ──▶ the next one
//!   └──young, old──▶ PmVersionedChunk: blocks that left the newest version, with their versions
//! ```
//!
//! # Invariants
//!
//! * I1: no start, birth or death is later than the head's version, and births come before deaths.
//!   (`check_dead`; `check.rs` of each structure)
//! * I2: a version that is held has as many keys as its length says. (`check_version`)
//! * I3: a block is reachable exactly once: from the newest version (nodes, and records of live entries), or
//!   from the queues of dead blocks. A block in a queue was in the versions from its birth up to, but
//!   without, its death, and leaves the queue only when none of these is held. An item may stand for a whole
//!   subtree: a node with everything that it leads to in its last version, the one before its death. All of
//!   that was in this version and is in no later one. Such an item stays whole as long as a version is held
//!   that has all of it; otherwise it is taken apart step by step. (`reach_node`, `reach_record`,
//!   `check_queue`)
//! * I4: the contents of a held version never change. (`check` reads every named version.)
//! * I5: the target of a stored word is durable before the word is stored.
//!
//! `check.rs` proves I1 to I3, and I4 for named versions; the crash simulator tests I5, and
//! `tests/suite/versioned_concurrent.rs` tests I4 with a concurrent writer.
//!
//! # Commit point
//!
//! A version is one transaction of a lane. Its record has the changed words of old blocks, the dead blocks,
//! and the header's version word; its fence commits all of them. Many changes in one version share that
//! fence. New nodes and records lie in fresh blocks that the record covers.
//!
//! # Full pools
//!
//! A removal copies nodes and queues dead blocks, so it takes space before it frees some. A version that only
//! removes may use half of the kept space ([`KeptSpace`](tembo_pool::KeptSpace)), and collection all of it. A
//! full pool can therefore always free space. A change that finds no space is repeated after collection.
//!
//! # Recovery
//!
//! None of its own: the pool replays the redo record of the last version, or discards it; then everything is
//! as before. Opening reads the list of named snapshots. Versions without a name have ended; blocks that only
//! they needed are in the queues, and are freed as usual.
//!
//! # Concurrency
//!
//! There is one writer at a time, under the map's lock in memory; changes that wait for it are made together,
//! as one version (`group.rs`). Readers take no lock and never wait. A reader publishes its version in a slot
//! (`readers.rs`), and then loads `intent`, the number of the version under construction. The writer of
//! version W stores `intent` before it loads the slots, and spares all blocks that W - 1 and every published
//! version need. A reader that publishes V and then finds `intent` at most V + 1 is therefore safe: the
//! writer of V + 1 spares V in any case, and the writer of V + 2 will see the slot. Otherwise two versions
//! have been made meanwhile, and the reader takes the newest.
//!
//! A locked instruction waits for pending write-backs. Between a commit's fence and its next search a single
//! writer executes only those of the writer's lock: a single change stores `intent` and looks for snapshots
//! after its search, which reads the newest version only.
//!
//! A transaction of the caller may make a version too, together with versions of other maps (`tree/part.rs`).
//! It holds the map's lock from its first access to the map until it ends. A thread that waits for a map's
//! lock holds no lock that a writer of the map waits for: only one transaction at a time may take the locks
//! of several maps.
//!
//! The same order of stores allows a version to defer stamps that only a holder of the version before would
//! need, until it is known whether there is one (`deferred_stamps.rs`).
//!
//! A compaction makes versions whose nodes and records are copies (`compact.rs`).
//!
//! Version, root and length that readers use are in memory, and are stored after the commit's fence.
//!
//! # Source
//!
//! Venkataraman et al., *Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory*,
//! FAST 2011, section 3.
//!
//! * D1: the version word is part of a redo record and not flushed separately after the data. A version costs
//!   one fence instead of two or more, and recovery looks at the lanes instead of the whole structure. Nodes
//!   are still never logged as a whole: new ones are written once, in their final place.
//! * D2 to D4, of the tree, are in `tree/mod.rs`.
//! * D5: queues and not mark and sweep find dead blocks, so a step of collection costs the same in a map of
//!   any size.

mod builder;
mod bytes;
mod check;
mod checker;
mod collect;
mod compact;
mod deferred_stamps;
mod diff;
pub(crate) mod dropped;
mod edit;
mod entry;
mod group;
pub(crate) mod hash;
mod kept;
mod kept_list;
pub(crate) mod layout;
mod map;
mod moves;
mod node;
mod old_scan;
mod queue;
mod readers;
mod record_size_hint;
mod requests;
mod rollback;
mod shared;
mod snapshot;
mod structure;
pub(crate) mod tree;
mod value;
mod version;
mod view;

pub use bytes::VersionedBytes;
pub use check::VersionedReport;
pub use collect::VersionedStats;
pub use diff::VersionedChange;
pub use entry::VersionedEntry;
pub use group::VersionedBatch;
pub use hash::{HashStructure, VersionedHash, VersionedHashIter};
pub use kept_list::KeptVersion;
pub use map::VersionedMap;
pub use snapshot::{VersionedReader, VersionedSnapshot};
pub use structure::VersionedStructure;
pub use tree::{
    TreeStructure, VersionedCursor, VersionedPart, VersionedPinnedEntry, VersionedPinnedRange,
    VersionedRange, VersionedTree,
};
pub use value::VersionedValue;
