//! The redo log: lanes, their records, and the rules that make stale records harmless.
//!
//! # Media layout
//!
//! A lane is a line (`PmLane`) and two *halves*. Records lie one after another in a half, each from the start
//! of a line. When the half is full, or enough home lines or freed bytes have gathered, the next record
//! *switches* to the start of the other half, unless this half has only one record (L6).
//!
//! A record is its head (`PmRecord`), its entries (`PmEntry`: one change of one word each), its covers (a
//! word each: the place and length of new data that the record links) and a checksum of the covered data. A
//! payload too long for a half, or for the rest of a half with only one record, is *chained*: it lies in pool
//! space that is reserved in DRAM only, and is therefore free after a crash. A chained record is the first or
//! the second of its half, so a lane needs at most four chain blocks. If the pool has no space for one but
//! the payload fits into a new half, an empty record is added to the half that has only one, so that the next
//! record can switch. A record that frees something may take the kept space (`alloc/mod.rs`).
//!
//! After the last record of a half there may be remains of earlier, longer ones. None of them is taken for a
//! record: a head has a mark that no other line of a record can have (`HEAD_MARK`), and older heads have
//! lower numbers.
//!
//! # Invariants
//!
//! A record is *live* from its commit until the second commit in the half that was switched to after it, or
//! until the lane's `retired` word or the pool's watermark passes it. Recovery replays live records only.
//!
//! * L1: the home words of a live record are changed by records only, never directly.
//! * L2: memory that a live record changes or covers is not handed out again. Freed blocks wait in the lane's
//!   limbo until the record that freed them is dead and no reader is left. Then other lanes that may have a
//!   live record for one of their lines are checkpointed. Such a record exists if a transaction of that lane
//!   began, pinned, before the block was freed, and committed afterwards.
//! * L3: when a record changes a word, any other lane's live record for that word is older, and has been
//!   retired before this record's commit is over. So no replay puts an old value over a newer one.
//! * L4: a record never changes bytes that it covers itself: memory allocated in a transaction is written
//!   directly until the commit, the bitmap of a new slab and the tag of a line included.
//! * L5: a block allocated and freed in one transaction is not in its record at all. Its reuse could
//!   otherwise invalidate that record while its home stores are not durable.
//! * L6: a record is written over only when it is dead and recovery can tell so. Recovery may find the first
//!   record of a half complete although its fence, which makes the homes of the other half durable, was not
//!   reached. The second record is begun only after that fence. A half therefore gets at least two records;
//!   while it has only one, the other half stays live and is not written over.
//! * I6: the sequence number of any record is at most the watermark, or the record is live.
//!
//! The line owners (`line_owners.rs`) keep L3 once more than one lane is in use. They tell which lane last
//! changed, covered or freed a line, and in which commit. Before a commit, other lanes that own one of its
//! lines and may still have live records are *checkpointed*: their home lines are made durable and their
//! records retired. After the commit, the committing lane is registered as owner of its lines.
//!
//! # Commit point
//!
//! New data, head, entries and covers are flushed together, and one fence follows (`commit.rs`). The record
//! is complete if both checksums match, so the fence is the commit. Only then are the home words stored, so
//! that other threads see nothing that a crash could take back. The home lines of a half's records are
//! flushed, each once, with the record that switches to the other half, under its fence; until then the
//! records stand for them. (Flushing them at once cost as much as a second fence. Flushing them with every
//! next record made the processor wait for lines that had just been written back.)
//!
//! # Recovery
//!
//! See `recover.rs`.
//!
//! # Concurrency
//!
//! A lane has one writer at a time, and lanes commit concurrently. They share no lock.
//!
//! | lock or word | guards | holder | order |
//! |---|---|---|---|
//! | a lane's `in_use` | its writer's role | a `Lane`, until its drop | taken without waiting |
//! | a lane's state | tail, home lines, limbo | its writer, others in a checkpoint | one at a time |
//! | the line owners' `complete` | turning them on | who takes the second lane | before the lanes' states |
//! | a line's owner words | atomics | its lane after a commit | see `line_owners.rs` |
//! | the structure's locks | the home words | the caller, beyond the commit | before all of these |
//!
//! The lane's state has a lock only because other lanes may checkpoint it. It is a spin lock, because a plain
//! store releases that. The allocator's lock (`alloc/allocator.rs`) follows a lane's state in the order:
//! under it no lane is locked.
//!
//! # Source
//!
//! NV-heaps 3.3 (operation descriptors), wB+-Tree 3.1 (redo-only logging). D1: one fence instead of two per
//! record: the checksum covers the new data, and the home stores ride on the fence of the next switch. D2:
//! records carry Lamport sequence numbers, so that lanes share nothing to order themselves.

pub(crate) mod commit;
pub(crate) mod handle;
pub(crate) mod image;
pub(crate) mod lane;
mod limbo;
mod line_owners;
pub(crate) mod lines;
mod quiet;
mod reclaim;
pub(crate) mod record;
pub(crate) mod recover;
