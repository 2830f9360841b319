//! Notifications to the service manager: the server is ready, alive, stopping (sd_notify(3)).
//!
//! The event loop tells it that the server is alive, with its cron: a loop that is stuck is silent, and the
//! manager ends the process when the time in `WATCHDOG_USEC` is over.
//!
//! Some turns are long by design: a script without end, a copy of all keys that was begun anew too often.
//! They are no fault, and a process that is ended there would only begin anew. While they go forward they
//! show that the server is alive ([`State::show_alive`]), to the manager and to probes alike.

use std::time::{Duration, Instant};

use crate::config::Supervised;

/// The messages that the manager wants to hear.
#[derive(Debug)]
pub(crate) struct Supervision {
    pub(crate) is_on: bool,
    /// How often it wants to hear that the server is alive: twice in the time that it waits.
    pub(crate) every: Option<Duration>,
    pub(crate) last: Instant,
    /// When a long turn next reports its progress.
    pub(crate) next_sign: Instant,
}

impl Supervision {
    /// The supervision that the settings and the environment ask for.
    pub(crate) fn new(supervised: Supervised, now: Instant) -> Self {
        let is_on = supervised != Supervised::No && has_socket();
        let every = sd_notify::watchdog_enabled().filter(|_| is_on).map(|time| time / 2);
        Supervision { is_on, every, last: now, next_sign: now }
    }
}

pub(crate) fn has_socket() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| !path.is_empty())
}
