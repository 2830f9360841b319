//! A memcached-compatible server whose only copy of the data is a Tembo pool.
//!
//! ```text
//!   clients ===TCP=== event_loop      turns: receive, run, commit once, send
//!                     |- conn            input, output, and a command that is done by half
//!                     |- request         lines and words
//!                     text, meta         the commands of both protocols
//!                     |- stats           counters
//!                     items              keys with their values, deadlines and unique numbers
//!                     |- item            an item as bytes; check: a proof of all
//!                     tembo              one batch, one fence
//! ```
//!
//! A server that is killed is followed by one that opens the same pool and has every acknowledged write:
//! items, their deadlines and their unique numbers (`cas`), which rise over restarts. A reply is sent when
//! the writes of its turn are durable.
//!
//! ```no_run
//! use tembo_memcached::{Config, Server};
//!
//! let pool = tembo::Options::new().create(true).open("tembo.pool")?;
//! let mut server = Server::bind(Config::default(), pool)?;
//! println!("listening on {}", server.local_addr());
//! server.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Differences from memcached 1.6
//!
//! - **Nothing is evicted** without [`Config::memory_limit`]. A full pool answers `SERVER_ERROR out of memory
//!   storing object`, and deletes items all the same. The old value of the key stays then, and also if the
//!   new one is too large.
//! - **Access times** are not kept: the meta flags `h` and `l` are refused.
//! - **The binary protocol and UDP** are not spoken; a client that begins with the binary protocol is
//!   disconnected, and so is one that speaks TLS, the protocol of Redis, or HTTP.
//! - **Commands for memcached's own memory** (`slabs`, `lru`, `lru_crawler`, `cache_memlimit`, `watch`,
//!   `extstore`) are unknown here.
//! - **Beyond loopback** no client is served without [`Config::accounts`].
//!
//! # Events
//!
//! Messages to the operator are events of the `tracing` crate with target `tembo_memcached`. They hold no
//! keys and no values.
#![forbid(unsafe_code)]

mod accounts;
mod check;
mod config;
mod conn;
mod error;
mod event_loop;
mod eviction;
mod foreign;
mod handle;
mod item;
mod items;
mod meta;
mod request;
mod server;
mod stats;
mod text;
mod victims;

pub use accounts::Accounts;
pub use check::check;
pub use config::Config;
pub use error::Error;
pub use eviction::{LimitSource, MemoryLimit};
pub use handle::Handle;
pub use server::{Listener, Server};
pub use stats::Figures;

/// The map that has the items.
pub const MAP_NAME: &str = "memcached";
