//! The lock and the atomics of slabs and of the allocator. `tests/moves_protocol` replaces this module by
//! one over a model checker's.

pub(super) use parking_lot::Mutex;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
