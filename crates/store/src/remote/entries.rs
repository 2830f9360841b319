//! Walks over the keys of a snapshot of another process, with the writes of a transaction among them.

use super::link::{Opened, value_of};
use super::message::{Reply, Request};
use crate::entries::{Entry, is_empty};
use crate::error::Result;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::Bound;
use std::sync::Arc;

/// The keys of a range that have a value, in their order, from both ends. Owns its snapshot. Fetches pages of
/// some hundred entries; after an error it ends.
pub struct RemoteEntries {
    opened: Arc<Opened>,
    keyspace: u64,
    /// The part of the range that is still to be fetched.
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    is_fetched: bool,
    is_first: bool,
    front: VecDeque<Entry>,
    /// From the last to the first.
    back: VecDeque<Entry>,
    /// The transaction's writes that are left, in the order of their keys.
    own: VecDeque<(Vec<u8>, Option<Vec<u8>>)>,
}

impl RemoteEntries {
    pub(super) fn new(
        opened: Arc<Opened>,
        keyspace: u64,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        own: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ) -> RemoteEntries {
        RemoteEntries {
            opened,
            keyspace,
            is_fetched: is_empty(&bounds),
            bounds,
            is_first: true,
            front: VecDeque::new(),
            back: VecDeque::new(),
            own: own.into(),
        }
    }

    /// Fetches the first page, so that the owner knows of the range before the walk is made.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.fetch(false)
    }

    /// Fetches a page, if the end has no entry and there are more.
    fn fetch(&mut self, is_back: bool) -> Result<()> {
        let has_some = if is_back { !self.back.is_empty() } else { !self.front.is_empty() };
        if self.is_fetched || has_some {
            return Ok(());
        }
        let request = Request::Page {
            open: self.opened.id,
            keyspace: self.keyspace,
            bounds: (self.bounds.0.as_ref().map(Vec::as_slice), self.bounds.1.as_ref().map(Vec::as_slice)),
            is_back,
            is_first: self.is_first,
        };
        let reply = self.opened.link.ask(&request);
        let (entries, has_more) = value_of!(reply, Reply::Page { entries, has_more } => (entries, has_more))?;
        self.is_first = false;
        match entries.last() {
            Some((last, _)) if has_more => {
                let left = if is_back { &mut self.bounds.1 } else { &mut self.bounds.0 };
                *left = Bound::Excluded(last.clone());
                self.is_fetched = is_empty(&self.bounds);
            }
            _ => self.is_fetched = true,
        }
        *(if is_back { &mut self.back } else { &mut self.front }) = entries.into();
        Ok(())
    }

    /// The entries from which an end takes, and whether it takes from their front.
    fn nearest(&mut self, is_back: bool) -> (&mut VecDeque<Entry>, bool) {
        let (near, far) =
            if is_back { (&mut self.back, &mut self.front) } else { (&mut self.front, &mut self.back) };
        if near.is_empty() { (far, false) } else { (near, true) }
    }

    fn take(&mut self, is_back: bool) -> Option<Entry> {
        let (entries, is_front) = self.nearest(is_back);
        if is_front { entries.pop_front() } else { entries.pop_back() }
    }

    fn step(&mut self, is_back: bool) -> Result<Option<Entry>> {
        loop {
            self.fetch(is_back)?;
            let own = if is_back { self.own.back() } else { self.own.front() }.map(|(key, _)| key.clone());
            let (entries, is_front) = self.nearest(is_back);
            let next = if is_front { entries.front() } else { entries.back() };
            let order = match (next, &own) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((key, _)), Some(own)) if is_back => own.cmp(key),
                (Some((key, _)), Some(own)) => key.cmp(own),
            };
            let taken = if order == Ordering::Greater { None } else { self.take(is_back) };
            if order == Ordering::Less {
                return Ok(taken);
            }
            let own = if is_back { self.own.pop_back() } else { self.own.pop_front() };
            // A key that the transaction has deleted is stepped over.
            if let Some((key, Some(value))) = own {
                return Ok(Some((key, value)));
            }
        }
    }

    fn step_or_end(&mut self, is_back: bool) -> Option<Result<Entry>> {
        let outcome = self.step(is_back);
        if outcome.is_err() {
            self.is_fetched = true;
            self.front.clear();
            self.back.clear();
            self.own.clear();
        }
        outcome.transpose()
    }
}

impl Iterator for RemoteEntries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        self.step_or_end(false)
    }
}

impl DoubleEndedIterator for RemoteEntries {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        self.step_or_end(true)
    }
}

impl FusedIterator for RemoteEntries {}

impl std::fmt::Debug for RemoteEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteEntries").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}
