//! The sums that a tree may keep (`counting.rs`).

use super::layout::field;
use crate::error::{Error, Result, corrupt};
use std::fmt;
use tembo_pool::Pool;

/// Bytes at the beginning of a value that are its weight.
pub const WEIGHT_BYTES: usize = 4;

/// Which sums a tree keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counting {
    /// None.
    #[default]
    Nothing,
    /// The number of records.
    Records,
    /// The sum of the weights of records. The first four bytes of a value are its weight, little-endian.
    Weights,
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Counting::Nothing => "nothing",
            Counting::Records => "records",
            Counting::Weights => "weights",
        })
    }
}

impl Counting {
    /// Its word in `PmMap`.
    pub(crate) fn encode(self) -> u64 {
        match self {
            Counting::Nothing => 0,
            Counting::Records => 1,
            Counting::Weights => 2,
        }
    }

    pub(crate) fn decode(word: u64) -> Option<Counting> {
        [Counting::Nothing, Counting::Records, Counting::Weights].into_iter().find(|c| c.encode() == word)
    }

    /// The sums that the tree with this head keeps.
    pub(crate) fn of_head(pool: &Pool, header: u64) -> Result<Counting> {
        let word = pool.region().load_u64(header.saturating_add(field!(PmMap.counting)))?;
        Counting::decode(word)
            .ok_or_else(|| corrupt("what a tree counts", header, "a number up to 2", format!("{word:#x}")))
    }

    /// Refuses a value that cannot begin with a weight.
    #[inline]
    pub(crate) fn check_length(self, bytes: u64) -> Result<()> {
        let min_bytes = WEIGHT_BYTES as u64;
        match self {
            Counting::Weights if bytes < min_bytes => Err(Error::ValueTooShort { bytes, min_bytes }),
            _ => Ok(()),
        }
    }
}
