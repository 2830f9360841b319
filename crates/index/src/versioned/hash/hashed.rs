//! The structure of the CDDS hash table, as a type.

use super::super::builder::Work;

/// Keys are found by their hashes: what makes a [`CddsMap`] a [`CddsHash`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CddsHashed {}

/// A version of a table in the making.
pub(crate) type HashBuilder = Work<CddsHashed>;
