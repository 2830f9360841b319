//! Sorted sets, as commands see them: members by their places and ranks.

use std::ops::ControlFlow;

use super::ordered::{Cut, Ordered, Score};
use super::{Body, Collection};
use crate::fault::{Answer, Fault};
use crate::keyspace::{Keyspace, writer};

/// A member and its score.
pub(crate) type Member = (Vec<u8>, Score);

impl<'p> Keyspace<'p> {
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
            (Body::Large { id, .. }, cut) => self.ordered(sorted.database, *id)?.rank(cut),
            (Body::Packed(packed), cut) => {
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
            Body::Large { id, .. } => self.ordered(sorted.database, *id)?.walk(from, downwards, visit),
            Body::Packed(packed) => {
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
