//! The state of moves that is not durable.

use std::time::Instant;

use crate::client_ref::ClientRef;
use crate::keyspace::history::Id;

/// The state of moves that is not durable.
#[derive(Debug, Default)]
pub(crate) struct Moving {
    /// The connection that brings keys.
    pub(crate) importer: Option<ClientRef>,
    /// Clients that wait for the end of a move.
    pub(crate) waiting: Vec<(ClientRef, Id)>,
    /// Keys are removed at this time, and not before.
    pub(super) removes_at: Option<Instant>,
    /// The records are those of a master.
    pub(super) is_master: bool,
    /// How many commits had failed when the records were taken up.
    pub(super) failed_commits: u64,
}
