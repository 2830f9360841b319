//! The words to a service manager. See [`crate::supervision`].

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::config::{LogLevel, Supervised};
use crate::log::MessageKind;
use crate::state::State;
use crate::supervision::has_socket;

impl State {
    /// Clients are served from now on.
    pub(crate) fn tell_ready(&mut self) {
        if self.config.supervised == Supervised::Systemd && !has_socket() {
            let message =
                format_args!("supervised systemd: there is no NOTIFY_SOCKET, so that nobody is told");
            self.log(LogLevel::Warning, MessageKind::Configuration, message);
        }
        self.tell(&[NotifyState::Ready, NotifyState::Status("Ready to accept connections")]);
    }

    /// Reports that the event loop is alive, to probes and to the manager. To be called with each cron.
    pub(crate) fn tell_alive(&mut self, now: Instant) {
        self.beat();
        let supervision = &mut self.supervision;
        if supervision.every.is_some_and(|every| now.saturating_duration_since(supervision.last) >= every) {
            supervision.last = now;
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    /// Reports progress in a long turn. To be called often; costs a look at the clock.
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
            self.log(LogLevel::Warning, MessageKind::Configuration, message);
        }
    }
}

/// The shortest time between two signs of life in one turn.
const SIGN_PERIOD: Duration = Duration::from_millis(10);
