//! The versions that are being read.
//!
//! A reader publishes its version in a slot of its own. The proof in `mod.rs` relies on this order: the
//! reader stores its slot and then loads `intent`; the writer stores `intent` and then loads the slots. All
//! four accesses are sequentially consistent, so at least one of the two threads sees the other's store.

use super::record_size_hint::RecordSizeHint;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of slots. Further concurrent readers are counted under a lock.
const SLOTS: usize = 128;
/// Marks an unused slot. Versions begin with 1.
const EMPTY: u64 = 0;

/// A slot. It takes two lines, because processors fetch lines in pairs.
#[repr(align(128))]
struct ReaderLine {
    version: AtomicU64,
    /// The size hint of the slot's present or last reader. A reader loads this line anyway.
    size_hint: RecordSizeHint,
}

/// The readers of one map.
pub(crate) struct Readers {
    slots: Box<[ReaderLine]>,
    /// Slots from here on were never used.
    used: AtomicUsize,
    overflow: Mutex<BTreeMap<u64, usize>>,
}

/// The place where a reader is noted.
#[derive(Debug)]
pub(crate) enum ReaderSlot {
    Slot(usize),
    Overflow(u64),
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The slot at which this thread begins its search.
    static FIRST: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed));
}

impl Readers {
    pub(crate) fn new() -> Readers {
        Readers {
            slots: (0..SLOTS)
                .map(|_| ReaderLine { version: AtomicU64::new(EMPTY), size_hint: RecordSizeHint::default() })
                .collect(),
            used: AtomicUsize::new(0),
            overflow: Mutex::default(),
        }
    }

    /// Publishes a version. The caller then checks whether that was in time.
    #[inline]
    pub(crate) fn enter(&self, version: u64) -> ReaderSlot {
        let first = FIRST.get() % SLOTS;
        for i in 0..SLOTS {
            let idx = (first + i) % SLOTS;
            // ORDER: the mark is raised before the slot is used, so that no writer misses the slot; acquire,
            // so that this holds even if another reader has raised the mark.
            if self.used.load(Ordering::Acquire) <= idx {
                self.used.fetch_max(idx + 1, Ordering::SeqCst);
            }
            let slot = &self.slots[idx].version;
            // ORDER: sequentially consistent, as the head of the file says.
            if slot.compare_exchange(EMPTY, version, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return ReaderSlot::Slot(idx);
            }
        }
        *self.overflow.lock().entry(version).or_insert(0) += 1;
        ReaderSlot::Overflow(version)
    }

    /// Publishes another version in place of one that could not be read.
    pub(crate) fn move_to(&self, place: ReaderSlot, version: u64) -> ReaderSlot {
        match place {
            ReaderSlot::Slot(idx) => {
                // ORDER: as in `enter`.
                self.slots[idx].version.store(version, Ordering::SeqCst);
                place
            }
            ReaderSlot::Overflow(_) => {
                self.leave(&place);
                self.enter(version)
            }
        }
    }

    #[inline]
    pub(crate) fn leave(&self, place: &ReaderSlot) {
        match place {
            // ORDER: release, so that the reader's loads precede the moment at which a writer finds the slot
            // empty.
            ReaderSlot::Slot(idx) => self.slots[*idx].version.store(EMPTY, Ordering::Release),
            ReaderSlot::Overflow(version) => {
                let mut overflow = self.overflow.lock();
                if let Some(count) = overflow.get_mut(version) {
                    *count -= 1;
                    if *count == 0 {
                        overflow.remove(version);
                    }
                }
            }
        }
    }

    /// The size hint of the reader in a slot.
    #[inline]
    pub(crate) fn size_hint(&self, place: &ReaderSlot) -> Option<&RecordSizeHint> {
        match place {
            ReaderSlot::Slot(idx) => Some(&self.slots[*idx].size_hint),
            ReaderSlot::Overflow(_) => None,
        }
    }

    /// Adds the versions that are being read.
    pub(crate) fn collect(&self, versions: &mut Vec<u64>) {
        // ORDER: follows the writer's store of `intent`, as the head of the file says.
        let used = self.used.load(Ordering::SeqCst).min(SLOTS);
        let slots = self.slots[..used].iter().map(|slot| slot.version.load(Ordering::SeqCst));
        versions.extend(slots.filter(|version| *version != EMPTY));
        versions.extend(self.overflow.lock().keys());
    }
}

/// The versions whose blocks a writer has to spare, in order.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    versions: Vec<u64>,
    /// Whether no reader holds the last version yet: it is included because a reader may still begin to hold
    /// it.
    is_last_free: bool,
}

impl Retained {
    /// The versions that are held.
    pub(crate) fn new(mut versions: Vec<u64>) -> Retained {
        versions.sort_unstable();
        versions.dedup();
        Retained { versions, is_last_free: false }
    }

    /// Sets them to the held versions, which `gather` appends to a list, and the newest version.
    pub(crate) fn gather(&mut self, newest: u64, gather: impl FnOnce(&mut Vec<u64>)) {
        let Retained { versions, is_last_free } = self;
        versions.clear();
        gather(versions);
        if versions.is_empty() {
            versions.push(newest);
            *is_last_free = true;
            return;
        }
        versions.sort_unstable();
        versions.dedup();
        let place = versions.partition_point(|version| *version < newest);
        *is_last_free = place == versions.len();
        if versions.get(place) != Some(&newest) {
            versions.insert(place, newest);
        }
    }

    /// Whether any of the held versions lies in `start..end`.
    #[inline]
    pub(crate) fn any_in(&self, start: u64, end: u64) -> bool {
        if let [only] = self.versions[..] {
            return start <= only && only < end;
        }
        let first = self.versions.partition_point(|version| *version < start);
        self.versions.get(first).is_some_and(|version| *version < end)
    }

    /// Whether a reader holds a version from `start` on.
    #[inline]
    pub(crate) fn any_held_from(&self, start: u64) -> bool {
        self.held().last().is_some_and(|version| *version >= start)
    }

    /// The held versions.
    #[inline]
    pub(crate) fn held(&self) -> &[u64] {
        &self.versions[..self.versions.len() - usize::from(self.is_last_free)]
    }

    pub(crate) fn versions(&self) -> &[u64] {
        &self.versions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_found_until_they_leave_however_many_there_are() {
        let readers = Readers::new();
        let places: Vec<_> = (1..=300).map(|version| readers.enter(version)).collect();
        let found = |readers: &Readers| {
            let mut versions = Vec::new();
            readers.collect(&mut versions);
            versions.sort_unstable();
            versions
        };
        assert_eq!(found(&readers), (1..=300).collect::<Vec<_>>());
        places[..299].iter().for_each(|place| readers.leave(place));
        assert_eq!(found(&readers), [300]);
        readers.leave(&places[299]);
        assert_eq!(found(&readers), [0; 0]);
    }

    #[test]
    fn what_a_held_version_needs_is_told() {
        let retained = Retained::new(vec![9, 3, 3, 20]);
        for (start, end, needed) in
            [(1, 3, false), (1, 4, true), (3, 4, true), (4, 9, false), (4, 21, true), (21, 99, false)]
        {
            assert_eq!(retained.any_in(start, end), needed, "{start} to {end}");
        }
        assert!(!Retained::default().any_in(0, u64::MAX));
        assert!(Retained::new(vec![5]).any_in(5, 6) && !Retained::new(vec![5]).any_in(2, 5));
    }

    #[test]
    fn the_newest_version_is_spared_whether_it_is_held_or_not() {
        let gathered = |held: &[u64], newest| {
            let mut retained = Retained::new(vec![1, 99]);
            retained.gather(newest, |versions| versions.extend(held));
            retained
        };
        let free = gathered(&[3, 9, 3], 20);
        assert_eq!((free.versions(), free.held()), (&[3, 9, 20][..], &[3, 9][..]));
        assert!(free.any_in(10, 21) && free.any_held_from(9) && !free.any_held_from(10));
        let held = gathered(&[20, 3], 20);
        assert_eq!((held.versions(), held.held()), (&[3, 20][..], &[3, 20][..]));
        assert!(held.any_held_from(20) && !held.any_held_from(21));
        assert!(!gathered(&[], 1).any_held_from(0));
    }
}
