//! The exported functions. What each does is documented once, in `include/tembo.h`.
//!
//! # Safety
//!
//! Of all functions: a pointer is null, or is what the header asks for. Handles come from this library and were not
//! closed; strings end with a zero; buffers have the lengths that are said; nobody else touches what a call writes to.
//! Null where something is required is an error of its own, and not undefined.

// The safety of every function is the one above; the names are those of the header.
#![allow(clippy::missing_safety_doc)]

mod args;
mod cancel;
mod fixed;
mod map;
mod names;
mod pool;

pub use fixed::*;
pub use map::*;
pub use names::*;
pub use pool::*;
