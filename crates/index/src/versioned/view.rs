//! A version, for reading.

use super::layout::RootWord;
use super::record_size_hint::RecordSizeHint;
use tembo_pmem::Region;
use tembo_pool::Tx;

/// A version, for reading. Its owner holds the version or is the map's writer.
#[derive(Clone, Copy)]
pub struct View<'m> {
    pub(crate) region: &'m Region,
    pub(crate) version: u64,
    pub(crate) root: RootWord,
    pub(crate) seed: u64,
    /// The size hint of the reader's slot, if there is one.
    pub(crate) size_hint: Option<&'m RecordSizeHint>,
}

/// The region in which the maps of a transaction lie.
#[inline]
pub(crate) fn region<'t>(tx: &'t Tx<'_>) -> &'t Region {
    tx.pool().region()
}
