//! Values that hold their version themselves.

use super::bytes::CddsBytes;
use super::map::CddsMap;
use super::snapshot::Hold;
use super::structure::CddsStructure;
use crate::error::Result;
use std::ops::Deref;

/// A value as it was in the newest version when it was looked up, in place where it has a block of its own. While it lives, what that
/// version needs is not reused.
pub struct CddsValue<'m> {
    /// Not to be given out for longer than the version is held.
    bytes: CddsBytes<'m>,
    _hold: Hold<'m>,
}

impl Deref for CddsValue<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for CddsValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CddsValue").field(&&**self).finish()
    }
}

impl<S: CddsStructure> CddsMap<S> {
    /// The value that a key has in the newest version, in place where it has a block of its own. O(log n); takes no lock and no memory.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the map is damaged on the way to the key.
    #[inline]
    pub fn get_pinned(&self, key: &[u8]) -> Result<Option<CddsValue<'_>>> {
        let reader = self.reader();
        let Some(bytes) = S::get(reader.pinned_view(), key)? else { return Ok(None) };
        Ok(Some(CddsValue { bytes, _hold: reader.into_hold() }))
    }
}
