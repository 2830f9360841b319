//! Frees the space of cleared and given-up data, in bounded steps.

use super::Keyspace;
use super::batch::writer;
use crate::fault::{Answer, Fault};

/// Steps of reclaiming at a time; each frees a node of a map and the node's records.
const RECLAIM_STEPS: usize = 8;
/// Elements of a doomed collection that are removed for each of these steps.
const ELEMENTS_PER_STEP: usize = 16;

impl Keyspace<'_> {
    /// Whether [`Keyspace::reclaim`] may have something to do.
    pub(crate) fn is_reclaiming(&self) -> bool {
        self.reclaiming
    }

    /// Whether space beside the data could be freed: space to be reclaimed, replaced states, and data that a
    /// copy keeps.
    pub(crate) fn may_give_room(&self) -> bool {
        self.reclaiming || self.has_kept() || self.point().is_some()
    }

    /// Gives back some of the space of cleared databases, in a commit of its own. As part of a batch of
    /// commands it could fail them: the record of the freed blocks needs room in the pool. There must be no
    /// batch.
    pub(crate) fn reclaim(&mut self) -> Answer {
        if !self.reclaiming {
            return Ok(());
        }
        debug_assert!(self.batch.is_none(), "a batch is under way");
        match self.reclaim_steps(RECLAIM_STEPS) {
            // One step always fits into a lane, unless lanes are very short.
            Err(Fault::Engine(tembo::Error::Full { .. })) => self.reclaim_steps(1),
            outcome => outcome,
        }
    }

    fn reclaim_steps(&mut self, steps: usize) -> Answer {
        let Keyspace { pool, batch, databases, collections, dirty, replication, old_records, .. } = self;
        let point = batch.point.clone().filter(|point| !point.lets_go.get());
        let has_dropped = pool.reclaim_dropped(steps)?;
        let writing = writer(pool, batch)?;
        let words = writing.pending_words();
        let maps = || databases.iter().flatten().flat_map(|maps| [&maps.data, &maps.expires]);
        let maps = || maps().chain(replication.backlog.map()).chain(old_records.as_ref());
        let maps = || maps().chain(collections.as_ref().and_then(|collections| collections.scripts.as_ref()));
        let reclaimed = maps().try_fold(false, |more, map| Ok(more || writing.reclaim(map, steps)?));
        let reclaimed = match (reclaimed, collections) {
            // A copy would keep all that is removed.
            (Ok(false), Some(maps)) if point.is_some() => {
                point.iter().for_each(|point| point.holds_back.set(maps.has_doomed()));
                Ok(false)
            }
            (Ok(false), Some(maps)) => maps.reclaim(writing, steps * ELEMENTS_PER_STEP),
            (reclaimed, _) => reclaimed,
        };
        *dirty |= writing.pending_words() != words;
        let more = match reclaimed {
            Ok(more) => more,
            Err(e) => {
                // The next batch must not include a part of this one.
                (_, *dirty) = (batch.take(), false);
                return Err(e);
            }
        };
        self.commit()?;
        self.reclaiming = more || has_dropped;
        Ok(())
    }
}
