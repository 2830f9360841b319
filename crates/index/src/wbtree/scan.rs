//! Iteration over a range of keys in both directions, with concurrent writers.
//!
//! Each end of the walk holds a copy of one leaf's entries, taken while the leaf's state did not change, and
//! the fence at which the next leaf begins. Leaves have no pointers to each other: the next leaf is found
//! from the root by that fence, so a walk never sees a half-done change of structure. A walk yields a record
//! exactly once if it is there all the time; a record that is put or removed meanwhile may or may not be
//! yielded.

use super::WbTree;
use super::items::Items;
use super::layout::{LeafState, TreeWord};
use super::node::{Inner, Leaf, Media, Record, View, ask_for_node};
use super::search::{Goal, descend};
use crate::direction::Direction;
use crate::error::{Result, corrupt};
use crate::record::ValuePlace;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;
use tembo_pmem::assert_not_left_behind;
use tembo_pool::Pin;

/// A value, borrowed in place, readable as long as this lives.
///
/// While it lives, freed memory is not reused, so it should not be kept for long.
pub struct Value<'t> {
    bytes: &'t [u8],
    _pin: Pin,
}

impl Deref for Value<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        assert_not_left_behind(self.bytes);
        self.bytes
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Value").field(&&**self).finish()
    }
}

/// A key and its value, borrowed in place, readable as long as this lives.
///
/// While it lives, freed memory is not reused, so it should not be kept for long.
pub struct Entry<'t> {
    record: Record<'t>,
    _pin: Arc<Pin>,
}

impl Entry<'_> {
    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        assert_not_left_behind(self.record.key);
        self.record.key
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        // Before the value is looked for: a forked child has no region.
        assert_not_left_behind(self.record.key);
        self.record.value()
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("key", &self.key()).field("value", &self.value()).finish()
    }
}

/// A double-ended iterator over the records of a range of keys, in order.
///
/// Holds one pin as long as it lives. An error ends it.
pub struct Range<'t> {
    tree: &'t WbTree,
    front: End,
    back: End,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    /// The key that each end has yielded last: the ends must not cross.
    front_key: Option<&'t [u8]>,
    back_key: Option<&'t [u8]>,
    pin: Arc<Pin>,
}

/// One end of a walk.
#[derive(Debug)]
pub(crate) struct End {
    /// The current leaf's records that are still to be yielded, in the order of their keys.
    pub(crate) records: VecDeque<u64>,
    next: Next,
}

/// The next leaf of the walk.
#[derive(Debug)]
enum Next {
    Start,
    From(Bound<Vec<u8>>),
    Nothing,
}

impl WbTree {
    /// The value of `key`; it holds a pin of its own. O(log n).
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
        let (lower, upper) = owned_bounds(bounds);
        self.range_between(lower, upper)
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
        Range {
            tree: self,
            front: End::new(),
            back: End::new(),
            lower,
            upper,
            front_key: None,
            back_key: None,
            pin: Arc::new(self.pool().pin()),
        }
    }
}

/// Owned copies of both bounds.
pub(crate) fn owned_bounds<K: AsRef<[u8]>>(bounds: impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (owned(bounds.start_bound()), owned(bounds.end_bound()))
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
    /// As `next`, but the record is borrowed from the iterator: cheaper if the caller needs one record at a
    /// time.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::get`].
    pub fn advance(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.step(Direction::Up)?.map(|record| (record.key, record.value())))
    }

    /// As `next_back`, but the record is borrowed from the iterator.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::get`].
    pub fn advance_back(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.step(Direction::Down)?.map(|record| (record.key, record.value())))
    }

    /// As [`advance`](Self::advance), with the place of the value.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::get`].
    pub fn advance_place(&mut self) -> Result<Option<(&[u8], ValuePlace)>> {
        Ok(self.step(Direction::Up)?.map(|record| (record.key, record.place())))
    }

    /// As [`advance_back`](Self::advance_back), with the place of the value.
    ///
    /// # Errors
    ///
    /// As for [`WbTree::get`].
    pub fn advance_back_place(&mut self) -> Result<Option<(&[u8], ValuePlace)>> {
        Ok(self.step(Direction::Down)?.map(|record| (record.key, record.place())))
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
            if next.is_some() || end.is_last() {
                return Ok(next);
            }
            let bound = if direction == Direction::Up { &self.lower } else { &self.upper };
            end.load_leaf(self.tree, Media(self.tree.region()), direction, bound)?;
        }
    }

    fn entry(&mut self, direction: Direction) -> Option<Result<Entry<'t>>> {
        let step = self.step(direction).transpose()?;
        Some(step.map(|record| Entry { record, _pin: self.pin.clone() }))
    }
}

impl End {
    pub(crate) fn new() -> End {
        End { records: VecDeque::new(), next: Next::Start }
    }

    /// Whether no leaf follows the current one.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self.next, Next::Nothing)
    }

    /// Copies the entries of the next leaf. The first leaf may begin before `bound`.
    pub(crate) fn load_leaf<'m>(
        &mut self,
        tree: &WbTree,
        view: impl View<'m>,
        direction: Direction,
        bound: &Bound<Vec<u8>>,
    ) -> Result<()> {
        let root = tree.root(view)?;
        if root.is_empty() {
            self.next = Next::Nothing;
            return Ok(());
        }
        let (from, behind) = match &self.next {
            Next::From(from) => (from, key_of(from)),
            _ => (bound, None),
        };
        let place = descend_fenced(view, root, goal_from(direction, from))?;
        let fence = place.fence_at(direction, behind)?;
        let fence_key = fence.as_deref();
        place.copy(view, &mut self.records)?;
        place.prefetch_next(view, direction)?;
        match direction {
            Direction::Up => {
                trim(view, &mut self.records, |key| is_above(key, from), |key| is_left_of(key, fence_key))?;
            }
            Direction::Down => {
                trim(view, &mut self.records, |key| is_right_of(key, fence_key), |key| is_below(key, from))?;
            }
        }
        self.next = fence.map_or(Next::Nothing, |fence| Next::From(beyond(direction, fence)));
        Ok(())
    }
}

/// The bound at which the leaf behind a fence begins.
pub(crate) fn beyond(direction: Direction, fence: Vec<u8>) -> Bound<Vec<u8>> {
    match direction {
        Direction::Up => Bound::Included(fence),
        Direction::Down => Bound::Excluded(fence),
    }
}

pub(crate) fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Whether a key is on this side of the fence above a leaf.
pub(crate) fn is_left_of(key: &[u8], fence: Option<&[u8]>) -> bool {
    fence.is_none_or(|fence| key < fence)
}

/// Whether a key is on this side of the fence below a leaf.
pub(crate) fn is_right_of(key: &[u8], fence: Option<&[u8]>) -> bool {
    fence.is_none_or(|fence| fence <= key)
}

/// Drops records at both ends that lie outside of the fences. A leaf that takes over the range of an empty
/// neighbour is not copied, so it may hold keys beyond the fences that the descent found.
pub(crate) fn trim<'m>(
    view: impl View<'m>,
    records: &mut VecDeque<u64>,
    is_above: impl Fn(&[u8]) -> bool,
    is_below: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    while let Some(first) = records.front()
        && !is_above(Record::read(view.region(), *first)?.key)
    {
        records.pop_front();
    }
    while let Some(last) = records.back()
        && !is_below(Record::read(view.region(), *last)?.key)
    {
        records.pop_back();
    }
    Ok(())
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

pub(crate) fn is_below(key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Included(bound) => key <= bound.as_slice(),
        Bound::Excluded(bound) => key < bound.as_slice(),
        Bound::Unbounded => true,
    }
}

pub(crate) fn is_above(key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Included(bound) => key >= bound.as_slice(),
        Bound::Excluded(bound) => key > bound.as_slice(),
        Bound::Unbounded => true,
    }
}

/// The leaf in which a walk from `bound` on begins.
pub(crate) fn goal_from(direction: Direction, bound: &Bound<Vec<u8>>) -> Goal<'_> {
    match (direction, bound) {
        (Direction::Down, Bound::Excluded(key)) => Goal::Below(key),
        (_, Bound::Included(key) | Bound::Excluded(key)) => Goal::At(key),
        (Direction::Up, Bound::Unbounded) => Goal::First,
        (Direction::Down, Bound::Unbounded) => Goal::Last,
    }
}

/// A leaf, and the separators on the path to it that are its fences.
pub(crate) struct Fenced<'m, 'k> {
    pub(crate) leaf: Leaf,
    /// The node above the leaf; 0 if there is none.
    pub(crate) parent: u64,
    goal: Goal<'k>,
    low: Option<(Inner<'m>, usize)>,
    high: Option<(Inner<'m>, usize)>,
}

impl Fenced<'_, '_> {
    /// Appends the leaf's records as of one moment, in the order of their keys.
    pub(crate) fn copy<'m>(&self, view: impl View<'m>, records: &mut VecDeque<u64>) -> Result<()> {
        let (_, items) = snapshot(view, &self.leaf)?;
        records.extend(items.as_slice().iter().map(|item| item.record));
        records.iter().for_each(|record| view.region().prefetch(*record));
        Ok(())
    }

    /// Prefetches the next leaf, if it is below the same node. It arrives while the records of this one are
    /// looked at.
    fn prefetch_next<'m>(&self, view: impl View<'m>, direction: Direction) -> Result<()> {
        let (separator, is_up) = match direction {
            Direction::Up => (&self.high, true),
            Direction::Down => (&self.low, false),
        };
        match separator {
            Some((node, i)) if node.off == self.parent => {
                ask_for_node(view.region(), view.load(node.child_off(i + usize::from(is_up)))?, 0);
            }
            _ => {}
        }
        Ok(())
    }

    /// The leaf's fence in a direction, at which the next leaf begins. `behind` is the fence or key from
    /// which the walk came.
    pub(crate) fn fence_at(&self, direction: Direction, behind: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let separator = match direction {
            Direction::Up => &self.high,
            Direction::Down => &self.low,
        };
        let Some((node, i)) = separator else { return Ok(None) };
        let fence = node.separator(*i, self.goal.key())?.to_vec();
        let ahead = if direction == Direction::Up { Ordering::Greater } else { Ordering::Less };
        match behind {
            // In a damaged tree the walk could go round in a circle.
            Some(behind) if fence.as_slice().cmp(behind) != ahead => {
                let expected = format!("one past {}", behind.escape_ascii());
                Err(corrupt("a leaf's fence", self.leaf.off, expected, fence.escape_ascii()))
            }
            _ => Ok(Some(fence)),
        }
    }
}

/// Descends to a leaf, and collects its fences.
pub(crate) fn descend_fenced<'m, 'k>(
    view: impl View<'m>,
    tree: TreeWord,
    goal: Goal<'k>,
) -> Result<Fenced<'m, 'k>> {
    let (mut low, mut high, mut parent) = (None, None, 0);
    let leaf = descend(view, tree, goal, |node, child| {
        parent = node.off;
        if child > 0 {
            low = Some((node, child - 1));
        }
        if child + 1 < node.count() {
            high = Some((node, child));
        }
    })?;
    Ok(Fenced { leaf, parent, goal, low, high })
}

/// A leaf's state and sorted entries as of one moment.
pub(crate) fn snapshot<'m>(view: impl View<'m>, leaf: &Leaf) -> Result<(LeafState, Items)> {
    loop {
        let state = leaf.state(view)?;
        let mut items = Items::new(leaf.skip());
        let gathered = items.gather(view, leaf, state);
        // ORDER: as in a lookup, the state is loaded before and after everything else.
        if leaf.state(view)? == state {
            gathered?;
            items.sort(view)?;
            return Ok((state, items));
        }
    }
}
