//! Eviction: when the data have more memory than `maxmemory` allows, or the pool is full, keys go by Redis's
//! policies.
//!
//! The limited memory is that of live data in the pool: the space in use, less the holes between records,
//! blocks that wait to be free, and the backlog for replicas. It is measured as often as that costs little,
//! and estimated from the sizes of new keys in between.
//!
//! Keys are evicted between batches, in the batch that the next commands share, so that an eviction costs no
//! fence of its own; replicas get a DEL. In a full pool a command that finds no space has keys evicted for
//! it, and is run again.

pub(crate) mod access;
pub(crate) mod candidate;
mod candidates;
pub(crate) mod evictor;
pub(crate) mod memory;
pub(crate) mod policy;
