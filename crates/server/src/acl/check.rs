//! Whether a user may run a command with its arguments.

use tembo_wire::Request;

use super::categories::{CATALOGUE, Channels, Known};
use super::selector::Selector;
use super::user::User;
use crate::commands::key_arguments::ONCE_COMMAND;
use crate::commands::table::Command;
use crate::commands::table::flag::NO_AUTH;

/// The kind of thing that is denied. If several kinds apply, the last one in this order is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Command,
    Key,
    Auth,
    Channel,
}

/// A denied command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    /// The argument that is denied, unless it is the command.
    pub(crate) place: usize,
    /// The full name of the command.
    pub(crate) command: &'static str,
}

impl Denial {
    /// The error line of Redis.
    pub(crate) fn line(&self) -> String {
        let of_arguments = match self.reason {
            Reason::Key => "keys",
            Reason::Channel => "channels",
            _ => return format!("NOPERM this user has no permissions to run the '{}' command", self.command),
        };
        format!("NOPERM this user has no permissions to access one of the {of_arguments} used as arguments")
    }

    /// The argument, or the name of the command.
    pub(crate) fn object<'a>(&self, request: &Request<'a>) -> &'a [u8] {
        match self.reason {
            Reason::Key | Reason::Channel => request.get(self.place).unwrap_or_default(),
            _ => self.command.as_bytes(),
        }
    }
}

impl User {
    /// Whether the user may run a command, for which the request has enough arguments. If the command runs
    /// another one, the user has to be allowed both.
    #[inline]
    pub(crate) fn check(&self, command: &Command, request: &Request<'_>) -> Result<(), Denial> {
        if self.may_all {
            return Ok(());
        }
        self.check_by(command, request, |_, _| true)?;
        if command.name == "tembo.once" {
            self.check_inner(&request.from(ONCE_COMMAND))?;
        }
        Ok(())
    }

    /// Whether the user may run a command with some arguments.
    pub(crate) fn may_name(&self, command: &Command) -> bool {
        let number = CATALOGUE.number_of(command);
        let allows = |number| self.selectors.iter().any(|selector| selector.allows_command(number, None));
        self.may_all || command.has(NO_AUTH) || number.is_some_and(allows)
    }

    /// Whether the user may run a command, and may read all keys.
    pub(crate) fn may_read_all_keys(&self, command: &Command, request: &Request<'_>) -> bool {
        let reads_all = |selector: &Selector, _: &Known| selector.allows_prefix(b"", true, false);
        self.may_all || self.check_by(command, request, reads_all).is_ok()
    }

    /// Checks the command that TEMBO.ONCE runs. One that does not exist is refused by the command itself.
    #[cold]
    fn check_inner(&self, request: &Request<'_>) -> Result<(), Denial> {
        let full = || Some([request.name(), b"|", request.get(1)?].concat());
        let number = full().and_then(|name| CATALOGUE.find(&name)).or_else(|| CATALOGUE.find(request.name()));
        let command = number.and_then(|number| CATALOGUE.all()[number].command);
        let Some(command) = command.filter(|command| command.takes(request.arg_count())) else {
            return Ok(());
        };
        let inner = |denial: Denial| Denial { place: denial.place + ONCE_COMMAND, ..denial };
        self.check_by(command, request, |_, _| true).map_err(inner)
    }

    /// Whether a selector allows a command, and a condition holds for it.
    fn check_by(
        &self,
        command: &Command,
        request: &Request<'_>,
        condition: impl Fn(&Selector, &Known) -> bool,
    ) -> Result<(), Denial> {
        let mut worst = Denial { reason: Reason::Command, place: 0, command: command.name };
        // No rule can allow a command that has no number.
        let Some(number) = CATALOGUE.number_of(command) else { return Err(worst) };
        let known = &CATALOGUE.all()[number];
        for selector in &self.selectors {
            match denied_by(selector, number, known, command, request) {
                None if condition(selector, known) => return Ok(()),
                Some(denied) if denied > (worst.reason, worst.place) => (worst.reason, worst.place) = denied,
                _ => {}
            }
        }
        Err(worst)
    }

    /// Whether the user may receive the messages of a channel, or of a pattern.
    pub(crate) fn may_receive(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors.iter().any(|selector| selector.allows_channel(channel, is_pattern))
    }
}

/// The denial of a selector, if it denies.
#[inline]
fn denied_by(
    selector: &Selector,
    number: usize,
    known: &Known,
    command: &Command,
    request: &Request<'_>,
) -> Option<(Reason, usize)> {
    if !selector.allows_command(number, request.get(1)) && !command.has(NO_AUTH) {
        return Some((Reason::Command, 0));
    }
    if !selector.allows_all_keys() {
        let allows = |key: &[u8], is_prefix: bool, reads: bool, writes: bool| match is_prefix {
            true => selector.allows_prefix(key, reads, writes),
            false => selector.allows_key(key, reads, writes),
        };
        let denied = known.keys.find_denied(command, request, allows);
        if let Some(place) = denied {
            return Some((Reason::Key, place));
        }
    }
    if selector.allows_all_channels() || known.channels == Channels::None {
        return None;
    }
    let end = if known.channels == Channels::First { 2 } else { request.arg_count() };
    let is_pattern = known.channels == Channels::Patterns;
    let denied = (1..end).find(|&place| !selector.allows_channel(&request[place], is_pattern));
    denied.map(|place| (Reason::Channel, place))
}
