//! Clients that wait for a key to have a value: BLPOP and its kind.
//!
//! A command that finds nothing begins a wait. The client's further commands stay in its input until the wait
//! ends. After each command of another client, and after each EXEC, those who wait for the keys that it wrote
//! try again, in order of arrival, each for the key that became ready. This happens in the same batch, so
//! that a push and the pop of one who waits for it share a commit.
//!
//! # What is acknowledged is durable
//!
//! A client that got something waits on until that is committed: nothing of it is sent, and none of its
//! further commands runs. If the commit fails, its reply is dropped, and it waits as before, in its place in
//! the order. As the undone commands may have emptied a key that has elements again, all keys are tried then,
//! with the next tick of the clock.
//!
//! # The end of a wait
//!
//! A value; the deadline; CLIENT UNBLOCK; a topology that gives the key to another node; the end of the
//! connection.

use std::rc::Rc;
use std::time::Instant;

use tembo_wire::RequestQueue;

use crate::client_ref::ClientRef;
use crate::commands::table::Command;
use crate::keyspace::format::Kind;
use crate::keyspace::waiters::Waiters;

/// The keys that a client waits for, and its command.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) command: &'static Command,
    /// The command, to be run again.
    pub(crate) requests: RequestQueue,
    /// The type of value that is waited for.
    pub(crate) kind: Kind,
    database: usize,
    pub(crate) keys: Vec<Rc<[u8]>>,
    deadline: Option<Instant>,
    /// Its place in the order of arrival.
    number: u64,
    /// Its reply is not wanted.
    pub(crate) muted: bool,
    /// While the command runs again: the key that is ready.
    pub(crate) given: Option<Rc<[u8]>>,
    /// The client has a reply that is not committed: the place in the output where the reply begins.
    pub(crate) replied: Option<usize>,
}

impl Waiting {
    pub(crate) fn new(
        command: &'static Command,
        requests: RequestQueue,
        (kind, database): (Kind, usize),
        keys: Vec<Rc<[u8]>>,
        (deadline, number): (Option<Instant>, u64),
    ) -> Self {
        let (muted, given, replied) = (false, None, None);
        Waiting { command, requests, kind, database, keys, deadline, number, muted, given, replied }
    }

    /// Whether the client has got an element that it waited for, except for the commit.
    pub(crate) fn is_replied(&self) -> bool {
        self.replied.is_some()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| key.len() + 2 * size_of::<usize>()).sum();
        size_of::<Self>() + self.requests.memory_bytes() + keys
    }

    /// Enters the client among those who wait.
    pub(crate) fn enter(&self, waiters: &mut Waiters, client: ClientRef) {
        waiters.add((self.number, client), (self.database, &self.keys), self.deadline);
    }

    pub(crate) fn leave(&self, waiters: &mut Waiters) {
        waiters.remove(self.number, (self.database, &self.keys), self.deadline);
    }
}
