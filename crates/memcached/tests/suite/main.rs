//! The server as its clients see it.

mod beside;
mod clients;
mod evicted;
mod kept;
mod support;
