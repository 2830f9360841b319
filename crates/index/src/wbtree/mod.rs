//! The wB+-Tree for byte strings: an ordered map whose only copy lies in the pool.
//!
//! # Media layout
//!
//! ```text
//! PmMap ──root──▶ PmInner level 2 ──child──▶ PmInner level 1 ──child──▶ PmLeaf ──record──▶ key, value
//!   │  lengths      sorted prefixes            …                          state  (28 bits, version)
//!   └──doomed──▶ trees being freed             PmSeparator (long ones)    28 fingerprints, prefixes, records
//! ```
//!
//! A leaf has up to 28 entries in no order. An entry is 8 bytes of its key, the *prefix*, and the offset of
//! its record; a byte of the key's hash stands in the leaf's first line. One word, the leaf's *state*, has a
//! bit for each entry that says whether it is live, and a version. An inner node has up to 42 children and
//! the sorted separators between them. Two things keep keys short in nodes, so that a search compares words
//! and not strings: nodes leave out the `skip` bytes that their fences, and hence all their keys, share; and
//! separators are cut to the shortest strings that still separate. The rest is nearly always 8 bytes or less
//! and lies in the node; longer separators have a block of their own. See `layout.rs` for the structs.
//!
//! # Invariants
//!
//! * I1: the keys below child `i` of an inner node are at least separator `i - 1` and less than separator
//!   `i`; separators ascend. All leaves are at level 0, and every inner node has 2 to 42 children.
//! * I2: a node's `skip` is at most what its fences share, its `base` at most what its separators share.
//! * I3: a live entry's prefix and fingerprint are those of its record's key; no key is in a leaf twice.
//! * I4: once published, a record and a separator block never change, and of an inner node only its child
//!   words and its tally do. Child words lead to nodes of the next level, and the root word to the root and
//!   its level. One exception (`unnamed.rs`): the owner of an unnamed tree may change words of a value in
//!   place.
//! * I5: the target of a stored word is durable before the word is stored, except in the transaction's own
//!   blocks.
//! * I6: the sum of the lengths in the header is the number of live entries, and every block is reachable
//!   exactly once, from the tree or from the list of doomed trees.
//! * I7: with several writers, a leaf's words change, and a leaf enters or leaves the tree, only under that
//!   leaf's lock; child words, the root word and doomed trees change only under the structure's lock; a part
//!   of the length only under its own. All of these locks are held until the commit has returned.
//! * I8: tallies of trees that count are sums; see `counting.rs`.
//!
//! `check.rs` proves all but I5 and I7, which are about order in time; the crash simulator tests I5, and
//! `tests/suite/concurrent.rs` tests I7.
//!
//! # Commit point
//!
//! Every operation is part of a [`Tx`]; its words are stored by one redo record, so that the record's fence
//! commits all of them. The words that an operation stores, in this order:
//!
//! * put, new key: the entry's prefix and record, the word with its fingerprint, the leaf's state; the
//!   length.
//! * put, present key: the entry's record. remove: the leaf's state; the length. Removing a range: the same
//!   for each of its leaves.
//! * puts of neighbours (`run.rs`): as for single puts, with the leaf's state and fingerprints, the length
//!   and the tallies once for all of them.
//! * a leaf that is full, or sparse: new nodes in fresh blocks, then one child word or the root word.
//! * clear: four words, whatever the size of the tree.
//! * a tree that counts: before all these, the tally of each inner node on the way to the record.
//!
//! # Recovery
//!
//! None of its own: the pool replays the redo record or discards it, and a block that no committed record
//! publishes is free. A cleared tree that was being freed stays in the list of doomed trees, and later
//! operations go on freeing it.
//!
//! # Concurrency
//!
//! There may be any number of readers. They take no lock and, except for scans, never wait. A reader holds a
//! pin, so no block that it may reach is reused. Nodes are replaced, not rewritten (I4): a reader in an old
//! node sees the tree as it was when that node was replaced, which was after the reader began. Only leaves
//! change under readers, and their state shows it (`get.rs`, `scan.rs`). Writers store home words only after
//! the commit's fence, in the order given above, so readers never see a change that a crash could undo.
//!
//! Writers share a [`Writers`]. While it has one lane, the holder of its turn is the only writer. A
//! transaction of the caller ([`Writers::begin`]) is also the only writer: it waits for the turns of all
//! lanes, in their order. Otherwise changes of single records are concurrent (`concurrent.rs`), each on a
//! lane and under locks in memory (`locks.rs`):
//!
//! * In one leaf: a new value, a record in a free slot, a removal that leaves enough entries. The writer
//!   descends like a reader, locks the leaf, and then checks that the path still leads there: by the
//!   *version*, a number that rises with every change of the structure while the leaves concerned are locked,
//!   or by descending again. A locked leaf neither leaves the tree nor changes its fences. The writer holds
//!   this leaf and waits for no other.
//! * With the structure's lock, of which there is one for all trees of a pool: everything else, that is a
//!   first leaf, divisions, joins, and freeing cleared trees. The writer also locks the leaves that it reads
//!   or replaces, before it loads their states, and those that it makes, before anything leads to them. Other
//!   writers can reach a new leaf as soon as the child word is stored, which is before the commit has
//!   returned; a redo record that covers a leaf which others change would not be found complete. Only this
//!   writer holds more than one leaf, so there is no deadlock.
//!
//! Words stay locked until the commit has returned, as L3 of the pool's log and I7 require. Each lane counts
//! in a part of the length that few other lanes use, in a line of its own: if two lanes change one line, each
//! waits until the other's stores are durable. A part may be below zero, because a record that was put
//! through one lane may be removed through another.
//!
//! A walk sees each leaf as it is when the walk arrives there. A scan (`snapshot_scan.rs`) checks all its
//! leaves and their records a second time, and starts again unless all are unchanged. It also starts again if
//! [`Writers::commit`] was committing a caller's transaction: it waits for the commit in this way, and sees
//! all of the transaction or nothing. After some tries no writer begins before the scan has ended.
//!
//! A transaction does not refill a slot that it has emptied: the old entry is live for readers until the
//! commit, and the two changes of the slot would become one.
//!
//! # Source
//!
//! wB+-Tree: Chen and Jin, *Persistent B+-Trees in Non-Volatile Main Memory*, VLDB 2015, sections 4.2 to 4.6.
//!
//! * D1: no slot array. One word commits a leaf, as in the paper's slot-only leaf, but for 28 entries instead
//!   of 7. The order is computed when a walk or a division needs it; a lookup needs none, because
//!   fingerprints single out the entry. Prefixes save the dereference that 4.6 pays for each comparison.
//! * D2: one redo record for all words of an operation instead of two or three ordered persists: one fence,
//!   and nothing is visible before it is durable.
//! * D3: divisions and changes of inner nodes make copies and publish them by one pointer, instead of a redo
//!   log over nodes in place; readers therefore need no locks. There are no sibling pointers: walks go by
//!   fences.
//! * D4: nodes are joined on removal; the paper leaves joins open.

mod change;
mod check;
mod clear;
mod compact;
mod concurrent;
mod counting;
mod create;
mod cursor;
mod edit;
mod get;
mod insert;
mod items;
mod join;
pub(crate) mod layout;
mod length;
mod locks;
mod modify;
pub(crate) mod node;
mod pending_walk;
mod remove;
mod remove_range;
mod run;
mod scan;
mod search;
mod separator;
mod snapshot_scan;
mod split;
mod sums;
#[cfg(test)]
mod tests;
mod unnamed;

pub use compact::CompactionStep;
pub use concurrent::ConcurrentWriter;
pub use counting::Ranked;
pub use create::WbTree;
pub use cursor::Cursor;
pub use get::{NearRecord, PREFETCH_KEYS_MAX};
pub use locks::Locks as WriterLocks;
pub use scan::{Entry, Range, Value};
pub use snapshot_scan::OwnedRecord;
pub use sums::{Counting, WEIGHT_BYTES};
pub use unnamed::{InsertHeld, InsertHint, KeyPlace};

/// The writers of a pool's trees of byte strings ([`WbTree::concurrent`]).
pub type Writers = tembo_pool::Writers<locks::Locks>;
