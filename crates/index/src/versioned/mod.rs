//! Maps of byte strings of which every version that somebody holds can be read: the CDDS B-Tree (`tree`) and hash
//! table (`hash`).
//!
//! What a structure brings along is how it finds its keys, and what of it a change replaces (`structure.rs`). Versions,
//! snapshots, collection and commits are the same for all.
//!
//! # Media layout
//!
//! ```text
//! PmCddsHead ──root──▶ the structure's nodes, which lead to PmCddsRecord: key, value
//!   │ version, length
//!   ├──kept──▶ PmCddsKept: a named snapshot (version, root, length) ──▶ the next one
//!   └──young, old──▶ PmCddsChunk: blocks that are in the newest version no more, with the versions they were in
//! ```
//!
//! # Invariants
//!
//! * I1: no start, birth or death is later than the head's version, and births come before deaths. (`check_dead`; `check.rs` of each
//!   structure)
//! * I2: a version that is held has as many keys as its length says. (`check_version`)
//! * I3: a block is reachable exactly once: from the newest version (nodes, and records of live entries), or from the
//!   queues of what died. A block in a queue was in versions from its birth up to its death, and comes off a queue only
//!   when none of these is held. An item may stand for a node with all that it leads to in the last version that it was in, the one
//!   before its death: all of that was in this version and is in no later one. Such an item stays one as long as a version is
//!   held that has all of it, and otherwise comes apart step by step. (`reach_node`, `reach_record`, `check_queue`)
//! * I4: what is in a version that is held never changes. (`check` reads every named version.)
//! * I5: what a stored word leads to is durable before the word is stored.
//!
//! `check.rs` proves I1 to I3, and I4 of what is on media; the crash simulator proves I5, and `tests/versioned_concurrent.rs` I4 beside a
//! writer.
//!
//! # Commit point
//!
//! A version is one transaction of a lane, whose record has what changes of old blocks, what died, and the header's version
//! word, and whose fence commits all of it: many changes cost the same fence. New nodes and records lie in fresh blocks that the
//! record covers.
//!
//! # Full pools
//!
//! A removal copies nodes and puts what died into a queue, so that it takes space before it gives some back. A version that only removes may
//! use half of the space that the pool keeps for such ([`KeptSpace`](tembo_pool::KeptSpace)), and collection all of it: so what was removed while a snapshot
//! held it does not stand in the way of giving it back. A change that finds no space is made again when what is dead was collected.
//!
//! # Recovery
//!
//! None of its own: the pool replays the record of the last version, or it does not, and then everything is as before. What
//! opening does is read the names of kept snapshots. Versions that nobody named are gone; what only they
//! needed stands in the queues, and comes off them as ever.
//!
//! # Concurrency
//!
//! One writer at a time, under the map's lock in memory; changes that wait for it are made together, as one version
//! (`group.rs`). Readers take no lock and never wait. A reader publishes its version in a slot (`readers.rs`), and then looks at
//! `intent`, the version that is being made. The writer of version W stores `intent` before it looks at the slots, and spares what W - 1
//! and every published version need. So whoever publishes V and then finds `intent` at most V + 1 is safe: the writer of V + 1
//! spares V in any case, and the one of V + 2 will find the slot. Otherwise two versions have been made meanwhile, and the reader takes
//! the newest.
//!
//! Between the fence of a version and the search for where the next change goes there is no locked instruction, which would wait for that fence, as
//! long as one thread makes all changes: the writer's lock has a bias, what is empty mostly is looked at without its lock (`mostly_empty.rs`), and `intent` is stored when
//! the search of a single change is over, which reads the newest version only.
//!
//! A transaction of others may make a version, too, beside versions of other maps (`tree/part.rs`): it holds the lock from
//! its first look at the map until it has ended. Whoever waits for a map's lock holds none that a writer of the map waits for; a
//! transaction that takes several has to be the only one that does so at a time.
//!
//! The same order of stores lets a version leave out what only who holds the one before it would need, until it is known whether
//! anybody does (`deferred_stamps.rs`).
//!
//! Version, root and length that readers use are in memory, and are stored after the commit's fence.
//!
//! # Source
//!
//! Venkataraman et al., *Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory*, FAST 2011, section 3.
//!
//! * D1: the version word is part of a lane's redo record instead of a second flush after the data: one fence per version instead of
//!   two or more, and recovery looks at the lanes instead of the whole structure. Nodes are still never logged as a whole: new ones
//!   are written once, where they stay.
//! * D5: what is dead is found through queues and not by mark and sweep, so that a step of collection costs the same however much
//!   there is.

mod builder;
mod bytes;
mod check;
mod checker;
mod collect;
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
mod mostly_empty;
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
