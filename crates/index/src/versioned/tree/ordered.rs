//! The structure of the CDDS B-Tree, as a type.

use super::super::builder::Work;

/// Keys are in order, in a B-Tree: what makes a [`CddsMap`] a [`CddsTree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CddsOrdered {}

/// A version of a tree in the making.
pub(crate) type TreeBuilder = Work<CddsOrdered>;
