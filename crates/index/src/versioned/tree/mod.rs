//! The CDDS B-Tree: an ordered map of byte strings. Every version that somebody holds can be read.
//!
//! The essay of `versioned/mod.rs` holds for it, and this one.
//!
//! # Media layout
//!
//! ```text
//! PmCddsHead ──root──▶ PmCddsNode level 1 ──value──▶ PmCddsNode level 0 ──value──▶ PmCddsRecord: key, value
//!                        28 x start, key, value, end    28 x start, key, value, end
//!                        28 x stamp
//! ```
//!
//! An entry is in the versions from its *start* up to, not including, its *end*; a live one has no end. It
//! has 8 bytes of its key, after the bytes that all keys of the node share, and leads to a record or a
//! child; a key and a value of up to 8 bytes each lie in the entry itself. Entries are in no order. A leaf
//! has a byte of each key's hash in its first line. In an inner node each entry has a *stamp*: when
//! something changed in its child or below it last, for the comparison of two versions. A node has its
//! *fences* behind all that, the range of its keys, which never changes: what needs another range is a new
//! node. See `layout.rs` for the structs.
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
//! * I10: let e and v be versions that are held, e the earlier one, and let an entry of an inner node of v
//!   lead to a child that e has as well. If something in the child or below it began or ended after e and
//!   up to v, the entry's stamp in that node is later than e. If nobody held e when the version after it
//!   was begun, that may be true of that version's stamps only when they are no longer deferred
//!   (`deferred_stamps.rs`). (`check_stamp` for the versions that have names, and the newest)
//!
//! So a comparison of e with v passes over a child that both lead to if its stamp in the node of v is e or
//! earlier, and does not open it. Nothing is said of e that are not held: a stamp is raised only where a
//! held version needs it, so that without snapshots no stamp is ever stored, and with one only the first
//! change below an entry stores its stamp. A copy of an entry takes its stamp along. The entry that takes
//! the place of another need not raise its stamp: what is below its new child began with the child, which
//! no e has.
//!
//! I4 says of a tree: the start, key and value words of an entry that is in a held version never change,
//! nor does whether its end is later than that version. An entry's place is used again only when no version
//! that it is in is held, and all of a node but its entries, hashes and stamps never changes.
//!
//! # Commit point
//!
//! That of all versions. The record has the new and changed entries of nodes that were there before; new
//! nodes lie in fresh blocks.
//!
//! # Recovery
//!
//! None of its own: the pool replays the record of the last version, or it does not, and then entries,
//! marks of ends and the version word are as before.
//!
//! # Concurrency
//!
//! A reader of V needs no second look at an entry: the writer fills a place in the order start, key, value,
//! end, and the reader loads the end before the start, so that a place that is being filled is in no
//! version up to the writer's own, whichever mix of words is met (`node.rs`).
//!
//! # Source
//!
//! Venkataraman et al., *Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory*,
//! FAST 2011, sections 3.2 and 3.3, algorithms 1 to 3. D1 and D5 are in `versioned/mod.rs`.
//!
//! * D2: entries are unordered, and the one that takes the place of a dead one is written over it. The
//!   paper keeps them sorted, flushing each shift by itself; here a lookup compares hashes, or the 8 bytes.
//! * D3: a copy of an entry in a new node keeps its start, so that an entry's interval is that of the key's
//!   value. The old node is not marked: that its parent's entry ends says the same for all of its entries
//!   at once.
//! * D4: a node that has too few live entries, after a removal or when it would be copied, is rebuilt
//!   together with a neighbour as one or two nodes. The paper's merge into a sibling with room, and its
//!   copying of some of the sibling's entries, would change the range of a node that older versions read.

mod check;
mod clear;
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

/// An ordered map from byte strings to byte strings, of which every version that is held by a snapshot can
/// be read.
///
/// Every change is durable when the call returns, is a version of its own, and costs one fence; changes in
/// a [`batch`](Self::batch) are one version together, and so are those of threads that change the map at
/// once. Readers never wait.
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
