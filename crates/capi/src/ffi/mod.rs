//! The exported functions. What each does is documented once, in `include/tembo.h`.
//!
//! # Safety
//!
//! For all functions: a pointer is null, or as the header requires. Handles come from this library and were
//! not closed; strings end with a zero; buffers have the stated lengths; no other thread touches memory that
//! a call writes. Null where something is required is an error of its own, and not undefined.

// The safety of every function is the one above; the names are those of the header.
#![allow(clippy::missing_safety_doc)]

mod args;
mod cancel;
mod fixed;
mod history;
mod map;
mod names;
mod pool;
mod store;

pub use fixed::*;
pub use history::*;
pub use map::*;
pub use names::*;
pub use pool::*;
pub use store::*;
