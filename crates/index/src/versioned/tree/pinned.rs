//! Iterators that hold their version themselves.

use super::super::entry::VersionedEntry;
use super::super::snapshot::VersionedReader;
use super::VersionedTree;
use super::scan::VersionedRange;
use crate::error::Result;
use std::iter::FusedIterator;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A key and its value, borrowed in place. While it lives, blocks of its version are not reused.
pub struct VersionedPinnedEntry<'t> {
    /// Must not be lent out for longer than the reader lives.
    entry: VersionedEntry<'t>,
    _reader: Arc<VersionedReader<'t>>,
}

impl VersionedPinnedEntry<'_> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.entry.key()
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        self.entry.value()
    }
}

impl std::fmt::Debug for VersionedPinnedEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionedPinnedEntry")
            .field("key", &self.key())
            .field("value", &self.value())
            .finish()
    }
}

/// A double-ended iterator over a range of keys, in the version that was the newest when it began. While it
/// or one of its entries lives, blocks of that version are not reused.
pub struct VersionedPinnedRange<'t> {
    range: VersionedRange<'t>,
    reader: Arc<VersionedReader<'t>>,
}

impl<'t> VersionedPinnedRange<'t> {
    fn pin(&self, entry: Result<VersionedEntry<'t>>) -> Result<VersionedPinnedEntry<'t>> {
        Ok(VersionedPinnedEntry { entry: entry?, _reader: self.reader.clone() })
    }
}

impl<'t> Iterator for VersionedPinnedRange<'t> {
    type Item = Result<VersionedPinnedEntry<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next()?;
        Some(self.pin(entry))
    }
}

impl DoubleEndedIterator for VersionedPinnedRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_back()?;
        Some(self.pin(entry))
    }
}

impl FusedIterator for VersionedPinnedRange<'_> {}

impl std::fmt::Debug for VersionedPinnedRange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.range.fmt(f)
    }
}

impl VersionedTree {
    /// The keys of the newest version in a range, with their values, in order from either end.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> VersionedPinnedRange<'_> {
        let reader = Arc::new(self.reader());
        VersionedPinnedRange { range: VersionedRange::new(reader.pinned_view(), range), reader }
    }

    /// The keys of the newest version that begin with `prefix`, with their values, in order from either end.
    pub fn prefix(&self, prefix: &[u8]) -> VersionedPinnedRange<'_> {
        let reader = Arc::new(self.reader());
        VersionedPinnedRange { range: VersionedRange::of_prefix(reader.pinned_view(), prefix), reader }
    }
}
