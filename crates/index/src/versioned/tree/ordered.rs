//! The structure of the CDDS B-Tree, as a type.

use super::super::builder::VersionBuilder;

/// Keeps keys in order, in a B-Tree: a [`VersionedMap`] with this structure is a [`VersionedTree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeStructure {}

/// A version of a tree under construction.
pub(crate) type TreeBuilder = VersionBuilder<TreeStructure>;
