//! Images of inner nodes in DRAM: their children in order.

use super::group::{GROUP, Group, signed};
use super::layout::{SLOTS, level_off};
use super::node::simd::{GROUPS, Portable, Search};
use super::node::{ColdInner, Link, Word, fetch_line};
use crate::error::{Result, corrupt};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tembo_pmem::Region;

/// A child of an inner node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChildEntry {
    /// The least key below it.
    pub(super) separator: u64,
    pub(super) child: Link,
    /// The node on media.
    pub(super) off: u64,
    /// Its slot on media.
    pub(super) slot: u8,
}

/// Stands for no slot: the child is new, or was taken out.
pub(super) const NEW_SLOT: u8 = u8::MAX;

const _: () = assert!(GROUPS * GROUP >= SLOTS && GROUPS.is_power_of_two());
/// An inner node with fewer children than this is joined with a neighbour.
pub(super) const SPARSE_CHILDREN: usize = SLOTS / 5;
/// Children of a group in a newly made node, unless it has too many children; the other places are room for
/// insertions.
const FILLED: usize = 5;

/// An inner node's children in order. The image is made whole. Later, a child can be added if its group, or
/// one behind it, has room; a child can be taken out; and a child word can be exchanged for another of the
/// same node. All this, and the reads for it, need the lock of structure changes. For adding a child, that
/// lock may be shared; then the node's `lock` is needed too.
///
/// The place of a child that was taken out has no slot, and has the word of the last child before it, until
/// the node is made anew.
#[repr(C, align(64))]
pub(super) struct Inner {
    /// The first separator of each group, [`signed`]. A search reads these two lines and then those of one
    /// group.
    firsts: [AtomicU64; GROUPS],
    groups: [Group<Word>; GROUPS],
    pub(super) off: u64,
    pub(super) level: u64,
    /// The slots on media that are in use, a bit each.
    used: [AtomicU64; 2],
    /// Each child's slot on media; [`NEW_SLOT`] for a child that was taken out.
    slots: [AtomicU8; GROUPS * GROUP],
    /// Taken by threads that share the lock of structure changes. A thread that holds that lock exclusively
    /// does not need it.
    pub(super) lock: Mutex<()>,
}

impl Inner {
    /// `entries` are in order; there is at least one, and at most `SLOTS`.
    pub(super) fn new(off: u64, level: u64, entries: &[ChildEntry]) -> Box<Inner> {
        let mut inner = Box::new(Inner {
            firsts: std::array::from_fn(|_| AtomicU64::new(signed(u64::MAX))),
            groups: std::array::from_fn(|_| Group::new(|| Word::new(Link::NONE))),
            off,
            level,
            used: [const { AtomicU64::new(0) }; 2],
            slots: [const { AtomicU8::new(0) }; GROUPS * GROUP],
            lock: Mutex::new(()),
        });
        let groups = entries.len().div_ceil(FILLED).min(GROUPS);
        for group in 0..groups {
            let [from, to] = [group, group + 1].map(|group| group * entries.len() / groups);
            inner.firsts[group] = AtomicU64::new(signed(entries[from].separator));
            for (i, entry) in entries[from..to].iter().enumerate() {
                inner.groups[group].set(i, entry.separator, entry.child, entry.off);
                inner.slots[GROUP * group + i] = AtomicU8::new(entry.slot);
                inner.note_used(entry.slot);
            }
        }
        inner
    }

    /// Reads a cold node whose least key is `low` and whose level is lower than `below`.
    pub(super) fn load(region: &Region, off: u64, low: u64, below: u64) -> Result<Box<Inner>> {
        let cold = ColdInner { region, off };
        let level = cold.level()?;
        if level >= below {
            return Err(corrupt(
                "the level of an inner node",
                level_off(off),
                format!("below {below}"),
                level,
            ));
        }
        let mut entries = Vec::with_capacity(SLOTS);
        for slot in 0..SLOTS {
            if let Some((separator, child)) = cold.child(slot)? {
                let link = Link::cold(child);
                entries.push(ChildEntry { separator, child: link, off: child, slot: slot as u8 });
            }
        }
        entries.sort_unstable_by_key(|entry| entry.separator);
        if entries.first().is_none_or(|first| first.separator != low)
            || entries.windows(2).any(|two| two[0].separator == two[1].separator)
            || entries.last().is_some_and(|last| last.separator == u64::MAX)
        {
            let expected = format!("different ones, the first {low}");
            return Err(corrupt("the separators of an inner node", off, expected, "others"));
        }
        Ok(Inner::new(off, level, &entries))
    }

    /// Whether all children are in the first group.
    #[inline(always)]
    pub(super) fn has_one_group(&self) -> bool {
        self.firsts[1].load(Ordering::Acquire) == signed(u64::MAX)
    }

    /// The position of the child to which `key` belongs. While a child is being added, the result may lie
    /// further left. `key` is not the largest key.
    #[inline(always)]
    pub(super) fn position_by<S: Search>(&self, search: S, key: u64) -> usize {
        debug_assert_ne!(key, u64::MAX, "the largest key is in no leaf");
        // The root mostly has few children; processors predict this branch well.
        let at = if self.has_one_group() { 0 } else { search.last_first(&self.firsts, key) };
        let group = &self.groups[at];
        // These lines arrive while the separators are searched.
        fetch_line(group.children_address());
        fetch_line(group.children_address().wrapping_add(64));
        GROUP * at + search.last_separator(&self.groups, at, key)
    }

    /// The child at which the search for a key continues: its word, and its offset on media.
    #[inline(always)]
    pub(super) fn way_by<S: Search>(&self, search: S, key: u64) -> (&Word, &AtomicU64) {
        let at = self.position_by(search, key);
        self.groups[at / GROUP].way(at % GROUP)
    }

    /// The same, a word at a time, for callers off the hot path.
    pub(super) fn position(&self, key: u64) -> usize {
        self.position_by(Portable, key)
    }

    #[inline(always)]
    pub(super) fn child(&self, at: usize) -> &Word {
        self.groups[at / GROUP].child(at % GROUP)
    }

    /// The offset of a child on media.
    #[inline(always)]
    pub(super) fn child_off(&self, at: usize) -> u64 {
        self.groups[at / GROUP].child_off(at % GROUP)
    }

    pub(super) fn separator(&self, at: usize) -> u64 {
        self.groups[at / GROUP].separator(at % GROUP).unwrap_or(u64::MAX)
    }

    /// Whether the place has a child that was not taken out.
    fn is_child(&self, at: usize) -> bool {
        self.separator(at) != u64::MAX && !self.was_taken_out(at)
    }

    fn was_taken_out(&self, at: usize) -> bool {
        self.slots[at].load(Ordering::Relaxed) == NEW_SLOT
    }

    /// The positions of the children, in order.
    pub(super) fn positions(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..GROUPS * GROUP).filter(|at| self.is_child(*at))
    }

    /// The child to which a position leads: the one there, or the last before it if that one was taken out.
    pub(super) fn taker(&self, at: usize) -> usize {
        (0..=at).rev().find(|at| self.is_child(*at)).unwrap_or(0)
    }

    /// The number of children.
    pub(super) fn len(&self) -> usize {
        self.used.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// How many children are to the left of a position.
    pub(super) fn before(&self, at: usize) -> usize {
        self.positions().take_while(|other| *other < at).count()
    }

    /// The child to the right of one.
    pub(super) fn next(&self, at: usize) -> Option<usize> {
        (at + 1..GROUPS * GROUP).find(|next| self.is_child(*next))
    }

    /// The positions of a child and its right neighbour. The child is this one or, if this is the last, the
    /// one before it.
    pub(super) fn pair(&self, at: usize) -> Option<(usize, usize)> {
        match self.next(at) {
            Some(next) => Some((at, next)),
            None => at.checked_sub(1).map(|before| (self.taker(before), at)),
        }
    }

    pub(super) fn entry(&self, at: usize) -> ChildEntry {
        let slot = self.slots[at].load(Ordering::Relaxed);
        ChildEntry {
            separator: self.separator(at),
            child: self.child(at).load(),
            off: self.child_off(at),
            slot,
        }
    }

    /// The children, in a list that has room for one more.
    pub(super) fn entries(&self) -> Vec<ChildEntry> {
        let mut entries = Vec::with_capacity(SLOTS + 1);
        for (group, slots) in self.groups.iter().zip(self.slots.chunks_exact(GROUP)) {
            for (at, slot) in slots.iter().enumerate() {
                let (Some(separator), slot) = (group.separator(at), slot.load(Ordering::Relaxed)) else {
                    break;
                };
                if slot != NEW_SLOT {
                    let (child, off) = (group.child(at).load(), group.child_off(at));
                    entries.push(ChildEntry { separator, child, off, slot });
                }
            }
        }
        entries
    }

    /// The slot on media for a new child with this separator, if it can be added in place.
    pub(super) fn room_for(&self, separator: u64) -> Option<u8> {
        self.group_with_room(self.position(separator) / GROUP)?;
        self.free_slot()
    }

    /// The first group with room, starting at `from`.
    fn group_with_room(&self, from: usize) -> Option<usize> {
        (from..GROUPS).find(|group| self.groups[*group].has_room())
    }

    /// The slot on media that the next child gets.
    pub(super) fn free_slot(&self) -> Option<u8> {
        let [low, high] = [0, 1].map(|i| (!self.used[i].load(Ordering::Relaxed)).trailing_zeros() as u8);
        let slot = if low < 64 { low } else { 64 + high };
        (usize::from(slot) < SLOTS).then_some(slot)
    }

    /// Adds a child with the slot that [`room_for`](Self::room_for) gave.
    pub(super) fn add(&self, entry: &ChildEntry) {
        let at = self.position(entry.separator) + 1;
        // The place behind the last one of a full group is the first of the next group.
        let with_room = self.group_with_room((at - 1) / GROUP).unwrap_or(GROUPS - 1);
        for group in (at / GROUP..with_room).rev() {
            self.note_slot(
                GROUP * (group + 1),
                self.slots[GROUP * group + GROUP - 1].load(Ordering::Relaxed),
            );
            self.groups[group].move_last(&self.groups[group + 1], &self.firsts[group + 1]);
        }
        self.note_slot(at, entry.slot);
        self.note_used(entry.slot);
        self.groups[at / GROUP].add(at % GROUP, entry.separator, entry.child, entry.off);
        if at.is_multiple_of(GROUP) {
            // ORDER: release, so that a reader that follows the separator finds the child there.
            self.firsts[at / GROUP].store(signed(entry.separator), Ordering::Release);
        }
        self.lead_on(at);
    }

    /// Notes the slot of a child that is added at a place, and moves the slots behind it up. The group has
    /// room.
    fn note_slot(&self, at: usize, slot: u8) {
        let mut slot = slot;
        for slot_of in &self.slots[at..GROUP * (at / GROUP) + GROUP] {
            let next = slot_of.load(Ordering::Relaxed);
            slot_of.store(slot, Ordering::Relaxed);
            slot = next;
        }
    }

    /// Whether a child can be taken out without a change of other nodes; the root may have fewer children.
    pub(super) fn can_spare(&self, is_root: bool) -> bool {
        self.len() > if is_root { 2 } else { SPARSE_CHILDREN }
    }

    /// Takes out a child, not the first, whose keys the child before it has taken over.
    pub(super) fn take_out(&self, at: usize) {
        let slot = self.slots[at].load(Ordering::Relaxed);
        let word = &self.used[usize::from(slot / 64)];
        word.store(word.load(Ordering::Relaxed) & !(1 << (slot % 64)), Ordering::Relaxed);
        self.slots[at].store(NEW_SLOT, Ordering::Relaxed);
        self.lead_on(self.taker(at));
    }

    /// Makes the places behind `at` from which children were taken out lead to the child at `at`.
    fn lead_on(&self, at: usize) {
        let (child, off) = (self.child(at).load(), self.child_off(at));
        for other in at + 1..self.next(at).unwrap_or(GROUPS * GROUP) {
            if self.separator(other) != u64::MAX {
                self.groups[other / GROUP].lead(other % GROUP, child, off);
            }
        }
    }

    fn note_used(&self, slot: u8) {
        let word = &self.used[usize::from(slot / 64)];
        word.store(word.load(Ordering::Relaxed) | 1 << (slot % 64), Ordering::Relaxed);
    }
}

/// Offsets of words within a node.
#[cfg(feature = "research")]
pub(super) mod place {
    use super::{GROUP, Group, Inner, Word};
    use std::mem::offset_of;

    pub(in super::super) const fn level() -> u64 {
        offset_of!(Inner, level) as u64
    }

    /// The first separator of a group.
    pub(in super::super) const fn first(group: usize) -> u64 {
        (offset_of!(Inner, firsts) + 8 * group) as u64
    }

    const fn group(at: usize) -> usize {
        offset_of!(Inner, groups) + at / GROUP * size_of::<Group<Word>>()
    }

    pub(in super::super) const fn separator(at: usize) -> u64 {
        (group(at) + Group::<Word>::separator_place(at % GROUP)) as u64
    }

    pub(in super::super) const fn child(at: usize) -> u64 {
        (group(at) + Group::<Word>::child_place(at % GROUP)) as u64
    }

    pub(in super::super) const fn child_off(at: usize) -> u64 {
        (group(at) + Group::<Word>::child_off_place(at % GROUP)) as u64
    }

    pub(in super::super) const fn slot(at: usize) -> u64 {
        (offset_of!(Inner, slots) + at) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_that_are_added_are_in_their_places() {
        for count in [1, 2, 5, 6, 40, 81, SLOTS - 1, SLOTS] {
            let mut entries: Vec<ChildEntry> = (0..count).map(|i| entry(1000 * i as u64, i as u8)).collect();
            let mut inner = Inner::new(64, 1, &entries);
            for i in 0..SLOTS as u64 {
                let separator = 1 + i * 7919 % (1000 * count as u64);
                if entries.iter().any(|entry| entry.separator == separator) {
                    continue;
                }
                add(&mut inner, &mut entries, separator);
                assert_eq!(inner.entries(), entries);
                assert_eq!(inner.len(), entries.len());
            }
            let positions: Vec<usize> = inner.positions().collect();
            for (i, at) in positions.iter().enumerate() {
                assert_eq!((inner.before(*at), inner.next(*at)), (i, positions.get(i + 1).copied()));
                assert_eq!(inner.position(entries[i].separator), *at);
                let pair = positions[..].windows(2).nth(i.min(positions.len().saturating_sub(2)));
                assert_eq!(inner.pair(*at), pair.map(|pair| (pair[0], pair[1])));
            }
            assert!(count >= SLOTS || entries.len() > count);
        }
    }

    fn entry(separator: u64, slot: u8) -> ChildEntry {
        let off = 64 * (separator + 1);
        ChildEntry { separator, child: Link::cold(off), off, slot }
    }

    /// Adds a child in place, or makes the node anew if its group has no room.
    fn add(inner: &mut Box<Inner>, entries: &mut Vec<ChildEntry>, separator: u64) {
        if let Some(slot) = inner.room_for(separator) {
            assert!(entries.iter().all(|entry| entry.slot != slot));
            let new = entry(separator, slot);
            entries.insert(entries.partition_point(|entry| entry.separator < separator), new);
            inner.add(&new);
        } else {
            *inner = Inner::new(64, 1, entries);
        }
    }

    /// Adds and removes children in a fixed random order. A place without a child leads to the last child
    /// before it.
    #[test]
    fn what_was_taken_out_leads_to_the_child_before_it() {
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for count in [2, 6, 30, 90] {
            let mut entries: Vec<ChildEntry> = (0..count).map(|i| entry(100 * i as u64, i as u8)).collect();
            let mut inner = Inner::new(64, 1, &entries);
            let mut beside = 0;
            for _ in 0..4000 {
                let separator = below(100 * count as u64);
                let found = entries.binary_search_by_key(&separator, |entry| entry.separator);
                if entries.len() > 1 && below(2) == 0 {
                    let gone = 1 + below(entries.len() as u64 - 1) as usize;
                    let at = inner.positions().nth(gone).unwrap();
                    assert_eq!(inner.pair(inner.taker(at - 1)), Some((inner.taker(at - 1), at)));
                    inner.take_out(at);
                    entries.remove(gone);
                    beside += usize::from(inner.positions().all(|other| other != at));
                } else if found.is_err() && entries.len() < SLOTS {
                    add(&mut inner, &mut entries, separator);
                }
                assert_eq!((inner.entries(), inner.len()), (entries.clone(), entries.len()));
                for key in (0..20).map(|_| below(100 * count as u64)).chain([separator]) {
                    let last = entries.partition_point(|entry| entry.separator <= key) - 1;
                    let at = inner.position(key);
                    assert_eq!(
                        (inner.child(at).load(), inner.child_off(at)),
                        (entries[last].child, entries[last].off)
                    );
                    assert_eq!(
                        (inner.entry(inner.taker(at)), inner.before(inner.taker(at))),
                        (entries[last], last)
                    );
                }
            }
            assert!(beside > 1000);
        }
    }
}
