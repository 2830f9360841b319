//! The commands: a file per family, which holds the family's handlers and their rows of the command table.
//!
//! A handler writes its reply and returns `Ok`, or returns a [`Fault`](crate::fault::Fault); then the
//! executor undoes its writes to the keyspace and drops its part of a reply. So handlers need not clean up
//! after themselves.

mod acl;
pub(crate) mod args;
mod arguments;
pub(crate) mod arrival;
mod bitfield;
mod bitmap;
mod blocking;
mod client;
mod cluster;
mod clusterx;
mod command;
pub(crate) mod config;
mod config_compaction;
mod config_eviction;
mod config_kept;
mod config_observation;
mod config_replica;
mod config_tls;
mod config_users;
mod connection;
mod counter;
mod debug;
pub(crate) mod dump;
mod element_scan;
mod expire;
mod failover;
mod geo;
mod hash;
pub(crate) mod heartbeat;
mod hyperloglog;
mod info;
mod key_access;
mod key_places;
mod keys;
mod latency_graph;
mod list;
mod list_move;
mod moves;
mod object;
mod pubsub;
mod replicas;
mod replication;
mod sampling;
mod saving;
mod scan;
mod score;
mod scripting;
mod server;
mod set;
mod set_algebra;
mod slow;
mod sort;
mod sorted_algebra;
mod sorted_pop;
mod sorted_range;
mod sorted_set;
mod string;
mod subsequence;
mod substring;
pub(crate) mod table;
pub(crate) mod tembo;
mod tracking;
pub(crate) mod transaction;

use std::collections::HashMap;

use foldhash::fast::FixedState;
use tembo_wire::{Protocol, ReplyWriter};

use crate::clients::Clients;
use crate::fault::{Answer, Fault};
use crate::keyspace::Keyspace;
use crate::script::Scripts;
use crate::session::Session;
use crate::state::State;
pub(crate) use command::{places_of_keys, results_of_radius};
pub(crate) use key_access::KeyAccess;
pub(crate) use replicas::replicas_of;
pub(crate) use scan::KeysJob;
use table::Command;

/// Longest name of a command.
const NAME_BYTES_MAX: usize = 20;

/// The arguments of a handler, apart from the request.
pub(crate) struct Context<'a, 'p> {
    pub(crate) keys: &'a mut Keyspace<'p>,
    pub(crate) session: &'a mut Session,
    pub(crate) out: Out<'a>,
    pub(crate) state: &'a mut State,
    /// The other clients.
    pub(crate) clients: &'a mut Clients,
    pub(crate) scripts: &'a mut Scripts,
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

    /// Whether replicas are told of effects.
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

    /// Fails if the reply would be too long with so many bytes more.
    #[inline(always)]
    fn expect_room(&self, bytes: usize) -> Answer {
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

/// The command table.
#[derive(Debug)]
pub(crate) struct Registry {
    commands: Vec<&'static Command>,
    /// By name in lower case.
    by_name: HashMap<&'static [u8], &'static Command, FixedState>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        let families = [
            string::COMMANDS,
            substring::COMMANDS,
            subsequence::COMMANDS,
            counter::COMMANDS,
            hash::COMMANDS,
            set::COMMANDS,
            set_algebra::COMMANDS,
            list::COMMANDS,
            list_move::COMMANDS,
            sorted_set::COMMANDS,
            sorted_pop::COMMANDS,
            sorted_range::COMMANDS,
            sorted_algebra::COMMANDS,
            bitmap::COMMANDS,
            bitfield::COMMANDS,
            hyperloglog::COMMANDS,
            geo::COMMANDS,
            keys::COMMANDS,
            sort::COMMANDS,
            tembo::COMMANDS,
            dump::COMMANDS,
            scan::COMMANDS,
            expire::COMMANDS,
            object::COMMANDS,
            connection::COMMANDS,
            client::COMMANDS,
            command::COMMANDS,
            config::COMMANDS,
            info::COMMANDS,
            server::COMMANDS,
            saving::COMMANDS,
            replication::COMMANDS,
            failover::COMMANDS,
            replicas::COMMANDS,
            cluster::COMMANDS,
            clusterx::COMMANDS,
            transaction::COMMANDS,
            pubsub::COMMANDS,
            slow::COMMANDS,
            scripting::COMMANDS,
            acl::COMMANDS,
        ];
        let commands: Vec<_> = families.into_iter().flatten().collect();
        let by_name = commands.iter().map(|command| (command.name.as_bytes(), *command)).collect();
        Registry { commands, by_name }
    }

    /// All commands, without subcommands.
    pub(crate) fn all(&self) -> &[&'static Command] {
        &self.commands
    }

    /// The command that a client calls `name`.
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Option<&'static Command> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower).copied()
    }

    /// The command or subcommand with this full name, `container|subcommand`.
    pub(crate) fn get_full(&self, name: &[u8]) -> Option<&'static Command> {
        match name.iter().position(|&byte| byte == b'|') {
            None => self.get(name),
            Some(bar) => self.get(&name[..bar])?.subcommand(&name[bar + 1..]),
        }
    }
}

/// Writes the help of a container command: a title, then the lines.
fn write_help(out: &mut Out<'_>, name: &str, lines: &[&str]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<&'static Command> {
        let registry = Registry::new();
        let mut all = registry.all().to_vec();
        all.extend(registry.all().iter().flat_map(|command| command.subcommands));
        all
    }

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        let registry = Registry::new();
        for command in registry.all() {
            assert!(command.name.len() <= NAME_BYTES_MAX, "{}", command.name);
            let found = registry.get(command.name.to_uppercase().as_bytes());
            assert_eq!(found.map(|found| found.name), Some(command.name));
        }
        assert!(registry.get(b"nosuch").is_none());
        assert!(registry.get(b"").is_none());
        assert!(registry.get(&[b'g'; 100]).is_none());
        assert_eq!(registry.get_full(b"CLIENT|ID").map(|found| found.name), Some("client|id"));
        assert!(registry.get_full(b"client|").is_none());
    }

    #[test]
    fn names_are_unique_and_rows_are_whole() {
        let mut names: Vec<_> = all().iter().map(|command| command.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().len());
        for command in all() {
            assert!(!command.summary.is_empty() && !command.since.is_empty(), "{}", command.name);
            assert_eq!(command.keys.first == 0, command.keys.step == 0, "{}", command.name);
        }
    }

    #[test]
    fn key_positions_follow_the_range() {
        let registry = Registry::new();
        let keys = |name: &str, count| -> Vec<usize> {
            registry.get(name.as_bytes()).unwrap().keys.positions(count).collect()
        };
        assert_eq!(keys("get", 2), [1]);
        assert_eq!(keys("mset", 5), [1, 3]);
        assert_eq!(keys("del", 4), [1, 2, 3]);
        assert_eq!(keys("rename", 3), [1, 2]);
        assert_eq!(keys("ping", 2), [0; 0]);
    }
}
