//! Changes of keys found by their order: the first, the last, and those of a range.

use super::super::builder::GROUP_MAX;
use super::super::map::VersionedMap;
use super::super::view::region;
use super::edit::value_in;
use super::lookup::Goal;
use super::node::Node;
use super::ordered::{TreeBuilder, TreeStructure};
use super::scan::{Rest, entries_of};
use crate::error::{Result, corrupt};
use crate::record::MAX_KEY_BYTES;
use std::ops::{Bound, RangeBounds};
use tembo_pool::Tx;

/// One end of the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    First,
    Last,
}

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

impl VersionedMap<TreeStructure> {
    /// Removes the least key; returns it with its value. Makes a version of its own.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn pop_first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.write_alone(|builder, tx| builder.pop(tx, End::First))
    }

    /// Removes the greatest key; returns it with its value. Makes a version of its own.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn pop_last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.write_alone(|builder, tx| builder.pop(tx, End::Last))
    }

    /// Removes the keys in a range, in their order, some dozens in each version; returns how many. After an
    /// error or a crash, the keys up to some key are removed. Keys that other threads put into the range
    /// meanwhile may or may not be removed.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove_range_in_groups<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        let mut rest = Rest::of(range);
        let mut removed = 0;
        while let Some(next) = rest {
            let (count, after) = self.write_alone(|builder, tx| builder.remove_some(tx, next, GROUP_MAX))?;
            removed += count;
            rest = after;
        }
        Ok(removed)
    }
}

impl TreeBuilder {
    /// Removes the first or the last key; returns it with its value.
    pub(crate) fn pop(&mut self, tx: &mut Tx<'_>, end: End) -> Result<Option<Pair>> {
        if self.drafts.root == 0 {
            return Ok(None);
        }
        let path = match end {
            End::First => self.path(tx, Goal::At(&[]))?,
            End::Last => self.path(tx, Goal::Last)?,
        };
        let mut pairs = self.pairs(tx, path.leaf())?;
        let popped = match end {
            End::First if !pairs.is_empty() => Some(pairs.swap_remove(0)),
            End::First => None,
            End::Last => pairs.pop(),
        };
        if let Some((key, _)) = &popped {
            self.remove(tx, key)?;
        }
        Ok(popped)
    }

    /// Removes up to `most` keys of a range, in order, leaf by leaf. Returns how many, and the rest of the
    /// range unless the end was reached.
    pub(crate) fn remove_some(
        &mut self,
        tx: &mut Tx<'_>,
        mut rest: Rest,
        most: usize,
    ) -> Result<(u64, Option<Rest>)> {
        let mut removed = 0;
        while self.drafts.root != 0 {
            let path = match &rest.low {
                Bound::Included(low) | Bound::Excluded(low) if low.len() as u64 <= MAX_KEY_BYTES => {
                    self.path(tx, Goal::At(low))?
                }
                Bound::Included(low) | Bound::Excluded(low) => {
                    self.path(tx, Goal::At(&low[..MAX_KEY_BYTES as usize]))?
                }
                Bound::Unbounded => self.path(tx, Goal::At(&[]))?,
            };
            let leaf = path.leaf();
            let high = self.high(tx, leaf)?;
            for (key, _) in self.pairs(tx, leaf)?.into_iter().filter(|(key, _)| rest.has(key)) {
                if removed as usize == most {
                    rest.low = Bound::Included(key);
                    return Ok((removed, Some(rest)));
                }
                removed += u64::from(self.remove(tx, &key)?);
            }
            let Some(high) = high else { break };
            let is_further = match &rest.low {
                Bound::Included(low) | Bound::Excluded(low) => high > *low,
                Bound::Unbounded => true,
            };
            if !is_further {
                return Err(corrupt(
                    "the fences of a leaf",
                    leaf,
                    "a range with the key that led here",
                    "another",
                ));
            }
            rest.low = Bound::Included(high);
            if rest.is_empty() {
                break;
            }
        }
        Ok((removed, None))
    }

    /// The upper fence of a leaf.
    fn high(&self, tx: &Tx<'_>, leaf: u64) -> Result<Option<Vec<u8>>> {
        match self.draft_of(leaf) {
            Some(draft) => Ok(self.fences(tx, draft)?.high),
            None => Ok(Node::open(region(tx), leaf, 0)?.high()?.map(<[u8]>::to_vec)),
        }
    }

    /// The keys of a leaf in order, with their values.
    fn pairs(&self, tx: &Tx<'_>, leaf: u64) -> Result<Vec<Pair>> {
        let Some(draft) = self.draft_of(leaf) else {
            let entries = entries_of(&Node::open(region(tx), leaf, 0)?, self.before.number)?;
            return Ok(entries.into_iter().map(|e| (e.key().to_vec(), e.value().to_vec())).collect());
        };
        let mut pairs = Vec::new();
        let head = self.items(tx, draft)?.head;
        let node = &self.drafts.nodes[draft];
        for slot in node.live() {
            let key = self.key_of(tx, 0, &head, &node.entry(slot))?;
            pairs.push((key.into_owned(), value_in(tx, node, slot)?.to_vec()));
        }
        pairs.sort_unstable();
        Ok(pairs)
    }
}
