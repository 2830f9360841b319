//! The Tembo pool: a file mapped into memory, in which structures live without a second copy.
//!
//! A pool is a header, a directory of named roots, lanes, and zones of blocks. Everything in it changes by
//! **transactions** ([`Tx`]): a transaction's new data and a checksummed redo record become durable with one
//! fence, then its changes are made at their homes. After any crash, opening the pool replays at most two
//! records per lane, in time that does not depend on the pool's size; every block is then allocated exactly if
//! it is reachable.
//!
//! ```
//! # fn main() -> Result<(), tembo_pool::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("example.pool");
//! use tembo_pool::{Options, Pool};
//!
//! let mut options = Options::new();
//! options.create = true;
//! let pool = Pool::open(&path, &options)?;
//! let mut lane = pool.lane()?;
//! let mut tx = lane.begin();
//! let block = tx.alloc(64)?;
//! tx.write_fresh(block, b"hello")?;
//! tx.set_root("greeting", 1, block)?;
//! tx.commit()?; // durable from here on
//! assert_eq!(pool.root("greeting")?.unwrap().off, block);
//! # Ok(())
//! # }
//! ```
//!
//! # Reading order
//!
//! `layout.rs` (what is on media), `tx.rs` (transactions), `lane.rs` (records, and the invariants that make
//! one fence enough), `recover.rs`, `alloc/` (blocks), `create.rs` and `header.rs` (files), `check.rs`.

mod alloc;
mod check;
mod create;
mod epoch;
mod error;
pub mod format;
mod header;
mod lane;
mod layout;
mod lock;
mod options;
mod pool;
mod record;
mod recover;
mod roots;
mod tx;

#[cfg(test)]
mod tests;

pub use check::{Marks, Usage};
pub use error::{Error, Result};
pub use lane::{Lane, Writer};
pub use layout::Geometry;
pub use options::Options;
pub use pool::{Pin, Pool, Stats};
pub use recover::Recovery;
pub use roots::Root;
pub use tx::{Savepoint, Tx};
