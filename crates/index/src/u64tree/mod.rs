//! The tree of 8-byte keys: it maps them to 8-byte values, for many concurrent writers and readers.
//!
//! # Media layout
//!
//! A header, inner nodes and leaves (`layout.rs`). A leaf has a line that says which keys belong to it, and
//! 31 lines of four records. A record's key is stored as its complement. A slot counts if that word is higher
//! than the leaf's `floor`, the complement of the first key that belongs to the next leaf. Zero is thus an
//! unused slot, zeroed memory is an empty leaf, and raising `floor` removes all records of higher keys at
//! once. The largest key, whose complement is zero, has a line of its own in the header. Inner nodes hold
//! separators and children in no order.
//!
//! For nodes that were visited since the pool was opened, DRAM has sorted images of inner nodes (`inner.rs`)
//! and descriptors of leaves (`node.rs`): version, fingerprints, and, once a scan needs it, the order of the
//! slots. None of it has to be rebuilt at opening. A node that DRAM does not have is *cold*.
//!
//! # Invariants
//!
//! * I1: every key in [0, 2^64-1) belongs to exactly one leaf, the one to which the separators lead from the
//!   root. Its `low` is the last separator on that path, and the complement of its `floor` is the `low` of
//!   the next leaf.
//! * I2: a key is in at most one slot that counts.
//! * I3: a slot's value is stored before its key, in the same line, so that no crash shows the key without
//!   the value.
//! * I4: nothing is visible to other threads before it is durable, except a change in a slot that the
//!   leaf's version names; a reader whose answer depends on it makes it durable first (`lock.rs`).
//! * I5: key and value words of slots are changed directly, all other words by redo records only, and no redo
//!   record covers a leaf. Therefore no replay undoes a direct change.
//!
//! # Commit point
//!
//! Inserting: the store of the key word, after that of the value, both in one line: one flush, one fence.
//! Updating: the store of the value word. Removing: the store of zero to the key word. Divisions
//! (`divide.rs`) and joins (`structure.rs`): a redo record; the contents of a new leaf are flushed and fenced
//! before it. A division moves the upper third of a leaf.
//!
//! # Recovery
//!
//! None of its own. The pool replays the record of a division or a join, or not.
//!
//! # Concurrency
//!
//! A change of a record searches under a version, as readers do, and then locks the leaf if it still has that
//! version (`lock.rs`). Otherwise, or if there is more to do, it locks the leaf first. While one thread makes
//! all changes, it uses no locked instruction. The first change of a second thread waits for the change that
//! the first thread is making, in whatever leaf. From then on writers wait for each other at one leaf only.
//! Changes of the structure are made one at a time, under one lock, and lock the leaves that they divide or
//! join. Threads that divide leaves below inner nodes with room share that lock, however, so that the first
//! part of their search runs at the same time. Each locks the inner node (`divide.rs`) and then the tree's
//! lane. The order of locks: the structure, the inner node, the lane, leaves. Lookups wait for no lock and
//! for no writer, even a stopped one: they read under a version, and follow the link to the right neighbour
//! when a leaf was divided meanwhile. If the image above has room, it takes a new leaf in place, while
//! readers search it
//! (`group.rs`); a joined leaf is taken out in the same way. Otherwise the image is exchanged for another.
//! A compaction moves nodes under the lock of structure changes (`compact.rs`).
//! The first thread that gets the lock of structure changes makes a cold leaf known; a reader that does not
//! get it reads media. A scan reads leaf by leaf and then checks that none of them changed meanwhile. After
//! some failed tries it takes the lock of structure changes and locks its leaves, and only then waits for
//! writers. For a leaf that it read from media it checks that the leaf is still cold: a writer makes a leaf
//! known before it changes it.
//!
//! # Source
//!
//! wB+-Tree 4.2 to 4.4: unsorted leaves, a slot array for order, commits by one atomic write. D1: key and
//! value share a line, within which stores reach media in program order, so a change costs one line and one
//! fence instead of two or three. D2: the slot array is in DRAM, and made when a scan needs it. D3: the floor
//! of the leaf, not a bitmap, tells dead entries. D4: joins (the paper stops before them). Links to the
//! right, and following them: Lehman and Yao's B-link trees.

mod check;
mod compact;
mod create;
mod divide;
#[cfg(feature = "research")]
mod dram_access;
pub(crate) mod dropped;
mod edit;
mod fingerprints;
mod garbage;
mod get;
mod group;
mod inner;
pub(crate) mod layout;
mod lock;
mod node;
mod range;
mod scan;
mod structure;
mod sync;
#[cfg(test)]
mod tests;

pub use compact::U64CompactionStep;
pub use create::U64Tree;
#[cfg(feature = "research")]
pub use dram_access::DramAccess;
pub use range::U64Range;
pub use scan::Records;
