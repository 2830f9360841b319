//! The Tembo pool: a file mapped into memory, in which structures live without a second copy.
//!
//! A pool is a header, a directory of named roots, lanes, and zones of blocks. Everything in it changes by
//! **transactions** ([`Tx`]): a transaction's new data and a checksummed redo record become durable with one
//! fence, then its changes are made at their homes. After any crash, opening the pool replays the last few
//! records of each lane, in time that does not depend on the pool's size; every block is then allocated
//! exactly if it is reachable.
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
//! # Layers
//!
//! Each layer imports only from those above it in this list:
//!
//! 1. `feature.rs`, `ending.rs`, `error.rs`, `layout.rs`: names, errors and media types (`format.rs`
//!    documents these);
//! 2. `file/`: the file as a whole, without an open pool;
//! 3. `alloc/`: blocks, and the check of them (`alloc/check.rs`);
//! 4. `log/`: records, lanes, their owners of lines, limbo, and recovery; reached by a `Log` handle;
//! 5. `inner.rs`: the state that all users of an open pool share; `pin.rs`: guards of it;
//! 6. `tx/`: lanes as writers have them, and transactions;
//! 7. `turns.rs`, `writers.rs`: the lane manager of a pool;
//! 8. `pool.rs`: opening and creating, and the methods of [`Pool`] that need all of these; `journal.rs`: the
//!    same where that takes a journal.
//!
//! # Media layout
//!
//! Header page, root directory, lanes, zones; `layout.rs` has the structs, `docs/format.md` their tables.
//!
//! # Invariants
//!
//! * I1: a block is allocated exactly if its bitmap bit is set, or its extent is named in the chunk table
//!   (`alloc/check.rs`); I2 and I3, of slabs and bitmaps, are in `alloc/mod.rs`.
//! * I4: allocated = reachable after every crash ([`Marks`]).
//! * I5: the header's magic is durable after everything that makes an empty pool, the file's name after its
//!   contents, and the header's length word after the space that it counts.
//! * I6: the sequence number of any record is at most the watermark, or the record is live. The watermark is
//!   raised after the home words of the records that it declares dead are durable (`log/recover.rs`).
//! * I7: chunks from a zone's `zero_from` on read as zero on media (`alloc/zone.rs`).
//! * T1 to T4: nothing alive lies behind a new, lower end of the file (`alloc/tail.rs`).
//! * L1 to L6 make one fence per commit enough; `log/mod.rs` states them in full, and why.
//! * L2: memory that a live record changes or covers is not handed out again.
//! * L4: a record never changes bytes that it covers itself.
//! * L6: a record is written over only when it is dead.
//! * O1 to O3 are about the word that tells whether the pool was closed; see `file/opening.rs`.
//!
//! # Commit point
//!
//! The fence after a record was flushed together with the new data that it covers (`log/commit.rs`).
//!
//! # Recovery
//!
//! Live records, those of each lane's last half, are replayed in the order of their numbers
//! (`log/recover.rs`). Replaying twice does no harm, since records hold values, bits and maxima.
//!
//! # Concurrency
//!
//! A lane has one writer at a time; lanes commit concurrently, and `log/mod.rs` lists their locks. Readers
//! pin an epoch and never wait (`tembo_sync::Epochs`). The allocator's lock is taken once per slab
//! (`alloc/mod.rs`). A structure has its own locks for the words that its transactions change; [`Writers`]
//! keeps them.
//!
//! # Source
//!
//! NV-heaps 3.3 (operation descriptors, allocation, recovery independent of the heap's size) and wB+-Tree 3.1
//! (redo-only logging); the deviations are in `log/mod.rs` and `alloc/mod.rs`.
//!
//! # Reading order
//!
//! `layout.rs` (media), `tx/mod.rs` (transactions), `tx/commit.rs`, `log/mod.rs` (records and lanes),
//! `log/recover.rs`, `alloc/mod.rs` (blocks), `file/create.rs` and `file/header.rs`, `alloc/check.rs`.

mod alloc;
mod compaction;
mod ending;
mod error;
mod feature;
mod file;
pub mod format;
mod inner;
mod journal;
mod layout;
mod log;
mod pin;
mod pool;
pub mod turns;
mod tx;
mod writers;

#[cfg(test)]
mod tests;

pub use alloc::check::{BlockInfo, ClassUsage, Marks, Reached, Usage};
pub use compaction::Compaction;
pub use ending::Ending;
pub use error::{Error, ErrorKind, Quoted, Result};
pub use feature::Feature;
pub use file::options::Options;
pub use file::roots::Root;
pub use inner::Pool;
pub use layout::{Geometry, TAG_BYTES, tag_off};
pub use log::recover::Recovery;
pub use pin::{BriefPin, OpenGuard, Pin};
pub use pool::{Stats, TrimPlace};
pub use tx::lane::{KeptSpace, Lane};
pub use tx::writer::Writer;
pub use tx::{LineStores, Savepoint, StoredLines, Tx, TxView};
pub use writers::{HeldBack, Turn, WRITERS_MAX, Writers};
