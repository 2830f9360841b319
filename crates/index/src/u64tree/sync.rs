//! The atomics of the version protocol. `tests/suite/protocol.rs` runs `lock.rs` with those of a model
//! checker.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(super) use tembo_sync::{Bias, back_off};
