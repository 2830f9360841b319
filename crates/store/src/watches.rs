//! Watching keys: committed changes as they come.
//!
//! A commit hands the changes of watched keys over when it is durable and before it is visible. A watcher
//! keeps them in the order of their numbers and passes on those up to the current one. A store that nobody
//! watches loads a word for each commit.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Changes that wait for [`Watch::recv`](crate::Watch::recv), at most.
const BUFFERED_MAX: usize = 4096;

/// Bytes of their keys and values, at most, if it is more than one.
const BUFFERED_BYTES_MAX: usize = 16 << 20;

/// A change of a watched key that was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The number of the commit.
    pub number: u64,
    /// The key.
    pub key: Vec<u8>,
    /// Its value; `None` if it was deleted.
    pub value: Option<Vec<u8>>,
}

/// An event of a [`Watch`](crate::Watch).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A key was changed.
    Changed(Changed),
    /// More was committed than a watch keeps, so changes were lost: those of the commits from the first
    /// number to the second. A snapshot that is opened now has them, or newer ones.
    Lagged {
        /// The first commit of which changes were lost.
        from: u64,
        /// The last one.
        to: u64,
    },
}

pub(crate) struct Watcher {
    keyspace: u64,
    key: Vec<u8>,
    is_prefix: bool,
    pub(crate) buffer: Mutex<Buffer>,
    pub(crate) has_more: Condvar,
}

#[derive(Default)]
pub(crate) struct Buffer {
    /// By their numbers.
    changes: VecDeque<Changed>,
    bytes: usize,
    lost: Option<(u64, u64)>,
}

impl Watcher {
    pub(crate) fn new(keyspace: u64, key: Vec<u8>, is_prefix: bool) -> Watcher {
        Watcher { keyspace, key, is_prefix, buffer: Mutex::default(), has_more: Condvar::new() }
    }

    fn is_for(&self, keyspace: u64, key: &[u8]) -> bool {
        let is_key = if self.is_prefix { key.starts_with(&self.key) } else { key == self.key };
        is_key && keyspace == self.keyspace
    }

    fn push(&self, change: Changed) {
        let mut buffer = self.buffer.lock();
        buffer.push(change);
    }
}

fn bytes_of(change: &Changed) -> usize {
    change.key.len() + change.value.as_ref().map_or(0, Vec::len)
}

impl Buffer {
    fn push(&mut self, change: Changed) {
        let bytes = self.bytes + bytes_of(&change);
        let is_full = self.changes.len() >= BUFFERED_MAX || bytes > BUFFERED_BYTES_MAX;
        if is_full && !self.changes.is_empty() {
            let lost = self.lost.get_or_insert((u64::MAX, 0));
            for change in self.changes.drain(..) {
                *lost = (lost.0.min(change.number), lost.1.max(change.number));
            }
            self.bytes = 0;
        }
        // More of a commit, or of an older one, of which changes were lost.
        if let Some(lost) = &mut self.lost
            && change.number <= lost.1
        {
            lost.0 = lost.0.min(change.number);
            return;
        }
        self.bytes += bytes_of(&change);
        let later = self.changes.iter().rev().take_while(|other| other.number > change.number).count();
        self.changes.insert(self.changes.len() - later, change);
    }

    pub(crate) fn pop(&mut self, current: u64) -> Option<Event> {
        if let Some((from, to)) = self.lost {
            if to > current {
                return None;
            }
            self.lost = None;
            return Some(Event::Lagged { from, to });
        }
        if self.changes.front()?.number > current {
            return None;
        }
        let change = self.changes.pop_front()?;
        self.bytes -= bytes_of(&change);
        Some(Event::Changed(change))
    }
}

/// Everybody who watches a store.
#[derive(Default)]
pub(crate) struct Watches {
    count: AtomicUsize,
    all: Mutex<Vec<Weak<Watcher>>>,
}

/// The changes of a transaction that somebody watches.
#[derive(Default)]
pub(crate) struct Watched {
    watchers: Vec<Arc<Watcher>>,
    changes: Vec<(usize, Changed)>,
}

impl Watched {
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.changes.truncate(len);
    }

    #[inline]
    pub(crate) fn note(&mut self, keyspace: u64, key: &[u8], value: Option<&[u8]>, number: u64) {
        for (i, watcher) in self.watchers.iter().enumerate() {
            if watcher.is_for(keyspace, key) {
                let change = Changed { number, key: key.to_vec(), value: value.map(<[u8]>::to_vec) };
                self.changes.push((i, change));
            }
        }
    }

    /// Hands the changes over. They are durable, and the current number is below theirs.
    pub(crate) fn hand_over(&mut self) {
        for (watcher, change) in self.changes.drain(..) {
            self.watchers[watcher].push(change);
        }
    }

    /// Wakes those who wait: the current number was raised.
    pub(crate) fn wake(&self) {
        for watcher in &self.watchers {
            // With the buffer's lock, so that nobody goes to sleep between its look and this.
            drop(watcher.buffer.lock());
            watcher.has_more.notify_all();
        }
    }
}

impl Watches {
    /// Hands changes over to one more from now on, until it is [taken out](Self::take_out).
    pub(crate) fn add(&self, watcher: &Arc<Watcher>) {
        let mut all = self.all.lock();
        all.retain(|watcher| watcher.strong_count() > 0);
        all.push(Arc::downgrade(watcher));
        drop(all);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Notes that one of them goes.
    pub(crate) fn take_out(&self) {
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// Whether anybody watches.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Those who watch now.
    #[inline]
    pub(crate) fn watched(&self) -> Watched {
        if self.has_any() { self.collect() } else { Watched::default() }
    }

    #[cold]
    fn collect(&self) -> Watched {
        let mut all = self.all.lock();
        all.retain(|watcher| watcher.strong_count() > 0);
        Watched { watchers: all.iter().filter_map(Weak::upgrade).collect(), changes: Vec::new() }
    }

    /// Wakes everybody: a keyspace was dropped.
    pub(crate) fn wake(&self) {
        self.watched().wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(number: u64) -> Changed {
        Changed { number, key: vec![number as u8], value: None }
    }

    #[test]
    fn changes_are_passed_on_in_order_once_they_are_visible() {
        let mut buffer = Buffer::default();
        [3, 1, 2, 2].into_iter().for_each(|number| buffer.push(change(number)));
        assert_eq!(buffer.pop(0), None);
        assert_eq!(buffer.pop(2), Some(Event::Changed(change(1))));
        assert_eq!(buffer.pop(2), Some(Event::Changed(change(2))));
        assert_eq!(buffer.pop(2), Some(Event::Changed(change(2))));
        assert_eq!(buffer.pop(2), None, "the third is not visible");
        assert_eq!(buffer.pop(3), Some(Event::Changed(change(3))));
        assert_eq!(buffer.bytes, 0);
    }

    #[test]
    fn lost_changes_are_told_of_and_the_rest_of_their_commits_is_lost_too() {
        let mut buffer = Buffer::default();
        let max = BUFFERED_MAX as u64;
        (1..=max).for_each(|number| buffer.push(change(number)));
        buffer.push(change(max));
        buffer.push(change(max + 1));
        assert_eq!(buffer.pop(max - 1), None, "not all of what was lost is visible");
        assert_eq!(buffer.pop(max), Some(Event::Lagged { from: 1, to: max }));
        assert_eq!(buffer.pop(max), None);
        assert_eq!(buffer.pop(max + 1), Some(Event::Changed(change(max + 1))));
        // Values that are too large together, and one that is too large alone.
        let large = |number| Changed { value: Some(vec![0; BUFFERED_BYTES_MAX]), ..change(number) };
        buffer.push(large(max + 2));
        assert!(matches!(buffer.pop(u64::MAX), Some(Event::Changed(_))));
        buffer.push(large(max + 3));
        buffer.push(large(max + 4));
        assert_eq!(buffer.pop(u64::MAX), Some(Event::Lagged { from: max + 3, to: max + 3 }));
        assert!(matches!(buffer.pop(u64::MAX), Some(Event::Changed(_))));
    }
}
