//! Back-off: waiting for another thread.

use crate::nap::nap;
use std::time::Duration;

/// Rounds that spin, and rounds after which a thread sleeps instead of giving up its turn.
const SPINS: u32 = 100;
const YIELDS: u32 = SPINS + 32;
/// Longer than the system takes to run another thread, shorter than a person notices.
const SLEEP: Duration = Duration::from_micros(20);

/// Times that [`lock_soon`] tries before it sleeps, and pauses between two tries.
const TRIES: u32 = 200;
const PAUSES_PER_TRY: u32 = 8;

/// Waits before try number `round`: the first tries spin, later ones yield, the rest sleep for 20 us each.
#[cold]
pub fn back_off(round: u32) {
    match round {
        0..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => std::thread::yield_now(),
        _ => nap(SLEEP),
    }
}

/// Tries for a lock for some microseconds before it waits for it in the kernel, as sleeping and being woken
/// takes longer than holders keep it.
#[inline]
pub fn lock_soon<G>(try_lock: impl Fn() -> Option<G>, lock: impl FnOnce() -> G) -> G {
    for _ in 0..TRIES {
        if let Some(guard) = try_lock() {
            return guard;
        }
        (0..PAUSES_PER_TRY).for_each(|_| std::hint::spin_loop());
    }
    lock()
}
