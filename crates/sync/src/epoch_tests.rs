//! Tests of the epochs with real threads. `tests/epochs.rs` tries all interleavings.

use crate::primitives::SLOTS;
use crate::{Epochs, PinSlot, has_heavy_fence};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[test]
fn a_pin_holds_what_is_retired_after_it_and_nothing_else() {
    let epochs = Epochs::default();
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
    let epochs = Epochs::default();
    let outer = epochs.pin_briefly();
    assert_eq!(matches!(outer, PinSlot::Own(_)), has_heavy_fence());
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
    let epochs = Epochs::default();
    let mine = epochs.pin_briefly();
    let others: Vec<PinSlot<'_>> = std::thread::scope(|scope| {
        (0..2).map(|_| scope.spawn(|| epochs.pin_briefly()).join().unwrap()).collect()
    });
    let own = |slot: &PinSlot<'_>| {
        if let PinSlot::Own(word) = slot { Some(std::ptr::from_ref(*word)) } else { None }
    };
    assert!(others.iter().all(|other| own(other) != own(&mine) || !has_heavy_fence()));
    // A pin that a thread left when it ended is still a pin.
    let retired = epochs.retire(true);
    epochs.unpin(mine);
    assert!(retired >= epochs.safe_before());
}

/// A reader must find the block that it takes intact, however often the writer replaces it.
#[test]
fn nothing_is_reclaimed_under_a_brief_pin() {
    let epochs = Epochs::default();
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
    let epochs = Epochs::default();
    let pins: Vec<PinSlot<'_>> = (0..3 * SLOTS).map(|_| epochs.pin()).collect();
    let retired = epochs.retire(true);
    let (last, others) = pins.split_last().unwrap();
    others.iter().for_each(|pin| epochs.unpin(*pin));
    assert!(retired >= epochs.safe_before(), "one pin is left, in the overflow");
    epochs.unpin(*last);
    assert!(retired < epochs.safe_before());
}
