//! The structure of the CDDS B-Tree, as a type.

use super::super::builder::VersionBuilder;

/// Keys are in order, in a B-Tree: what makes a [`VersionedMap`](crate::VersionedMap) a
/// [`VersionedTree`](crate::VersionedTree).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeStructure {}

/// A version of a tree under construction.
pub(crate) type TreeBuilder = VersionBuilder<TreeStructure>;
