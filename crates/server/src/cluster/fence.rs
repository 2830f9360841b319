//! The fence of a node without a lease: see [`super::lease`].

use crate::clock;
use crate::commands::table::Command;
use crate::executor::Executor;
use crate::session::Session;
use crate::state::State;

impl State {
    /// Whether this is a master that needs a lease, and has none.
    #[cold]
    pub(crate) fn is_fenced(&self) -> bool {
        self.config.needs_lease
            && self.cluster.is_some()
            && self.role.master.is_none()
            && !self.lease.holds(clock::since_boot())
    }
}

impl Executor<'_, '_> {
    /// Whether a command writes, and the lease has run out. For a command of a script this was decided when
    /// the script began.
    #[cold]
    pub(crate) fn lacks_lease(&self, session: &Session, command: &Command, is_fenced: Option<bool>) -> bool {
        session.writes(command) && is_fenced.unwrap_or_else(|| self.state.is_fenced())
    }
}
