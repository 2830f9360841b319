//! Epochs: how long freed memory must wait for readers.
//!
//! A reader *pins* the current epoch. A writer that made blocks unreachable *retires* them at the current
//! epoch and advances it. The blocks may be used again when no pin with that epoch or an older one is left.
//!
//! ORDER: a pin loads the global epoch and then publishes it in its slot with sequential consistency, before
//! any load of shared data. A slot that the reclaimer's scan misses was published after the scan. Its reader
//! therefore loads data after everything retired before the scan had been unlinked. A slot that holds an
//! older epoch than the current one only makes the reclaimer wait longer.
//!
//! Pins are counted, not bound to threads: a guard may be sent to another thread, any number may be alive,
//! and a thread may hold several.
//!
//! A *brief* pin stays on its thread, in a slot that only this thread stores to. It needs no locked
//! instruction, which would wait for all write-backs that the thread has started. The reclaimer supplies the
//! missing fence: it executes [`heavy_fence`] before it scans. Where the system has no such call, a brief pin
//! takes a shared slot like others, or, if none is free, a lock.

use crate::primitives::{
    AtomicBool, AtomicU64, Mutex, Ordering, SLOTS, THREADS, compiler_fence, fence, fence_after_exchange,
    first_slot, has_heavy_fence, heavy_fence, known_thread_number, thread_number,
};
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;

/// An empty slot. Epochs start above it.
const EMPTY: u64 = 0;

/// The epochs of one set of readers and reclaimers.
pub struct Epochs {
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
    elements.try_into().unwrap_or_else(|_| unreachable!("LEN elements were made"))
}

/// Where a pin is recorded; [`Epochs::unpin`] takes it back.
#[derive(Clone, Copy)]
pub enum PinSlot<'e> {
    /// A slot that any thread may use and empty.
    Shared(usize),
    /// The thread's own slot. The same thread unpins it.
    Own(&'e AtomicU64),
    /// A count of pins of this epoch: no slot was free.
    Overflow(u64),
}

impl Default for Epochs {
    fn default() -> Epochs {
        Epochs {
            current: CachePadded::new(AtomicU64::new(EMPTY + 1)),
            slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(EMPTY))).collect(),
            threads: array_of(|| CachePadded::new(AtomicU64::new(EMPTY))),
            is_brief: AtomicBool::new(false),
            overflow: Mutex::new(BTreeMap::new()),
        }
    }
}

impl Epochs {
    /// Pins the current epoch for a guard that any thread may unpin. Executes a locked instruction; never
    /// waits while a slot is free.
    pub fn pin(&self) -> PinSlot<'static> {
        let start = first_slot();
        let epoch = self.current.load(Ordering::SeqCst);
        for i in 0..SLOTS {
            let slot = (start + i) % SLOTS;
            if self.slots[slot].compare_exchange(EMPTY, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                // ORDER: the exchange is visible before any later load.
                fence_after_exchange();
                return PinSlot::Shared(slot);
            }
        }
        let mut overflow = self.overflow.lock();
        let epoch = self.current.load(Ordering::SeqCst);
        *overflow.entry(epoch).or_insert(0) += 1;
        PinSlot::Overflow(epoch)
    }

    /// Pins the current epoch for a guard that stays on this thread.
    #[inline(always)]
    pub fn pin_briefly(&self) -> PinSlot<'_> {
        match self.try_pin_briefly() {
            Some(slot) => slot,
            None => self.pin_otherwise(),
        }
    }

    /// The short way of [`pin_briefly`](Self::pin_briefly), of a few instructions. It works if the thread's
    /// slot is known and empty and brief pins have begun; else the result is `None`.
    #[inline(always)]
    pub fn try_pin_briefly(&self) -> Option<PinSlot<'_>> {
        let slot = self.threads.get(known_thread_number())?;
        // ORDER: acquire, so that no later load comes before this one: a scan that still misses another
        // thread's store of the flag would not make this thread execute a fence. Likewise below.
        let may_pin = slot.load(Ordering::Relaxed) == EMPTY && self.is_brief.load(Ordering::Acquire);
        may_pin.then(|| self.pin_by(slot))
    }

    #[cold]
    #[inline(never)]
    fn pin_otherwise(&self) -> PinSlot<'_> {
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
    fn pin_by<'e>(&self, slot: &'e AtomicU64) -> PinSlot<'e> {
        slot.store(self.current.load(Ordering::Acquire), Ordering::Relaxed);
        // ORDER: the slot is visible before any later load, or the reclaimer's fence comes after those loads.
        compiler_fence(Ordering::SeqCst);
        PinSlot::Own(slot)
    }

    /// Tells reclaimers that brief pins exist; `false` if there can be none.
    fn begin_brief_pins(&self) -> bool {
        if !has_heavy_fence() {
            return false;
        }
        // ORDER: before a slot is used. A scan that misses the flag came before the pin.
        self.is_brief.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        true
    }

    /// Takes back a pin of these epochs.
    #[inline(always)]
    pub fn unpin(&self, slot: PinSlot<'_>) {
        // ORDER: release, so that the reader's loads are done before a reclaimer sees the slot empty.
        // Likewise below.
        match slot {
            PinSlot::Own(slot) => slot.store(EMPTY, Ordering::Release),
            slot => self.unpin_shared(slot),
        }
    }

    #[inline(never)]
    fn unpin_shared(&self, slot: PinSlot<'_>) {
        match slot {
            PinSlot::Shared(slot) => self.slots[slot].store(EMPTY, Ordering::Release),
            PinSlot::Own(slot) => slot.store(EMPTY, Ordering::Release),
            PinSlot::Overflow(epoch) => {
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

    /// Ends the current epoch and returns it: everything unlinked so far is retired at it. Later pins have a
    /// higher one. `is_only_writer`: no other thread retires meanwhile.
    pub fn retire(&self, is_only_writer: bool) -> u64 {
        // ORDER: release, so that a pin that loads the new epoch sees the unlinking.
        if is_only_writer {
            let epoch = self.current.load(Ordering::Relaxed);
            self.current.store(epoch + 1, Ordering::Release);
            return epoch;
        }
        self.current.fetch_add(1, Ordering::SeqCst)
    }

    /// Everything retired before the returned epoch has no readers left and gets no new ones. The result is
    /// at most the current epoch.
    pub fn safe_before(&self) -> u64 {
        let current = self.current.load(Ordering::SeqCst);
        // ORDER: the unlinking is visible before the scan, so that a pin that the scan misses sees it.
        fence(Ordering::SeqCst);
        let threads: &[_] = if self.is_brief.load(Ordering::SeqCst) {
            // ORDER: a brief pin is visible now, or its thread sees the unlinking.
            heavy_fence();
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
