//! A leaf's version: a word with the leaf's lock, the slot that is being changed, and a count of changes.
//!
//! A writer reads the leaf, and locks it if its version has not changed since; the same store names the slot
//! that the writer is about to change. (It may also lock first, read, and name the slot then.) It changes
//! that one slot, makes it durable, and unlocks with a higher count. A reader takes no lock: it loads the
//! version, reads, and loads the version again. If both are equal, at most one change was under way, in the
//! slot that the version names:
//!
//! * A new record becomes visible by its fingerprint, after it is durable.
//! * A new value, and a removal, are visible before they are durable. A reader whose answer depends on the
//!   slot flushes its line itself and fences. It therefore neither waits for a stopped writer nor gives an
//!   answer that a crash could undo.
//!
//! As long as one thread makes all changes, it locks without a locked instruction ([`Bias`]).
//!
//! Changes of the structure lock the leaf without naming a slot: everything that they make visible is durable
//! already.

use super::node::Leaf;
use super::sync::{AtomicU64, Bias, Ordering, back_off, fence};

const LOCKED: u64 = 1;
const SLOT_SHIFT: u32 = 1;
const NO_SLOT: u64 = 127;
const OBSOLETE: u64 = 1 << 8;
const COUNT: u64 = 1 << 9;

/// A leaf's version as a reader loaded it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Version(pub(super) u64);

impl Version {
    /// Whether the leaf has left the tree.
    #[inline(always)]
    pub(super) fn is_obsolete(self) -> bool {
        self.0 & OBSOLETE != 0
    }

    /// Whether the leaf is in the tree, and no thread changes it.
    #[inline(always)]
    pub(super) fn is_quiet(self) -> bool {
        self.0 & (LOCKED | OBSOLETE) == 0
    }

    #[inline(always)]
    pub(super) fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// The slot that is being changed.
    #[inline]
    pub(super) fn slot(self) -> Option<usize> {
        let slot = self.0 >> SLOT_SHIFT & NO_SLOT;
        (self.is_locked() && slot != NO_SLOT).then_some(slot as usize)
    }
}

/// Begins to read.
#[inline(always)]
pub(super) fn begin(version: &AtomicU64) -> Version {
    Version(version.load(Ordering::Acquire))
}

/// Whether the leaf still has the version `since`, so that everything read in between belongs to one version.
///
/// ORDER: the fence keeps earlier reads before the second load of the version.
#[inline(always)]
pub(super) fn is_unchanged(version: &AtomicU64, since: Version) -> bool {
    fence(Ordering::Acquire);
    version.load(Ordering::Relaxed) == since.0
}

/// The same, and no change was under way either, so that everything read is durable.
#[inline(always)]
pub(super) fn is_durable_since(version: &AtomicU64, since: Version) -> bool {
    since.is_quiet() && is_unchanged(version, since)
}

/// A locked leaf. Unlocks when dropped, with a higher count if something was changed.
pub(super) struct Locked<'g> {
    pub(super) leaf: &'g Leaf,
    /// The bias, if the leaf was locked by it.
    bias: Option<&'g Bias>,
    /// The version before.
    before: u64,
    changed: bool,
    obsolete: bool,
}

impl<'g> Locked<'g> {
    /// Waits for the lock; `None` if the leaf has left the tree. All leaves of a tree are locked with the
    /// same bias.
    pub(super) fn new(leaf: &'g Leaf, bias: &'g Bias) -> Option<Locked<'g>> {
        if !bias.enter() {
            return Locked::shared(leaf);
        }
        let before = leaf.version.load(Ordering::Relaxed);
        if before & (OBSOLETE | LOCKED) == 0 {
            // The bias keeps other threads from locking anything.
            leaf.version.store(before | LOCKED | NO_SLOT << SLOT_SHIFT, Ordering::Relaxed);
            // ORDER: as below.
            fence(Ordering::Release);
            return Some(Locked { leaf, bias: Some(bias), before, changed: false, obsolete: false });
        }
        bias.leave();
        assert!(before & OBSOLETE != 0, "a thread locks a leaf that it has locked");
        None
    }

    /// Locks a leaf in order to change a slot, if the leaf still has a version and is not locked; else
    /// `None`. Everything that the caller has read since [`begin`] returned that version is then still true,
    /// because every change of a leaf locks it first. Does not wait for the leaf; may wait once for the
    /// thread that has the bias.
    #[inline(always)]
    pub(super) fn at(leaf: &'g Leaf, version: Version, slot: usize, bias: &'g Bias) -> Option<Locked<'g>> {
        if !version.is_quiet() {
            return None;
        }
        let before = version.0;
        let locked = before | LOCKED | (slot as u64) << SLOT_SHIFT;
        let biased = bias.enter();
        if biased {
            if leaf.version.load(Ordering::Relaxed) != before {
                bias.leave();
                return None;
            }
            // The bias keeps other threads from locking anything.
            //
            // ORDER: release: a reader that loads this version sees all earlier changes. (In the other branch
            // the locked instruction continues the release sequence of the last store.)
            leaf.version.store(locked, Ordering::Release);
        } else {
            leaf.version.compare_exchange(before, locked, Ordering::Acquire, Ordering::Relaxed).ok()?;
        }
        // ORDER: as in `change`.
        fence(Ordering::Release);
        Some(Locked { leaf, bias: biased.then_some(bias), before, changed: true, obsolete: false })
    }

    /// The same as [`new`](Self::new), without the bias.
    fn shared(leaf: &'g Leaf) -> Option<Locked<'g>> {
        let mut rounds = 0u32;
        loop {
            let before = leaf.version.load(Ordering::Relaxed);
            if before & OBSOLETE != 0 {
                return None;
            }
            if before & LOCKED == 0 {
                let locked = before | LOCKED | NO_SLOT << SLOT_SHIFT;
                let taken =
                    leaf.version.compare_exchange_weak(before, locked, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    // ORDER: a thread that sees a later store also sees that the leaf is locked.
                    fence(Ordering::Release);
                    return Some(Locked { leaf, bias: None, before, changed: false, obsolete: false });
                }
            }
            rounds += 1;
            back_off(rounds);
        }
    }

    /// Names the slot that is about to change.
    #[inline]
    pub(super) fn change(&mut self, slot: usize) {
        self.changed = true;
        self.leaf.version.store(self.before | LOCKED | (slot as u64) << SLOT_SHIFT, Ordering::Relaxed);
        // ORDER: a thread that sees the change sees that it is under way.
        fence(Ordering::Release);
    }

    /// Notes that the structure is about to change.
    pub(super) fn change_structure(&mut self) {
        self.changed = true;
    }

    /// Unlocks the leaf and marks it as removed from the tree.
    pub(super) fn retire(mut self) {
        (self.changed, self.obsolete) = (true, true);
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut after = self.before;
        if self.changed {
            after = after.wrapping_add(COUNT);
        }
        if self.obsolete {
            after |= OBSOLETE;
        }
        // ORDER: release, so that readers and the next thread that locks see all changes.
        self.leaf.version.store(after, Ordering::Release);
        if let Some(bias) = self.bias {
            bias.leave();
        }
    }
}
