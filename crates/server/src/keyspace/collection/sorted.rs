//! Sorted sets, as commands see them: members by their places and ranks, and their number.
//!
//! The value of a large sorted set does not count its members, so that it is not written with each of them.
//! The map of members in order counts them, in O(log n); [`Counts`] remembers the number.

use std::ops::ControlFlow;

use super::ordered::{Cut, Ordered, Score};
use super::position::id_range;
use super::value::{Collection, CollectionBody, Opened};
use crate::fault::{Answer, Fault};
use crate::keyspace::Keyspace;
use crate::keyspace::batch::writer;
use crate::keyspace::format::Kind;

/// A member and its score.
pub(crate) type Member = (Vec<u8>, Score);

impl<'p> Keyspace<'p> {
    /// Counts the elements of a collection, if its value does not.
    pub(crate) fn counted(&mut self, Opened(mut collection): Opened) -> Answer<Collection> {
        let database = collection.database;
        if let CollectionBody::Large { id, count } = &mut collection.body
            && collection.meta.uncounted
        {
            let noted = self.counts.0.get(id).copied();
            *count = match noted {
                Some(noted) if cfg!(debug_assertions) => {
                    let counted = self.ordered(database, *id)?.len()?;
                    assert_eq!(noted, counted, "a number of members is not what their map counts");
                    counted
                }
                Some(noted) => noted,
                None => self.ordered(database, *id)?.len()?,
            };
            self.counts.note(*id, *count);
        }
        Ok(collection)
    }

    /// Remembers how many members a sorted set has that was changed.
    pub(super) fn remember_count(&mut self, collection: &Collection) {
        if let CollectionBody::Large { id, count } = collection.body
            && collection.meta.kind == Kind::SortedSet
        {
            self.counts.note(id, count);
        }
    }

    /// The members of a large sorted set, counted; there may be no batch with changes.
    pub(crate) fn count_committed(&self, id: u64) -> Result<u64, tembo::Error> {
        debug_assert!(!self.dirty, "changes that are not committed");
        let Some(maps) = &self.collections else { return Ok(0) };
        match self.batch.as_ref() {
            Some(batch) => batch.count(&maps.ordered, id_range(id)),
            None => self.pool.batch()?.count(&maps.ordered, id_range(id)),
        }
    }

    fn ordered(&mut self, database: usize, id: u64) -> Answer<Ordered<'_, 'p>> {
        let Keyspace { pool, batch, collections, .. } = self;
        let maps = collections.as_ref().ok_or(Fault::MissingDatabase(database))?;
        Ok(Ordered { batch: writer(pool, batch)?, map: &maps.ordered, secret: maps.secret, id })
    }

    /// The score of a member.
    pub(crate) fn score(&mut self, sorted: &Collection, member: &[u8]) -> Answer<Option<Score>> {
        Ok(self.element(sorted, member)?.map(Score::read).transpose()?)
    }

    /// How many members come before a place. O(log n).
    pub(crate) fn rank(&mut self, sorted: &Collection, cut: Cut<'_>) -> Answer<u64> {
        match (&sorted.body, cut) {
            (_, Cut::First) => Ok(0),
            (_, Cut::Last) => Ok(sorted.len()),
            (CollectionBody::Large { id, .. }, cut) => self.ordered(sorted.database, *id)?.rank(cut),
            (CollectionBody::Packed(packed), cut) => {
                let mut rank = 0;
                for (member, score) in packed.iter() {
                    rank += u64::from(cut.is_behind(Score::read(score)?, member));
                }
                Ok(rank)
            }
        }
    }

    /// Gives the members from a rank on to `visit`, upwards or downwards, until it breaks. O(log n) for the
    /// first.
    pub(crate) fn walk_ranks(
        &mut self,
        sorted: &Collection,
        from: u64,
        downwards: bool,
        mut visit: impl FnMut(&[u8], Score) -> ControlFlow<()>,
    ) -> Answer {
        match &sorted.body {
            CollectionBody::Large { id, .. } => {
                self.ordered(sorted.database, *id)?.walk(from, downwards, visit)
            }
            CollectionBody::Packed(packed) => {
                let mut members: Vec<_> = packed.iter().collect();
                let from = from as usize;
                let chosen = match downwards {
                    true => {
                        members.truncate(from.saturating_add(1));
                        members.reverse();
                        &members[..]
                    }
                    false => members.get(from..).unwrap_or(&[]),
                };
                for (member, score) in chosen {
                    if visit(member, Score::read(score)?).is_break() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// Removes members, whose scores are these. The command has changed nothing before.
    pub(crate) fn remove_members(&mut self, sorted: &mut Collection, members: &[Member]) -> Answer {
        match members {
            [(member, score)] if sorted.len() > 1 => {
                self.remove_element_by(sorted, member, Some(*score)).map(drop)
            }
            _ => self.remove_elements(sorted, members.iter().map(|(member, _)| &member[..])),
        }
    }

    /// Up to `count` members from a rank on, upwards or downwards.
    pub(crate) fn members_from(
        &mut self,
        sorted: &Collection,
        from: u64,
        downwards: bool,
        count: u64,
    ) -> Answer<Vec<Member>> {
        let mut members = Vec::new();
        if count > 0 {
            self.walk_ranks(sorted, from, downwards, |member, score| {
                members.push((member.to_vec(), score));
                if members.len() as u64 == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        Ok(members)
    }
}
