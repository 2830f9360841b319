//! The keys of slots: walks, counts and removals. [`placement`](super::placement) says where they lie.

use std::ops::{Bound, ControlFlow, RangeInclusive};

use super::Keyspace;
use super::batch::writer;
use super::format::Kind;
use super::placement::{Layout, range_of_slots, seek};
use crate::cluster::slot::slot_of;
use crate::fault::{Answer, Fault};

impl Keyspace<'_> {
    /// How keys lie in the maps.
    #[inline(always)]
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// As [`walk`](Self::walk), for the keys that begin with `prefix`. In cluster mode a walk without a hash
    /// tag in `prefix` descends once for each slot that has keys, and may meet up to two other keys in each
    /// slot.
    pub(crate) fn walk_prefix(
        &self,
        database: usize,
        begin: Bound<&[u8]>,
        prefix: &[u8],
        mut visit: impl FnMut(&[u8], Option<Kind>) -> ControlFlow<()>,
    ) -> Answer {
        let Some(first) = self.layout.common_place(prefix) else {
            return self.walk_slots(database, begin, prefix, visit);
        };
        let begin = match begin {
            Bound::Included(place) | Bound::Excluded(place) if place >= &first[..] => begin,
            _ => Bound::Included(&first[..]),
        };
        self.walk(database, begin, |place, kind| match place.starts_with(&first) {
            true => visit(place, kind),
            false => ControlFlow::Break(()),
        })
    }

    fn walk_slots(
        &self,
        database: usize,
        begin: Bound<&[u8]>,
        prefix: &[u8],
        mut visit: impl FnMut(&[u8], Option<Kind>) -> ControlFlow<()>,
    ) -> Answer {
        let mut begin = begin.map(<[u8]>::to_vec);
        loop {
            let mut next = None;
            self.walk(database, begin.as_ref().map(|place| &place[..]), |place, kind| {
                visit(place, kind)?;
                next = seek(place, prefix);
                if next.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            match next {
                Some(place) => begin = Bound::Included(place),
                None => return Ok(()),
            }
        }
    }

    /// How many keys of a database are committed.
    pub(crate) fn committed_len(&self, database: usize) -> Answer<u64> {
        Ok(self.databases[database].as_deref().map_or(Ok(0), |maps| maps.data.len())?)
    }

    /// How many keys a slot has; those that have expired count until they are removed. O(log n).
    pub(crate) fn count_slot(&mut self, slot: u16) -> Answer<u64> {
        let Keyspace { pool, batch, databases, .. } = self;
        let Some(maps) = databases[0].as_deref() else { return Ok(0) };
        Ok(writer(pool, batch)?.count(&maps.data, range_of_slots(&(slot..=slot)))?)
    }

    /// How many keys slots have, up to this many. O(log n) for each range.
    pub(crate) fn count_slots(&mut self, slots: &[RangeInclusive<u16>], most: u64) -> Answer<u64> {
        let Keyspace { pool, batch, databases, .. } = self;
        let Some(maps) = databases[0].as_deref() else { return Ok(0) };
        let (batch, mut count) = (writer(pool, batch)?, 0);
        for range in slots {
            count += batch.count(&maps.data, range_of_slots(range))?;
            if count >= most {
                break;
            }
        }
        Ok(count)
    }

    /// The first keys of a slot, in order, up to this many, and to this many bytes and one key more. O(their
    /// number).
    pub(crate) fn keys_of_slot(&mut self, slot: u16, most: usize, bytes_max: usize) -> Answer<Vec<Vec<u8>>> {
        let Keyspace { pool, batch, databases, layout, .. } = self;
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let Some(maps) = databases[0].as_deref() else { return Ok(keys) };
        if most == 0 {
            return Ok(keys);
        }
        writer(pool, batch)?.walk(&maps.data, range_of_slots(&(slot..=slot)), |place, _| {
            keys.push(layout.key(place).to_vec());
            bytes += layout.key(place).len();
            if keys.len() == most || bytes > bytes_max {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(keys)
    }

    /// Removes the keys of slots, by one removal of a range for each; returns how many had not expired.
    pub(crate) fn remove_slots(&mut self, slots: &[RangeInclusive<u16>]) -> Answer<u64> {
        if self.layout != Layout::Slots {
            return Err(Fault::Malformed);
        }
        let ranges: Vec<_> = slots.iter().map(range_of_slots).collect();
        let is_removed = |key: &[u8]| slots.iter().any(|range| range.contains(&slot_of(key)));
        let found = self.remove_ranges(0, &ranges, is_removed)?;
        self.pubsub.invalidate_all();
        self.finish_removal(0, found)
    }
}
