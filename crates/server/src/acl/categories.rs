//! The categories of commands, and every command that a rule may name.
//!
//! Rules may also name commands of Redis that this server lacks (`absent.txt`): a list of users for Redis is
//! accepted unchanged, and rules are reported as Redis reports them.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::FixedState;

use crate::commands::key_access::KeyAccess;
use crate::commands::registry::Registry;
use crate::commands::table::Command;

const ABSENT: &str = include_str!("absent.txt");

/// The categories, in the order of Redis.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The commands that Redis 7.0 lacks. They do not count when rules are reported as Redis reports them.
fn is_own(name: &str) -> bool {
    ["client|setinfo", "waitaof"].contains(&name)
        || name.starts_with("tembo.")
        || name.starts_with("clusterx")
}

/// The number of a category, in any case.
pub(crate) fn category(name: &[u8]) -> Option<usize> {
    CATEGORIES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// The arguments of a command that are channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channels {
    None,
    /// The first argument is a channel.
    First,
    All,
    /// All arguments are patterns of channels.
    Patterns,
}

impl Channels {
    fn of(command: &str) -> Self {
        match command {
            "publish" | "spublish" => Channels::First,
            "subscribe" | "ssubscribe" => Channels::All,
            "psubscribe" => Channels::Patterns,
            _ => Channels::None,
        }
    }
}

/// A command or subcommand that rules may name.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// A bit for each category.
    categories: u32,
    /// Whether Redis 7.0 has the command.
    pub(crate) is_of_redis: bool,
    pub(crate) is_subcommand: bool,
    pub(crate) subcommands: Vec<usize>,
    /// `None` if this server lacks it.
    pub(crate) command: Option<&'static Command>,
    pub(crate) keys: KeyAccess,
    pub(crate) channels: Channels,
}

impl Known {
    pub(crate) fn is_in(&self, category: usize) -> bool {
        self.categories & 1 << category != 0
    }
}

/// All commands that rules may name, each with a number. A container comes before its subcommands.
#[derive(Debug)]
pub(crate) struct Catalogue {
    all: Vec<Known>,
    by_name: HashMap<&'static str, usize, FixedState>,
    /// Numbers by the addresses of the names: most lookups come with the name of the table itself.
    by_address: HashMap<usize, usize, FixedState>,
}

/// The catalogue of this program's commands.
pub(crate) static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::new);

impl Catalogue {
    fn new() -> Self {
        let mut catalogue =
            Catalogue { all: Vec::new(), by_name: HashMap::default(), by_address: HashMap::default() };
        for command in Registry::new().all() {
            catalogue.add_command(command);
            command.subcommands.iter().for_each(|command| catalogue.add_command(command));
        }
        for line in ABSENT.lines().filter(|line| !line.starts_with('#')) {
            let (name, categories) = line.split_once(' ').unwrap_or((line, ""));
            catalogue.add(name, categories.split(','), None);
        }
        catalogue
    }

    fn add_command(&mut self, command: &'static Command) {
        self.add(command.name, command.categories(), Some(command));
    }

    fn add(
        &mut self,
        name: &'static str,
        categories: impl Iterator<Item = &'static str>,
        command: Option<&'static Command>,
    ) {
        if self.by_name.contains_key(name) {
            return;
        }
        let number = self.all.len();
        let categories = categories.filter_map(|name| category(name.as_bytes()));
        let categories = categories.fold(0, |bits, category| bits | 1 << category);
        let container = name.split_once('|').and_then(|(container, _)| self.by_name.get(container));
        let is_subcommand = container.is_some();
        if let Some(&container) = container {
            self.all[container].subcommands.push(number);
        }
        self.all.push(Known {
            name,
            categories,
            is_of_redis: !is_own(name),
            is_subcommand,
            subcommands: Vec::new(),
            command,
            keys: command.map(KeyAccess::of).unwrap_or_default(),
            channels: Channels::of(name),
        });
        self.by_name.insert(name, number);
        self.by_address.insert(name.as_ptr() as usize, number);
    }

    pub(crate) fn all(&self) -> &[Known] {
        &self.all
    }

    /// The number of a command of this server.
    #[inline]
    pub(crate) fn number_of(&self, command: &Command) -> Option<usize> {
        let by_address = self.by_address.get(&(command.name.as_ptr() as usize)).copied();
        by_address
            .filter(|&number| self.all[number].name.len() == command.name.len())
            .or_else(|| self.number(command.name))
    }

    /// The number of a command, by its full name in lower case.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The number of the command that a rule names, in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        self.number(str::from_utf8(&name.to_ascii_lowercase()).ok()?)
    }
}

/// A set of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandSet([u64; CommandSet::WORDS]);

impl CommandSet {
    const WORDS: usize = 12;

    pub(super) const ALL: CommandSet = CommandSet([u64::MAX; CommandSet::WORDS]);

    #[inline]
    pub(super) fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    pub(super) fn set(&mut self, number: usize, is_in: bool) {
        if let Some(word) = self.0.get_mut(number / 64) {
            let bit = 1 << (number % 64);
            *word = if is_in { *word | bit } else { *word & !bit };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_number_in_the_sets() {
        let all = CATALOGUE.all();
        assert!(all.len() > 360 && all.len() <= 64 * CommandSet::WORDS, "{}", all.len());
        for (number, known) in all.iter().enumerate() {
            assert_eq!(CATALOGUE.find(known.name.to_uppercase().as_bytes()), Some(number));
            assert!(known.name.split_once('|').is_none() || known.is_subcommand, "{}", known.name);
            assert!(known.categories != 0, "{}", known.name);
            let mut set = CommandSet::ALL;
            set.set(number, false);
            assert!(!set.has(number) && set != CommandSet::ALL);
        }
        assert!(!CommandSet::ALL.has(64 * CommandSet::WORDS));
    }

    #[test]
    fn absent_commands_have_categories_that_exist() {
        for line in ABSENT.lines().filter(|line| !line.starts_with('#')) {
            let (_, categories) = line.split_once(' ').unwrap();
            assert!(categories.split(',').all(|name| category(name.as_bytes()).is_some()), "{line}");
        }
    }
}
