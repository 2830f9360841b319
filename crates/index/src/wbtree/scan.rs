//! Walking a range of keys in both directions while writers go on.
//!
//! An end of the walk holds a copy of one leaf's entries, taken while the leaf's state did not change, and the
//! fence behind which the next leaf begins. There are no pointers between leaves: the way to the next one is
//! from the root, to the fence. So a walk never meets a half-done change of structure. A record that is there
//! during the whole walk is met exactly once; one that comes or goes meanwhile is met or not.

use super::WbTree;
use super::bytes::Separator;
use super::items::Items;
use super::layout::TreeWord;
use super::node::{Inner, Leaf, Media, Record, View};
use super::search::{Goal, descend};
use crate::error::{Result, corrupt};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;
use tembo_pool::Pin;

/// A value in place, readable as long as this lives.
///
/// It keeps memory that is freed meanwhile from being reused, so it should not be kept for long.
pub struct Value<'t> {
    bytes: &'t [u8],
    _pin: Pin,
}

impl Deref for Value<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Value").field(&self.bytes).finish()
    }
}

/// A key and its value in place, readable as long as this lives.
///
/// It keeps memory that is freed meanwhile from being reused, so it should not be kept for long.
pub struct Entry<'t> {
    record: Record<'t>,
    _pin: Arc<Pin>,
}

impl Entry<'_> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.record.key
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        self.record.value
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("key", &self.key()).field("value", &self.value()).finish()
    }
}

/// The records of a range of keys, in order, from both ends.
///
/// Holds one pin from its beginning to its end. After an error, or after its end, it yields nothing more.
pub struct Range<'t> {
    tree: &'t WbTree,
    front: End,
    back: End,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    /// The key that each end yielded last: the ends must not cross.
    front_key: Option<&'t [u8]>,
    back_key: Option<&'t [u8]>,
    pin: Arc<Pin>,
}

/// One end of a walk.
#[derive(Debug)]
struct End {
    /// Records of the current leaf that are still to come, in order of their keys.
    records: VecDeque<u64>,
    next: Next,
}

/// What comes after the current leaf.
#[derive(Debug)]
enum Next {
    Start,
    Fence(Vec<u8>),
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl WbTree {
    /// The value of `key`, with a pin of its own. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    #[inline]
    pub fn get_pinned(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        let pin = self.pool().pin();
        let found = self.find_value(Media(self.region()), key)?;
        Ok(found.map(|bytes| Value { bytes, _pin: pin }))
    }

    /// The records whose keys lie in `bounds`, in order. The first step from each end costs O(log n), the
    /// others O(1) on average. Bounds that exclude each other give an empty range.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Range<'_> {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        self.range_between(owned(bounds.start_bound()), owned(bounds.end_bound()))
    }

    /// All records in order of their keys.
    pub fn iter(&self) -> Range<'_> {
        self.range_between(Bound::Unbounded, Bound::Unbounded)
    }

    /// The records whose keys begin with `prefix`, in order.
    pub fn prefix(&self, prefix: &[u8]) -> Range<'_> {
        self.range_between(Bound::Included(prefix.to_vec()), end_of_prefix(prefix))
    }

    /// The record with the smallest key. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn first(&self) -> Result<Option<Entry<'_>>> {
        self.iter().next().transpose()
    }

    /// The record with the largest key. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn last(&self) -> Result<Option<Entry<'_>>> {
        self.iter().next_back().transpose()
    }

    fn range_between(&self, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> Range<'_> {
        let end = || End { records: VecDeque::new(), next: Next::Start };
        Range {
            tree: self,
            front: end(),
            back: end(),
            lower,
            upper,
            front_key: None,
            back_key: None,
            pin: Arc::new(self.pool().pin()),
        }
    }
}

/// The bound above all keys that begin with `prefix`.
fn end_of_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    match prefix.iter().rposition(|byte| *byte != u8::MAX) {
        None => Bound::Unbounded,
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bound::Excluded(end)
        }
    }
}

impl<'t> Range<'t> {
    /// The next record from the front, borrowed from the walk itself: as `next`, but cheaper for walks that
    /// look at one record at a time.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::get`].
    pub fn advance(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.step(Direction::Up)?.map(|record| (record.key, record.value)))
    }

    /// The next record from the back, borrowed from the walk itself.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::get`].
    pub fn advance_back(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.step(Direction::Down)?.map(|record| (record.key, record.value)))
    }

    fn step(&mut self, direction: Direction) -> Result<Option<Record<'t>>> {
        let outcome = self.try_step(direction);
        if !matches!(outcome, Ok(Some(_))) {
            for end in [&mut self.front, &mut self.back] {
                end.records.clear();
                end.next = Next::Nothing;
            }
        }
        outcome
    }

    fn try_step(&mut self, direction: Direction) -> Result<Option<Record<'t>>> {
        let Some(off) = self.next_record(direction)? else { return Ok(None) };
        let record = Record::read(self.tree.region(), off)?;
        let key = record.key;
        let inside = match direction {
            Direction::Up => is_below(key, &self.upper) && self.back_key.is_none_or(|back| key < back),
            Direction::Down => is_above(key, &self.lower) && self.front_key.is_none_or(|front| front < key),
        };
        if !inside {
            return Ok(None);
        }
        match direction {
            Direction::Up => self.front_key = Some(key),
            Direction::Down => self.back_key = Some(key),
        }
        Ok(Some(record))
    }

    fn next_record(&mut self, direction: Direction) -> Result<Option<u64>> {
        loop {
            let end = match direction {
                Direction::Up => &mut self.front,
                Direction::Down => &mut self.back,
            };
            let next = match direction {
                Direction::Up => end.records.pop_front(),
                Direction::Down => end.records.pop_back(),
            };
            if next.is_some() || matches!(end.next, Next::Nothing) {
                return Ok(next);
            }
            self.load_leaf(direction)?;
        }
    }

    /// Copies the next leaf's entries, as far as they lie in the range.
    fn load_leaf(&mut self, direction: Direction) -> Result<()> {
        let view = Media(self.tree.region());
        let (end, bound) = match direction {
            Direction::Up => (&mut self.front, &self.lower),
            Direction::Down => (&mut self.back, &self.upper),
        };
        let tree = self.tree.root(view)?;
        if tree.is_empty() {
            end.next = Next::Nothing;
            return Ok(());
        }
        let goal = goal_of(direction, &end.next, bound);
        let (leaf, fence) = descend_fenced(view, tree, goal, direction)?;
        if let (Next::Fence(old), Some(new)) = (&end.next, &fence)
            && new.cmp(old) != if direction == Direction::Up { Ordering::Greater } else { Ordering::Less }
        {
            // In a damaged tree the walk could go in circles.
            let expected = format!("one past {}", old.escape_ascii());
            return Err(corrupt("a leaf's fence", leaf.off, expected, new.escape_ascii()));
        }
        let items = snapshot(view, &leaf)?;
        end.records.extend(items.as_slice().iter().map(|item| item.record));
        end.records.iter().for_each(|record| view.0.prefetch(*record));
        // Leaves may have been joined since the fence was read, and the first leaf begins before its bound.
        let is_ahead = |key: &[u8]| match (direction, &end.next) {
            (Direction::Up, Next::Fence(fence)) => fence.as_slice() <= key,
            (Direction::Down, Next::Fence(fence)) => key < fence.as_slice(),
            (Direction::Up, _) => is_above(key, bound),
            (Direction::Down, _) => is_below(key, bound),
        };
        let nearest = |records: &VecDeque<u64>| match direction {
            Direction::Up => records.front().copied(),
            Direction::Down => records.back().copied(),
        };
        while let Some(record) = nearest(&end.records) {
            if is_ahead(Record::read(view.0, record)?.key) {
                break;
            }
            match direction {
                Direction::Up => end.records.pop_front(),
                Direction::Down => end.records.pop_back(),
            };
        }
        end.next = fence.map_or(Next::Nothing, Next::Fence);
        Ok(())
    }

    fn entry(&mut self, direction: Direction) -> Option<Result<Entry<'t>>> {
        let step = self.step(direction).transpose()?;
        Some(step.map(|record| Entry { record, _pin: self.pin.clone() }))
    }
}

impl<'t> Iterator for Range<'t> {
    type Item = Result<Entry<'t>>;
    fn next(&mut self) -> Option<Self::Item> {
        self.entry(Direction::Up)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entry(Direction::Down)
    }
}

impl std::iter::FusedIterator for Range<'_> {}

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range")
            .field("lower", &self.lower)
            .field("upper", &self.upper)
            .finish_non_exhaustive()
    }
}

fn is_below(key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Included(bound) => key <= bound.as_slice(),
        Bound::Excluded(bound) => key < bound.as_slice(),
        Bound::Unbounded => true,
    }
}

fn is_above(key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Included(bound) => key >= bound.as_slice(),
        Bound::Excluded(bound) => key > bound.as_slice(),
        Bound::Unbounded => true,
    }
}

fn goal_of<'k>(direction: Direction, next: &'k Next, bound: &'k Bound<Vec<u8>>) -> Goal<'k> {
    match (direction, next, bound) {
        (Direction::Up, Next::Fence(fence), _) => Goal::At(fence),
        (Direction::Down, Next::Fence(fence), _) => Goal::Below(fence),
        (Direction::Down, _, Bound::Excluded(key)) => Goal::Below(key),
        (_, _, Bound::Included(key) | Bound::Excluded(key)) => Goal::At(key),
        (Direction::Up, _, Bound::Unbounded) => Goal::First,
        (Direction::Down, _, Bound::Unbounded) => Goal::Last,
    }
}

/// Goes down to a leaf; also returns its fence in the direction of the walk.
fn descend_fenced(
    view: Media<'_>,
    tree: TreeWord,
    goal: Goal<'_>,
    direction: Direction,
) -> Result<(Leaf, Option<Vec<u8>>)> {
    let mut fenced: Option<(Inner<'_>, usize)> = None;
    let leaf = descend(view, tree, goal, |node, child| match direction {
        Direction::Up if child + 1 < node.count() => fenced = Some((node, child)),
        Direction::Down if child > 0 => fenced = Some((node, child - 1)),
        _ => {}
    })?;
    let fence = fenced.map(|(node, i)| node.separator(i, goal.key()).map(Separator::to_vec)).transpose()?;
    Ok((leaf, fence))
}

/// The entries of a leaf at one moment, sorted.
pub(crate) fn snapshot<'m>(view: impl View<'m>, leaf: &Leaf) -> Result<Items> {
    loop {
        let state = leaf.state(view)?;
        let mut items = Items::new(leaf.skip());
        let gathered = items.gather(view, leaf, state);
        // ORDER: as in a lookup, the state is loaded before and after everything else.
        if leaf.state(view)? == state {
            gathered?;
            items.sort(view)?;
            return Ok(items);
        }
    }
}
