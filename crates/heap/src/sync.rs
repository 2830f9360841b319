//! What the ownership records are made of. `tests/threads_protocol.rs` runs `orec.rs` with a model checker's in its place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use tembo_pmem::prefetch_word_for_store;
