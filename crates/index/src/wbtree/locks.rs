//! Locks in memory, for concurrent writers. The head of `mod.rs` says what they exclude.
//!
//! Locks are taken in this order: the part of the length, then the structure, then leaves. A thread that
//! holds a leaf without the structure waits for no other leaf.

use super::layout::LENGTHS;
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_sync::{SpinLock, hash_u64_to_bits, lock_soon};

/// The number of leaf locks. A leaf's lock follows from the hash of its offset; with this many, two leaves
/// rarely share one.
const STRIPES: usize = 1 << 12;
/// The most leaf locks of one change: a leaf, its two neighbours and the leaf that replaces two; or a leaf
/// and two new ones. Some are to spare.
const HELD_MAX: usize = 8;

/// The locks of the trees of a pool.
pub struct Locks {
    leaves: Box<[Lock]>,
    /// One lock for each part of the length: lanes that share a part take turns.
    lengths: [Lock; LENGTHS],
    /// Held while child words and root words are changed.
    structure: Mutex<()>,
    /// Rises with every change of a structure, while the leaves concerned are locked.
    version: Line<AtomicU64>,
}

/// A value in a line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Line<T>(T);

/// A lock in a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Lock(SpinLock);

impl Default for Locks {
    fn default() -> Locks {
        Locks {
            leaves: (0..STRIPES).map(|_| Lock::default()).collect(),
            lengths: Default::default(),
            structure: Mutex::new(()),
            version: Line::default(),
        }
    }
}

impl Locks {
    fn stripe(leaf: u64) -> u32 {
        hash_u64_to_bits(leaf, STRIPES.trailing_zeros()) as u32
    }

    /// The version of all structures. If it is the same before a descent and once the leaf at its end is
    /// locked, the path still leads to that leaf.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        // ORDER: acquire: the descent that follows sees all changes that the number counts.
        self.version.0.load(Ordering::Acquire)
    }

    /// Waits for a part of the length.
    #[inline]
    pub(crate) fn lock_length(&self, part: usize) -> LengthHeld<'_> {
        let lock = &self.lengths[part];
        lock.0.acquire();
        LengthHeld(lock)
    }

    /// Waits for a leaf.
    #[inline]
    pub(crate) fn lock_leaf(&self, leaf: u64) -> HeldLocks<'_> {
        let held = HeldLocks::new(self, None);
        held.lock(leaf);
        held
    }

    /// Waits until no other thread changes a structure.
    pub(crate) fn lock_structure(&self) -> HeldLocks<'_> {
        HeldLocks::new(self, Some(lock_soon(|| self.structure.try_lock(), || self.structure.lock())))
    }
}

#[cfg(test)]
impl Locks {
    pub(crate) fn has_leaf_locked(&self, leaf: u64) -> bool {
        self.leaves[Locks::stripe(leaf) as usize].0.is_held()
    }

    pub(crate) fn has_structure_locked(&self) -> bool {
        self.structure.is_locked()
    }
}

/// A locked part of the length.
pub(crate) struct LengthHeld<'l>(&'l Lock);

impl Drop for LengthHeld<'_> {
    fn drop(&mut self) {
        self.0.0.release();
    }
}

/// The locks that a change holds: a leaf, or the structure and any number of leaves. All are held until
/// this is dropped, after the commit has returned.
pub(crate) struct HeldLocks<'l> {
    locks: &'l Locks,
    leaves: [Cell<u32>; HELD_MAX],
    count: Cell<usize>,
    changes_structure: Cell<bool>,
    structure: Option<MutexGuard<'l, ()>>,
}

impl<'l> HeldLocks<'l> {
    #[inline]
    fn new(locks: &'l Locks, structure: Option<MutexGuard<'l, ()>>) -> HeldLocks<'l> {
        let (count, changes_structure) = (Cell::new(0), Cell::new(false));
        HeldLocks { locks, leaves: Default::default(), count, changes_structure, structure }
    }

    /// Locks a leaf; with the structure, further leaves too. Two leaves may share a lock.
    #[inline]
    pub(crate) fn lock(&self, leaf: u64) {
        let (stripe, count) = (Locks::stripe(leaf), self.count.get());
        if self.leaves[..count].iter().any(|held| held.get() == stripe) {
            return;
        }
        assert!(count == 0 || self.has_structure(), "two writers could wait for each other's leaves");
        self.locks.leaves[stripe as usize].0.acquire();
        self.leaves[count].set(stripe);
        self.count.set(count + 1);
    }

    /// Whether child words may be changed.
    pub(crate) fn has_structure(&self) -> bool {
        self.structure.is_some()
    }

    /// Notes that a child word, or the root word, changes.
    pub(crate) fn change_structure(&self) {
        debug_assert!(self.has_structure());
        self.changes_structure.set(true);
    }
}

impl Drop for HeldLocks<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.changes_structure.get() {
            let version = &self.locks.version.0;
            // ORDER: release, and before the leaves are unlocked: a thread that locks one of them sees the
            // new number.
            version.store(version.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        for stripe in &self.leaves[..self.count.get()] {
            self.locks.leaves[stripe.get() as usize].0.release();
        }
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locks").field("version", &self.version()).finish_non_exhaustive()
    }
}
