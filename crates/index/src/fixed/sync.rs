//! What the version protocol is made of. `tests/protocol.rs` runs `lock.rs` with a model checker's in its place.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;
pub(super) use tembo_pool::Bias;

/// Waits a little for a lock whose holder persists a line, or makes a change of the structure, or was stopped.
#[cold]
pub(super) fn wait(rounds: u32) {
    match rounds {
        0..64 => std::hint::spin_loop(),
        64..96 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(20)),
    }
}
