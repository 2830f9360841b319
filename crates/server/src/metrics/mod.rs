//! Figures for Prometheus, and health for probes, over HTTP.
//!
//! ```text
//!   event loop --Vec<Family>--> board --text--> endpoint ===HTTP=== Prometheus, probes
//!   families     the figures, by name         endpoint  a thread with a bounded number of connections
//!   board        where they are handed over   http      requests and responses
//!   text         the exposition formats
//! ```
//!
//! The event loop owns all figures, and no other thread looks at them: the endpoint asks for them, and the
//! loop gathers them at the end of a turn, at most one cron period later, unless those before are new. A
//! server that nobody watches pays one load of a word in each turn. The endpoint waits for nobody: if the
//! loop is stuck it answers with the figures before, whose time is one of them, and `/health/live` says so.
//!
//! # Bounds
//! - A request has at most 8 KiB, and arrives and is answered within seconds.
//! - Only so many connections are open at a time; the oldest makes room for the next one.
//! - The event loop gathers figures at most once a second, however often they are asked for.
//! - Names of commands, addresses of replicas and first words of errors are labels; keys and values are not.

mod board;
mod commands;
mod endpoint;
mod families;
mod http;
mod text;

pub(crate) use board::{Board, Readiness, STUCK_AFTER};
pub(crate) use endpoint::Endpoint;

use crate::executor::Executor;
use crate::info::Facts;
use crate::replica::Phase;
use crate::state::State;

impl State {
    /// Tells the board that the event loop goes round, and whether clients are served: see
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
