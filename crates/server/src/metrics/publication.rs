//! The figures of the executor, on their way to the endpoint.

use super::board::Readiness;
use super::families;
use crate::executor::Executor;
use crate::info::Facts;
use crate::replica::Phase;
use crate::state::State;

impl State {
    /// Reports to the board that the event loop is alive, and whether clients are served: see
    /// [`State::tell_alive`].
    pub(crate) fn beat(&self) {
        let Some(board) = &self.board else { return };
        let (role, config) = (&self.role, &self.config.replica);
        let is_stale = role.master.is_some() && role.phase != Phase::Up && !config.serves_stale;
        board.beat(match (is_stale, role.phase) {
            (false, _) => Readiness::Serving,
            (true, Phase::Synchronising) => Readiness::Synchronising,
            (true, _) => Readiness::MasterDown,
        });
    }
}

impl Executor<'_, '_> {
    /// Gives the endpoint the figures, if it wants some. Reads counts of keys, so that it belongs in front of
    /// a commit, which ends the batch.
    #[inline]
    pub(crate) fn publish_figures(&mut self) {
        if self.state.board.as_ref().is_some_and(|board| board.is_wanted()) {
            self.gather_figures();
        }
    }

    #[cold]
    fn gather_figures(&mut self) {
        let Executor { keys, state, clients, scripts, .. } = self;
        let Some(board) = state.board.clone() else { return };
        // A pool that cannot be read has no figures; the log has the cause from the next command on.
        if let Ok(facts) = Facts::of(keys, state, clients, scripts) {
            board.publish(families::gather(&facts));
        }
    }
}
