//! Epochs: how long freed memory must wait for readers.
//!
//! A reader *pins* the epoch of its start. A writer that made blocks unreachable *retires* them at the
//! current epoch and advances it. The blocks may be used again when no pin with that epoch or an older
//! one is left.
//!
//! ORDER: a pin loads the global epoch and then publishes it in its slot with sequential consistency,
//! before any load of shared data. If the reclaimer's scan misses a slot, that slot was published after the
//! scan, hence the reader loads data after everything retired before the scan had been unlinked. A slot that
//! holds an older epoch than the current one only makes the reclaimer wait longer.
//!
//! Pins are counted, not bound to threads: a guard may be sent to another thread, any number may be alive,
//! and a thread may hold several.
//!
//! A *brief* pin stays on its thread, and is recorded in a slot that only this thread stores to. So it needs no locked
//! instruction, which would wait for all write-backs that the thread has under way, where the search that follows could
//! overlap with them. The barrier that it lacks is the reclaimer's: that makes every thread of the process pass
//! one (`membarrier`) before it scans. Where the system has no such call, a brief pin makes a barrier itself.

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use rustix::thread::{MembarrierCommand, membarrier};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

const SLOTS: usize = 64;
/// Threads with a slot of their own. Brief pins of more threads are pins like others.
const THREADS: usize = 256;
/// An empty slot. Epochs start above it.
const EMPTY: u64 = 0;

/// The epochs of one pool.
pub(crate) struct Epochs {
    current: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<AtomicU64>]>,
    /// The slots of threads, by their number.
    threads: Box<[CachePadded<AtomicU64>]>,
    /// Whether any of those was ever used.
    is_brief: AtomicBool,
    /// Pins that found no free slot: epoch to number of pins.
    overflow: Mutex<BTreeMap<u64, usize>>,
}

/// Where a pin was recorded.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Slot(usize),
    /// The slot of the thread with this number, which is the one that unpins.
    Thread(usize),
    Overflow(u64),
}

/// Whether the system makes other threads pass a barrier when asked to.
static REMOTE_BARRIERS: LazyLock<bool> =
    LazyLock::new(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());

/// A number that no other living thread has.
struct ThreadNumber(usize);

/// Numbers of threads that ended, and the lowest that was never given.
static NUMBERS: Mutex<(BTreeSet<usize>, usize)> = Mutex::new((BTreeSet::new(), 0));

impl ThreadNumber {
    fn take() -> ThreadNumber {
        let (ended, next) = &mut *NUMBERS.lock();
        ThreadNumber(ended.pop_first().unwrap_or_else(|| {
            *next += 1;
            *next - 1
        }))
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        NUMBERS.lock().0.insert(self.0);
    }
}

static NEXT_START: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// Where this thread starts to look for a slot, so that threads do not share lines.
    static START: usize = NEXT_START.fetch_add(1, Ordering::Relaxed) % SLOTS;
    static NUMBER: ThreadNumber = ThreadNumber::take();
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        Epochs {
            current: CachePadded::new(AtomicU64::new(EMPTY + 1)),
            slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(EMPTY))).collect(),
            threads: (0..THREADS).map(|_| CachePadded::new(AtomicU64::new(EMPTY))).collect(),
            is_brief: AtomicBool::new(false),
            overflow: Mutex::new(BTreeMap::new()),
        }
    }

    pub(crate) fn pin(&self) -> Place {
        let start = START.with(|s| *s);
        let epoch = self.current.load(Ordering::SeqCst);
        for i in 0..SLOTS {
            let slot = (start + i) % SLOTS;
            if self.slots[slot].compare_exchange(EMPTY, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                // ORDER: the exchange is visible before any later load. On x86 every locked instruction is such a
                // barrier, and the explicit one would cost as much again.
                if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
                    compiler_fence(Ordering::SeqCst);
                } else {
                    fence(Ordering::SeqCst);
                }
                return Place::Slot(slot);
            }
        }
        let mut overflow = self.overflow.lock();
        let epoch = self.current.load(Ordering::SeqCst);
        *overflow.entry(epoch).or_insert(0) += 1;
        Place::Overflow(epoch)
    }

    /// Pins for a guard that stays on this thread.
    #[inline]
    pub(crate) fn pin_briefly(&self) -> Place {
        // A thread that is ending has no number any more.
        let number = NUMBER.try_with(|number| number.0).unwrap_or(THREADS);
        let Some(slot) = self.threads.get(number).filter(|slot| slot.load(Ordering::Relaxed) == EMPTY) else {
            return self.pin();
        };
        // ORDER: acquire, so that no later load comes before this one: a scan that still missed another thread's store would
        // not make this thread pass a barrier.
        if !self.is_brief.load(Ordering::Acquire) {
            // ORDER: before the slot is used. A scan that misses it came before, as one that misses a pin.
            self.is_brief.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
        slot.store(self.current.load(Ordering::Acquire), Ordering::Relaxed);
        // ORDER: the slot is visible before any later load, or the reclaimer's barrier comes after them.
        if *REMOTE_BARRIERS {
            compiler_fence(Ordering::SeqCst)
        } else {
            fence(Ordering::SeqCst)
        }
        Place::Thread(number)
    }

    #[inline]
    pub(crate) fn unpin(&self, place: Place) {
        match place {
            // ORDER: release, so that the reader's loads are done before a reclaimer sees the slot empty.
            Place::Slot(slot) => self.slots[slot].store(EMPTY, Ordering::Release),
            Place::Thread(number) => self.threads[number].store(EMPTY, Ordering::Release),
            Place::Overflow(epoch) => {
                let mut overflow = self.overflow.lock();
                if let Some(pins) = overflow.get_mut(&epoch) {
                    *pins -= 1;
                    if *pins == 0 {
                        overflow.remove(&epoch);
                    }
                }
            }
        }
    }

    /// The epoch at which what was just unlinked is retired; later pins have a higher one.
    /// `alone`: nobody else retires.
    ///
    /// ORDER: release, so that a pin that loads the new epoch sees what was unlinked before.
    pub(crate) fn retire(&self, alone: bool) -> u64 {
        if alone {
            let epoch = self.current.load(Ordering::Relaxed);
            self.current.store(epoch + 1, Ordering::Release);
            return epoch;
        }
        self.current.fetch_add(1, Ordering::SeqCst)
    }

    /// What was retired before the returned epoch has no readers left.
    pub(crate) fn safe_before(&self) -> u64 {
        // ORDER: what this thread unlinked is visible to all before the scan, so that a pin which the scan misses
        // sees it.
        fence(Ordering::SeqCst);
        let threads: &[_] = if self.is_brief.load(Ordering::SeqCst) {
            if *REMOTE_BARRIERS {
                // ORDER: a brief pin is visible now, or its thread sees what was unlinked.
                membarrier(MembarrierCommand::PrivateExpedited).expect("a command that was registered");
            }
            &self.threads
        } else {
            &[]
        };
        let overflow = self.overflow.lock();
        let oldest_overflow = overflow.keys().next().copied().unwrap_or(u64::MAX);
        let oldest_slot = self
            .slots
            .iter()
            .chain(threads)
            .map(|slot| slot.load(Ordering::SeqCst))
            .filter(|epoch| *epoch != EMPTY)
            .min()
            .unwrap_or(u64::MAX);
        oldest_overflow.min(oldest_slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_holds_what_is_retired_after_it_and_nothing_else() {
        let epochs = Epochs::new();
        let before = epochs.retire(true);
        let pin = epochs.pin();
        let after = epochs.retire(true);
        assert!(before < epochs.safe_before());
        assert!(after >= epochs.safe_before());
        epochs.unpin(pin);
        assert!(after < epochs.safe_before());
    }

    #[test]
    fn brief_pins_hold_as_well_and_nest() {
        let epochs = Epochs::new();
        let outer = epochs.pin_briefly();
        assert!(matches!(outer, Place::Thread(_)));
        let retired = epochs.retire(true);
        let inner = epochs.pin_briefly();
        assert!(retired >= epochs.safe_before());
        epochs.unpin(inner);
        assert!(retired >= epochs.safe_before(), "the outer pin is left");
        epochs.unpin(outer);
        assert!(retired < epochs.safe_before());
    }

    #[test]
    fn threads_have_slots_of_their_own() {
        let epochs = Epochs::new();
        let mine = epochs.pin_briefly();
        let others: Vec<Place> = std::thread::scope(|scope| {
            (0..2).map(|_| scope.spawn(|| epochs.pin_briefly()).join().unwrap()).collect()
        });
        let number = |place: &Place| if let Place::Thread(number) = place { *number } else { usize::MAX };
        assert!(others.iter().all(|other| number(other) != number(&mine)));
        // What a thread left behind when it ended is still a pin.
        let retired = epochs.retire(true);
        epochs.unpin(mine);
        assert!(retired >= epochs.safe_before());
    }

    /// A reader that takes what it finds must find it intact, however often the writer replaces it.
    #[test]
    fn nothing_is_reclaimed_under_a_brief_pin() {
        let epochs = Epochs::new();
        let (intact, broken) = (1, 2);
        let values: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(broken)).collect();
        let current = AtomicUsize::new(0);
        values[0].store(intact, Ordering::SeqCst);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            let pin = epochs.pin_briefly();
                            let value = &values[current.load(Ordering::Acquire)];
                            (0..20).for_each(|_| assert_eq!(value.load(Ordering::Relaxed), intact));
                            epochs.unpin(pin);
                        }
                    })
                })
                .collect();
            let mut retired: Vec<(u64, usize)> = Vec::new();
            let mut free: Vec<usize> = (1..values.len()).collect();
            for _ in 0..20_000 {
                while free.is_empty() {
                    let safe = epochs.safe_before();
                    let (safe, kept) = retired.drain(..).partition(|(epoch, _)| *epoch < safe);
                    retired = kept;
                    let safe: Vec<(u64, usize)> = safe;
                    free.extend(safe.into_iter().map(|(_, i)| {
                        values[i].store(broken, Ordering::Relaxed);
                        i
                    }));
                }
                let Some(next) = free.pop() else { continue };
                values[next].store(intact, Ordering::Relaxed);
                let old = current.swap(next, Ordering::AcqRel);
                retired.push((epochs.retire(true), old));
            }
            done.store(true, Ordering::Relaxed);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }

    #[test]
    fn more_pins_than_slots_are_all_honoured() {
        let epochs = Epochs::new();
        let pins: Vec<Place> = (0..3 * SLOTS).map(|_| epochs.pin()).collect();
        let retired = epochs.retire(true);
        let (last, others) = pins.split_last().unwrap();
        others.iter().for_each(|pin| epochs.unpin(*pin));
        assert!(retired >= epochs.safe_before(), "one pin is left, in the overflow");
        epochs.unpin(*last);
        assert!(retired < epochs.safe_before());
    }
}
