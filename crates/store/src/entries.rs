//! Walks over the keys of a snapshot, with the writes of a transaction among them.

use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::layout::ValueWord;
use crate::snapshot::Snapshot;
use crate::versions::{Table, append_value, prefetch_value};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::{Bound, Range, RangeBounds};

/// Keys of the index that are looked at in one go: few at first, as many walks are short; more as it goes on,
/// as long as their bytes stay in the nearest cache.
const FIRST_BATCH: usize = 16;
const BATCH_MAX: usize = 64;
const BATCH_BYTES: usize = 16 << 10;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// The keys of a range that have a value, in their order, from both ends. Owns its snapshot.
///
/// Reads up to 64 keys at a time, so that it holds no memory of the store between two steps. After an error
/// it ends. [`advance`](Self::advance) is cheaper than `next` if one entry at a time is enough.
pub struct Entries {
    snapshot: Snapshot,
    keyspace: Keyspace,
    /// The part of the range of which the snapshot's keys are still to be read.
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    is_read: bool,
    /// Keys of the next batch.
    step: usize,
    front: Batch,
    /// From the last to the first.
    back: Batch,
    lent: Lent,
    /// The transaction's writes that are left, in the order of their keys.
    own: VecDeque<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Entries that were read at one go.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    entries: VecDeque<Span>,
}

/// Where the bytes of an entry are.
#[derive(Clone)]
struct Span {
    key: Range<usize>,
    value: Range<usize>,
}

/// The entry that was lent out. The bytes of a batch stay until the step after.
enum Lent {
    OfSnapshot(End, Span),
    Own(Entry),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl Entries {
    pub(crate) fn new(
        snapshot: Snapshot,
        keyspace: Keyspace,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        own: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ) -> Entries {
        Entries {
            snapshot,
            keyspace,
            is_read: is_empty(&bounds),
            bounds,
            step: FIRST_BATCH,
            front: Batch::default(),
            back: Batch::default(),
            lent: Lent::Own(Entry::default()),
            own: own.into(),
        }
    }

    /// Reads until the end has an entry, or there is none.
    fn fill(&mut self, end: End) -> Result<()> {
        if self.is_read {
            return Ok(());
        }
        let outcome = self.read(end);
        // The result is right only if nothing of the snapshot had been given up by then.
        self.snapshot.check_there(&self.keyspace)?;
        outcome
    }

    fn read(&mut self, end: End) -> Result<()> {
        while !self.is_read && self.batch(end).entries.is_empty() {
            let mut batch = std::mem::take(if end == End::Front { &mut self.front } else { &mut self.back });
            batch.bytes.clear();
            let outcome = self.read_batch(end, &mut batch);
            self.step = match batch.bytes.len() {
                bytes if bytes > BATCH_BYTES => (self.step / 2).max(1),
                bytes if bytes > BATCH_BYTES / 2 => self.step,
                _ => (2 * self.step).min(BATCH_MAX),
            };
            *(if end == End::Front { &mut self.front } else { &mut self.back }) = batch;
            if let Some(last) = outcome? {
                let left = if end == End::Front { &mut self.bounds.0 } else { &mut self.bounds.1 };
                *left = Bound::Excluded(last);
                self.is_read = is_empty(&self.bounds);
            } else {
                self.is_read = true;
            }
        }
        Ok(())
    }

    /// Reads some entries; returns the last key that was looked at, or none at the end.
    fn read_batch(&self, end: End, batch: &mut Batch) -> Result<Option<Vec<u8>>> {
        let region = self.snapshot.store.pool.region();
        // The pin of the walk keeps the tables, too, and what a drop of the keyspace frees after this look.
        let mut walk = self.keyspace.inner.index.range(self.bounds.clone());
        self.keyspace.inner.check_there()?;
        let (mut values, mut last) = (Vec::with_capacity(self.step), None);
        for step in 1..=self.step {
            let record = match end {
                End::Front => walk.advance_place()?,
                End::Back => walk.advance_back_place()?,
            };
            let Some((key, place)) = record else { break };
            let table = Table::at(place)?;
            if let Some(version) = table.find(region, self.snapshot.number())?.version
                && version.value != ValueWord::Tombstone
            {
                let start = batch.bytes.len();
                batch.bytes.extend_from_slice(key);
                // The values of all keys arrive while the others are looked up.
                prefetch_value(region, version.value);
                values.push((start..batch.bytes.len(), version.value, table));
            }
            if step == self.step {
                last = Some(key.to_vec());
            }
        }
        for (key, value, table) in values {
            let start = batch.bytes.len();
            append_value(region, value, table.off, &mut batch.bytes)?;
            batch.entries.push_back(Span { key, value: start..batch.bytes.len() });
        }
        Ok(last)
    }

    fn batch(&self, end: End) -> &Batch {
        if end == End::Front { &self.front } else { &self.back }
    }

    /// The batch that has the next entry of the snapshot from an end, and whether it is taken from its front.
    fn nearest(&self, end: End) -> (End, bool) {
        let other = if end == End::Front { End::Back } else { End::Front };
        if self.batch(end).entries.is_empty() { (other, false) } else { (end, true) }
    }

    /// The next key of the snapshot from an end.
    fn peek(&self, end: End) -> Option<&[u8]> {
        let (batch, is_front) = self.nearest(end);
        let Batch { bytes, entries } = self.batch(batch);
        let place = if is_front { entries.front() } else { entries.back() }?;
        Some(&bytes[place.key.clone()])
    }

    /// Lends the next entry of the snapshot from an end.
    fn take(&mut self, end: End) {
        let (end, is_front) = self.nearest(end);
        let Batch { entries, .. } = if end == End::Front { &mut self.front } else { &mut self.back };
        let place = if is_front { entries.pop_front() } else { entries.pop_back() };
        if let Some(place) = place {
            self.lent = Lent::OfSnapshot(end, place);
        }
    }

    fn lent(&self) -> (&[u8], &[u8]) {
        match &self.lent {
            Lent::OfSnapshot(end, Span { key, value }) => {
                let bytes = &self.batch(*end).bytes;
                (&bytes[key.clone()], &bytes[value.clone()])
            }
            Lent::Own((key, value)) => (key, value),
        }
    }

    /// Lends the next entry from an end; returns whether there is one.
    fn step(&mut self, end: End) -> Result<bool> {
        loop {
            self.fill(end)?;
            let own = if end == End::Front { self.own.front() } else { self.own.back() };
            let order = match (self.peek(end), own) {
                (None, None) => return Ok(false),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(key), Some((own, _))) if end == End::Front => key.cmp(own),
                (Some(key), Some((own, _))) => own.as_slice().cmp(key),
            };
            if order != Ordering::Greater {
                self.take(end);
            }
            if order == Ordering::Less {
                return Ok(true);
            }
            let own = if end == End::Front { self.own.pop_front() } else { self.own.pop_back() };
            // A key that the transaction has deleted is stepped over.
            if let Some((key, Some(value))) = own {
                self.lent = Lent::Own((key, value));
                return Ok(true);
            }
        }
    }

    fn step_or_end(&mut self, end: End) -> Result<bool> {
        let outcome = self.step(end);
        if outcome.is_err() {
            self.is_read = true;
            self.front.entries.clear();
            self.back.entries.clear();
            self.own.clear();
        }
        outcome
    }

    fn owned(&mut self, end: End) -> Option<Result<Entry>> {
        match self.step_or_end(end) {
            Ok(true) => Some(Ok(match &mut self.lent {
                Lent::Own(entry) => std::mem::take(entry),
                Lent::OfSnapshot(..) => {
                    let (key, value) = self.lent();
                    (key.to_vec(), value.to_vec())
                }
            })),
            Ok(false) => None,
            Err(e) => Some(Err(e)),
        }
    }

    /// As `next`, but the entry is lent by the iterator: nothing is allocated for it.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::get`].
    pub fn advance(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let is_there = self.step_or_end(End::Front)?;
        Ok(is_there.then(|| self.lent()))
    }

    /// As `next_back`, but the entry is lent by the iterator.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::get`].
    pub fn advance_back(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let is_there = self.step_or_end(End::Back)?;
        Ok(is_there.then(|| self.lent()))
    }
}

impl Snapshot {
    /// The keys in `bounds` that have a value, in their order, from both ends. The first step from each end
    /// costs O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`](crate::Error::OtherStore),
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped), and
    /// [`Error::NotRetained`](crate::Error::NotRetained).
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, bounds: impl RangeBounds<K>) -> Result<Entries> {
        keyspace.check_store(&self.store)?;
        self.check_retained(keyspace)?;
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let bounds = (owned(bounds.start_bound()), owned(bounds.end_bound()));
        Ok(Entries::new(self.clone(), keyspace.clone(), bounds, Vec::new()))
    }

    /// All keys that have a value, in their order.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range).
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Entries> {
        self.range::<Vec<u8>>(keyspace, ..)
    }
}

/// Whether no key can lie between the bounds.
pub(crate) fn is_empty((lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match (lower, upper) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
            low >= high
        }
        _ => false,
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        self.owned(End::Front)
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        self.owned(End::Back)
    }
}

impl FusedIterator for Entries {}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}
