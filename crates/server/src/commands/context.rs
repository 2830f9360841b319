//! All that a handler works on, and where its reply goes.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use tembo_wire::{Protocol, ReplyWriter, Request};

use super::keys_job::KeysJob;
use super::table::Command;
use crate::clients::Clients;
use crate::fault::{Answer, Fault};
use crate::keyspace::Keyspace;
use crate::script::cache::Scripts;
use crate::session::Session;
use crate::state::State;

/// Runs a command. `request` has as many arguments as the command's arity demands.
pub(crate) type Handler = fn(&mut Context<'_, '_>, &Request<'_>) -> Answer;

/// The handlers of all commands and subcommands, by their full names.
#[derive(Debug)]
pub(crate) struct Handlers(HashMap<&'static str, Handler, FixedState>);

impl Handlers {
    pub(super) fn new(handlers: impl Iterator<Item = (&'static str, Handler)>) -> Self {
        Handlers(handlers.collect())
    }

    /// The handler of a command of the table.
    #[inline]
    pub(crate) fn of(&self, command: &Command) -> Handler {
        *self.0.get(command.name).expect("each row of the table has a handler")
    }

    #[cfg(test)]
    pub(super) fn has(&self, command: &Command) -> bool {
        self.0.contains_key(command.name)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The arguments of a handler, apart from the request.
pub(crate) struct Context<'a, 'p> {
    pub(crate) keys: &'a mut Keyspace<'p>,
    pub(crate) session: &'a mut Session,
    pub(crate) out: Out<'a>,
    pub(crate) state: &'a mut State,
    /// The other clients.
    pub(crate) clients: &'a mut Clients,
    pub(crate) scripts: &'a mut Scripts,
    /// The handlers, for commands that run another command.
    pub(crate) handlers: &'a Handlers,
    /// Work to be continued in later turns; the client's further commands wait for it.
    pub(crate) job: &'a mut Option<KeysJob>,
}

impl Context<'_, '_> {
    /// The database that the client has selected.
    pub(crate) fn database(&self) -> usize {
        self.session.database
    }

    /// Tells replicas these words in place of the command: see [`crate::effects`]. Called after the changes.
    pub(crate) fn tell<I>(&mut self, words: I)
    where
        I: IntoIterator<Item: AsRef<[u8]>, IntoIter: ExactSizeIterator>,
    {
        self.keys.replication.effects.tell(self.session.database, words);
    }

    /// Whether effects are sent to replicas.
    pub(crate) fn tells(&self) -> bool {
        self.keys.replication.effects.is_on
    }
}

/// Where a command's reply goes.
pub(crate) struct Out<'a> {
    bytes: &'a mut Vec<u8>,
    pub(crate) protocol: Protocol,
    /// The buffer may not grow beyond this.
    end_max: usize,
}

impl<'a> Out<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>, protocol: Protocol, reply_bytes_max: usize) -> Self {
        let end_max = bytes.len().saturating_add(reply_bytes_max);
        Out { bytes, protocol, end_max }
    }

    /// How many bytes of replies the client gets this turn, so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that were appended since there were `start` of them.
    pub(crate) fn since(&self, start: usize) -> &[u8] {
        self.bytes.get(start..).unwrap_or_default()
    }

    /// Appends to the reply.
    pub(crate) fn write(&mut self) -> ReplyWriter<'_> {
        ReplyWriter::new(self.bytes, self.protocol)
    }

    /// Appends a bulk string that the client did not send, and so may be long.
    pub(crate) fn bulk(&mut self, payload: &[u8]) -> Answer {
        self.expect_room(payload.len())?;
        self.write().bulk(payload);
        Ok(())
    }

    /// Fails if the reply would be too long with this many bytes more.
    #[inline(always)]
    pub(super) fn expect_room(&self, bytes: usize) -> Answer {
        if self.bytes.len().saturating_add(bytes) > self.end_max {
            return Err(Fault::Error("ERR reply exceeds the maximum (reply-max-bytes)"));
        }
        Ok(())
    }

    /// Appends a bulk string, or null.
    pub(crate) fn bulk_or_null(&mut self, payload: Option<&[u8]>) -> Answer {
        match payload {
            Some(payload) => self.bulk(payload),
            None => {
                self.write().null();
                Ok(())
            }
        }
    }

    /// Appends replies that were encoded before.
    pub(crate) fn raw(&mut self, replies: &[u8]) {
        self.bytes.extend_from_slice(replies);
    }
}

/// Writes the help of a container command: a title, then the lines.
pub(super) fn write_help(out: &mut Out<'_>, name: &str, lines: &[&str]) {
    let title = format!(
        "{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        name = name.to_uppercase()
    );
    let mut reply = out.write();
    reply.array(lines.len() + 3);
    reply.simple(title);
    lines.iter().for_each(|line| reply.simple(line));
    reply.simple("HELP");
    reply.simple("    Prints this help.");
}
