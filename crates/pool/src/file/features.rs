//! Features: parts of a pool that earlier builds of this library do not know.
//!
//! A build must report anything unknown on media, and must not ignore it. Everything new on media (a kind of
//! root, a size class, a word of the header) therefore has a format version, or a bit in the header's
//! `incompatible`, which every build checks. The bits form groups, so that a build knows which kind of thing
//! an unknown bit stands for:
//!
//! | bits | stand for | a build that does not know one of them |
//! |---|---|---|
//! | 0 to 15 | structures of the pool itself | refuses the pool |
//! | 16 to 23 | kinds of roots, formats of maps and heaps | opens it, and names the unknown roots |
//! | 24 to 31 | size classes | opens it for reading only; a check names the class |
//!
//! Builds from before these groups refuse a pool with any bit. A new bit goes into [`Feature`], and
//! [`Pool::enable`] sets it before the first thing of its kind is written; nothing else is needed. Every file
//! gets [`Feature::Opening`] at its creation, or at its next opening for writing. A file with chunks of 16
//! KiB or more gets [`Feature::FineClasses`] and [`Feature::WideClasses`] likewise. (A file without the first
//! may have `opening` set: an intermediate build wrote it.)
//!
//! # Media layout
//!
//! `PmHeader::incompatible`, which the header's checksum covers, and `PmHeader::features`, which has the same
//! bits with a check of its own. `features` is 0 until a bit is set after the pool was made.
//!
//! # Invariants
//!
//! * I1: a bit is durable in `features` before anything that it stands for is written (`Pool::enable`).
//! * I2: the header's checksum matches with `incompatible` as stored, or with the bits of `features` in its
//!   place (`Header::parse`).
//!
//! # Commit point
//!
//! The store to `features`. For builds that do not know that word, the checksum and then `incompatible`
//! follow, each durable before the next. After a crash between the two such a build calls the header damaged.
//! Before them it finds a pool without the new thing, after them the bit.
//!
//! # Recovery
//!
//! Opening takes the bits of both words. Where `incompatible` lacks some, it stores them as `enable` does. A
//! second run stores the same.
//!
//! # Concurrency
//!
//! Bits are set under a lock in memory, and never cleared.

use crate::feature::{Feature, OF_CLASSES, OF_ROOTS, unknown};
use crate::layout::{FEATURE_BITS, Geometry, HEADER_SUMMED_BYTES, PmHeader, seal};
use crate::{ErrorKind, Result};
use tembo_pmem::{Region, offset_of};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const INCOMPATIBLE_AT: usize = offset_of!(PmHeader, incompatible);

/// The features of files that this build creates or opens for writing, which it sets before it needs them.
pub(crate) fn of_files(geometry: &Geometry) -> u64 {
    let classes = Feature::FineClasses.bit() | Feature::WideClasses.bit();
    Feature::Opening.bit() | if geometry.has_fine_classes() { classes } else { 0 }
}

/// Refuses a pool with features that this build must know to open it.
pub(crate) fn accept(features: u64, for_reading: bool) -> Result<()> {
    let harmless = OF_ROOTS | if for_reading { OF_CLASSES } else { 0 };
    match unknown(features) & !harmless {
        0 => Ok(()),
        unknown => Err(ErrorKind::UnknownFeatures { unknown }.into()),
    }
}

/// Stores these features in the header.
pub(crate) fn set(region: &Region, features: u64) -> Result<()> {
    let store = |off: usize, word: u64| -> Result<()> {
        region.store_u64(off as u64, word)?;
        // PERSIST(I1): the words become durable in the order of the calls; I2 holds between any two of them.
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
