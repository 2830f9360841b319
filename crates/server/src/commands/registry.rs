//! The command table: all rows, found by their names.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::rows;
use super::table::Command;

/// Longest name of a command.
const NAME_BYTES_MAX: usize = 20;

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
            rows::string::COMMANDS,
            rows::substring::COMMANDS,
            rows::subsequence::COMMANDS,
            rows::counter::COMMANDS,
            rows::hash::COMMANDS,
            rows::set::COMMANDS,
            rows::set_algebra::COMMANDS,
            rows::list::COMMANDS,
            rows::list_move::COMMANDS,
            rows::sorted_set::COMMANDS,
            rows::sorted_pop::COMMANDS,
            rows::sorted_range::COMMANDS,
            rows::sorted_algebra::COMMANDS,
            rows::bitmap::COMMANDS,
            rows::bitfield::COMMANDS,
            rows::hyperloglog::COMMANDS,
            rows::geo::COMMANDS,
            rows::keys::COMMANDS,
            rows::sort::COMMANDS,
            rows::tembo::COMMANDS,
            rows::dump::COMMANDS,
            rows::scan::COMMANDS,
            rows::expire::COMMANDS,
            rows::object::COMMANDS,
            rows::connection::COMMANDS,
            rows::client::COMMANDS,
            rows::command::COMMANDS,
            rows::config::COMMANDS,
            rows::info::COMMANDS,
            rows::server::COMMANDS,
            rows::saving::COMMANDS,
            rows::replication::COMMANDS,
            rows::failover::COMMANDS,
            rows::replicas::COMMANDS,
            rows::cluster::COMMANDS,
            rows::clusterx::COMMANDS,
            rows::transaction::COMMANDS,
            rows::pubsub::COMMANDS,
            rows::slow::COMMANDS,
            rows::scripting::COMMANDS,
            rows::acl::COMMANDS,
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
