//! Ordered persistent indexes in a Tembo pool.
//!
//! An index maps byte strings to byte strings, in order of the keys. Its only copy lies in the pool: there
//! is nothing to load when the pool is opened and nothing to write when it is closed. Every change goes
//! through a [`tembo_pool::Tx`], so that one commit makes any number of changes, in any number of indexes,
//! durable with one fence, all of them or none. Readers take no lock and never wait.
//!
//! [`WbTree`] is the one index so far. Start with the module essay in `wbtree/mod.rs`.

mod error;
pub mod format;
mod wbtree;

pub use error::{Error, Result};
pub use wbtree::layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use wbtree::{Entry, Range, Value, WbTree};
