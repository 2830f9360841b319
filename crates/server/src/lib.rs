//! A Redis-compatible server whose only copy of the data is a Tembo pool.
//!
//! ```text
//!   clients ===TCP=== event_loop      turns: receive, run, commit once, send
//!                     |- conn, buffer, clients, session
//!                     executor        one command after another; what is acknowledged is durable
//!                     |- commands/    a file per family; the command table
//!                     keyspace/       sixteen databases with expiry, on maps of the pool
//!                     tembo           one batch, one fence
//! ```
//!
//! There is no log, no snapshot and nothing to load: a server that is killed is followed by one that opens the same
//! pool and has every acknowledged write. `INFO tembo` says which failures an acknowledged write survives.
#![forbid(unsafe_code)]

mod buffer;
mod clients;
mod clock;
mod commands;
mod config;
mod conn;
mod cursors;
mod error;
mod event_loop;
mod executor;
mod fault;
mod glob;
mod info;
mod keyspace;
mod random;
mod server;
mod session;
mod state;

pub use config::Config;
pub use error::Error;
pub use server::{Handle, Server};
pub use tembo_wire::Limits;
