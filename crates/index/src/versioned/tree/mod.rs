//! The CDDS B-Tree: an ordered map of byte strings. Every held version can be read.
//!
//! The head of `versioned/mod.rs` applies as well.
//!
//! # Media layout
//!
//! ```text
//! PmVersionedHead ─root─▶ PmVersionedNode ────────value─▶ PmVersionedNode ────────value─▶ PmVersionedRecord
//!                         level 1                        level 0                        key, value
//!                         28 x start, key, value, end    28 x start, key, value, end
//!                         28 x stamp
//! ```
//!
//! An entry is in the versions from its *start* up to, but without, its *end*; a live one has no end. It has
//! 8 bytes of its key, after the bytes that all keys of the node share, and leads to a record or a child; a
//! key and a value of up to 8 bytes each lie in the entry itself. Entries are in no order. A leaf has a byte
//! of each key's hash in its first line. In an inner node each entry has a *stamp*, the last version that
//! changed something in its child or below it; comparisons of two versions use it. Behind all that a node has
//! its *fences*, the range of its keys. The range never changes: another range needs a new node. See
//! `layout.rs` for the structs.
//!
//! # Invariants
//!
//! I1 to I5 of `versioned/mod.rs`, and:
//!
//! * I6: the entries of an inner node that are in a version of that node lead to nodes of the next level
//!   down whose ranges divide the node's own. All leaves are at level 0. (`check_children`)
//! * I7: no key is twice in a version, every key is in its leaf's range, and an entry's 8 bytes and hash
//!   are those of its key. (`check_leaf`)
//! * I8: starts come before ends. (`check_interval`)
//! * I9: a node of the newest version, other than the root, has more than a fifth of its entries live
//!   (`LIVE_MIN`): n keys take at most n / 6 leaves and a 6th of those at each level above. (`check_live`)
//! * I10: let e and v be held versions, e the earlier one, and let an entry of an inner node of v lead to a
//!   child that e has as well. If an entry in the child or below it began or ended after e and up to v, the
//!   stamp of the entry in that node is later than e. Exception: if e was not held when version e + 1 was
//!   begun, the stamps of e + 1 may still be deferred (`deferred_stamps.rs`). (`check_stamp`, for named
//!   versions and the newest)
//!
//! A comparison of e with v therefore skips, without opening it, a child that both lead to if its stamp in
//! the node of v is e or earlier. I10 is about held versions only. A stamp is raised only if a held version
//! needs it: without snapshots no stamp is ever stored, and with one snapshot only the first change below an
//! entry stores its stamp. A copy of an entry takes its stamp along. An entry that replaces another need not
//! raise the stamp: its child is new, and so is everything below, so that no e has that child.
//!
//! For a tree, I4 means this: the start, key and value words of an entry in a held version never change, and
//! its end stays later than that version. An entry's place is reused only when no version that has the entry
//! is held. A node never changes except for its entries, hashes and stamps.
//!
//! # Commit point
//!
//! As for all versions. The redo record has the new and changed entries of nodes that were there before; new
//! nodes lie in fresh blocks.
//!
//! # Recovery
//!
//! None of its own: the pool replays the redo record of the last version, or discards it; then entries, ends
//! and the version word are as before.
//!
//! # Concurrency
//!
//! A reader of V need not check an entry twice. The writer fills a place in the order start, key, value, end,
//! and the reader loads the end before the start: whatever mix of old and new words the reader sees, a place
//! that is being filled is in no version before the writer's own (`node.rs`).
//!
//! # Source
//!
//! Venkataraman et al., *Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory*,
//! FAST 2011, sections 3.2 and 3.3, algorithms 1 to 3. D1 and D5 are in `versioned/mod.rs`.
//!
//! * D2: entries are unordered, and a new one may overwrite a dead one. The paper keeps them sorted and
//!   flushes each shift; here a lookup compares hashes, or the 8 bytes.
//! * D3: a copy of an entry in a new node keeps its start, so an entry's interval is that of the key's value.
//!   The entries of the old node are not ended: the end of its parent's entry stands for all of them.
//! * D4: a node that has too few live entries, after a removal or when it would be copied, is rebuilt
//!   together with a neighbour as one or two nodes. The paper's merge into a sibling with room, and its
//!   copying of some of the sibling's entries, would change the range of a node that older versions read.

mod check;
mod clear;
mod compact;
mod cursor;
mod diff;
mod draft;
mod drafts;
mod edit;
mod in_place;
pub(crate) mod layout;
mod lookup;
mod node;
mod ordered;
mod part;
mod path;
mod pinned;
mod range;
mod restructure;
mod scan;
mod stamps;
mod structure;
mod undo;

pub use cursor::VersionedCursor;
pub use ordered::TreeStructure;
pub use part::VersionedPart;
pub use pinned::{VersionedPinnedEntry, VersionedPinnedRange};
pub use scan::VersionedRange;

use super::map::VersionedMap;

/// An ordered map from byte strings to byte strings. Every version that a snapshot holds can be read.
///
/// Every change is durable when the call returns, makes a version, and costs one fence. The changes of a
/// [`batch`](Self::batch) make one version together, and so may concurrent changes of several threads.
/// Readers never wait.
///
/// ```
/// # fn main() -> Result<(), tembo_index::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("example.pool");
/// use tembo_index::VersionedTree;
/// use tembo_pool::{Options, Pool};
///
/// let mut options = Options::new();
/// options.create = true;
/// let pool = Pool::open(&path, &options)?;
/// let stock = VersionedTree::create(&pool, "stock")?;
/// stock.put(b"apples", b"7")?;
/// let monday = stock.snapshot();
/// stock.batch(|batch| {
///     batch.put(b"apples", b"5")?;
///     batch.put(b"pears", b"12")
/// })?;
/// assert_eq!(stock.get(b"apples")?.as_deref(), Some(&b"5"[..]));
/// assert_eq!(monday.get(b"apples")?.as_deref(), Some(&b"7"[..]));
/// assert_eq!(stock.diff(monday.version(), stock.snapshot().version())?.len(), 2);
/// stock.rollback_to(monday.version())?;
/// assert_eq!(stock.get(b"pears")?, None);
/// # Ok(())
/// # }
/// ```
pub type VersionedTree = VersionedMap<TreeStructure>;
