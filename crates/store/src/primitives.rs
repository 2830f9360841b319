//! The atomics of `sequence.rs` and `active.rs`. `tests/model.rs` replaces this module by one over a model
//! checker's atomics.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use tembo_sync::{back_off, thread_number};

/// Snapshots that are registered without a lock.
pub(crate) const SLOTS: usize = 128;
