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
//! one (`membarrier`) before it scans. Where the system has no such call, a brief pin is one like others, and takes one of their
//! slots, or, if none is free, a lock.

use crate::sync::{
    AtomicBool, AtomicU64, Mutex, Ordering, SLOTS, THREADS, compiler_fence, fence, fence_after_exchange,
    first_slot, has_remote_barriers, known_thread_number, remote_barrier, thread_number,
};
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;

/// An empty slot. Epochs start above it.
const EMPTY: u64 = 0;

/// The epochs of one pool, or of its table of slabs.
pub(crate) struct Epochs {
    current: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<AtomicU64>]>,
    /// The slots of threads, by their number.
    threads: Box<[CachePadded<AtomicU64>; THREADS]>,
    /// Whether any of those was ever used.
    is_brief: AtomicBool,
    /// Pins that found no free slot: epoch to number of pins.
    overflow: Mutex<BTreeMap<u64, usize>>,
}

/// An array that never lies on a stack.
fn array_of<T, const LEN: usize>(element: impl Fn() -> T) -> Box<[T; LEN]> {
    let elements: Box<[T]> = (0..LEN).map(|_| element()).collect();
    elements.try_into().unwrap_or_else(|_| unreachable!("so many were made"))
}

/// Where a pin was recorded.
#[derive(Clone, Copy)]
pub(crate) enum Place<'e> {
    Slot(usize),
    /// The slot of the thread, which is the one that unpins.
    Own(&'e AtomicU64),
    Overflow(u64),
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        Epochs {
            current: CachePadded::new(AtomicU64::new(EMPTY + 1)),
            slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(EMPTY))).collect(),
            threads: array_of(|| CachePadded::new(AtomicU64::new(EMPTY))),
            is_brief: AtomicBool::new(false),
            overflow: Mutex::new(BTreeMap::new()),
        }
    }

    pub(crate) fn pin(&self) -> Place<'static> {
        let start = first_slot();
        let epoch = self.current.load(Ordering::SeqCst);
        for i in 0..SLOTS {
            let slot = (start + i) % SLOTS;
            if self.slots[slot].compare_exchange(EMPTY, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                // ORDER: the exchange is visible before any later load.
                fence_after_exchange();
                return Place::Slot(slot);
            }
        }
        let mut overflow = self.overflow.lock();
        let epoch = self.current.load(Ordering::SeqCst);
        *overflow.entry(epoch).or_insert(0) += 1;
        Place::Overflow(epoch)
    }

    /// Pins for a guard that stays on this thread.
    #[inline(always)]
    pub(crate) fn pin_briefly(&self) -> Place<'_> {
        match self.try_pin_briefly() {
            Some(place) => place,
            None => self.pin_otherwise(),
        }
    }

    /// The same where the thread's slot is known and empty, and brief pins have begun: few instructions.
    #[inline(always)]
    pub(crate) fn try_pin_briefly(&self) -> Option<Place<'_>> {
        let slot = self.threads.get(known_thread_number())?;
        // ORDER: acquire, so that no later load comes before this one: a scan that still missed another thread's store would
        // not make this thread pass a barrier. So below.
        let may_pin = slot.load(Ordering::Relaxed) == EMPTY && self.is_brief.load(Ordering::Acquire);
        may_pin.then(|| self.pin_by(slot))
    }

    #[cold]
    #[inline(never)]
    fn pin_otherwise(&self) -> Place<'_> {
        let own = self.threads.get(thread_number());
        let Some(slot) = own.filter(|slot| slot.load(Ordering::Relaxed) == EMPTY) else {
            return self.pin();
        };
        if !self.is_brief.load(Ordering::Acquire) && !self.begin_brief_pins() {
            return self.pin();
        }
        self.pin_by(slot)
    }

    #[inline(always)]
    fn pin_by<'e>(&self, slot: &'e AtomicU64) -> Place<'e> {
        slot.store(self.current.load(Ordering::Acquire), Ordering::Relaxed);
        // ORDER: the slot is visible before any later load, or the reclaimer's barrier comes after them.
        compiler_fence(Ordering::SeqCst);
        Place::Own(slot)
    }

    /// Tells reclaimers that there are brief pins; `false` if there can be none.
    fn begin_brief_pins(&self) -> bool {
        if !has_remote_barriers() {
            return false;
        }
        // ORDER: before a slot is used. A scan that misses it came before, as one that misses a pin.
        self.is_brief.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        true
    }

    #[inline(always)]
    pub(crate) fn unpin(&self, place: Place<'_>) {
        // ORDER: release, so that the reader's loads are done before a reclaimer sees the slot empty. So below.
        match place {
            Place::Own(slot) => slot.store(EMPTY, Ordering::Release),
            place => self.unpin_shared(place),
        }
    }

    #[inline(never)]
    fn unpin_shared(&self, place: Place<'_>) {
        match place {
            Place::Slot(slot) => self.slots[slot].store(EMPTY, Ordering::Release),
            Place::Own(slot) => slot.store(EMPTY, Ordering::Release),
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

    /// What was retired before the returned epoch, which is not above the current one, has no readers left, and gets no new ones.
    pub(crate) fn safe_before(&self) -> u64 {
        let current = self.current.load(Ordering::SeqCst);
        // ORDER: what this thread unlinked is visible to all before the scan, so that a pin which the scan misses
        // sees it.
        fence(Ordering::SeqCst);
        let threads: &[_] = if self.is_brief.load(Ordering::SeqCst) {
            // ORDER: a brief pin is visible now, or its thread sees what was unlinked.
            remote_barrier();
            self.threads.as_slice()
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
        oldest_overflow.min(oldest_slot).min(current)
    }
}
