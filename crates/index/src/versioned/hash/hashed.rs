//! The structure of the CDDS hash table, as a type.

use super::super::builder::VersionBuilder;

/// Finds keys by their hashes: a [`VersionedMap`] with this structure is a [`VersionedHash`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashStructure {}

/// A version of a table under construction.
pub(crate) type HashBuilder = VersionBuilder<HashStructure>;
