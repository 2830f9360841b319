//! Nodes: entries and how they are found, and placed so that a crash loses none.

use super::{Order, PaperCdds};
use crate::mem::Mem;
use tembo_pmem::LINE_BYTES;

/// Entries of a node, as many as a node of Tembo's tree has.
pub const SLOTS: usize = 28;
const ENTRY_BYTES: u64 = 32;
/// Bytes of a node.
pub const NODE_BYTES: u64 = LINE_BYTES + SLOTS as u64 * ENTRY_BYTES;
const MAGIC: u64 = 0xCDD5 << 32;

const KEY: u64 = 0;
const VALUE: u64 = 8;
const START: u64 = 16;
const END: u64 = 24;

/// An entry: in the versions from its start up to, not including, its end; 0 is no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) start: u64,
    pub(super) end: u64,
}

fn place(node: u64, slot: usize) -> u64 {
    node + LINE_BYTES + slot as u64 * ENTRY_BYTES
}

impl<M: Mem> PaperCdds<M> {
    pub(super) fn entry(&self, node: u64, slot: usize) -> Entry {
        let word = |field| self.mem.load_u64(place(node, slot) + field);
        Entry { key: word(KEY), value: word(VALUE), start: word(START), end: word(END) }
    }

    pub(super) fn key(&self, node: u64, slot: usize) -> u64 {
        self.mem.load_u64(place(node, slot) + KEY)
    }

    pub(super) fn start(&self, node: u64, slot: usize) -> u64 {
        self.mem.load_u64(place(node, slot) + START)
    }

    fn end(&self, node: u64, slot: usize) -> u64 {
        self.mem.load_u64(place(node, slot) + END)
    }

    /// The level of a node, if there is one.
    pub(super) fn level_of(&self, node: u64) -> Option<usize> {
        let kind = self.mem.load_u64(node);
        (kind & !super::LEVEL_MASK == MAGIC).then_some((kind & super::LEVEL_MASK) as usize)
    }

    /// Whether an entry has not ended, the version being made included.
    pub(super) fn is_live(&self, node: u64, slot: usize) -> bool {
        self.start(node, slot) != 0 && self.end(node, slot) == 0
    }

    pub(super) fn live_count(&self, node: u64) -> usize {
        (0..SLOTS).filter(|slot| self.is_live(node, *slot)).count()
    }

    /// The live entries in the order of their keys.
    pub(super) fn live_entries(&self, node: u64) -> Vec<Entry> {
        let live = (0..SLOTS).filter(|slot| self.is_live(node, *slot));
        let mut live: Vec<Entry> = live.map(|slot| self.entry(node, slot)).collect();
        if self.order == Order::Unsorted {
            live.sort_unstable_by_key(|entry| entry.key);
        }
        live
    }

    /// Whether an entry is in no version that can be read (`can_reuse_version`).
    fn is_free(&self, node: u64, slot: usize) -> bool {
        let end = self.end(node, slot);
        self.start(node, slot) == 0 || (end != 0 && end <= self.version)
    }

    /// Whether that many places are free.
    pub(super) fn has_free(&self, node: u64, count: usize) -> bool {
        (0..SLOTS).rev().filter(|slot| self.is_free(node, *slot)).take(count).count() == count
    }

    /// How many places from the first on were ever filled.
    pub(super) fn used_count(&self, node: u64) -> usize {
        match self.order {
            Order::Sorted => partition(SLOTS, |slot| self.start(node, slot) != 0),
            Order::Unsorted => (0..SLOTS).filter(|slot| self.start(node, *slot) != 0).count(),
        }
    }

    /// The first of the used places whose key is at least this one.
    fn lower_bound(&self, node: u64, used: usize, key: u64) -> usize {
        partition(used, |slot| self.key(node, slot) < key)
    }

    /// The live entry of an inner node that leads to a key: the one with the least key from there on.
    pub(super) fn child_slot(&self, node: u64, key: u64) -> usize {
        let found = match self.order {
            Order::Sorted => {
                let used = self.used_count(node);
                (self.lower_bound(node, used, key)..used).find(|slot| self.is_live(node, *slot))
            }
            Order::Unsorted => (0..SLOTS)
                .filter(|slot| self.key(node, *slot) >= key && self.is_live(node, *slot))
                .min_by_key(|slot| self.key(node, *slot)),
        };
        found.expect("the last child of a node has its upper bound")
    }

    /// The live entry of a leaf with this key.
    pub(super) fn find(&self, leaf: u64, key: u64) -> Option<usize> {
        let (from, to) = match self.order {
            Order::Sorted => {
                let used = self.used_count(leaf);
                (self.lower_bound(leaf, used, key), used)
            }
            Order::Unsorted => (0, SLOTS),
        };
        let mut slots = from..to;
        match self.order {
            Order::Sorted => {
                slots.take_while(|slot| self.key(leaf, *slot) == key).find(|slot| self.is_live(leaf, *slot))
            }
            Order::Unsorted => slots.find(|slot| self.key(leaf, *slot) == key && self.is_live(leaf, *slot)),
        }
    }

    /// Ends an entry with the version being made.
    pub(super) fn end_entry(&self, node: u64, slot: usize) {
        self.store_end(node, slot, self.version + 1);
    }

    pub(super) fn store_end(&self, node: u64, slot: usize, end: u64) {
        self.mem.store_u64(place(node, slot) + END, end);
        self.persist(place(node, slot) + END, 8);
    }

    /// Ends all live entries, with one flush.
    pub(super) fn end_all(&self, node: u64) {
        let live: Vec<usize> = (0..SLOTS).filter(|slot| self.is_live(node, *slot)).collect();
        for slot in &live {
            self.mem.store_u64(place(node, *slot) + END, self.version + 1);
        }
        let mut lines: Vec<u64> = live.iter().map(|slot| place(node, *slot) / LINE_BYTES).collect();
        lines.dedup();
        lines.iter().for_each(|line| self.mem.flush(line * LINE_BYTES, LINE_BYTES));
        self.mem.fence();
    }

    /// Writes an entry over one that is needed no more, or is elsewhere.
    ///
    /// The line reaches media in the order of its stores, so that after a crash the place is empty or has all
    /// of the entry.
    pub(super) fn write(&self, node: u64, slot: usize, entry: Entry) {
        let at = place(node, slot);
        self.clear(node, slot);
        self.store_entry(at, entry);
        self.persist(at, ENTRY_BYTES);
    }

    fn store_entry(&self, at: u64, entry: Entry) {
        self.mem.store_u64(at + KEY, entry.key);
        self.mem.store_u64(at + VALUE, entry.value);
        self.mem.store_u64(at + END, entry.end);
        self.mem.store_u64(at + START, entry.start);
    }

    /// Makes a place empty; durable with the next flush of its line.
    fn clear(&self, node: u64, slot: usize) {
        if self.start(node, slot) != 0 {
            self.mem.store_u64(place(node, slot) + START, 0);
        }
    }

    /// Makes a place empty.
    pub(super) fn erase(&self, node: u64, slot: usize) {
        if self.start(node, slot) != 0 {
            self.clear(node, slot);
            self.persist(place(node, slot) + START, 8);
        }
    }

    /// Puts an entry into a node that has a free place. Of sorted nodes the entries between that place and
    /// the new one's are shifted, each durable where it goes before it is overwritten.
    pub(super) fn insert(&self, node: u64, entry: Entry) {
        if self.order == Order::Unsorted {
            let free = (0..SLOTS).find(|slot| self.is_free(node, *slot));
            return self.write(node, free.expect("a free place"), entry);
        }
        let used = self.used_count(node);
        let before = |slot| (self.key(node, slot), self.start(node, slot)) < (entry.key, entry.start);
        let to = partition(used, before);
        let free = if used < SLOTS {
            used
        } else {
            let dead = (0..SLOTS).filter(|slot| self.is_free(node, *slot));
            dead.min_by_key(|slot| slot.abs_diff(to)).expect("a free place")
        };
        if free >= to {
            (to..free).rev().for_each(|slot| self.write(node, slot + 1, self.entry(node, slot)));
            self.write(node, to, entry);
        } else {
            (free + 1..to).for_each(|slot| self.write(node, slot - 1, self.entry(node, slot)));
            self.write(node, to - 1, entry);
        }
    }

    /// A new node with these entries, which are in order; all of it is durable with one fence.
    pub(super) fn build(&mut self, level: usize, entries: &[Entry]) -> u64 {
        let node = self.free.pop().unwrap_or_else(|| {
            let node = self.next;
            self.next += NODE_BYTES;
            node
        });
        self.mem.store_u64(node, MAGIC | level as u64);
        self.mem.flush(node, 8);
        let mut lines: Vec<u64> = Vec::with_capacity(SLOTS / 2);
        for slot in 0..SLOTS {
            match entries.get(slot) {
                Some(entry) => self.store_entry(place(node, slot), *entry),
                None if self.start(node, slot) != 0 => self.clear(node, slot),
                None => continue,
            }
            lines.push(place(node, slot) / LINE_BYTES);
        }
        lines.dedup();
        lines.iter().for_each(|line| self.mem.flush(line * LINE_BYTES, LINE_BYTES));
        self.mem.fence();
        node
    }
}

/// The first number below `count` for which `is_before` is false, which it is for all after that.
fn partition(count: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
