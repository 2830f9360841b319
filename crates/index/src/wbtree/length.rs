//! The number of records of a tree: a sum of parts, each in a line of its own, so that lanes need not share a
//! line.

use super::WbTree;
use super::layout::{LENGTHS, PmLength, field};
use super::node::{Media, View};
use crate::error::Result;
use tembo_pool::Tx;

/// The part of the length that a transaction changes.
#[inline]
pub(crate) fn length_part(tx: &Tx<'_>) -> usize {
    tx.lane_number() as usize % LENGTHS
}

impl WbTree {
    /// How many records the tree holds. O(1).
    ///
    /// Each record that a concurrent thread puts or removes may or may not be counted. If one thread removes
    /// a record that another has just put, the result may be a number that the tree never had. It is exact
    /// while only one thread at a time writes.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the tree's header is damaged.
    pub fn len(&self) -> Result<u64> {
        // The sum may contain a removal without the insertion before it.
        Ok((self.length(Media(self.region()))? as i64).max(0) as u64)
    }

    /// Whether the tree holds no record. O(1), or O(log n) if several threads write, because the length is
    /// then not exact.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool> {
        let view = Media(self.region());
        if self.root(view)?.is_empty() {
            return Ok(true);
        }
        Ok(self.length(view)? == 0 && self.first()?.is_none())
    }

    /// The sum of the length's parts. With concurrent writers it may be below zero, in two's complement.
    pub(crate) fn length<'m>(&self, view: impl View<'m>) -> Result<u64> {
        (0..LENGTHS).try_fold(0u64, |sum, part| Ok(sum.wrapping_add(view.load(self.length_off(part))?)))
    }

    /// How many records the tree holds as the transaction sees it. O(1).
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn len_in(&self, tx: &Tx<'_>) -> Result<u64> {
        self.assert_writes(tx);
        self.length(self.pending(tx))
    }

    /// The offset of a part of the length.
    #[inline]
    pub(crate) fn length_off(&self, part: usize) -> u64 {
        debug_assert!(part < LENGTHS);
        self.header_off() + field!(PmMap.lengths) + (part * size_of::<PmLength>()) as u64
    }

    /// Adds to the part of the length that the transaction changes.
    #[inline]
    pub(crate) fn change_len(&self, tx: &mut Tx<'_>, by: i64) -> Result<()> {
        let off = self.length_off(length_part(tx));
        let old = tx.load(off)?;
        Ok(tx.store(off, old.wrapping_add_signed(by))?)
    }
}
