//! A group of neighbouring children of an inner node. A child is added, or taken out, in place, while
//! readers search the group.
//!
//! Children are in the order of their separators; behind the last, separators are higher than every key. To
//! add a child, those to the right of its place move up by one, the last first, and each child before its
//! separator. So in every place the separator only falls, and the child only goes further left: a reader
//! that has seen a separator finds a child that begins there or further left. A reader may come to the left
//! of its key's leaf, as with a division that is not known to the inner node yet, and follows the links to
//! the right.
//!
//! To make room in a full group, move its last child to the front of the next group, which lowers that
//! group's first separator. Then remove it from the full group by raising its separator above every key.
//! This is the only separator that rises, and the next child in that place begins further left again. A
//! reader that misses the child there, and has not seen the new first separator, comes to the left of it.
//! The word in the old place stays for readers that have seen its separator; no other reader follows it.
//!
//! A child whose keys its left neighbour has taken over is taken out by exchanging its word for that
//! neighbour's. Its separator stays: if those behind it moved, a reader with an older separator would come
//! too far right. A place that stays leads to the last child before it; it goes when the whole node is made
//! anew.

use super::sync::{AtomicU64, Ordering};
use std::mem::offset_of;

/// Children of a group: their separators fill a line.
pub(super) const GROUP: usize = 8;
/// The separator of no child.
const NONE: u64 = u64::MAX;

/// A number as words with signs have it, in the same order: processors compare several of those at once.
#[inline(always)]
pub(super) const fn signed(number: u64) -> u64 {
    number ^ 1 << 63
}

/// A word that leads to a child.
pub(super) trait Leads {
    type To: Copy;
    /// Acquires what the store released.
    fn load(&self) -> Self::To;
    fn store(&self, to: Self::To);
}

/// A group, in three lines that follow each other. `W` leads to a child.
#[repr(C, align(64))]
pub(super) struct Group<W> {
    /// [`signed`].
    separators: [AtomicU64; GROUP],
    /// The words of the children, and where they are on media.
    children: [(W, AtomicU64); GROUP],
}

impl<W: Leads> Group<W> {
    /// An empty group; `none` makes words that lead to nothing.
    pub(super) fn new(none: impl Fn() -> W) -> Group<W> {
        Group {
            separators: std::array::from_fn(|_| AtomicU64::new(signed(NONE))),
            children: std::array::from_fn(|_| (none(), AtomicU64::new(0))),
        }
    }

    /// The last child whose separator is at most `key`; 0 if there is none. Counts such separators behind
    /// the first, as `node/simd.rs` does at once.
    ///
    /// Those that are seen as they were before they fell make the number lower. Then the place it gives may
    /// have a separator that was seen to be higher than the key; but one further right, or this one, was
    /// seen to be no higher, and at that moment neither was this one, as they are always in order. (A
    /// reader of the first place has seen its separator among the first ones of all groups, or needs none.)
    #[inline(always)]
    pub(super) fn position(&self, key: u64) -> usize {
        let key = signed(key) as i64;
        // ORDER: acquires the child that was stored before the separator.
        let up_to = |separator: &AtomicU64| usize::from(separator.load(Ordering::Acquire) as i64 <= key);
        self.separators[1..].iter().map(up_to).sum()
    }

    /// The separators, [`signed`]. A reader that follows a separator acquires the child first.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for vector searches"))]
    #[inline(always)]
    pub(super) fn separators(&self) -> &[AtomicU64; GROUP] {
        &self.separators
    }

    #[inline(always)]
    pub(super) fn child(&self, at: usize) -> &W {
        &self.children[at].0
    }

    /// Where a child is on media. Another's, if one is being added or taken out.
    #[inline(always)]
    pub(super) fn child_off(&self, at: usize) -> u64 {
        self.children[at].1.load(Ordering::Relaxed)
    }

    /// The word of a child, and where that is on media, as above.
    #[inline(always)]
    pub(super) fn way(&self, at: usize) -> (&W, &AtomicU64) {
        let (child, off) = &self.children[at];
        (child, off)
    }

    /// Where the children begin: as many bytes as two lines.
    #[inline(always)]
    pub(super) fn children_address(&self) -> *const u8 {
        (&raw const self.children).cast()
    }

    /// The least key below a child; `None` if there is no such child.
    pub(super) fn separator(&self, at: usize) -> Option<u64> {
        Some(signed(self.separators[at].load(Ordering::Relaxed))).filter(|separator| *separator != NONE)
    }

    /// Whether one more can be added.
    pub(super) fn has_room(&self) -> bool {
        self.separator(GROUP - 1).is_none()
    }

    /// Adds a child in the place `at`, which has to be its place, in a group that has room. The caller
    /// keeps others from it.
    pub(super) fn add(&self, at: usize, separator: u64, to: W::To, off: u64) {
        let len = (at..GROUP).find(|i| self.separator(*i).is_none()).unwrap_or(GROUP - 1);
        for i in (at..len).rev() {
            self.set(
                i + 1,
                signed(self.separators[i].load(Ordering::Relaxed)),
                self.child(i).load(),
                self.child_off(i),
            );
        }
        self.set(at, separator, to, off);
    }

    /// Moves the last child of this group, which is full, to the front of the next, which has room, and
    /// whose first separator `first` is.
    pub(super) fn move_last(&self, next: &Group<W>, first: &AtomicU64) {
        let last = GROUP - 1;
        let separator = self.separators[last].load(Ordering::Relaxed);
        next.add(0, signed(separator), self.child(last).load(), self.child_off(last));
        // ORDER: release, so that a reader that follows it finds the child there. Before the next store: if
        // the writer is stopped here, nobody comes to the left, from where no link may lead on yet, and
        // waits.
        first.store(separator, Ordering::Release);
        self.separators[last].store(signed(NONE), Ordering::Relaxed);
    }

    /// Makes a place lead to a child that begins at its separator or further left.
    pub(super) fn lead(&self, at: usize, to: W::To, off: u64) {
        self.children[at].1.store(off, Ordering::Relaxed);
        self.children[at].0.store(to);
    }

    /// Where a separator lies in a group.
    #[cfg(any(feature = "research", target_arch = "x86_64"))]
    pub(super) const fn separator_place(at: usize) -> usize {
        offset_of!(Group<W>, separators) + at * size_of::<AtomicU64>()
    }

    #[cfg(feature = "research")]
    pub(super) const fn child_place(at: usize) -> usize {
        offset_of!(Group<W>, children) + at * size_of::<(W, AtomicU64)>() + offset_of!((W, AtomicU64), 0)
    }

    #[cfg(feature = "research")]
    pub(super) const fn child_off_place(at: usize) -> usize {
        offset_of!(Group<W>, children) + at * size_of::<(W, AtomicU64)>() + offset_of!((W, AtomicU64), 1)
    }

    /// Stores a child in a place whose separator is no lower, or was no lower than any there before it
    /// became higher than every key.
    pub(super) fn set(&self, at: usize, separator: u64, to: W::To, off: u64) {
        self.lead(at, to, off);
        // ORDER: release, so that a reader that follows the separator finds this child, or one further left.
        self.separators[at].store(signed(separator), Ordering::Release);
    }
}
