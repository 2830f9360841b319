//! The moves of slots on media, and the keys of slots in steps.
//!
//! # Media layout
//!
//! The entry `'m'` of "db.cluster", which [`cluster`](super::cluster) describes: the records of
//! [`migration`](crate::cluster::migration) as text. Without moves there is none.
//!
//! # Invariants
//!
//! Those of [`format`](super::format): I15.
//!
//! # Commit point
//!
//! The commit of the batch. All records change together, and with a topology that ends some of them.
//!
//! # Recovery
//!
//! That of [`migration`](crate::cluster::migration): the server reads the records when it begins.

use std::ops::{Bound, RangeInclusive};

use crate::keyspace::batch::Batch;
use tembo::Map;

use super::Keyspace;
use super::batch::writer;
use super::entry::Old;
use super::format::Stored;
use super::placement::range_of_slots;
use crate::cluster::migration::Moves;
use crate::fault::{Answer, Fault};

pub(super) const MOVES: &[u8] = b"m";

/// Puts a record, or removes it. A full pool has room for one.
pub(super) fn put(batch: &mut Batch<'_>, map: &Map, key: &[u8], value: Option<&[u8]>) -> Answer {
    let Some(value) = value else {
        batch.remove(map, key)?;
        return Ok(());
    };
    match batch.put(map, key, value) {
        Err(tembo::Error::Full { .. }) => batch.put_to_free(map, key, value).map(drop)?,
        other => other.map(drop)?,
    }
    Ok(())
}

/// Writes the records of moves, or removes them if there are none.
pub(super) fn write_moves(batch: &mut Batch<'_>, map: &Map, moves: &Moves) -> Answer {
    let text = moves.to_text();
    put(batch, map, MOVES, (!text.is_empty()).then_some(text.as_bytes()))
}

impl Keyspace<'_> {
    /// The records of moves; none in a pool that has none.
    pub(crate) fn stored_moves(&self) -> Answer<Moves> {
        let Some(map) = &self.cluster_map else { return Ok(Moves::default()) };
        let record = map.get(MOVES)?;
        record.map_or(Ok(Moves::default()), |text| Moves::parse(&text).ok_or(Fault::Malformed))
    }

    /// Puts the records of moves into the batch, and tells replicas of them.
    pub(crate) fn put_moves(&mut self, moves: &Moves) -> Answer {
        let Keyspace { pool, batch, cluster_map, .. } = self;
        let map = cluster_map.as_ref().ok_or(Fault::Malformed)?;
        write_moves(writer(pool, batch)?, map, moves)?;
        let text = moves.to_text();
        self.dirty = true;
        self.replication.effects.tell(0, [&b"CLUSTERX"[..], b"MOVES", text.as_bytes()]);
        Ok(())
    }

    /// Stores the records of moves. One commit. There must be no batch.
    pub(crate) fn store_moves(&mut self, moves: &Moves) -> Answer {
        let told = self.replication.effects.begin_command();
        let stored = self.put_moves(moves).and_then(|()| {
            self.replication.close_unit();
            Ok(self.commit()?)
        });
        stored.inspect_err(|_| {
            self.replication.effects.take_back(told);
            self.abandon_batch();
        })
    }

    /// Gives committed entries of slots to `visit`, in the order of their places, from behind a place on,
    /// until it returns false. There must be no batch.
    pub(crate) fn visit_slots(
        &self,
        slots: &RangeInclusive<u16>,
        after: &[u8],
        mut visit: impl FnMut(&[u8], Stored<'_>) -> bool,
    ) -> Answer {
        let Some(maps) = self.databases[0].as_deref() else { return Ok(()) };
        let (first, end) = range_of_slots(slots);
        let begin = match &first {
            Bound::Included(first) if &first[..] <= after => Bound::Excluded(after),
            other => other.as_ref().map(|place| &place[..]),
        };
        for entry in maps.data.range::<&[u8]>((begin, end.as_ref().map(|place| &place[..]))) {
            let entry = entry?;
            if !visit(entry.key(), Stored::decode(entry.value())?) {
                break;
            }
        }
        Ok(())
    }

    /// The committed value at a place.
    pub(crate) fn committed_at(&self, place: &[u8]) -> Answer<Option<tembo::Value<'_>>> {
        Ok(self.databases[0].as_deref().map_or(Ok(None), |maps| maps.data.get(place))?)
    }

    /// Whether committed keys are in slots.
    pub(crate) fn has_keys_in(&self, slots: &RangeInclusive<u16>) -> Answer<bool> {
        let mut has = false;
        self.visit_slots(slots, &[], |_, _| {
            has = true;
            false
        })?;
        Ok(has)
    }

    /// Removes up to this many keys of slots, in the batch; returns how many there were. There must be no
    /// batch before.
    pub(crate) fn remove_some_of(&mut self, slots: &RangeInclusive<u16>, most: usize) -> Answer<usize> {
        let (mut found, layout) = (Vec::new(), self.layout);
        self.visit_slots(slots, &[], |place, stored| {
            found.push((layout.key(place).to_vec(), Old::of(&stored)));
            found.len() < most
        })?;
        if found.is_empty() {
            return Ok(0);
        }
        let (savepoint, mark) = (self.begin_command()?, self.pubsub.mark());
        let told = self.replication.effects.begin_command();
        match found.iter().try_for_each(|(key, old)| self.remove(0, key, *old)) {
            Ok(()) => {
                let keys = found.iter().map(|(key, _)| &key[..]);
                let words: Vec<_> = [&b"UNLINK"[..]].into_iter().chain(keys).collect();
                self.replication.effects.tell(0, words);
                self.end_command();
                self.replication.close_unit();
                Ok(found.len())
            }
            Err(fault) => {
                self.rollback_to(savepoint);
                self.replication.effects.take_back(told);
                self.pubsub.drop_since(mark);
                Err(fault)
            }
        }
    }
}
