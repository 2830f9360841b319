//! KEYS, a slice in each turn.

use std::ops::{Bound, ControlFlow};

use tembo_wire::{Protocol, ReplyWriter};

use crate::fault::{Answer, Fault};
use crate::glob;
use crate::keyspace::Keyspace;

/// Keys that one call of SCAN, or one turn's part of KEYS, may look at: it takes about a millisecond.
pub(super) const SLICE_KEYS: usize = 8192;

/// Which keys are wanted.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) pattern: Vec<u8>,
    /// Every key wanted begins with this.
    pub(super) prefix: Vec<u8>,
}

impl Filter {
    pub(super) fn new(pattern: &[u8]) -> Self {
        Filter { pattern: pattern.to_vec(), prefix: glob::literal_prefix(pattern) }
    }
}

/// A KEYS under way. It walks the keys in slices, one for each turn, so that it holds no other client up for
/// long. Keys written meanwhile may or may not be in the reply; those there all the time are.
#[derive(Debug)]
pub(crate) struct KeysJob {
    filter: Filter,
    database: usize,
    /// The place of the last key that was looked at.
    after: Option<Vec<u8>>,
    /// The keys found so far, encoded.
    body: Vec<u8>,
    found: usize,
    body_bytes_max: usize,
}

impl KeysJob {
    /// Finds the keys of a database. The reply may have this many bytes.
    pub(super) fn new(pattern: &[u8], database: usize, body_bytes_max: usize) -> Self {
        let filter = Filter::new(pattern);
        KeysJob { filter, database, after: None, body: Vec::new(), found: 0, body_bytes_max }
    }

    /// Memory held for the reply, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.body.capacity()
    }

    /// Does a slice of the work. Returns the rest of the job, or none once `reply` has received the reply, in
    /// parts.
    pub(crate) fn advance(
        mut self,
        keyspace: &Keyspace<'_>,
        protocol: Protocol,
        mut reply: impl FnMut(&[u8]),
    ) -> Answer<Option<Self>> {
        let database = self.database;
        let KeysJob { filter, after, body, found, .. } = &mut self;
        let (mut looked_at, mut stopped_at) = (0, None);
        let begin = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        keyspace.walk_prefix(database, begin, &filter.prefix, |place, kind| {
            let key = keyspace.layout().key(place);
            looked_at += 1;
            if kind.is_some() && glob::matches(&filter.pattern, key, false) {
                ReplyWriter::new(body, protocol).bulk(key);
                *found += 1;
            }
            if looked_at == SLICE_KEYS {
                stopped_at = Some(place.to_vec());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        if self.body.len() > self.body_bytes_max {
            return Err(Fault::Error("ERR reply exceeds the maximum (reply-max-bytes)"));
        }
        if stopped_at.is_some() {
            self.after = stopped_at;
            return Ok(Some(self));
        }
        let mut header = Vec::new();
        ReplyWriter::new(&mut header, protocol).array(self.found);
        reply(&header);
        reply(&self.body);
        Ok(None)
    }
}
