//! The server as its clients see it.

mod beside;
mod clients;
mod kept;
mod support;
