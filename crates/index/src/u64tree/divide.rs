//! Dividing a leaf that is full: a new leaf takes the upper part of its keys.
//!
//! Usually the node above has room for the new leaf, and only that node and the leaf change. A thread that
//! does this shares the lock of structure changes and locks that node and the tree's lane. Otherwise more
//! nodes change, and the thread holds the lock of structure changes exclusively.

use super::create::Tree;
use super::fingerprints::{FIRST_LINES, NOWHERE, NewFingerprints, NewPlaces, bits, fingerprint};
use super::inner::{ChildEntry, Inner, NEW_SLOT};
use super::layout::{
    LEAF_KIND, NODE_BYTES, NODE_WORDS, SLOTS, SLOTS_PER_LINE, WORDS_PER_LINE, child_off, floor_off, line_off,
    next_off, separator_off, value_word,
};
use super::lock::Locked;
use super::node::simd::{Operation, Search};
use super::node::{Child, Leaf, Link};
use super::node::{SharedStructure, Structure};
use super::structure::{Path, Rewired};
use crate::error::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pmem::LINE_BYTES;
use tembo_pool::{Lane, Tx};
use tembo_sync::lock_soon;

/// About how many records a division moves. Each costs two words written to media. If a division moves fewer,
/// leaves are divided a little more often: moving a third instead of half means 9% more divisions, each of
/// which moves two thirds as much.
const MOVED: usize = 40;
/// The number may differ by this much if that avoids sorting.
const TOLERANCE: usize = 4;
const _: () = assert!(MOVED + TOLERANCE <= SLOTS_PER_LINE * FIRST_LINES as usize);

const NODE_LINES: usize = (NODE_BYTES / LINE_BYTES) as usize;

/// The point at which a leaf is divided.
struct Split {
    /// The first key that belongs to the new leaf.
    key: u64,
    /// The slots whose records go to the new leaf.
    moved: u128,
}

/// The change of the node above that a new leaf needs.
enum Above<'g> {
    /// The node takes the new leaf in place, to the right of the divided one.
    Adds(&'g Inner, ChildEntry),
    Rewired(Rewired<'g>),
}

impl Tree {
    /// Divides the leaf to which a key belongs, if it is full.
    #[cold]
    pub(super) fn divide_at(&self, key: u64) -> Result<()> {
        if self.divide_in_place(key)? {
            return Ok(());
        }
        self.change_structure(|lock, lane| {
            let path = self.path(key, lock)?;
            self.divide(key, &path, Some(lock), lane).map(drop)
        })
    }

    /// The same, if only the leaf and the node above it change; otherwise does nothing and returns `false`.
    fn divide_in_place(&self, key: u64) -> Result<bool> {
        let shared = self.share_structure();
        let Some(parent) = self.above_leaves(key, &shared) else { return Ok(false) };
        let _lock = lock_soon(|| parent.lock.try_lock(), || parent.lock.lock());
        let at = parent.taker(parent.position(key));
        match parent.child(at).follow(&shared) {
            // The new separator is not known yet. If there is room for the leaf's own separator, there is
            // very likely room for the new one too.
            Child::Leaf(leaf) if parent.room_for(parent.separator(at)).is_some() => {
                let mut lane = self.lock_lane()?;
                self.divide(key, &Path { nodes: vec![(parent, at)], leaf }, None, &mut lane)
            }
            _ => Ok(false),
        }
    }

    /// The node above the leaf to which a key belongs, if DRAM knows it.
    fn above_leaves<'g>(&'g self, key: u64, shared: &'g SharedStructure<'_>) -> Option<&'g Inner> {
        let mut word = &self.root;
        loop {
            // Nodes further up change only under the exclusive lock.
            match word.follow(shared) {
                Child::Inner(inner) if inner.level == 1 => return Some(inner),
                Child::Inner(inner) => word = inner.child(inner.taker(inner.position(key))),
                _ => return None,
            }
        }
    }

    /// Divides the leaf at the end of the path if it is full; `key` belongs to it. Returns `false` if the
    /// node above has no room and the caller has no `lock` to change other nodes. Without `lock` the path has
    /// only the node above, which is locked.
    fn divide(
        &self,
        key: u64,
        path: &Path<'_>,
        lock: Option<&Structure<'_>>,
        lane: &mut Lane,
    ) -> Result<bool> {
        let leaf = path.leaf;
        // `None` means that the leaf has left the tree.
        let Some(mut locked) = Locked::new(leaf, &self.bias) else { return Ok(true) };
        if !leaf.fingerprints.is_full() {
            return Ok(true);
        }
        let mut tx = lane.begin();
        let off = tx.alloc_zeroed(NODE_BYTES)?;
        // These lines arrive while the records, requested earlier, are read.
        (0..=FIRST_LINES).for_each(|line| self.region().prefetch_for_store(off + LINE_BYTES * line));
        if let Some((inner, slot)) =
            path.nodes.last().and_then(|(inner, _)| Some((inner, inner.free_slot()?)))
        {
            self.region().prefetch_for_store(separator_off(inner.off, slot.into()));
        }
        let words = self.region().words(leaf.off, NODE_WORDS)?;
        let keys = keys_of(words);
        let floor = leaf.floor.load(Ordering::Relaxed);
        let split =
            self.best.run(ChooseSplit { keys: &keys, key, is_first: leaf.low == 0, is_last: floor == 0 });
        let right = self.write_leaf(off, leaf, words, &split, &keys)?;
        // PERSIST(I5): the new leaf, before the record that links it, which does not cover it.
        self.region().fence().map_err(tembo_pool::Error::from)?;
        let right = Link::leaf(right);
        let above = match self.link_leaf(&mut tx, path, split.key, off, right, lock) {
            Ok(Some(above)) => above,
            outcome => {
                Link::drop_unused(vec![right]);
                return outcome.map(|_| false);
            }
        };
        if let Err(e) = tx.commit() {
            if let Above::Rewired(rewired) = above {
                rewired.undo();
            }
            Link::drop_unused(vec![right]);
            return Err(e.into());
        }
        locked.change_structure();
        leaf.next.store(right);
        // ORDER: before the moved records go and before the new leaf can change: a reader loads the floor
        // last.
        leaf.floor.store(!split.key, Ordering::Release);
        leaf.fingerprints.clear_all(split.moved);
        let left = SLOTS as u64 - u64::from(split.moved.count_ones());
        leaf.len.store(left, Ordering::Relaxed);
        drop(locked);
        match above {
            Above::Adds(inner, entry) => inner.add(&entry),
            Above::Rewired(rewired) => self.publish(rewired),
        }
        Ok(true)
    }

    /// Writes the new leaf, which lies to the right of `from`, into a block of zeros: it gets the records
    /// that `split` moves. `words` and `keys` are those of `from`. The leaf is durable with this thread's
    /// next fence.
    fn write_leaf(
        &self,
        off: u64,
        from: &Leaf,
        words: &[AtomicU64],
        split: &Split,
        keys: &[u64; SLOTS],
    ) -> Result<Leaf> {
        let region = self.region();
        let floor = from.floor.load(Ordering::Relaxed);
        let next = region.load_u64(next_off(from.off))?;
        let head = region.writable_line(off)?;
        [LEAF_KIND, split.key, floor, next].into_iter().enumerate().for_each(|(i, word)| head.store(i, word));
        head.flush();
        // The lines of records, and one more for records that are not placed yet.
        let mut image = [[0; WORDS_PER_LINE]; NODE_LINES];
        let mut fingerprints = NewFingerprints::new();
        let mut places = NewPlaces::default();
        let mut put = |from_slot: usize, slot: usize| {
            let key = keys[from_slot];
            let line = &mut image[slot / SLOTS_PER_LINE];
            line[slot % SLOTS_PER_LINE] = !key;
            line[SLOTS_PER_LINE + slot % SLOTS_PER_LINE] =
                words[value_word(from_slot)].load(Ordering::Relaxed);
            fingerprints.set(slot, fingerprint(key));
        };
        let (mut later, mut later_count) = ([0_u8; SLOTS], 0);
        for from_slot in bits(split.moved) {
            // A processor cannot predict whether a record's line has room, so there is no branch.
            let slot = places.of(keys[from_slot]);
            later[later_count] = from_slot as u8;
            later_count += usize::from(slot == NOWHERE);
            put(from_slot, slot);
        }
        later[..later_count].iter().for_each(|from_slot| put((*from_slot).into(), places.any()));
        // All other words are zero already.
        for line in (0..SLOTS / SLOTS_PER_LINE).filter(|line| image[*line].iter().any(|word| *word != 0)) {
            let words = image[line];
            let line = region.writable_line(line_off(off, line))?;
            words.into_iter().enumerate().for_each(|(i, word)| line.store(i, word));
            line.flush();
        }
        let leaf = Leaf::new(off, split.key, floor, fingerprints);
        leaf.next.store(from.next.load());
        Ok(leaf)
    }

    /// Makes the transaction link a new leaf to the right of the one at the end of the path; `None` if that
    /// needs `lock` and the caller does not have it.
    fn link_leaf<'g>(
        &'g self,
        tx: &mut Tx<'_>,
        path: &Path<'g>,
        separator: u64,
        off: u64,
        right: Link,
        lock: Option<&'g Structure<'g>>,
    ) -> Result<Option<Above<'g>>> {
        tx.store(next_off(path.leaf.off), off)?;
        tx.store(floor_off(path.leaf.off), !separator)?;
        let mut entry = ChildEntry { separator, child: right, off, slot: NEW_SLOT };
        if let Some((inner, _)) = path.nodes.last().copied()
            && let Some(slot) = inner.room_for(separator)
        {
            entry.slot = slot;
            tx.store(separator_off(inner.off, slot.into()), separator)?;
            tx.store(child_off(inner.off, slot.into()), off)?;
            return Ok(Some(Above::Adds(inner, entry)));
        }
        let Some(lock) = lock else { return Ok(None) };
        self.rewire(tx, &path.nodes, 1, |left| vec![left, entry], lock)
            .map(|rewired| Some(Above::Rewired(rewired)))
    }
}

/// Finds where to divide a full leaf with these keys, so that it has room for one more.
struct ChooseSplit<'k> {
    keys: &'k [u64; SLOTS],
    key: u64,
    /// Whether it is the first leaf, and the last.
    is_first: bool,
    is_last: bool,
}

impl Operation for ChooseSplit<'_> {
    type Outcome = Split;

    #[inline(always)]
    fn run_by<S: Search>(self, search: S) -> Split {
        let ChooseSplit { keys, key, is_first, is_last } = self;
        let (least, largest) =
            keys.iter().fold((u64::MAX, 0), |(least, largest), key| (least.min(*key), largest.max(*key)));
        // Keys that ascend at the right end of the tree, or descend at its left end, fill leaves.
        if is_last && largest < key {
            return Split { key, moved: 0 };
        }
        let at_least = |bound| search.at_least(keys, bound);
        if is_first && key < least {
            return Split { key: least, moved: at_least(least) };
        }
        // A leaf keeps the larger part, unless the new key lies below all others.
        let wanted = if key < least { SLOTS / 2 } else { MOVED };
        // Keys are probably spread evenly.
        let span = largest - least;
        let above = |count: usize| {
            span.checked_mul(count as u64)
                .map_or(span / SLOTS as u64 * count as u64, |all| all / SLOTS as u64)
        };
        let mut bound = largest - above(wanted);
        for _ in 0..3 {
            let moved = at_least(bound);
            let count = moved.count_ones() as usize;
            if count.abs_diff(wanted) <= TOLERANCE {
                return Split { key: bound, moved };
            }
            bound = if count < wanted {
                bound.saturating_sub(above(wanted - count)).max(least + 1)
            } else {
                bound.saturating_add(above(count - wanted)).min(largest)
            };
        }
        let mut sorted = *keys;
        let bound = *sorted.select_nth_unstable(SLOTS - wanted).1;
        Split { key: bound, moved: at_least(bound) }
    }
}

/// The keys in the slots of a leaf, whose words these are.
#[inline(always)]
fn keys_of(words: &[AtomicU64]) -> [u64; SLOTS] {
    let mut keys = [0; SLOTS];
    let lines = words[WORDS_PER_LINE..].chunks(WORDS_PER_LINE);
    for (keys, line) in keys.chunks_exact_mut(SLOTS_PER_LINE).zip(lines) {
        keys.iter_mut().zip(line).for_each(|(key, word)| *key = !word.load(Ordering::Relaxed));
    }
    keys
}
