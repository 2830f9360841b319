//! Values, and walks, that hold their version themselves.

use super::super::entry::CddsEntry;
use super::super::snapshot::{CddsReader, Hold};
use super::scan::CddsRange;
use super::{CddsTree, view};
use crate::error::{Result, corrupt};
use std::iter::FusedIterator;
use std::ops::{Deref, RangeBounds};
use std::sync::Arc;

/// A value in place, as it was in the newest version when it was looked up. While it lives, what that version needs is not reused.
pub struct CddsValue<'t> {
    /// Not to be given out for longer than the version is held.
    bytes: &'t [u8],
    _hold: Hold<'t>,
}

impl Deref for CddsValue<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl std::fmt::Debug for CddsValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CddsValue").field(&&**self).finish()
    }
}

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
    /// The value that a key has in the newest version, in place. O(log n); takes no lock and no memory.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the tree is damaged on the way to the key.
    #[inline]
    pub fn get_pinned(&self, key: &[u8]) -> Result<Option<CddsValue<'_>>> {
        let reader = self.reader();
        let Some(value) = view::get(reader.pinned_view(), key)? else { return Ok(None) };
        let Some(bytes) = value.in_place() else { return Err(not_in_place()) };
        Ok(Some(CddsValue { bytes, _hold: reader.into_hold() }))
    }

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

#[cold]
fn not_in_place() -> crate::Error {
    corrupt("the value of an entry", 0, "bytes in place", "a copy")
}
