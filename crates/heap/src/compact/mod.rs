//! Compaction: objects with one owner move out of the blocks that a compaction of the pool empties.
//!
//! An object with exactly one strong pointer, no weak one and no handle is *unique*: a walk that finds that
//! pointer can move it. Boxes, the arrays of vectors and texts, and the nodes and entries of maps are unique,
//! and so is every object of a program that one pointer leads to. Objects that several pointers share stay
//! where they are: an object does not know its owners, and a table of all owners would take memory in
//! proportion to the heap. The root stays, too, and so do the records of types and lists.
//!
//! # Media layout
//!
//! That of the heap. A move leaves nothing else behind.
//!
//! # The walk
//!
//! [`HeapCompaction`] follows strong pointers, from the root and from objects that handles keep alive. The
//! types in the heap's own description say where pointers lie, so it needs no types of the program. It visits
//! a unique object once, and keeps a set of the shared ones. Each step is one transaction like any other. It
//! visits some objects, and for each unique target in a closed block it allocates a copy, redirects the
//! pointer to it, and frees the old block (`visit.rs`).
//!
//! # Invariants
//!
//! - C1: an object that moves has one strong pointer, no weak one, and no handle, and its commit owns its
//!   count record, so that none is added (`CountResolver::free_moved`).
//! - C2: the copy has all words of the object, and their records are among the reads of the transaction: a
//!   write between the copy and the commit is a conflict.
//! - C3: the pointers in the copy are those of the object. No count changes.
//! - C4: an object that waits for its visit was alive when the walk's pin began, or later. Its block is not
//!   used for anything else while the pin lasts. Its visit reads it as any reader, and then finds it alive
//!   and its block allocated: a commit that frees it later changes one of its records, and is a conflict.
//!
//! # Commit point
//!
//! The transaction's. Its record has the pointer, and the bits of both blocks; the copy's words are durable
//! before it.
//!
//! # Recovery
//!
//! The pool's alone. Cut before the record: the pointer leads to the old block, and the new one is free.
//! After it: the other way round.
//!
//! # Concurrency
//!
//! Readers that have read the pointer still use the old block: it stays as it is until their pins end. A
//! transaction that writes to the object, adds a pointer or makes a handle has read the pointer, so that it
//! conflicts with the move, and is retried. A move that conflicts with other transactions yields: after a few
//! attempts the walk continues without it. While a walk lasts its pin keeps all freed blocks of the pool from
//! being reused.
//!
//! A heap that no program has open is opened for the length of a step (`guest.rs`).

pub(crate) mod guest;
#[cfg(test)]
mod tests;
mod visit;

use crate::counts::dying;
use crate::error::{ErrorKind, Result};
use crate::retry;
use crate::stm::running;
use crate::stm::shared::HeapShared;
use guest::Guest;
use std::collections::HashSet;
use tembo_pool::{Compaction, Pin, Pool};
use visit::{Findings, Moving, Spot, visit};

/// Objects that one transaction visits.
const SPOTS_PER_STEP: usize = 64;
/// How often a move is tried that meets other transactions.
const ATTEMPTS: u32 = 4;

/// A compaction of a heap under way: the place in its walk. Dropping it ends it at any point.
///
/// From its first step until it is dropped, freed memory of the pool is not reused.
#[derive(Debug)]
pub struct HeapCompaction {
    pool: Pool,
    pin: Option<Pin>,
    /// Objects that are to be visited, the next one last.
    left: Vec<Spot>,
    /// Shared objects that it has met.
    met: HashSet<u64, foldhash::fast::FixedState>,
}

/// The file is not cut for less than this.
const CUT_BYTES_MIN: u64 = 1 << 20;

/// Compacts the heap's pool until nothing more is gained; returns the bytes that became free or were cut off.
pub(crate) fn compact_all(shared: &HeapShared) -> Result<u64> {
    let pool = &shared.pool;
    pool.check_process()?;
    if running::of(shared).is_some() {
        return Err(ErrorKind::InsideTransaction { what: "`compact`" }.into());
    }
    let is_alone = pool.roots()?.len() == 1;
    let mut gained = 0;
    while let Some(chosen) = pool.compaction()?.filter(|chosen| !chosen.is_empty()) {
        let before = pool.stats().unused_bytes;
        let mut walk = HeapCompaction::new(pool);
        loop {
            match walk.step(&chosen) {
                Ok(HeapStep::Moved(_)) => {}
                Err(e) if !e.is_full() => return Err(e),
                Ok(_) | Err(_) => break,
            }
        }
        drop(walk);
        // Only a compaction of this heap alone is complete here: the owners of other blocks have to move
        // those first.
        if is_alone {
            chosen.complete()?;
        }
        pool.trim()?;
        let freed = pool.stats().unused_bytes.saturating_sub(before);
        let cut = pool.cut(CUT_BYTES_MIN, 0)?;
        gained += freed + cut;
        if freed + cut == 0 {
            break;
        }
    }
    Ok(gained + pool.cut(CUT_BYTES_MIN, 0)?)
}

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeapStep {
    /// Bytes of objects were moved, and there is more to do.
    Moved(u64),
    /// Nothing is left to move.
    Done,
    /// The heap is being opened, migrated, or used by a transaction of this thread; nothing can move.
    Unavailable,
}

impl HeapCompaction {
    /// Begins at the root of the pool's heap.
    pub fn new(pool: &Pool) -> HeapCompaction {
        HeapCompaction { pool: pool.clone(), pin: None, left: Vec::new(), met: HashSet::default() }
    }

    /// Moves unique objects out of the compaction's blocks. Visits up to 64 objects, and copies up to 128 KiB
    /// and one object. Readers go on; writers of the same objects conflict with it, which retries nothing of
    /// theirs more than once.
    ///
    /// # Errors
    ///
    /// The pool's own; corruption.
    pub fn step(&mut self, chosen: &Compaction) -> Result<HeapStep> {
        let Some(guest) = Guest::of(&self.pool)? else { return Ok(HeapStep::Unavailable) };
        let shared = guest.shared();
        if running::of(shared).is_some() || !shared.counts_pointers() || !shared.isolates() {
            return Ok(HeapStep::Unavailable);
        }
        if self.pin.is_none() {
            self.begin(shared)?;
        }
        if chosen.is_called_off() {
            self.left.clear();
        }
        let from = self.left.len().saturating_sub(SPOTS_PER_STEP);
        let spots = self.left.split_off(from);
        if spots.is_empty() {
            shared.give_up_slabs();
            return Ok(HeapStep::Done);
        }
        self.visit_all(shared, chosen, &spots).map(HeapStep::Moved)
    }

    fn begin(&mut self, shared: &HeapShared) -> Result<()> {
        dying::collect_all(shared)?;
        shared.give_up_slabs();
        self.pin = Some(self.pool.pin());
        let orphans = shared.handles.orphans();
        self.left.extend(orphans.iter().chain([&shared.root]).map(|object| Spot::first(*object)));
        self.met.extend(self.left.iter().map(|spot| spot.object));
        Ok(())
    }

    /// Visits objects, and moves the objects that they own; moves fewer at a time, or none, while other
    /// transactions conflict. Returns the number of moved bytes.
    fn visit_all(&mut self, shared: &HeapShared, chosen: &Compaction, spots: &[Spot]) -> Result<u64> {
        let HeapCompaction { pin, met, .. } = &*self;
        let pin = pin.as_ref().expect("the walk has begun");
        let moving = Moving { shared, pin, chosen, met };
        let moved =
            retry::write_unless_busy(shared, ATTEMPTS, &|running| visit(&moving, running, spots, true))?;
        match (moved, spots.len()) {
            (Some(found), _) => Ok(self.take(found)),
            (None, 2..) => {
                let (first, second) = spots.split_at(spots.len() / 2);
                // The last ones are visited first.
                let bytes = self.visit_all(shared, chosen, second)?;
                Ok(bytes + self.visit_all(shared, chosen, first)?)
            }
            (None, _) => {
                chosen.note_held();
                let found = retry::write(shared, |running| visit(&moving, running, spots, false))?;
                Ok(self.take(found))
            }
        }
    }

    fn take(&mut self, found: Findings) -> u64 {
        self.left.extend(found.left);
        self.met.extend(found.met);
        found.moved_bytes
    }
}
