//! Iteration over a range of keys of one version, in both directions.
//!
//! Each end of the walk holds the sorted entries of one leaf, and the fence at which the next leaf begins.
//! Leaves have no pointers to each other, because these would need versions too: each leaf is found from the
//! root.

use super::super::bytes::VersionedBytes;
use super::super::entry::VersionedEntry;
use super::super::layout::Form;
use super::super::node::Record;
use super::super::view::View;
use super::layout::{Field, SLOTS};
use super::lookup::Goal;
use super::node::Node;
use crate::error::{Error, Result, corrupt};
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

/// The entry in a place of a leaf.
pub(super) fn read_entry<'r>(leaf: &Node<'r>, slot: usize) -> Result<VersionedEntry<'r>> {
    let start = leaf.start(slot).version();
    Ok(match leaf.form(slot)? {
        Form::Block => {
            let Record { key, value } = Record::read(leaf.region(), leaf.field(slot, Field::Value))?;
            VersionedEntry { key: VersionedBytes::media(key), value: VersionedBytes::media(value), start }
        }
        Form::Inline { key_bytes, value_bytes } => {
            let in_entry = leaf.field(slot, Field::Key).to_be_bytes();
            let shared = leaf.shared_bytes()?;
            let key = if shared.is_empty() {
                VersionedBytes::word(u64::from_ne_bytes(in_entry), key_bytes)
            } else {
                VersionedBytes::owned([shared, &in_entry[..usize::from(key_bytes).min(8)]].concat())
            };
            VersionedEntry { key, value: VersionedBytes::media(leaf.inline_value(slot, value_bytes)?), start }
        }
    })
}

/// The entries of a leaf in a version, in order.
pub(super) fn entries_of<'r>(leaf: &Node<'r>, version: u64) -> Result<Vec<VersionedEntry<'r>>> {
    let mut entries = Vec::with_capacity(SLOTS);
    for slot in leaf.slots_in(version) {
        entries.push(read_entry(leaf, slot)?);
    }
    sort(&mut entries);
    Ok(entries)
}

/// Puts entries in the order of their keys.
pub(super) fn sort(entries: &mut [VersionedEntry<'_>]) {
    entries.sort_unstable_by(|a, b| a.key().cmp(b.key()));
}

/// A double-ended iterator over a range of keys of a version. An error ends it.
pub struct VersionedRange<'r> {
    view: View<'r>,
    /// The range beyond the leaves that were read. `None` when the ends have met.
    rest: Option<Rest>,
    front: VecDeque<VersionedEntry<'r>>,
    back: VecDeque<VersionedEntry<'r>>,
}

/// A range of keys.
pub(crate) struct Rest {
    pub(crate) low: Bound<Vec<u8>>,
    pub(crate) high: Bound<Vec<u8>>,
}

impl Rest {
    /// The range, unless it is empty.
    pub(crate) fn of<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> Option<Rest> {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let rest = Rest { low: owned(range.start_bound()), high: owned(range.end_bound()) };
        Some(rest).filter(|rest| !rest.is_empty())
    }

    pub(crate) fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high) | Bound::Included(high)) => {
                low >= high
            }
            _ => false,
        }
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        let above = match &self.low {
            Bound::Included(low) => key >= low.as_slice(),
            Bound::Excluded(low) => key > low.as_slice(),
            Bound::Unbounded => true,
        };
        above
            && match &self.high {
                Bound::Included(high) => key <= high.as_slice(),
                Bound::Excluded(high) => key < high.as_slice(),
                Bound::Unbounded => true,
            }
    }
}

impl<'r> VersionedRange<'r> {
    pub(crate) fn new<K: AsRef<[u8]>>(view: View<'r>, range: impl RangeBounds<K>) -> VersionedRange<'r> {
        VersionedRange { view, rest: Rest::of(range), front: VecDeque::new(), back: VecDeque::new() }
    }

    pub(crate) fn of_prefix(view: View<'r>, prefix: &[u8]) -> VersionedRange<'r> {
        let mut end = prefix.to_vec();
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        let high = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        let low = Bound::Included(prefix.to_vec());
        VersionedRange { view, rest: Some(Rest { low, high }), front: VecDeque::new(), back: VecDeque::new() }
    }

    /// Reads the next leaf at the front.
    fn read_front(&mut self, mut rest: Rest) -> Result<()> {
        let goal = match &rest.low {
            Bound::Included(low) | Bound::Excluded(low) => Goal::At(low),
            Bound::Unbounded => Goal::First,
        };
        let Some(leaf) = self.view.leaf(goal)? else { return Ok(()) };
        let entries = entries_of(&leaf, self.view.version)?;
        self.front = entries.into_iter().filter(|entry| rest.has(entry.key())).collect();
        if let Some(high) = leaf.high()? {
            let gets_on = match &rest.low {
                Bound::Included(low) | Bound::Excluded(low) => high > low.as_slice(),
                Bound::Unbounded => true,
            };
            expect_progress(gets_on, &leaf)?;
            rest.low = Bound::Included(high.to_vec());
            self.rest = Some(rest).filter(|rest| !rest.is_empty());
        }
        Ok(())
    }

    /// Reads the next leaf at the back.
    fn read_back(&mut self, mut rest: Rest) -> Result<()> {
        let goal = match &rest.high {
            Bound::Included(high) => Goal::At(high),
            Bound::Excluded(high) if high.is_empty() => return Ok(()),
            Bound::Excluded(high) => Goal::Before(high),
            Bound::Unbounded => Goal::Last,
        };
        let Some(leaf) = self.view.leaf(goal)? else { return Ok(()) };
        let entries = entries_of(&leaf, self.view.version)?;
        self.back = entries.into_iter().filter(|entry| rest.has(entry.key())).collect();
        let low = leaf.low()?;
        if !low.is_empty() {
            let gets_on = match &rest.high {
                Bound::Included(high) => low <= high.as_slice(),
                Bound::Excluded(high) => low < high.as_slice(),
                Bound::Unbounded => true,
            };
            expect_progress(gets_on, &leaf)?;
            rest.high = Bound::Excluded(low.to_vec());
            self.rest = Some(rest).filter(|rest| !rest.is_empty());
        }
        Ok(())
    }
}

/// Refuses a leaf that does not advance the walk: damaged fences could form a circle.
fn expect_progress(gets_on: bool, leaf: &Node<'_>) -> Result<()> {
    if gets_on {
        return Ok(());
    }
    Err(corrupt("the fences of a leaf", leaf.off, "a range with the key that led here", "another range"))
}

impl VersionedRange<'_> {
    /// In a child process, fails once and drops the entries fetched before the fork.
    #[inline]
    fn forget_if_forked(&mut self) -> Option<Error> {
        if !self.view.region.is_empty() || self.front.is_empty() && self.back.is_empty() {
            return None;
        }
        self.front.clear();
        self.back.clear();
        self.rest = None;
        Some(Error::Pool(tembo_pool::ErrorKind::Forked.into()))
    }
}

impl<'r> Iterator for VersionedRange<'r> {
    type Item = Result<VersionedEntry<'r>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(e) = self.forget_if_forked() {
            return Some(Err(e));
        }
        loop {
            if let Some(entry) = self.front.pop_front() {
                return Some(Ok(entry));
            }
            let Some(rest) = self.rest.take() else { return self.back.pop_front().map(Ok) };
            if let Err(e) = self.read_front(rest) {
                self.back.clear();
                return Some(Err(e));
            }
        }
    }
}

impl DoubleEndedIterator for VersionedRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(e) = self.forget_if_forked() {
            return Some(Err(e));
        }
        loop {
            if let Some(entry) = self.back.pop_back() {
                return Some(Ok(entry));
            }
            let Some(rest) = self.rest.take() else { return self.front.pop_back().map(Ok) };
            if let Err(e) = self.read_back(rest) {
                self.front.clear();
                return Some(Err(e));
            }
        }
    }
}

impl FusedIterator for VersionedRange<'_> {}

impl std::fmt::Debug for VersionedRange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionedRange").field("version", &self.view.version).finish_non_exhaustive()
    }
}
