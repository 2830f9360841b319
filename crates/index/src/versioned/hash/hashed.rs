//! The structure of the CDDS hash table, as a type.

use super::super::builder::VersionBuilder;

/// Keys are found by their hashes: what makes a [`VersionedMap`](crate::VersionedMap) a
/// [`VersionedHash`](crate::VersionedHash).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashStructure {}

/// A version of a table under construction.
pub(crate) type HashBuilder = VersionBuilder<HashStructure>;
