//! The allocator: blocks that are reserved in DRAM and published by a record.
//!
//! # Media layout
//!
//! Space is divided into zones, zones into chunks. A zone begins with its frontier and its chunk table, a
//! word per chunk: zero, a slab, a later chunk of a slab, or an extent. A slab is one to sixteen chunks of
//! equal blocks without headers, with an allocation bitmap at its start; larger blocks are extents, whole
//! chunks. One class has *tagged lines*: four lines and, before them, a line with the tags of all four, two
//! words each, form a group. Groups begin at multiples of their length, so that a line's offset tells where
//! its tag lies. See `layout.rs` for the structs.
//!
//! # Invariants
//!
//! * I1: a block is allocated exactly if its bitmap bit is set, or its extent is named in the chunk table.
//! * I2: slabs and extents lie below their zone's frontier and do not overlap; the chunk words inside an
//!   extent, and from the frontier on, are zero.
//! * I3: no bitmap bit stands past the slab's last block.
//! * I4: allocated = reachable, after every crash. (Checked with [`Marks`](crate::Marks) by the owners of
//!   the structures.)
//! * I5: the tag of a line is memory of its block, and of no other.
//! * I7: chunks from `zero_from` on read as zero on media: that word is raised, durably, before one of them
//!   is handed out.
//!
//! `check.rs` walks I1 to I3, and the part of I7 that `zero_from` is past all chunks that were handed
//! out; it does not read unused space.
//!
//! # Commit point
//!
//! Reserving a block changes DRAM only. The record that links the block also sets its bit (or names its
//! extent, or a new slab), so allocation adds no fence, and one line. Freeing clears the bit the same way.
//!
//! # The last of the space
//!
//! Some chunks are kept for transactions that free something
//! ([`Tx::use_kept_space`](crate::Tx::use_kept_space)), which may need a block for that: a copy of a node, an
//! entry of a queue, a record that a lane has no room for. All others find the pool full, or make it longer,
//! when no more than these are left. The reserve exists in DRAM only, as a count of free chunks, and has no
//! trace on media.
//!
//! # Recovery
//!
//! Nothing is done here: a record is replayed or it is not. A block whose reservation was never committed is
//! free on media. Zones are scanned, and slabs read, when the first allocation needs them, so opening does
//! not depend on the size of the pool. The number of the zone that new chunks were last taken from is stored,
//! without care for its durability, so that the first allocation does not have to look at all zones.
//!
//! # Concurrency
//!
//! A lane allocates from slabs that it alone holds; the bits in DRAM are atomic, because others may free into
//! them. A lane that frees a block finds its slab in a table, without a lock (`table.rs`). One lock guards
//! chunks and the lists of partial slabs; it is taken once per slab. Two lanes can have changes of the same
//! media word in flight only as bit operations and maxima, which commute.
//!
//! Freed blocks wait in the lane's limbo (`log/limbo.rs`) until no reader and no live record can touch them.
//!
//! # Source
//!
//! NV-heaps 3.3 (operation descriptors for allocation, per-thread caches). D1: bitmaps instead of free
//! lists, so that allocation is one idempotent bit in the caller's record instead of a descriptor with
//! barriers of its own. D2: nothing is rebuilt at open.

pub(crate) mod allocator;
mod arena;
mod block;
pub(crate) mod check;
mod chunks;
pub(crate) mod classes;
mod evacuation;
mod primitives;
pub(crate) mod slab;
mod sparse;
mod table;
mod tail;
pub(crate) mod zone;

pub(crate) use allocator::{Allocator, SlabPlace};
pub(crate) use arena::Arena;
pub(crate) use block::{Block, Home, Room, Wanted};
pub(crate) use chunks::full;
pub(crate) use sparse::CloseLimits;
pub(crate) use tail::CutRule;

#[cfg(test)]
pub(crate) use evacuation::{Tally, Unit, What};
