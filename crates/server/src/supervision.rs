//! The service manager, which is told that the server is ready, alive and stopping (sd_notify(3)).
//!
//! The event loop tells it that the server is alive, with its cron: a loop that is stuck is silent, and the
//! manager ends the process when the time in `WATCHDOG_USEC` is over.
//!
//! Some turns are long by design: a script without end, a copy of all keys that was begun anew too often.
//! They are no fault, and a process that is ended there would only begin anew. While they go forward they
//! show that the server is alive ([`State::show_alive`]), to the manager and to probes alike.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::config::{LogLevel, Supervised};
use crate::log::Kind;
use crate::state::State;

/// The shortest time between two signs of life in one turn.
const SIGN_PERIOD: Duration = Duration::from_millis(10);

/// The messages that the manager wants to hear.
#[derive(Debug)]
pub(crate) struct Supervision {
    is_on: bool,
    /// How often it wants to hear that the server is alive: twice in the time that it waits.
    every: Option<Duration>,
    last: Instant,
    /// When a long turn shows next that it goes forward.
    next_sign: Instant,
}

impl Supervision {
    /// As the settings and the environment say.
    pub(crate) fn new(supervised: Supervised, now: Instant) -> Self {
        let is_on = supervised != Supervised::No && has_socket();
        let every = sd_notify::watchdog_enabled().filter(|_| is_on).map(|time| time / 2);
        Supervision { is_on, every, last: now, next_sign: now }
    }
}

fn has_socket() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| !path.is_empty())
}

impl State {
    /// Clients are served from now on.
    pub(crate) fn tell_ready(&mut self) {
        if self.config.supervised == Supervised::Systemd && !has_socket() {
            let message =
                format_args!("supervised systemd: there is no NOTIFY_SOCKET, so that nobody is told");
            self.log(LogLevel::Warning, Kind::Configuration, message);
        }
        self.tell(&[NotifyState::Ready, NotifyState::Status("Ready to accept connections")]);
    }

    /// The event loop goes round: for probes, and for the manager. To be called with each cron.
    pub(crate) fn tell_alive(&mut self, now: Instant) {
        self.beat();
        let supervision = &mut self.supervision;
        if supervision.every.is_some_and(|every| now.saturating_duration_since(supervision.last) >= every) {
            supervision.last = now;
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    /// A long turn goes forward. To be called often; costs a look at the clock.
    pub(crate) fn show_alive(&mut self) {
        let now = Instant::now();
        if now >= self.supervision.next_sign {
            self.supervision.next_sign = now + SIGN_PERIOD;
            self.tell_alive(now);
        }
    }

    /// The server ends.
    pub(crate) fn tell_stopping(&mut self) {
        self.tell(&[NotifyState::Stopping]);
    }

    fn tell(&mut self, news: &[NotifyState<'_>]) {
        if self.supervision.is_on
            && let Err(error) = sd_notify::notify(news)
        {
            let message = format_args!("the service manager cannot be told: {error}");
            self.log(LogLevel::Warning, Kind::Configuration, message);
        }
    }
}
