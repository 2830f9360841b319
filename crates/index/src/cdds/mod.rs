//! The CDDS B-Tree: an ordered map of byte strings of which every version that somebody holds can be read.
//!
//! # Media layout
//!
//! ```text
//! PmCddsTree ──root──▶ PmCddsNode level 1 ──value──▶ PmCddsNode level 0 ──value──▶ PmCddsRecord: key, value
//!   │ version, length     28 x start, key, value, end    28 x start, key, value, end
//!   ├──kept──▶ PmCddsKept: a named snapshot (version, root, length) ──▶ the next one
//!   └──young, old──▶ PmCddsChunk: blocks that are in the newest version no more, with the versions they were in
//! ```
//!
//! An entry is in the versions from its *start* up to, not including, its *end*; a live one has no end. It has 8 bytes of its
//! key, after the bytes that all keys of the node share, and leads to a record or a child; a key and a value of up to 8
//! bytes each lie in the entry itself. Entries are in no order. A leaf has a byte of each key's hash in its first line. A node
//! has its *fences* behind its entries, the range of its keys, which never changes: what needs another range is a new
//! node. See `layout.rs` for the structs.
//!
//! # Invariants
//!
//! * I1: the entries of an inner node that are in a version of that node lead to nodes of the next level down whose ranges divide
//!   the node's own. All leaves are at level 0. (`check_children`)
//! * I2: no key is twice in a version, every key is in its leaf's range, and an entry's 8 bytes and hash are those of its key.
//!   (`check_leaf`)
//! * I3: no start or end is later than the tree's version, and starts come before ends. (`check_interval`)
//! * I4: a node of the newest version, other than the root, has more than a fifth of its entries live (`LIVE_MIN`): n keys take
//!   at most n / 6 leaves and a 6th of those at each level above. (`check_live`)
//! * I5: a block is reachable exactly once: from the newest version (nodes, and records of live entries), or from the
//!   queues of what died. A block in a queue was in versions from its birth up to its death, and comes off a queue only
//!   when none of these is held. (`check_queue`)
//! * I6: a node's `changed` is at least each start and end in it and below it. (`check_leaf`, `check_children`)
//! * I7: what is in a version that is held never changes: its entries' start, key and value words, its records, and whether
//!   the end is later than that version. An entry's place is used again only when no version that it is in is held, and all
//!   of a node but its entries, hashes and `changed` never changes. (`check_kept` reads every named version.)
//! * I8: what a stored word leads to is durable before the word is stored.
//!
//! `check.rs` proves I1 to I6, and I7 of what is on media; the crash simulator proves I8, and `tests/cdds_beside.rs` I7 beside a
//! writer.
//!
//! # Commit point
//!
//! A version is one transaction of a lane, whose record has the new and changed entries, what died, and the header's version
//! word, and whose fence commits all of it: many changes cost the same fence. New nodes and records lie in fresh blocks that the
//! record covers.
//!
//! # Recovery
//!
//! None of its own: the pool replays the record of the last version, or it does not, and then entries, marks of ends and the version
//! word are as before. What opening does is read the names of kept snapshots. Versions that nobody named are gone; what only they
//! needed stands in the queues, and comes off them as ever.
//!
//! # Concurrency
//!
//! One writer at a time, under the tree's lock in memory; changes that wait for it are made together, as one version
//! (`group.rs`). Readers take no lock and never wait. A reader publishes its version in a slot (`readers.rs`), and then looks at
//! `intent`, the version that is being made. The writer of version W stores `intent` before it looks at the slots, and spares what W - 1
//! and every published version need. So whoever publishes V and then finds `intent` at most V + 1 is safe: the writer of V + 1
//! spares V in any case, and the one of V + 2 will find the slot. Otherwise two versions have been made meanwhile, and the reader takes
//! the newest.
//!
//! A reader of V needs no second look at an entry: the writer fills a place in the order start, key, value, end, and the reader
//! loads the end before the start, so that a place that is being filled is in no version up to the writer's own, whichever mix of
//! words is met (`node.rs`). Version, root and length that readers use are in memory, and are stored after the
//! commit's fence.
//!
//! # Source
//!
//! Venkataraman et al., *Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory*, FAST 2011, sections
//! 3.2 and 3.3, algorithms 1 to 3.
//!
//! * D1: the version word is part of a lane's redo record instead of a second flush after the data: one fence per version instead of
//!   two or more, and recovery looks at the lanes instead of the whole tree. Nodes are still never logged as a whole: those of
//!   a split are written once, where they stay.
//! * D2: entries are unordered, and the one that takes the place of a dead one is written over it. The paper keeps them sorted,
//!   flushing each shift by itself; here a lookup compares hashes, or the 8 bytes.
//! * D3: a copy of an entry in a new node keeps its start, so that an entry's interval is that of the key's value. The old
//!   node is not marked: that its parent's entry ends says the same for all of its entries at once.
//! * D4: a node that has too few live entries, after a removal or when it would be copied, is rebuilt together with a neighbour
//!   as one or two nodes. The paper's merge into a sibling with room, and its copying of some of the sibling's entries, would
//!   change the range of a node that older versions read.
//! * D5: what is dead is found through queues and not by mark and sweep, so that a step of collection costs the same in any tree.

mod bytes;
mod check;
mod collect;
mod create;
mod diff;
mod draft;
mod group;
mod kept;
pub(crate) mod layout;
mod node;
mod queue;
mod readers;
mod restructure;
mod rollback;
mod scan;
mod snapshot;
mod view;
mod work;

pub use bytes::CddsBytes;
pub use collect::CddsStats;
pub use create::CddsTree;
pub use diff::CddsChange;
pub use group::CddsBatch;
pub use kept::CddsKept;
pub use scan::{CddsEntry, CddsRange};
pub use snapshot::{CddsReader, CddsSnapshot};
