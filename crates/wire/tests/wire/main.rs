//! The wire crate from outside.

mod fuzz_seconds;
mod properties;
mod redis_peer;
mod requests;
mod round_trip;
