//! Byte-addressable persistent memory: regions, durability domains, flush and fence.
//!
//! Everything above this crate reaches persistent memory through a [`Region`]: a mapped file
//! addressed by `u64` byte offsets from its start, never by pointers, so that it may be copied,
//! moved and mapped at any address. Four verbs carry all persistence:
//!
//! * **store** makes a value visible to other threads; it may reach media at any moment from then on;
//! * **flush** starts the write-back of the lines of a range;
//! * **fence** waits until the write-backs that *this thread* started are durable;
//! * **persist** is a flush and a fence.
//!
//! # Failure model
//!
//! Only aligned 8-byte stores are atomic. A dirty line may reach media at any moment, in any order
//! with other lines. Inside one line the stores reach media in program order, except for those of
//! [`Region::write_and_flush`], whose words arrive in any order. A write is durable once
//! its line was flushed and a fence by the same thread followed. Nothing else is guaranteed. The [`Domain`]
//! of a region says which failures count as a crash; code above this crate is written for the strictest
//! domain and pays only for its own.
//!
//! # Reading order
//!
//! `domain.rs` (which failures are survived), `flush.rs` (the instructions), `region/` (the mapping, and a
//! file for each kind of access), `fork.rs` (children do not reach regions), `bus_error.rs` (a message when a
//! page cannot be had), `grow.rs` (space), `journal/` (what a fence means on a disk), `private/` (the memory
//! that this takes, and how it is given back), `observer.rs` (how simulators listen), `media.rs` (layout
//! assertions), `counters.rs` (the cost of an operation).

mod access;
#[cfg(not(miri))]
mod bus_error;
mod counters;
mod domain;
mod error;
mod flush;
mod fork;
mod grow;
mod huge_pages;
pub mod journal;
mod map;
mod media;
#[cfg(miri)]
mod miri;
mod observer;
mod paging;
mod private;
mod region;
mod shrink;

pub use access::Access;
#[cfg(not(miri))]
pub use bus_error::report_bus_errors;
pub use counters::{Counts, WriteBacks, snapshot, write_backs};
pub use domain::{Domain, Durability};
pub use error::{OutOfBounds, RegionError, SyncError};
pub use flush::FlushInstruction;
pub use fork::{OfProcess, assert_not_left_behind, forks};
pub use media::{Field, MediaLayout};
pub use observer::{Observer, ThreadTag};
pub use paging::is_in_memory;
pub use region::{Line, LineStores, LoadableWords, Region, RegionOptions, WritableLine, prefetch_for_store};
pub use shrink::CUT_MARK;

#[doc(hidden)]
pub use static_assertion_support::*;

/// Bytes in a cache line, the unit of flushing.
pub const LINE_BYTES: u64 = 64;

/// Bytes in a word, the unit of atomicity.
pub const WORD_BYTES: u64 = 8;

/// The page size that file lengths are rounded to.
pub(crate) const PAGE_BYTES: u64 = 4096;

#[doc(hidden)]
mod static_assertion_support {
    pub use core::mem::{offset_of, size_of};
}
