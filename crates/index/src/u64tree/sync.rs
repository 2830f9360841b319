//! The atomics of the version protocol. `tests/protocol.rs` runs `lock.rs` over a model checker's.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(super) use tembo_sync::{Bias, back_off};
