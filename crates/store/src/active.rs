//! Which snapshots are needed: those that somebody reads, those that are kept, and the current one.
//!
//! A reader registers the number that it reads in a slot, and then looks whether that is still the current
//! one. A commit loads the current number before it looks through the slots. So whoever it does not find
//! there registers a number that is no lower than the one that it loaded.

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use tembo_sync::thread_number;

/// Snapshots that are registered without a lock.
const SLOTS: usize = 128;
const EMPTY: u64 = u64::MAX;

/// The snapshots that are open or kept.
pub(crate) struct Active {
    /// The number of the last commit.
    current: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Numbers that found no slot, and how many there are of each.
    more: Mutex<BTreeMap<u64, usize>>,
    /// Numbers that are kept in the pool, and under how many names each.
    kept: Mutex<BTreeMap<u64, usize>>,
    /// Registered numbers below this one are revoked, but for those that are kept. Only rises, and not above
    /// the current number.
    floor: CachePadded<AtomicU64>,
}

/// The place where a number is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    At(usize),
    InMore,
}

/// A number that is registered as long as this lives. Clones of a snapshot share it: a second registration
/// could be missed by a commit that looked at its slot before, and at the first one's after its release.
pub(crate) struct Registration {
    active: Arc<Active>,
    pub(crate) number: u64,
    slot: Slot,
}

impl Registration {
    /// Registers the current number.
    pub(crate) fn current(active: &Arc<Active>) -> Registration {
        let (number, slot) = active.register_current();
        Registration { active: active.clone(), number, slot }
    }

    /// Registers any number. The caller has the lock of commits.
    pub(crate) fn of(active: &Arc<Active>, number: u64) -> Registration {
        Registration { active: active.clone(), number, slot: active.register(number) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.active.release(self.slot, self.number);
    }
}

impl Active {
    pub(crate) fn new(current: u64, kept: impl IntoIterator<Item = u64>) -> Active {
        let slots = (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(EMPTY))).collect();
        let mut all = BTreeMap::new();
        kept.into_iter().for_each(|number| *all.entry(number).or_default() += 1);
        let current = CachePadded::new(AtomicU64::new(current));
        let floor = CachePadded::new(AtomicU64::new(0));
        Active { current, slots, more: Mutex::default(), kept: Mutex::new(all), floor }
    }

    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Makes a number the current one.
    pub(crate) fn publish(&self, number: u64) {
        // ORDER: release: who reads the number sees what was committed under it.
        self.current.store(number, Ordering::SeqCst);
    }

    /// Registers the current number.
    fn register_current(&self) -> (u64, Slot) {
        let mut number = self.current();
        let slot = self.register(number);
        loop {
            // ORDER: with the fence in `needed`: either the commit sees the slot, or this sees the number
            // that it began with.
            fence(Ordering::SeqCst);
            let now = self.current.load(Ordering::SeqCst);
            if now == number {
                return (number, slot);
            }
            self.change(slot, number, now);
            number = now;
        }
    }

    fn register(&self, number: u64) -> Slot {
        let start = thread_number();
        for i in 0..SLOTS {
            let at = (start + i) % SLOTS;
            let slot = &self.slots[at];
            if slot.load(Ordering::Relaxed) == EMPTY
                && slot.compare_exchange(EMPTY, number, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            {
                return Slot::At(at);
            }
        }
        *self.more.lock().entry(number).or_default() += 1;
        Slot::InMore
    }

    fn change(&self, slot: Slot, from: u64, to: u64) {
        match slot {
            Slot::At(at) => self.slots[at].store(to, Ordering::SeqCst),
            Slot::InMore => {
                let mut more = self.more.lock();
                *more.entry(to).or_default() += 1;
                take(&mut more, from);
            }
        }
    }

    fn release(&self, slot: Slot, number: u64) {
        match slot {
            Slot::At(at) => self.slots[at].store(EMPTY, Ordering::Release),
            Slot::InMore => take(&mut self.more.lock(), number),
        }
    }

    /// Notes that a number is kept under one more name.
    pub(crate) fn keep(&self, number: u64) {
        *self.kept.lock().entry(number).or_default() += 1;
    }

    /// Notes that a number is kept under one name less.
    pub(crate) fn forget(&self, number: u64) {
        take(&mut self.kept.lock(), number);
    }

    /// The numbers that are kept, ascending.
    pub(crate) fn kept_numbers(&self) -> Vec<u64> {
        self.kept.lock().keys().copied().collect()
    }

    /// Revokes the snapshots below a number, or below the current one. The caller has the lock of commits.
    pub(crate) fn raise_floor(&self, number: u64) {
        // ORDER: before what is collected by this becomes visible, so that a reader that finds it collected
        // finds the floor, too.
        self.floor.fetch_max(number.min(self.current()), Ordering::SeqCst);
    }

    /// Revokes the oldest of the snapshots that are read and not kept; returns whether there was any that is
    /// not current. The caller has the lock of commits.
    pub(crate) fn revoke_oldest(&self) -> bool {
        let (oldest, current) = (self.needed().first_read(), self.current());
        self.raise_floor(oldest + 1);
        oldest < current
    }

    /// Whether a snapshot that was registered was revoked since. A reader asks after it has read.
    #[inline]
    pub(crate) fn is_revoked(&self, number: u64) -> bool {
        number < self.floor.load(Ordering::Acquire) && !self.kept.lock().contains_key(&number)
    }

    /// Which snapshots are needed now.
    pub(crate) fn needed(&self) -> Needed {
        let current = self.current.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let in_slots =
            self.slots.iter().map(|slot| slot.load(Ordering::SeqCst)).filter(|number| *number != EMPTY);
        let mut numbers: Vec<u64> = in_slots.collect();
        numbers.extend(self.more.lock().keys());
        let floor = self.floor.load(Ordering::SeqCst);
        numbers.retain(|number| *number >= floor);
        numbers.push(current);
        let first_read = numbers.iter().copied().min().unwrap_or(current);
        numbers.extend(self.kept.lock().keys());
        numbers.sort_unstable();
        numbers.dedup();
        Needed { numbers, first_read }
    }
}

/// Takes one away of those that are counted under a number.
fn take(counts: &mut BTreeMap<u64, usize>, number: u64) {
    if let Some(count) = counts.get_mut(&number) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&number);
        }
    }
}

/// The snapshots that were needed at one moment. All later ones are needed, too.
#[derive(Debug, Clone)]
pub(crate) struct Needed {
    /// Ascending; the current one is the last.
    numbers: Vec<u64>,
    first_read: u64,
}

impl Needed {
    /// Whether a version with this number, which another with the number `next` follows, is needed.
    pub(crate) fn has(&self, number: u64, next: u64) -> bool {
        let first = self.numbers.partition_point(|needed| *needed < number);
        self.numbers.get(first).is_none_or(|needed| *needed < next)
    }

    /// Whether a snapshot was needed.
    pub(crate) fn is_among(&self, number: u64) -> bool {
        self.numbers.binary_search(&number).is_ok()
    }

    /// The oldest snapshot that is read or kept.
    pub(crate) fn first(&self) -> u64 {
        self.numbers[0]
    }

    /// The oldest snapshot that is read, or the current one.
    pub(crate) fn first_read(&self) -> u64 {
        self.first_read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_needed_while_a_snapshot_lies_between_it_and_the_next() {
        let active = Active::new(10, [3]);
        let slot = active.register(6);
        let needed = active.needed();
        let has = |number, next| needed.has(number, next);
        assert!(has(3, 4) && has(1, 4) && has(5, 7) && has(6, 7) && has(9, 11) && has(10, 11));
        assert!(!has(1, 3) && !has(4, 6) && !has(7, 10) && !has(7, 8));
        assert!(has(11, 12), "whatever comes later may be read");
        assert_eq!((needed.first(), needed.first_read()), (3, 6));
        active.release(slot, 6);
        active.forget(3);
        assert!(!active.needed().has(6, 7) && !active.needed().has(3, 4));
    }

    #[test]
    fn the_oldest_snapshots_are_revoked_and_kept_ones_are_not() {
        let active = Active::new(10, [3]);
        let slots = [3, 4, 6].map(|number| active.register(number));
        assert_eq!(active.needed().first_read(), 3);
        assert!(active.revoke_oldest() && !active.is_revoked(3), "it is kept");
        assert_eq!(active.needed().first_read(), 4);
        assert!(active.revoke_oldest() && active.is_revoked(4) && !active.is_revoked(6));
        assert!(!active.needed().is_among(4) && active.needed().is_among(3));
        active.raise_floor(100);
        assert!(active.is_revoked(6) && !active.is_revoked(10), "the current one stays");
        assert!(!active.revoke_oldest());
        active.forget(3);
        assert!(active.is_revoked(3));
        slots.iter().zip([3, 4, 6]).for_each(|(slot, number)| active.release(*slot, number));
    }

    #[test]
    fn more_snapshots_than_slots_are_registered_all_the_same() {
        let active = Active::new(1000, []);
        let slots: Vec<Slot> = (0..SLOTS as u64 + 3).map(|number| active.register(number)).collect();
        assert_eq!(slots.iter().filter(|slot| **slot == Slot::InMore).count(), 3);
        assert_eq!(active.needed().numbers.len(), SLOTS + 4);
        slots.iter().zip(0..).for_each(|(slot, number)| active.release(*slot, number));
        assert_eq!(active.needed().numbers, [1000]);
    }
}
