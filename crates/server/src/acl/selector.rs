//! A selector: commands, keys and channels that go together. A user has one of its own, and may have more in
//! parentheses.

use std::collections::BTreeMap;

use super::categories::{CATALOGUE, CATEGORIES, CommandSet, category};
use super::rule::RuleError;
use crate::glob;

/// Keys that may be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Vec<u8>,
    /// The beginning of the keys, where the pattern says no more. Most are so, and it is fast to compare.
    beginning: Option<Vec<u8>>,
    reads: bool,
    writes: bool,
}

impl KeyPattern {
    #[inline]
    fn gives(&self, reads: bool, writes: bool) -> bool {
        (self.reads | !reads) & (self.writes | !writes)
    }

    #[inline]
    fn matches(&self, key: &[u8]) -> bool {
        match &self.beginning {
            Some(beginning) => key.starts_with(beginning),
            None => glob::matches(&self.pattern, key, false),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    /// Commands that are allowed.
    commands: CommandSet,
    /// All were allowed, and none was taken away since.
    all_commands: bool,
    /// Commands of later versions are allowed: the rules begin with all commands.
    later_commands: bool,
    /// First arguments for which a command is allowed that is not allowed otherwise.
    first_args: BTreeMap<usize, Vec<Vec<u8>>>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
}

impl Selector {
    /// A selector that allows nothing, except all channels if the argument says so.
    pub(super) fn new(all_channels: bool) -> Self {
        Selector { all_channels, ..Selector::default() }
    }

    /// Reads the rules between parentheses.
    pub(super) fn read(rules: &[u8], all_channels: bool) -> Result<Self, RuleError> {
        let mut selector = Selector::new(all_channels);
        let words = rules.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.into_iter().try_for_each(|word| selector.apply(word))?;
        Ok(selector)
    }

    /// Takes a rule.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => (self.all_keys, self.keys) = (true, Vec::new()),
            b"resetkeys" => (self.all_keys, self.keys) = (false, Vec::new()),
            b"allchannels" | b"&*" => self.set_channels(true),
            b"resetchannels" => self.set_channels(false),
            b"allcommands" | b"+@all" => self.set_commands(true),
            b"nocommands" | b"-@all" => self.set_commands(false),
            _ => return self.apply_named(rule),
        }
        Ok(())
    }

    fn apply_named(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule {
            [b'~', pattern @ ..] => self.add_keys(pattern, true, true),
            [b'%', rest @ ..] => self.add_keys_by_access(rest),
            [b'&', pattern @ ..] => self.add_channels(pattern),
            [b'+', b'@', name @ ..] => self.change_category(name, true),
            [b'-', b'@', name @ ..] => self.change_category(name, false),
            [b'+', name @ ..] => self.allow(name),
            [b'-', name @ ..] => {
                let number = CATALOGUE.find(name).ok_or(RuleError::Unknown)?;
                self.change(number, false);
                Ok(())
            }
            _ => Err(RuleError::Syntax),
        }
    }

    pub(super) fn set_channels(&mut self, all: bool) {
        (self.all_channels, self.channels) = (all, Vec::new());
    }

    fn set_commands(&mut self, all: bool) {
        self.commands = if all { CommandSet::ALL } else { CommandSet::default() };
        (self.all_commands, self.later_commands) = (all, all);
        self.first_args.clear();
    }

    /// `%RW~pattern`; a pattern that is missing is empty.
    fn add_keys_by_access(&mut self, rest: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        let (mut reads, mut writes, mut rest) = (false, false, rest);
        loop {
            rest = match rest {
                [b'R' | b'r', rest @ ..] if !reads => {
                    reads = true;
                    rest
                }
                [b'W' | b'w', rest @ ..] if !writes => {
                    writes = true;
                    rest
                }
                [b'~', pattern @ ..] if reads || writes => return self.add_keys(pattern, reads, writes),
                [] if reads || writes => return self.add_keys(b"", reads, writes),
                _ => return Err(RuleError::Syntax),
            };
        }
    }

    fn add_keys(&mut self, pattern: &[u8], reads: bool, writes: bool) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        expect_no_spaces(pattern)?;
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => (known.reads, known.writes) = (known.reads | reads, known.writes | writes),
            None => self.keys.push(KeyPattern {
                pattern: pattern.to_vec(),
                beginning: glob::as_prefix(pattern),
                reads,
                writes,
            }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AfterAllChannels);
        }
        expect_no_spaces(pattern)?;
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    /// Allows a command, a subcommand, or a command with a first argument.
    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        if let Some(number) = CATALOGUE.find(name) {
            self.change(number, true);
            return Ok(());
        }
        let bar = name.iter().rposition(|&byte| byte == b'|').ok_or(RuleError::Unknown)?;
        let (command, arg) = (&name[..bar], &name[bar + 1..]);
        let number = CATALOGUE.find(command).ok_or(RuleError::Unknown)?;
        let known = &CATALOGUE.all()[number];
        if known.is_subcommand {
            return Err(RuleError::OfSubcommand);
        }
        if arg.is_empty() {
            return Err(RuleError::Syntax);
        }
        expect_no_spaces(arg)?;
        if !known.subcommands.is_empty() {
            return Err(RuleError::Unknown);
        }
        let args = self.first_args.entry(number).or_default();
        if !args.iter().any(|known| known.eq_ignore_ascii_case(arg)) {
            args.push(arg.to_vec());
        }
        Ok(())
    }

    fn change_category(&mut self, name: &[u8], allowed: bool) -> Result<(), RuleError> {
        let category = category(name).ok_or(RuleError::Unknown)?;
        self.change_all_in(category, allowed);
        Ok(())
    }

    fn change_all_in(&mut self, category: usize, allowed: bool) {
        let all = CATALOGUE.all().iter().enumerate();
        all.filter(|(_, known)| known.is_in(category)).for_each(|(number, _)| self.change(number, allowed));
    }

    /// Allows a command and its subcommands, or takes them away.
    fn change(&mut self, number: usize, allowed: bool) {
        let subcommands = CATALOGUE.all()[number].subcommands.iter().copied();
        for number in std::iter::once(number).chain(subcommands) {
            self.commands.set(number, allowed);
            self.first_args.remove(&number);
        }
        self.all_commands &= allowed;
    }

    /// Whether the selector allows everything.
    pub(super) fn allows_all(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// Whether the selector allows a command with a first argument.
    #[inline]
    pub(super) fn allows_command(&self, number: usize, first_arg: Option<&[u8]>) -> bool {
        self.all_commands || self.commands.has(number) || self.allows_first_arg(number, first_arg)
    }

    #[cold]
    fn allows_first_arg(&self, number: usize, first_arg: Option<&[u8]>) -> bool {
        let args = self.first_args.get(&number).map_or(&[][..], Vec::as_slice);
        first_arg.is_some_and(|arg| args.iter().any(|known| known.eq_ignore_ascii_case(arg)))
    }

    #[inline]
    pub(super) fn allows_all_keys(&self) -> bool {
        self.all_keys
    }

    /// Whether the selector allows this access to a key.
    #[inline]
    pub(super) fn allows_key(&self, key: &[u8], reads: bool, writes: bool) -> bool {
        self.all_keys || self.keys.iter().any(|known| known.gives(reads, writes) && known.matches(key))
    }

    /// Whether the selector allows this access to every key with this beginning.
    pub(super) fn allows_prefix(&self, prefix: &[u8], reads: bool, writes: bool) -> bool {
        let covers = |known: &KeyPattern| known.beginning.as_ref().is_some_and(|its| prefix.starts_with(its));
        self.all_keys || self.keys.iter().any(|known| known.gives(reads, writes) && covers(known))
    }

    #[inline]
    pub(super) fn allows_all_channels(&self) -> bool {
        self.all_channels
    }

    /// Whether it allows a channel, or a pattern of channels, which is allowed only as it stands.
    pub(super) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let allows = |known: &Vec<u8>| match is_pattern {
            true => known == channel,
            false => glob::matches(known, channel, false),
        };
        self.all_channels || self.channels.iter().any(allows)
    }

    /// The rules that make such a selector.
    pub(super) fn describe(&self) -> Vec<u8> {
        let mut text = self.describe_keys();
        if !text.is_empty() {
            text.push(b' ');
        }
        if !self.all_channels {
            text.extend_from_slice(b"resetchannels ");
        }
        let channels = self.describe_channels();
        if !channels.is_empty() {
            text.extend_from_slice(&channels);
            text.push(b' ');
        }
        text.extend_from_slice(&self.describe_commands());
        text
    }

    pub(super) fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let show = |known: &KeyPattern| {
            let access: &[u8] = match (known.reads, known.writes) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                _ => b"~",
            };
            [access, &known.pattern].concat()
        };
        self.keys.iter().map(show).collect::<Vec<_>>().join(&b' ')
    }

    pub(super) fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels.iter().map(|known| [b"&", &known[..]].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules for commands, in the words of Redis: all or nothing, then the categories that fit best, one
    /// after the other, and then the commands that still differ.
    pub(super) fn describe_commands(&self) -> Vec<u8> {
        let mut told = Selector::default();
        told.set_commands(self.later_commands);
        let mut words = vec![if self.later_commands { b"+@all".to_vec() } else { b"-@all".to_vec() }];
        let (sign, adds) = if self.later_commands { ('-', false) } else { ('+', true) };
        // The commands that the categories so far do not cover.
        let mut left = self.clone();
        let mut applied = [false; CATEGORIES.len()];
        while let Some(best) = left.best_category(&applied, adds) {
            told.change_all_in(best, adds);
            left.change_all_in(best, !adds);
            applied[best] = true;
            words.push(format!("{sign}@{}", CATEGORIES[best]).into_bytes());
        }
        for (number, known) in CATALOGUE.all().iter().enumerate() {
            let is_in = self.commands.has(number);
            if is_in != told.commands.has(number) {
                words.push(format!("{}{}", if is_in { '+' } else { '-' }, known.name).into_bytes());
                told.change(number, is_in);
            }
            let args = self.first_args.get(&number).filter(|_| !is_in);
            for arg in args.into_iter().flatten() {
                words.push([b"+", known.name.as_bytes(), b"|", arg].concat());
            }
        }
        words.join(&b' ')
    }

    /// The category that has more of the remaining commands than of others: with the fewest others, and the
    /// most in common.
    fn best_category(&self, applied: &[bool], adds: bool) -> Option<usize> {
        let mut best: Option<(usize, usize, usize)> = None;
        for category in (0..CATEGORIES.len()).filter(|&category| !applied[category]) {
            let all = CATALOGUE.all().iter().enumerate();
            let its = all.filter(|(_, known)| known.is_of_redis && known.is_in(category));
            let (mut same, mut others) = (0, 0);
            for (number, _) in its {
                *(if self.commands.has(number) == adds { &mut same } else { &mut others }) += 1;
            }
            let is_better =
                best.is_none_or(|(_, least, most)| others < least || others == least && same > most);
            if same > others && is_better {
                best = Some((category, others, same));
            }
        }
        best.map(|(category, _, _)| category)
    }
}

fn expect_no_spaces(pattern: &[u8]) -> Result<(), RuleError> {
    let is_space = |byte: &u8| matches!(byte, 0 | b' ' | 9..=13);
    if pattern.iter().any(is_space) { Err(RuleError::Syntax) } else { Ok(()) }
}
