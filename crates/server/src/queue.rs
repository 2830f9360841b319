//! The transaction of a client: the commands since MULTI, and the keys that it watches.

use std::cell::Cell;
use std::rc::Rc;

use tembo_wire::{Request, RequestQueue};

use crate::commands::table::Command;
use crate::commands::table::flag::WALKS;

/// The commands since MULTI.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    requests: RequestQueue,
    pub(crate) commands: Vec<&'static Command>,
    /// A command was refused, so that EXEC will run none.
    pub(crate) refused: bool,
}

impl Queue {
    pub(crate) fn push(&mut self, command: &'static Command, request: &Request<'_>) {
        self.commands.push(command);
        self.requests.push(request);
    }

    /// Gives the memory back: the transaction will not be run.
    pub(crate) fn refuse(&mut self) {
        *self = Queue { refused: true, ..Queue::default() };
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.requests.memory_bytes() + size_of_val(&self.commands[..])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static Command, Request<'_>)> {
        let request = |at| self.requests.get(at).expect("each command has its request");
        self.commands.iter().enumerate().map(move |(at, command)| (*command, request(at)))
    }

    /// Whether a command walks over the keys, or may: the effects of a script are unknown beforehand.
    pub(crate) fn may_walk(&self) -> bool {
        self.commands.iter().any(|command| command.has(WALKS) || command.runs_script())
    }

    pub(crate) fn has(&self, flags: u32) -> bool {
        self.commands.iter().any(|command| command.has(flags))
    }
}

/// The keys that a client watches.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The watched keys, with their databases.
    pub(crate) keys: Vec<(usize, Rc<[u8]>)>,
    /// The memory they take.
    pub(crate) bytes: usize,
    /// The earliest deadline that one of them had.
    pub(crate) expires: Option<u64>,
    /// That deadline was found to have passed; it stays passed if the clock is set back.
    pub(crate) has_expired: Cell<bool>,
}
