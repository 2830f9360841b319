//! Features: parts of a pool that earlier builds of this library do not know.
//!
//! A build that does not know something must say so, and not pass over it. So everything new on media (a kind
//! of root, a size class, a word of the header) has a bit in the header's `incompatible`, which every build
//! looks at, or a format version. The bits are in groups, so that a build can say of a bit that it does not
//! know what kind of thing it stands for:
//!
//! | bits | stand for | a build that does not know one of them |
//! |---|---|---|
//! | 0 to 15 | structures of the pool itself | refuses the pool |
//! | 16 to 23 | kinds of roots, formats of maps and heaps | opens it, and names the unknown roots |
//! | 24 to 31 | size classes | opens it for reading only; a check names the class |
//!
//! Builds from before these groups refuse a pool with any bit. A new bit goes into [`Feature`]; nothing else
//! is to be done for it but [`Pool::enable`], before the first thing of its kind is written. Every file has
//! [`Feature::Opening`] from its creation on, or from its next opening for writing: a file without it, whose
//! last opening is noted, comes from a build in between.
//!
//! # Media layout
//!
//! `PmHeader::incompatible`, under the header's checksum; and `PmHeader::features`, which has the same bits
//! with a check of its own, 0 as long as none was set since the pool was made.
//!
//! # Invariants
//!
//! * I1: a bit is durable in `features` before anything that it stands for is written (`Pool::enable`).
//! * I2: the checksum is that of the header with the `incompatible` that is there, or with the bits of
//!   `features` in it (`Header::parse`).
//!
//! # Commit point
//!
//! The store to `features`. The checksum and then `incompatible` follow, each durable before the next: for
//! the builds that do not know `features`. Between these two such a build calls the header damaged; before
//! and after, it finds the bit or a pool without the new thing.
//!
//! # Recovery
//!
//! Opening takes the bits of both words. Where `incompatible` lacks some, it stores them as `enable` does.
//! Doing that twice stores the same.
//!
//! # Concurrency
//!
//! Bits are set under a lock in memory, and never cleared.

use crate::feature::{OF_CLASSES, OF_ROOTS, unknown};
use crate::layout::{FEATURE_BITS, HEADER_SUMMED_BYTES, PmHeader, seal};
use crate::{ErrorKind, Result};
use tembo_pmem::{Region, offset_of};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const INCOMPATIBLE_AT: usize = offset_of!(PmHeader, incompatible);

/// Refuses a pool with features that this build must know to open it.
pub(crate) fn accept(features: u64, for_reading: bool) -> Result<()> {
    let harmless = OF_ROOTS | if for_reading { OF_CLASSES } else { 0 };
    match unknown(features) & !harmless {
        0 => Ok(()),
        unknown => Err(ErrorKind::UnknownFeatures { unknown }.into()),
    }
}

/// Makes the header have these features.
pub(crate) fn set(region: &Region, features: u64) -> Result<()> {
    let store = |off: usize, word: u64| -> Result<()> {
        region.store_u64(off as u64, word)?;
        // PERSIST(I1): the words are stored in the order in which this is called; I2 allows for each that is
        // not there yet.
        region.persist(off as u64, 8)?;
        Ok(())
    };
    store(offset_of!(PmHeader, features), seal(features, FEATURE_BITS))?;
    let mut summed = [0; HEADER_SUMMED_BYTES];
    for (i, word) in summed.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&region.load_u64(8 * i as u64)?.to_le_bytes());
    }
    summed[INCOMPATIBLE_AT..][..8].copy_from_slice(&features.to_le_bytes());
    store(offset_of!(PmHeader, checksum), xxh3_64(&summed))?;
    store(INCOMPATIBLE_AT, features)
}
