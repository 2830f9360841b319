//! Which snapshots are needed: those that somebody reads, those that are kept, and the current one.
//!
//! A reader registers the number that it reads in a slot, and then looks whether that is still the current
//! one. Whoever asks what is needed loads the current number before it looks through the slots. So a reader
//! that it does not find there registers a number that is no lower than the one that it loaded.
//!
//! # What stays true
//!
//! The answer ([`Needed`]) stays right, if too large, however much later it is used: a reader that registers
//! after it was given takes the current number, which only rises, or a number that was in the answer; and one
//! that leaves only makes it smaller. The one exception, a reader that registers an [older
//! number](Registration::of), has kept all lanes from committing, and lowers what is remembered of the last
//! answer. Commits on several lanes therefore need no lock for it, and most ask for one word only: versions
//! that were followed by one up to the [oldest number](Active::oldest) of the last answer are not needed.

use crate::primitives::{AtomicU64, AtomicUsize, Mutex, Ordering, SLOTS, fence, thread_number};
use crate::sequence::Sequence;
use crossbeam_utils::CachePadded;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

const EMPTY: u64 = u64::MAX;

/// The snapshots that are open or kept.
pub(crate) struct Active {
    pub(crate) sequence: Sequence,
    /// No more was registered or kept when somebody asked for the last time.
    oldest: CachePadded<AtomicU64>,
    /// Slots from here on were never used.
    slots_used: AtomicUsize,
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Numbers that found no slot, and how many there are of each.
    more: Mutex<BTreeMap<u64, usize>>,
    /// Numbers that are kept in the pool, and under how many names each.
    kept: Mutex<BTreeMap<u64, usize>>,
    /// Numbers that were registered when nobody needed them, and how many of each are.
    partial: Mutex<BTreeMap<u64, usize>>,
    /// Registered numbers below this one are revoked, but for those that are kept. Only rises, and not above
    /// the current number.
    floor: CachePadded<AtomicU64>,
}

/// The place where a number is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    At(usize),
    InMore,
}

/// A number that is registered as long as this lives. Clones of a snapshot share it: a second registration
/// could be missed by a commit that looked at its slot before, and at the first one's after its release.
pub(crate) struct Registration {
    active: Arc<Active>,
    pub(crate) number: u64,
    slot: Slot,
    /// Whether some keyspaces may lack versions of it.
    is_partial: bool,
}

impl Registration {
    /// Registers the current number.
    pub(crate) fn current(active: &Arc<Active>) -> Registration {
        let (number, slot) = active.register_current();
        Registration { active: active.clone(), number, slot, is_partial: false }
    }

    /// Registers any number. The caller keeps all lanes from committing.
    pub(crate) fn of(active: &Arc<Active>, number: u64) -> Registration {
        let slot = active.register(number);
        active.oldest.fetch_min(number, Ordering::Relaxed);
        Registration { active: active.clone(), number, slot, is_partial: false }
    }

    /// As [`of`](Self::of), for a number that nobody needed: keyspaces that did not retain it lack versions.
    pub(crate) fn partly(active: &Arc<Active>, number: u64) -> Registration {
        *active.partial.lock().entry(number).or_default() += 1;
        let mut registration = Registration::of(active, number);
        registration.is_partial = true;
        registration
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.active.release(self.slot, self.number);
        if self.is_partial {
            // ORDER: after the slot; see `has_whole`.
            take(&mut self.active.partial.lock(), self.number);
        }
    }
}

impl Active {
    pub(crate) fn new(current: u64, lanes: usize, kept: impl IntoIterator<Item = u64>) -> Active {
        let slots = (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(EMPTY))).collect();
        let mut all = BTreeMap::new();
        kept.into_iter().for_each(|number| *all.entry(number).or_default() += 1);
        Active {
            sequence: Sequence::new(current, lanes),
            oldest: CachePadded::new(AtomicU64::new(0)),
            slots_used: AtomicUsize::new(0),
            slots,
            more: Mutex::new(BTreeMap::new()),
            kept: Mutex::new(all),
            partial: Mutex::new(BTreeMap::new()),
            floor: CachePadded::new(AtomicU64::new(0)),
        }
    }

    #[inline]
    pub(crate) fn current(&self) -> u64 {
        self.sequence.current()
    }

    /// The number of the last commit, for a caller who keeps all lanes from committing.
    pub(crate) fn current_alone(&self) -> u64 {
        self.sequence.catch_up_alone();
        self.current()
    }

    /// Registers the current number.
    fn register_current(&self) -> (u64, Slot) {
        let mut number = self.current();
        let slot = self.register(number);
        loop {
            // ORDER: with the fence in `needed`: either the commit sees the slot, or this sees the number
            // that it began with.
            fence(Ordering::SeqCst);
            let now = self.sequence.current_in_order();
            if now == number {
                return (number, slot);
            }
            self.change(slot, number, now);
            number = now;
        }
    }

    pub(crate) fn register(&self, number: u64) -> Slot {
        let start = thread_number();
        for i in 0..SLOTS {
            let at = (start + i) % SLOTS;
            let slot = &self.slots[at];
            if slot.load(Ordering::Relaxed) == EMPTY
                && slot.compare_exchange(EMPTY, number, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            {
                if self.slots_used.load(Ordering::Relaxed) <= at {
                    // ORDER: before the fence that follows, as the slot itself.
                    self.slots_used.fetch_max(at + 1, Ordering::SeqCst);
                }
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

    pub(crate) fn release(&self, slot: Slot, number: u64) {
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

    /// Whether a snapshot is current, kept, or registered, and was so ever since it was current, so that no
    /// version of it was collected. The caller keeps all lanes from committing.
    pub(crate) fn has_whole(&self, number: u64) -> bool {
        // No snapshot is newer than the current one. An empty slot has such a number.
        if number > self.current() {
            return false;
        }
        // ORDER: before the slots: a registration that ends meanwhile is counted here or in neither.
        let partial = self.partial.lock().get(&number).copied().unwrap_or(0);
        let in_slots = self.slots.iter().filter(|slot| slot.load(Ordering::SeqCst) == number).count();
        let registered = in_slots + self.more.lock().get(&number).copied().unwrap_or(0);
        let is_held = registered > partial && !self.is_revoked(number);
        is_held || number == self.current() || self.kept.lock().contains_key(&number)
    }

    /// Which snapshots are needed now.
    pub(crate) fn needed(&self) -> Needed {
        let current = self.sequence.current_in_order();
        fence(Ordering::SeqCst);
        let used = &self.slots[..self.slots_used.load(Ordering::SeqCst)];
        let in_slots = used.iter().map(|slot| slot.load(Ordering::SeqCst)).filter(|number| *number != EMPTY);
        let mut numbers: Vec<u64> = in_slots.collect();
        numbers.extend(self.more.lock().keys());
        let floor = self.floor.load(Ordering::SeqCst);
        numbers.retain(|number| *number >= floor);
        numbers.push(current);
        let first_read = numbers.iter().copied().min().unwrap_or(current);
        numbers.extend(self.kept.lock().keys());
        numbers.sort_unstable();
        numbers.dedup();
        self.oldest.store(numbers[0], Ordering::Relaxed);
        Needed { numbers, first_read }
    }

    /// A number that no snapshot which can be read is below of.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Relaxed)
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

/// The needed snapshots, asked for when it matters.
pub(crate) struct Asked<'a> {
    active: &'a Active,
    needed: OnceCell<Needed>,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(active: &'a Active) -> Asked<'a> {
        Asked { active, needed: OnceCell::new() }
    }

    /// As [`Needed::has`].
    #[inline]
    pub(crate) fn has(&self, number: u64, next: u64) -> bool {
        next > self.active.oldest() && self.needed().has(number, next)
    }

    pub(crate) fn needed(&self) -> &Needed {
        self.needed.get_or_init(|| self.active.needed())
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
    #[cfg(test)]
    pub(crate) fn is_among(&self, number: u64) -> bool {
        self.numbers.binary_search(&number).is_ok()
    }

    /// All of them.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> &[u64] {
        &self.numbers
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
