//! A cursor over the records, which moves in both directions.

use super::WbTree;
use super::node::{Media, Record, View};
use super::scan::{
    beyond, descend_fenced, goal_from, is_above, is_below, is_left_of, is_right_of, key_of, trim,
};
use crate::direction::Direction;
use crate::error::Result;
use std::collections::VecDeque;
use std::ops::Bound;
use tembo_pool::Pin;

/// A cursor over the records of a tree. It is at a record, before the first, or after the last; a new cursor
/// is before the first.
///
/// It works on a copy of one leaf's entries, so most steps cost O(1). It may or may not see later changes in
/// that leaf, but never skips a record that exists during the whole walk. A step to another leaf, and a seek,
/// cost O(log n).
///
/// At a record the cursor holds a pin, which it renews with each leaf. A pin keeps freed memory from being
/// reused, so a cursor should not rest at a record for long.
pub struct Cursor<'t> {
    tree: &'t WbTree,
    place: CursorPosition<'t>,
}

enum CursorPosition<'t> {
    BeforeFirst,
    At { spot: Spot<'t>, _pin: Pin },
    AfterLast,
}

/// A record in a copy of its leaf.
pub(crate) struct Spot<'m> {
    /// The leaf's records in order of their keys, and its fences.
    pub(crate) records: VecDeque<u64>,
    pub(crate) low: Option<Vec<u8>>,
    pub(crate) high: Option<Vec<u8>>,
    at: usize,
    pub(crate) record: Record<'m>,
}

impl Spot<'_> {
    /// The offset of the record.
    pub(crate) fn off(&self) -> u64 {
        self.records[self.at]
    }

    /// The next record of the leaf in a direction: its position and its offset.
    fn neighbour(&self, direction: Direction) -> Option<(usize, u64)> {
        let at = match direction {
            Direction::Up => self.at + 1,
            Direction::Down => self.at.checked_sub(1)?,
        };
        Some((at, *self.records.get(at)?))
    }
}

impl WbTree {
    /// A cursor before the first record.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { tree: self, place: CursorPosition::BeforeFirst }
    }

    /// The nearest record that a walk from `from` on meets.
    pub(crate) fn nearest<'m>(
        &'m self,
        view: impl View<'m>,
        direction: Direction,
        mut from: Bound<Vec<u8>>,
    ) -> Result<Option<Spot<'m>>> {
        let mut is_fence = false;
        loop {
            let tree = self.root(view)?;
            if tree.is_empty() {
                return Ok(None);
            }
            let place = descend_fenced(view, tree, goal_from(direction, &from))?;
            let behind = |side| key_of(&from).filter(|_| is_fence && side == direction);
            let low = place.fence_at(Direction::Down, behind(Direction::Down))?;
            let high = place.fence_at(Direction::Up, behind(Direction::Up))?;
            let mut records = VecDeque::new();
            place.copy(view, &mut records)?;
            let (low_key, high_key) = (low.as_deref(), high.as_deref());
            trim(view, &mut records, |key| is_right_of(key, low_key), |key| is_left_of(key, high_key))?;
            if let Some((at, record)) = find_from(view, &records, direction, &from)? {
                return Ok(Some(Spot { records, low, high, at, record }));
            }
            let fence = if direction == Direction::Up { high } else { low };
            let Some(fence) = fence else { return Ok(None) };
            from = beyond(direction, fence);
            is_fence = true;
        }
    }
}

/// The nearest of a leaf's records that a walk from `from` on meets.
fn find_from<'m>(
    view: impl View<'m>,
    records: &VecDeque<u64>,
    direction: Direction,
    from: &Bound<Vec<u8>>,
) -> Result<Option<(usize, Record<'m>)>> {
    let (mut start, mut end) = (0, records.len());
    while start < end {
        let middle = start.midpoint(end);
        let key = Record::read(view.region(), records[middle])?.key;
        let is_left = match direction {
            Direction::Up => !is_above(key, from),
            Direction::Down => is_below(key, from),
        };
        if is_left { start = middle + 1 } else { end = middle }
    }
    let at = if direction == Direction::Up { Some(start) } else { start.checked_sub(1) };
    let Some((at, off)) = at.and_then(|at| Some((at, *records.get(at)?))) else { return Ok(None) };
    Ok(Some((at, Record::read(view.region(), off)?)))
}

impl<'t> Cursor<'t> {
    /// Moves to the first record whose key is at least `key`, or after the last record; returns whether it
    /// is at a record.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::get`]; the cursor is then at no record. The same holds for all moves.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.land(Direction::Up, Bound::Included(key.to_vec()))
    }

    /// Moves to the last record whose key is at most `key`, or before the first record; returns whether it
    /// is at a record.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.land(Direction::Down, Bound::Included(key.to_vec()))
    }

    /// Moves to the first record; returns whether there is one.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_first(&mut self) -> Result<bool> {
        self.land(Direction::Up, Bound::Unbounded)
    }

    /// Moves to the last record; returns whether there is one.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_last(&mut self) -> Result<bool> {
        self.land(Direction::Down, Bound::Unbounded)
    }

    /// Moves to the next record, from before the first to the first, and from the last to after the last;
    /// returns whether it is at a record.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    #[expect(clippy::should_implement_trait, reason = "it goes back as well, and lends its records")]
    pub fn next(&mut self) -> Result<bool> {
        self.step(Direction::Up)
    }

    /// Moves to the record before this one, from after the last to the last, and from the first to before
    /// the first; returns whether it is at a record.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn prev(&mut self) -> Result<bool> {
        self.step(Direction::Down)
    }

    /// The key of the record at which the cursor is, as it was when the cursor came to its leaf.
    pub fn key(&self) -> Option<&[u8]> {
        self.record().map(|record| record.key)
    }

    /// The value of the record at which the cursor is, as it was when the cursor came to its leaf.
    pub fn value(&self) -> Option<&[u8]> {
        self.record().map(Record::value)
    }

    fn record(&self) -> Option<&Record<'_>> {
        match &self.place {
            CursorPosition::At { spot, .. } => {
                self.tree.pool().assert_process();
                Some(&spot.record)
            }
            CursorPosition::BeforeFirst | CursorPosition::AfterLast => None,
        }
    }

    fn step(&mut self, direction: Direction) -> Result<bool> {
        let CursorPosition::At { spot, .. } = &mut self.place else {
            let is_past = match self.place {
                CursorPosition::BeforeFirst => direction == Direction::Down,
                _ => direction == Direction::Up,
            };
            return if is_past { Ok(false) } else { self.land(direction, Bound::Unbounded) };
        };
        if let Some((at, off)) = spot.neighbour(direction) {
            return match Record::read(self.tree.region(), off) {
                Ok(record) => {
                    (spot.at, spot.record) = (at, record);
                    Ok(true)
                }
                Err(e) => {
                    self.leave(direction);
                    Err(e)
                }
            };
        }
        let fence = match direction {
            Direction::Up => spot.high.take(),
            Direction::Down => spot.low.take(),
        };
        match fence {
            Some(fence) => self.land(direction, beyond(direction, fence)),
            None => {
                self.leave(direction);
                Ok(false)
            }
        }
    }

    /// Moves before the first or after the last record.
    fn leave(&mut self, direction: Direction) {
        self.place = match direction {
            Direction::Up => CursorPosition::AfterLast,
            Direction::Down => CursorPosition::BeforeFirst,
        };
    }

    fn land(&mut self, direction: Direction, from: Bound<Vec<u8>>) -> Result<bool> {
        self.leave(direction);
        let pin = self.tree.pool().pin();
        let Some(spot) = self.tree.nearest(Media(self.tree.region()), direction, from)? else {
            return Ok(false);
        };
        self.place = CursorPosition::At { spot, _pin: pin };
        Ok(true)
    }
}

impl std::fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place: &dyn std::fmt::Debug = match &self.place {
            CursorPosition::BeforeFirst => &"before the first",
            CursorPosition::At { spot, .. } => &spot.record,
            CursorPosition::AfterLast => &"after the last",
        };
        f.debug_struct("Cursor").field("place", place).finish_non_exhaustive()
    }
}
