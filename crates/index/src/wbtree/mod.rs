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
//! its record; a byte of the key's hash stands in the leaf's first line. Which entries are live is said by
//! the low bits of one word, the leaf's *state*, together with a version. An inner node has up to 42
//! children and the sorted separators between them. Two things keep keys short in nodes, so that a search
//! compares words and not strings: `skip` bytes that a node's fences share are shared by all keys below it,
//! and separators are cut to the shortest that still separate. The rest is nearly always 8 bytes or less
//! and is kept in the node; longer separators have a block of their own. See `layout.rs` for the structs.
//!
//! # Invariants
//!
//! * I1: the keys below child `i` of an inner node are at least separator `i - 1` and less than separator
//!   `i`; separators ascend. All leaves are at level 0, and every inner node has 2 to 42 children.
//! * I2: a node's `skip` is at most what its fences share, its `base` at most what its separators share.
//! * I3: a live entry's prefix and fingerprint are those of its record's key; no key is in a leaf twice.
//! * I4: a record, a separator block, and all of an inner node but its children never change once they are
//!   published. Child words lead to nodes of the next level, the root word to the root and its level.
//! * I5: the target of a stored word is durable before the word is stored anywhere but in this
//!   transaction's own memory.
//! * I6: the sum of the lengths in the header is the number of live entries, and every block is reachable
//!   exactly once, from the tree or from the list of doomed trees.
//! * I7: where several threads write, words of a leaf are changed, and a leaf comes into the tree or leaves
//!   it, under that leaf's lock; child words, the root word and doomed trees are changed under the
//!   structure's lock; a part of the length under its own. All of these are held until the commit has
//!   returned.
//!
//! `check.rs` proves all but I5 and I7, which are properties of time; the crash simulator proves I5, and
//! `tests/concurrent.rs` I7.
//!
//! # Commit point
//!
//! Every operation is part of a [`Tx`]; its words are stored by one redo record, so that the record's fence
//! commits all of them. The words that an operation stores, in this order:
//!
//! * put, new key: the entry's prefix and record, the word with its fingerprint, the leaf's state; the
//!   length.
//! * put, key there: the entry's record. remove: the leaf's state; the length. A range: the same for each
//!   of its leaves.
//! * a leaf that is full, or sparse: new nodes in fresh blocks, then one child word or the root word.
//! * clear: four words, wherever the tree is large or small.
//!
//! # Recovery
//!
//! None of its own: the pool replays the record or it does not, and a block that no committed record
//! publishes is free. A cleared tree that was being freed stays in the list of doomed trees and is freed
//! further by later operations.
//!
//! # Concurrency
//!
//! Any number of readers. They take no lock and, but for scans, never wait. A reader holds a pin, so that
//! no block it may meet is reused. Nodes are replaced, not rewritten (I4): a reader with an old node sees
//! the tree as it was when that node was replaced, which was after the reader began. Only leaves change
//! under readers, and their state tells (`get.rs`, `scan.rs`). Writers store home words only after the
//! commit's fence, in the order given above, so that readers never see what a crash could take back.
//!
//! Writers share a [`Writers`]. While it has one lane, the holder of its turn is the only writer. So is a
//! transaction of the caller's own ([`Writers::begin`]), which waits for the turns of all lanes, in their
//! order. Otherwise changes of single records are concurrent (`concurrent.rs`), each on a lane and under
//! locks in memory (`locks.rs`):
//!
//! * In one leaf: a new value, a record in a free slot, a removal that leaves enough. The writer goes down
//!   like a reader, locks the leaf, and then makes sure that the way still leads there: by the *version*, a
//!   number that rises with every change of the structure while the leaves concerned are locked, or by
//!   going down again. A leaf that is locked neither leaves the tree nor has other fences. It holds this
//!   leaf and waits for no other.
//! * Everything else, with the lock of structures, which is one for all trees of a pool: a first leaf,
//!   divisions, joins, and the freeing of what was cleared. The writer also locks the leaves that it reads
//!   or replaces, before it looks at their states, and those that it makes, before anything leads to them:
//!   others may get there as soon as the child word is stored, which is before the commit has returned, and
//!   a record that covers a leaf that others change would not be found complete. Only this writer holds
//!   more than one leaf, so that there is no deadlock.
//!
//! Lanes want their words locked until the commit has returned (L3 in the pool's `lane.rs`), and so does
//! I7. Each lane counts in a part of the length that few others use, in a line of its own, because a line
//! that two lanes change makes the one wait until the other's stores are durable. Parts may be below zero:
//! a record that was put through one lane is removed through another.
//!
//! A walk meets leaf after leaf as each is when it comes there. A scan (`snapshot_scan.rs`) looks at all
//! its leaves and their records a second time, and starts again unless all are as they were; it also starts
//! again if a transaction of the caller's own was being committed by [`Writers::commit`], so that it finds
//! all of that or nothing, and waits for the commit that way. After some tries no writer begins before the
//! scan has ended.
//!
//! A slot that a transaction empties is not filled again in it: its old entry is live for readers until the
//! commit, and two changes of one slot would become one.
//!
//! # Source
//!
//! wB+-Tree: Chen and Jin, *Persistent B+-Trees in Non-Volatile Main Memory*, VLDB 2015, sections 4.2 to 4.6.
//!
//! * D1: no slot array. Its leaf is committed by one word as in the paper's slot-only leaf, but at 28 entries
//!   instead of 7: order is worked out when a walk or a division needs it, and a lookup needs none, because
//!   fingerprints single out the entry. Prefixes save the dereference that 4.6 pays for each comparison.
//! * D2: one redo record for all words of an operation instead of two or three ordered persists: one fence,
//!   and nothing is visible before it is durable.
//! * D3: divisions and inner nodes are copies beside the old ones, published by one pointer, instead of a
//!   redo log over nodes in place, so that readers need no locks. No sibling pointers: walks go by fences.
//! * D4: nodes are joined on removal; the paper leaves that open.

mod change;
mod check;
mod clear;
mod concurrent;
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
mod remove;
mod remove_range;
mod scan;
mod search;
mod separator;
mod snapshot_scan;
mod split;
#[cfg(test)]
mod tests;
mod unnamed;

pub use concurrent::ConcurrentWriter;
pub use create::WbTree;
pub use cursor::Cursor;
pub use get::PREFETCH_KEYS_MAX;
pub use scan::{Entry, Range, Value};
pub use snapshot_scan::OwnedRecord;

/// The writers of a pool's trees of byte strings ([`WbTree::concurrent`]).
pub type Writers = tembo_pool::Writers<locks::Locks>;
