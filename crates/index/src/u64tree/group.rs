//! A group of neighbouring children of an inner node. A child is added or taken out in place, while readers
//! search the group.
//!
//! Children are in the order of their separators; separators behind the last child are higher than every key.
//! To add a child, those to the right of its place move up by one: the last first, and each child before its
//! separator. In every place the separator therefore only falls, and the child only moves further left. A
//! reader that has seen a separator finds a child that begins there or further left. It may arrive to the
//! left of its key's leaf, as it does when the inner node does not know of a division yet, and then follows
//! the links to the right.
//!
//! To make room in a full group, move its last child to the front of the next group, which lowers that
//! group's first separator. Then remove it from the full group by raising its separator above every key.
//! This is the only separator that rises, and the next child in that place begins further left again. A
//! reader that misses the child there, and has not seen the new first separator, comes to the left of it.
//! The word in the old place stays for readers that have seen its separator; no other reader follows it.
//!
//! A child is taken out once its left neighbour has taken over its keys: its word is exchanged for the
//! neighbour's. Its separator stays, because if those behind it moved, a reader with an older separator would
//! arrive too far right. Such a place leads to the last child before it, and disappears when the whole node
//! is made anew.

use super::sync::{AtomicU64, Ordering};
#[cfg(any(feature = "research", target_arch = "x86_64"))]
use std::mem::offset_of;

/// Children of a group: their separators fill a line.
pub(super) const GROUP: usize = 8;
/// The separator of an empty place.
const NONE: u64 = u64::MAX;

/// Maps unsigned numbers to signed ones in the same order, because vector instructions compare signed
/// numbers.
#[inline(always)]
pub(super) const fn signed(number: u64) -> u64 {
    number ^ 1 << 63
}

/// A word that leads to a child.
pub(super) trait Leads {
    type To: Copy;
    /// An acquire load, which pairs with the release of the store.
    fn load(&self) -> Self::To;
    fn store(&self, to: Self::To);
}

/// A group, in three consecutive lines. `W` leads to a child.
#[repr(C, align(64))]
pub(super) struct Group<W> {
    /// [`signed`].
    separators: [AtomicU64; GROUP],
    /// The words of the children, and the children's offsets on media.
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

    /// The last child whose separator is at most `key`; 0 if there is none. Counts the separators behind the
    /// first that are at most `key`; the vector searches in `node/` do so at once.
    ///
    /// A separator that is seen before it fell makes the count lower. The resulting place may then have a
    /// separator that was seen higher than the key. But a place there or further right was seen with a
    /// separator no higher than the key, and since separators are always in order, this place's separator was
    /// no higher either at that moment. (A reader of the first place has seen its separator among the first
    /// separators of all groups, or needs none.)
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

    /// The offset of a child on media; that of a neighbour while a child is being added or taken out.
    #[inline(always)]
    pub(super) fn child_off(&self, at: usize) -> u64 {
        self.children[at].1.load(Ordering::Relaxed)
    }

    /// The word of a child, and its offset on media, as above.
    #[inline(always)]
    pub(super) fn way(&self, at: usize) -> (&W, &AtomicU64) {
        let (child, off) = &self.children[at];
        (child, off)
    }

    /// The address of the children, which take two lines.
    #[inline(always)]
    pub(super) fn children_address(&self) -> *const u8 {
        (&raw const self.children).cast()
    }

    /// The least key below a child; `None` if there is no such child.
    pub(super) fn separator(&self, at: usize) -> Option<u64> {
        Some(signed(self.separators[at].load(Ordering::Relaxed))).filter(|separator| *separator != NONE)
    }

    /// Whether a child can be added.
    pub(super) fn has_room(&self) -> bool {
        self.separator(GROUP - 1).is_none()
    }

    /// Adds a child at `at`, which must be its place in the order. The group has room, and the caller
    /// excludes other writers.
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

    /// Moves the last child of this full group to the front of `next`, which has room; `first` is the first
    /// separator of `next`.
    pub(super) fn move_last(&self, next: &Group<W>, first: &AtomicU64) {
        let last = GROUP - 1;
        let separator = self.separators[last].load(Ordering::Relaxed);
        next.add(0, signed(separator), self.child(last).load(), self.child_off(last));
        // ORDER: release, so that a reader that follows the separator finds the child there. It precedes the
        // next store: if the writer is stopped in between, no reader arrives to the left of its key, where
        // the links might not lead on yet.
        first.store(separator, Ordering::Release);
        self.separators[last].store(signed(NONE), Ordering::Relaxed);
    }

    /// Makes a place lead to a child that begins at the place's separator or further left.
    pub(super) fn lead(&self, at: usize, to: W::To, off: u64) {
        self.children[at].1.store(off, Ordering::Relaxed);
        self.children[at].0.store(to);
    }

    /// The place of a separator in a group, in bytes.
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

    /// Stores a child in a place. Its separator is not above any that the place has had, except the one
    /// higher than every key.
    pub(super) fn set(&self, at: usize, separator: u64, to: W::To, off: u64) {
        self.lead(at, to, off);
        // ORDER: release, so that a reader that follows the separator finds this child or one further left.
        self.separators[at].store(signed(separator), Ordering::Release);
    }
}
