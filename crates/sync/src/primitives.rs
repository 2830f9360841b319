//! The atomics and helpers that `epoch.rs` and `bias.rs` use. `tests/epochs.rs` and `tests/bias.rs` replace
//! this module by one over a model checker's atomics.

pub(crate) use crate::back_off::back_off;
pub(crate) use crate::fence::{fence_after_exchange, has_heavy_fence, heavy_fence};
pub(crate) use crate::thread::{SLOTS, THREADS, first_slot, known_thread_number, thread_number};
pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
