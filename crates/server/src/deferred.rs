//! Work that a turn does a little of, before it serves clients.

use crate::executor::Executor;
use crate::state::State;

impl Executor<'_, '_> {
    /// Does the due part of a compaction. No batch is open.
    pub(crate) fn compact(&mut self) {
        let State { compactor, config, now, stats, neighbour, .. } = &mut *self.state;
        let commands = stats.commands + neighbour.as_ref().map_or(0, |neighbour| neighbour.commands());
        compactor.run(self.keys.pool(), &config.compaction, *now, commands);
    }

    /// Does a little of the deferred work: reclaims space of cleared databases, and removes up to `limit`
    /// expired keys in the batch that this begins. Returns whether there may be more to do.
    ///
    /// If the pool refuses, it is tried again later: expired keys are invisible in any case.
    pub(crate) fn tidy(&mut self, limit: usize) -> bool {
        let reclaimed = self.keys.reclaim();
        // A replica's keys expire by the master's word.
        let is_replica = self.state.role.master.is_some();
        // Keys that are on their way to here expire by the clock of their source.
        let imports = self.state.cluster.as_ref().is_some_and(|it| it.moves().importing().is_some());
        let must_not = is_replica || imports || self.state.is_fenced();
        let waits = self.state.keeps_expired || self.state.pause().is_some() || must_not;
        let expired = if waits { 0 } else { self.keys.expire_due(limit).unwrap_or(0) };
        expired > 0 && expired == limit || reclaimed.is_ok() && self.keys.is_reclaiming()
    }
}
