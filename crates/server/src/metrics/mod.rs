//! Figures for Prometheus, and health for probes, over HTTP.
//!
//! ```text
//!   event loop --Vec<Family>--> board --text--> endpoint ===HTTP=== Prometheus, probes
//!   families     the figures, by name         endpoint  a thread with a bounded number of connections
//!   board        where they are handed over   http      requests and responses
//!   text         the exposition formats
//! ```
//!
//! The event loop owns all figures, and no other thread reads them. The endpoint requests them, and the loop
//! gathers them at the end of a turn, at most one cron period later, unless the last ones are recent. A
//! server without scrapes pays one load of a word in each turn. The endpoint never waits for the loop: if the
//! loop is stuck it answers with the previous figures, which include their time, and `/health/live` says so.
//!
//! # Bounds
//! - A request has at most 8 KiB, and arrives and is answered within seconds.
//! - Only this many connections are open at a time; the oldest makes room for the next one.
//! - The event loop gathers figures at most once a second, whatever the number of scrapes.
//! - Names of commands, addresses of replicas and first words of errors are labels; keys and values are not.

pub(crate) mod board;
mod commands;
pub(crate) mod endpoint;
mod families;
mod family;
mod http;
mod publication;
mod text;
