//! Iteration over records, which are fetched by scans of some dozens.

use super::create::U64Tree;
use crate::direction::Direction;
use crate::error::Result;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

/// Records that an iterator fetches at once.
const BATCH: usize = 64;

impl U64Tree {
    /// The record with the least key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn first(&self) -> Result<Option<(u64, u64)>> {
        self.range(..).next().transpose()
    }

    /// The record with the largest key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn last(&self) -> Result<Option<(u64, u64)>> {
        self.range(..).next_back().transpose()
    }

    /// The records whose keys are in a range, in order; the iterator is double-ended. Records are fetched in
    /// groups of some dozens, each group as of one moment.
    pub fn range(&self, keys: impl RangeBounds<u64>) -> U64Range {
        let low = match keys.start_bound() {
            Bound::Included(key) => Some(*key),
            Bound::Excluded(key) => key.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let high = match keys.end_bound() {
            Bound::Included(key) => Some(*key),
            Bound::Excluded(key) => key.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        let left = low.zip(high).filter(|(low, high)| low <= high);
        U64Range { tree: self.clone(), left, front: VecDeque::new(), back: VecDeque::new() }
    }

    /// All records in order.
    pub fn iter(&self) -> U64Range {
        self.range(..)
    }

    /// The number of records. Reads the whole tree.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn count(&self) -> Result<u64> {
        self.iter().try_fold(0, |count, record| record.map(|_| count + 1))
    }

    /// Removes the records whose keys are in a range, one by one, each durably; returns their number.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put). Some records may have been removed.
    pub fn remove_range(&self, keys: impl RangeBounds<u64>) -> Result<u64> {
        let mut removed = 0;
        for record in self.range(keys) {
            removed += u64::from(self.remove(record?.0)?.is_some());
        }
        Ok(removed)
    }
}

/// An iterator over records of a [`U64Tree`].
#[derive(Debug)]
pub struct U64Range {
    tree: U64Tree,
    /// The range of keys that are not fetched yet, both ends included.
    left: Option<(u64, u64)>,
    front: VecDeque<(u64, u64)>,
    back: VecDeque<(u64, u64)>,
}

impl U64Range {
    /// After a fork, fails once and drops the records fetched before it.
    fn check_process(&mut self) -> Result<()> {
        let checked = self.tree.tree.pool.check_process();
        if checked.is_err() && (self.left.take().is_some() || !self.front.is_empty() || !self.back.is_empty())
        {
            (self.front, self.back) = (VecDeque::new(), VecDeque::new());
            checked?;
        }
        Ok(())
    }

    /// Fetches more records from one end.
    fn fetch(&mut self, direction: Direction) -> Result<()> {
        let Some((low, high)) = self.left.take() else { return Ok(()) };
        let mut records = Vec::with_capacity(BATCH);
        self.tree.tree.scan((low, high), BATCH, direction, &mut records)?;
        let rest = match records.last() {
            Some((last, _)) if records.len() == BATCH => match direction {
                Direction::Up => last.checked_add(1).map(|low| (low, high)),
                Direction::Down => last.checked_sub(1).map(|high| (low, high)),
            },
            _ => None,
        };
        self.left = rest.filter(|(low, high)| low <= high);
        match direction {
            Direction::Up => self.front.extend(records),
            Direction::Down => self.back.extend(records),
        }
        Ok(())
    }
}

impl Iterator for U64Range {
    type Item = Result<(u64, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(e) = self.check_process() {
            return Some(Err(e));
        }
        if self.front.is_empty()
            && let Err(e) = self.fetch(Direction::Up)
        {
            return Some(Err(e));
        }
        self.front.pop_front().or_else(|| self.back.pop_back()).map(Ok)
    }
}

impl DoubleEndedIterator for U64Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Err(e) = self.check_process() {
            return Some(Err(e));
        }
        if self.back.is_empty()
            && let Err(e) = self.fetch(Direction::Down)
        {
            return Some(Err(e));
        }
        self.back.pop_front().or_else(|| self.front.pop_back()).map(Ok)
    }
}

impl std::iter::FusedIterator for U64Range {}
