//! The keys whose values differ between two snapshots.

use crate::entries::{Entries, Entry};
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::snapshot::Snapshot;
use std::cmp::Ordering;

/// Walks over both snapshots of a keyspace at once, in the order of the keys. Reads all values of both.
pub(super) struct Differences {
    old: Entries,
    new: Entries,
    before: Option<Entry>,
    after: Option<Entry>,
}

/// A key, and its value in the newer snapshot.
pub(super) type Difference = (Vec<u8>, Option<Vec<u8>>);

impl Differences {
    pub(super) fn new(keyspace: &Keyspace, from: &Snapshot, to: &Snapshot) -> Result<Differences> {
        let (mut old, mut new) = (from.iter(keyspace)?, to.iter(keyspace)?);
        let (before, after) = (old.next().transpose()?, new.next().transpose()?);
        Ok(Differences { old, new, before, after })
    }

    pub(super) fn advance(&mut self) -> Result<Option<Difference>> {
        loop {
            let order = match (&self.before, &self.after) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((before, _)), Some((after, _))) => before.cmp(after),
            };
            let (mut was, mut is) = (None, None);
            if order != Ordering::Greater {
                was = std::mem::replace(&mut self.before, self.old.next().transpose()?);
            }
            if order != Ordering::Less {
                is = std::mem::replace(&mut self.after, self.new.next().transpose()?);
            }
            match (was, is) {
                (Some((_, before)), Some((key, after))) if before != after => {
                    return Ok(Some((key, Some(after))));
                }
                (None, Some((key, after))) => return Ok(Some((key, Some(after)))),
                (Some((key, _)), None) => return Ok(Some((key, None))),
                _ => {}
            }
        }
    }
}
