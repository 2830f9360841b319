//! Values that hold their version themselves.

use super::bytes::VersionedBytes;
use super::map::VersionedMap;
use super::snapshot::VersionPin;
use super::structure::VersionedStructure;
use crate::error::Result;
use std::ops::Deref;

/// A value of the version that was the newest at the lookup, borrowed in place if it has a block of its own.
/// While it lives, blocks of that version are not reused.
pub struct VersionedValue<'m> {
    /// Must not be lent out for longer than the version is held.
    bytes: VersionedBytes<'m>,
    _hold: VersionPin<'m>,
}

impl Deref for VersionedValue<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for VersionedValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VersionedValue").field(&&**self).finish()
    }
}

impl<S: VersionedStructure> VersionedMap<S> {
    /// The value of a key in the newest version, borrowed in place if it has a block of its own. O(log n);
    /// takes no lock and no memory.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the map is damaged on the way to the key.
    #[inline]
    pub fn get_pinned(&self, key: &[u8]) -> Result<Option<VersionedValue<'_>>> {
        let reader = self.reader();
        let Some(bytes) = S::get(reader.pinned_view(), key)? else { return Ok(None) };
        Ok(Some(VersionedValue { bytes, _hold: reader.into_hold() }))
    }
}
