//! Walks over the keys of a snapshot, with the writes of a transaction among them.

use crate::error::Result;
use crate::keyspace::{Keyspace, table_at};
use crate::snapshot::Snapshot;
use crate::versions::read_value;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::Bound;

/// Keys of the index that are looked at in one go.
const BATCH: usize = 64;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// The keys of a range that have a value, in their order, from both ends. Owns its snapshot.
///
/// Reads some 64 keys at a time, so that it holds no memory of the store between two steps. After an error it
/// ends.
pub struct Entries {
    snapshot: Snapshot,
    keyspace: Keyspace,
    /// The part of the range of which the snapshot's keys are still to be read.
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    is_read: bool,
    front: VecDeque<Entry>,
    /// From the last to the first.
    back: VecDeque<Entry>,
    /// The transaction's writes that are left, in the order of their keys.
    own: VecDeque<(Vec<u8>, Option<Vec<u8>>)>,
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
        let (front, back) = (VecDeque::new(), VecDeque::new());
        Entries { snapshot, keyspace, is_read: is_empty(&bounds), bounds, front, back, own: own.into() }
    }

    /// Reads until the end has an entry, or there is none.
    fn fill(&mut self, end: End) -> Result<()> {
        if self.is_read {
            return Ok(());
        }
        let outcome = self.read(end);
        // What was read is right only if nothing of the snapshot had been given up by then.
        self.snapshot.check_there(&self.keyspace)?;
        outcome
    }

    fn read(&mut self, end: End) -> Result<()> {
        while !self.is_read && (if end == End::Front { &self.front } else { &self.back }).is_empty() {
            let pool = self.snapshot.store.pool.clone();
            // The pin of the walk keeps the tables, too, and what a drop of the keyspace frees after this
            // look.
            let mut walk = self.keyspace.inner.index.range(self.bounds.clone());
            self.keyspace.inner.check_there()?;
            let mut last = None;
            for step in 0.. {
                let record = if end == End::Front { walk.advance()? } else { walk.advance_back()? };
                let Some((key, value)) = record else {
                    self.is_read = true;
                    break;
                };
                let table = table_at(value)?;
                let version = table.find(pool.region(), self.snapshot.number())?;
                let value =
                    version.map(|version| read_value(pool.region(), version.value, table.off)).transpose()?;
                if let Some(Some(value)) = value {
                    let entry = (key.to_vec(), value);
                    if end == End::Front { self.front.push_back(entry) } else { self.back.push_back(entry) }
                }
                if step + 1 == BATCH {
                    last = Some(key.to_vec());
                    break;
                }
            }
            if let Some(last) = last {
                let left = if end == End::Front { &mut self.bounds.0 } else { &mut self.bounds.1 };
                *left = Bound::Excluded(last);
                self.is_read = is_empty(&self.bounds);
            }
        }
        Ok(())
    }

    /// The next key of the snapshot from an end.
    fn peek(&self, end: End) -> Option<&Entry> {
        match end {
            End::Front => self.front.front().or_else(|| self.back.back()),
            End::Back => self.back.front().or_else(|| self.front.back()),
        }
    }

    fn take(&mut self, end: End) -> Option<Entry> {
        match end {
            End::Front => self.front.pop_front().or_else(|| self.back.pop_back()),
            End::Back => self.back.pop_front().or_else(|| self.front.pop_back()),
        }
    }

    fn step(&mut self, end: End) -> Result<Option<Entry>> {
        loop {
            self.fill(end)?;
            let own = if end == End::Front { self.own.front() } else { self.own.back() };
            let order = match (self.peek(end), own) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((key, _)), Some((own, _))) if end == End::Front => key.cmp(own),
                (Some((key, _)), Some((own, _))) => own.cmp(key),
            };
            if order == Ordering::Less {
                return Ok(self.take(end));
            }
            if order == Ordering::Equal {
                self.take(end);
            }
            let own = if end == End::Front { self.own.pop_front() } else { self.own.pop_back() };
            // A key that the transaction has deleted is stepped over.
            if let Some((key, Some(value))) = own {
                return Ok(Some((key, value)));
            }
        }
    }

    fn step_or_end(&mut self, end: End) -> Option<Result<Entry>> {
        let outcome = self.step(end);
        if outcome.is_err() {
            self.is_read = true;
            self.front.clear();
            self.back.clear();
            self.own.clear();
        }
        outcome.transpose()
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
        self.step_or_end(End::Front)
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        self.step_or_end(End::Back)
    }
}

impl FusedIterator for Entries {}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}
