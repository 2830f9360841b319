//! Concurrency that knows nothing of persistent memory.
//!
//! | module | holds |
//! |---|---|
//! | [`epoch`](Epochs) | epoch-based reclamation with pins that need no locked instruction |
//! | [`fence`](heavy_fence) | the asymmetric fence: the rare side pays for both |
//! | [`bias`](Bias) | locks that one thread takes without a locked instruction |
//! | [`spin_lock`](SpinLock) | a lock that a plain store releases |
//! | [`back_off`], [`nap`] | how threads wait for each other |
//! | [`thread`](thread_number) | small numbers for threads |
//! | [`hash`](hash_u64) | the one multiplicative hash of offsets and keys |
//! | [`small_map`](SmallMap) | a map of a few entries that is emptied often |
//!
//! # Why locked instructions matter here
//!
//! On x86 a locked instruction waits for all write-backs that its thread has started. Between two commits
//! that means a wait for a whole persistence fence, which could otherwise overlap with the search for the
//! next change. Epochs, biased locks and the spin lock exist so that a single writer executes none.
//!
//! # Model checking
//!
//! `epoch.rs` and `bias.rs` take their atomics from `primitives.rs`. `tests/epochs.rs` and `tests/bias.rs`
//! compile the same files over loom's atomics, and require that each of a list of weakenings is caught.

mod back_off;
mod bias;
mod epoch;
#[cfg(test)]
mod epoch_tests;
mod fence;
mod hash;
mod nap;
mod primitives;
mod small_map;
mod spin_lock;
mod thread;

pub use back_off::{back_off, lock_soon};
pub use bias::Bias;
pub use epoch::{Epochs, PinSlot};
pub use fence::{fence_after_exchange, has_heavy_fence, heavy_fence, register_heavy_fence};
pub use hash::{hash_u64, hash_u64_to_bits};
pub use nap::nap;
pub use small_map::SmallMap;
pub use spin_lock::{SpinLock, SpinMutex, SpinMutexGuard};
pub use thread::thread_number;
