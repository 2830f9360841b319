//! The items of walks over a version.

use super::bytes::VersionedBytes;

/// A key and its value, as they were in a version.
#[derive(Clone, Debug)]
pub struct VersionedEntry<'r> {
    pub(super) key: VersionedBytes<'r>,
    pub(super) value: VersionedBytes<'r>,
    /// The version that gave the key this value.
    pub(super) start: u64,
}

impl<'r> VersionedEntry<'r> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// The version that gave the key this value.
    pub fn since(&self) -> u64 {
        self.start
    }

    /// The key and the value, separately.
    pub fn into_parts(self) -> (VersionedBytes<'r>, VersionedBytes<'r>) {
        (self.key, self.value)
    }
}
