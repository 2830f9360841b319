//! Inner nodes as DRAM knows them: their children in order.

use super::group::{GROUP, Group};
use super::layout::{SLOTS, level_off};
use super::node::{ColdInner, Link, Word, fetch_line};
use crate::error::{Result, corrupt};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tembo_pmem::Region;

/// A child of an inner node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// The least key below it.
    pub(super) separator: u64,
    pub(super) child: Link,
    /// The node on media.
    pub(super) off: u64,
    /// Its slot on media.
    pub(super) slot: u8,
}

/// The slot of a child that has none yet.
pub(super) const NEW_SLOT: u8 = u8::MAX;

/// Groups of children.
pub(super) const GROUPS: usize = 16;
const _: () = assert!(GROUPS * GROUP >= SLOTS && GROUPS.is_power_of_two());
/// Children of a group when a node is made, if it has not too many: the rest is room for more.
const FILLED: usize = 5;

/// An inner node's children in order. Made whole; then children can be added where their group has room, and a child
/// word exchanged for another of the same node. Both, and what is read for that, needs the lock of structure changes.
#[repr(C, align(64))]
pub(super) struct Inner {
    /// The first separator of each group: a search looks at these two lines and then at one group's.
    firsts: [u64; GROUPS],
    groups: [Group<Word>; GROUPS],
    pub(super) off: u64,
    pub(super) level: u64,
    /// The slots on media in use.
    used: [AtomicU64; 2],
    /// Each child's slot.
    slots: [AtomicU8; GROUPS * GROUP],
}

impl Inner {
    /// `entries` are in order, and neither none nor too many.
    pub(super) fn new(off: u64, level: u64, entries: &[Entry]) -> Box<Inner> {
        let mut inner = Box::new(Inner {
            firsts: [u64::MAX; GROUPS],
            groups: std::array::from_fn(|_| Group::new(|| Word::new(Link::NONE))),
            off,
            level,
            used: [const { AtomicU64::new(0) }; 2],
            slots: [const { AtomicU8::new(0) }; GROUPS * GROUP],
        });
        let groups = entries.len().div_ceil(FILLED).min(GROUPS);
        for group in 0..groups {
            let [from, to] = [group, group + 1].map(|group| group * entries.len() / groups);
            inner.firsts[group] = entries[from].separator;
            (from..to).for_each(|i| inner.set(GROUP * group + i - from, &entries[i]));
        }
        inner
    }

    /// Reads a node that is cold, whose least key is `low` and which lies `below` a level.
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
                entries.push(Entry { separator, child: link, off: child, slot: slot as u8 });
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

    /// Which child's keys this one, which is not the largest key, is among, or those of one further right, if that is being
    /// added.
    #[inline(always)]
    pub(super) fn position(&self, key: u64) -> usize {
        let at = last_up_to(&self.firsts, key);
        let group = &self.groups[at];
        // They come while the separators are searched.
        fetch_line(group.children_address());
        fetch_line(group.children_address().wrapping_add(64));
        GROUP * at + group.position(key)
    }

    #[inline(always)]
    pub(super) fn child(&self, at: usize) -> &Word {
        self.groups[at / GROUP].child(at % GROUP)
    }

    /// Where a child is on media.
    #[inline(always)]
    pub(super) fn child_off(&self, at: usize) -> u64 {
        self.groups[at / GROUP].child_off(at % GROUP)
    }

    pub(super) fn separator(&self, at: usize) -> u64 {
        self.groups[at / GROUP].separator(at % GROUP).unwrap_or(u64::MAX)
    }

    /// Where children are, in their order.
    pub(super) fn positions(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..GROUPS * GROUP).filter(|at| self.separator(*at) != u64::MAX)
    }

    /// Children.
    pub(super) fn len(&self) -> usize {
        self.used.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// How many children are to the left of a position.
    pub(super) fn before(&self, at: usize) -> usize {
        self.positions().take_while(|other| *other < at).count()
    }

    /// The child to the right of one.
    pub(super) fn next(&self, at: usize) -> Option<usize> {
        [at + 1, (at / GROUP + 1) * GROUP]
            .into_iter()
            .find(|next| *next < GROUPS * GROUP && self.separator(*next) != u64::MAX)
    }

    /// A child and its right neighbour: this one, or if that is the last, the one before.
    pub(super) fn pair(&self, at: usize) -> Option<(usize, usize)> {
        match self.next(at) {
            Some(next) => Some((at, next)),
            None => self.positions().rev().find(|before| *before < at).map(|before| (before, at)),
        }
    }

    pub(super) fn entry(&self, at: usize) -> Entry {
        let slot = self.slots[at].load(Ordering::Relaxed);
        Entry { separator: self.separator(at), child: self.child(at).load(), off: self.child_off(at), slot }
    }

    /// The children, with room for more.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(SLOTS + 1);
        entries.extend(self.positions().map(|at| self.entry(at)));
        entries
    }

    /// The slot on media for a child to the right of the one at `at`, if that can be added in place.
    pub(super) fn room_after(&self, at: usize) -> Option<u8> {
        if !self.groups[at / GROUP].has_room() {
            return None;
        }
        let [low, high] = [0, 1].map(|i| (!self.used[i].load(Ordering::Relaxed)).trailing_zeros() as u8);
        Some(if low < 64 { low } else { 64 + high }).filter(|slot| usize::from(*slot) < SLOTS)
    }

    /// Adds a child to the right of the one at `at`, in the slot that [`room_after`](Self::room_after) gave.
    pub(super) fn add_after(&self, at: usize, entry: &Entry) {
        let group = GROUP * (at / GROUP);
        let mut slot = entry.slot;
        for slot_of in &self.slots[at + 1..group + GROUP] {
            let next = slot_of.load(Ordering::Relaxed);
            slot_of.store(slot, Ordering::Relaxed);
            slot = next;
        }
        self.note_used(entry.slot);
        self.groups[at / GROUP].add(at % GROUP + 1, entry.separator, entry.child, entry.off);
    }

    fn note_used(&self, slot: u8) {
        let word = &self.used[usize::from(slot / 64)];
        word.store(word.load(Ordering::Relaxed) | 1 << (slot % 64), Ordering::Relaxed);
    }

    fn set(&self, at: usize, entry: &Entry) {
        self.slots[at].store(entry.slot, Ordering::Relaxed);
        self.note_used(entry.slot);
        self.groups[at / GROUP].add(at % GROUP, entry.separator, entry.child, entry.off);
    }
}

/// Where words of a node lie in it.
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

/// The last of the ascending words that is at most `key`; 0 if there is none. Their number is a power of two.
#[inline(always)]
fn last_up_to<const N: usize>(words: &[u64; N], key: u64) -> usize {
    const { assert!(N.is_power_of_two()) };
    let (mut last, mut half) = (0, N / 2);
    while half > 0 {
        let next = last + half;
        last = core::hint::select_unpredictable(words[next] <= key, next, last);
        half /= 2;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_that_are_added_are_in_their_places() {
        let entry = |separator: u64, slot| Entry {
            separator,
            child: Link::cold(64 * (separator + 1)),
            off: 64 * (separator + 1),
            slot,
        };
        for count in [1, 2, 5, 6, 40, 81, SLOTS - 1, SLOTS] {
            let mut entries: Vec<Entry> = (0..count).map(|i| entry(1000 * i as u64, i as u8)).collect();
            let mut inner = Inner::new(64, 1, &entries);
            for i in 0..SLOTS as u64 {
                let separator = 1 + i * 7919 % (1000 * count as u64);
                let at = inner.position(separator);
                if inner.separator(at) == separator {
                    continue;
                }
                if let Some(slot) = inner.room_after(at) {
                    assert!(entries.iter().all(|entry| entry.slot != slot));
                    let new = entry(separator, slot);
                    entries.insert(entries.partition_point(|entry| entry.separator < separator), new);
                    inner.add_after(at, &new);
                } else if entries.len() < SLOTS {
                    inner = Inner::new(64, 1, &entries);
                }
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
}
