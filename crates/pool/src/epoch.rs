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

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

const SLOTS: usize = 64;
/// An empty slot. Epochs start above it.
const EMPTY: u64 = 0;

/// The epochs of one pool.
pub(crate) struct Epochs {
    current: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Pins that found no free slot: epoch to number of pins.
    overflow: Mutex<BTreeMap<u64, usize>>,
}

/// Where a pin was recorded.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Slot(usize),
    Overflow(u64),
}

static NEXT_START: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// Where this thread starts to look for a slot, so that threads do not share lines.
    static START: usize = NEXT_START.fetch_add(1, Ordering::Relaxed) % SLOTS;
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        Epochs {
            current: CachePadded::new(AtomicU64::new(EMPTY + 1)),
            slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(EMPTY))).collect(),
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

    pub(crate) fn unpin(&self, place: Place) {
        match place {
            // ORDER: release, so that the reader's loads are done before a reclaimer sees the slot empty.
            Place::Slot(slot) => self.slots[slot].store(EMPTY, Ordering::Release),
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
        let overflow = self.overflow.lock();
        let oldest_overflow = overflow.keys().next().copied().unwrap_or(u64::MAX);
        let oldest_slot = self
            .slots
            .iter()
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
