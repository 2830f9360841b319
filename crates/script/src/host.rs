//! The side that runs a script: the server.

use tembo_wire::{Protocol, Request};

/// Whether a script goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The script goes on.
    GoOn,
    /// The script ends here, and nothing in it can catch that. The host knows why.
    Stop,
}

/// The server, as a script sees it.
pub trait Host {
    /// Runs a command and writes its reply, in this protocol. An error is a reply, too.
    fn call(&mut self, request: &Request<'_>, protocol: Protocol, out: &mut Vec<u8>) -> Flow;

    /// Called every few milliseconds once the script has run for as long as it was given.
    ///
    /// Lua looks at the time each 1000 instructions, the libraries of this crate while they work, and each
    /// call of a command. A function of Lua's own library that works on a large string is not interrupted.
    fn tick(&mut self) -> Flow;

    /// Logs a message of the script, with a level from 0 (debug) to 3 (warning).
    fn log(&mut self, level: u8, message: &[u8]);

    /// Whether the user may run a command; `None` if there is no such command.
    fn may_run(&mut self, request: &Request<'_>) -> Option<bool>;
}
