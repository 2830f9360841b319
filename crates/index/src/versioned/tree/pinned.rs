//! Walks that hold their version themselves.

use super::super::entry::CddsEntry;
use super::super::snapshot::CddsReader;
use super::CddsTree;
use super::scan::CddsRange;
use crate::error::Result;
use std::iter::FusedIterator;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A key and its value in place. While it lives, what its version needs is not reused.
pub struct CddsPinnedEntry<'t> {
    /// Not to be given out for longer than the reader lives.
    entry: CddsEntry<'t>,
    _reader: Arc<CddsReader<'t>>,
}

impl CddsPinnedEntry<'_> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.entry.key()
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        self.entry.value()
    }
}

impl std::fmt::Debug for CddsPinnedEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CddsPinnedEntry").field("key", &self.key()).field("value", &self.value()).finish()
    }
}

/// A walk over a range of keys, from either end, in the version that was the newest when it began. While it, or one of its
/// entries, lives, what that version needs is not reused.
pub struct CddsPinnedRange<'t> {
    range: CddsRange<'t>,
    reader: Arc<CddsReader<'t>>,
}

impl<'t> CddsPinnedRange<'t> {
    fn pin(&self, entry: Result<CddsEntry<'t>>) -> Result<CddsPinnedEntry<'t>> {
        Ok(CddsPinnedEntry { entry: entry?, _reader: self.reader.clone() })
    }
}

impl<'t> Iterator for CddsPinnedRange<'t> {
    type Item = Result<CddsPinnedEntry<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next()?;
        Some(self.pin(entry))
    }
}

impl DoubleEndedIterator for CddsPinnedRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_back()?;
        Some(self.pin(entry))
    }
}

impl FusedIterator for CddsPinnedRange<'_> {}

impl std::fmt::Debug for CddsPinnedRange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.range.fmt(f)
    }
}

impl CddsTree {
    /// The keys of the newest version in a range with their values, in order from either end.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> CddsPinnedRange<'_> {
        let reader = Arc::new(self.reader());
        CddsPinnedRange { range: CddsRange::new(reader.pinned_view(), range), reader }
    }

    /// The keys of the newest version that begin with `prefix`, with their values, in order from either end.
    pub fn prefix(&self, prefix: &[u8]) -> CddsPinnedRange<'_> {
        let reader = Arc::new(self.reader());
        CddsPinnedRange { range: CddsRange::of_prefix(reader.pinned_view(), prefix), reader }
    }
}
