//! Messages to the operator, as events of the `tracing` crate with target `tembo_server`.
//!
//! Each kind of message is limited by itself: a few per second are logged, and then how many were not.
//! Neither keys nor values nor names of clients are ever part of a message: it has numbers, addresses,
//! names of commands and the engine's errors, which name places in the pool.
//!
//! A program that embeds the server gets the events from a subscriber; without one they cost nothing. The
//! level is the server's, since CONFIG SET changes it: a subscriber should take all levels of this target.

use std::fmt;
use std::time::{Duration, Instant};

use crate::config::LogLevel;

/// The subject of a message; each has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// A client came or went.
    Connection,
    /// A connection was refused.
    Refused,
    /// A client was silent, or took nothing, for too long.
    Idle,
    /// A client's bytes were no requests.
    Protocol,
    /// A client was disconnected because too many of its replies waited.
    OutputLimit,
    /// A client was disconnected for the memory that all clients have together.
    Evicted,
    /// Something other than a Redis client sent the input.
    Security,
    /// The pool became full, or has room again.
    Full,
    /// A commit failed.
    Commit,
    /// The pool is damaged.
    Damage,
    /// The engine refused a request that the server should not have made, or its device failed.
    Fault,
    /// The configuration was read or written.
    Configuration,
    /// The link to the master.
    Replication,
    /// The keys were saved, or could not be.
    Saving,
    /// A turn of the event loop was slow.
    SlowTurn,
    /// A script said something.
    Script,
}

impl MessageKind {
    const COUNT: usize = MessageKind::Script as usize + 1;

    /// How it is called in messages about messages, and as the field `kind` of an event.
    fn name(self) -> &'static str {
        match self {
            MessageKind::Connection => "connections",
            MessageKind::Refused => "refused connections",
            MessageKind::Idle => "idle clients",
            MessageKind::Protocol => "protocol errors",
            MessageKind::OutputLimit => "output limits",
            MessageKind::Evicted => "evicted clients",
            MessageKind::Security => "security",
            MessageKind::Full => "a full pool",
            MessageKind::Commit => "failed commits",
            MessageKind::Damage => "damage",
            MessageKind::Fault => "faults",
            MessageKind::Configuration => "the configuration",
            MessageKind::Replication => "replication",
            MessageKind::Saving => "saving",
            MessageKind::SlowTurn => "slow turns",
            MessageKind::Script => "messages of scripts",
        }
    }
}

/// Messages of a kind that are logged in a period; further ones are counted.
const MESSAGES_PER_PERIOD: u32 = 5;
const PERIOD: Duration = Duration::from_secs(1);

/// The period of one kind.
#[derive(Clone, Copy, Debug)]
struct Period {
    kind: MessageKind,
    level: LogLevel,
    began: Instant,
    logged: u32,
    suppressed: u64,
}

/// The limits.
#[derive(Debug, Default)]
pub(crate) struct Log {
    periods: [Option<Period>; MessageKind::COUNT],
}

impl Log {
    /// Logs a message, unless its level is below `least` or too many of its kind were logged lately.
    #[cold]
    pub(crate) fn write(
        &mut self,
        least: LogLevel,
        now: Instant,
        level: LogLevel,
        kind: MessageKind,
        message: fmt::Arguments<'_>,
    ) {
        if level >= least && self.admit(now, level, kind) {
            emit(level, kind, message);
        }
    }

    fn admit(&mut self, now: Instant, level: LogLevel, kind: MessageKind) -> bool {
        self.end_period(kind as usize, now);
        let fresh = Period { kind, level, began: now, logged: 0, suppressed: 0 };
        let period = self.periods[kind as usize].get_or_insert(fresh);
        period.level = period.level.max(level);
        let admitted = period.logged < MESSAGES_PER_PERIOD;
        match admitted {
            true => period.logged += 1,
            false => period.suppressed += 1,
        }
        admitted
    }

    /// Ends periods that are over. To be called now and then, so that the counts do not wait for the next
    /// message.
    pub(crate) fn tick(&mut self, now: Instant) {
        (0..MessageKind::COUNT).for_each(|index| self.end_period(index, now));
    }

    fn end_period(&mut self, index: usize, now: Instant) {
        let is_over = |period: &mut Period| now.saturating_duration_since(period.began) >= PERIOD;
        if let Some(period) = self.periods[index].take_if(is_over)
            && period.suppressed > 0
        {
            let Period { kind, level, suppressed, .. } = period;
            emit(
                level,
                kind,
                format_args!("{suppressed} more messages about {} were not logged", kind.name()),
            );
        }
    }
}

fn emit(level: LogLevel, kind: MessageKind, message: fmt::Arguments<'_>) {
    const TARGET: &str = "tembo_server";
    let kind = kind.name();
    match level {
        LogLevel::Warning => tracing::warn!(target: TARGET, kind, "{message}"),
        LogLevel::Notice => tracing::info!(target: TARGET, kind, "{message}"),
        LogLevel::Verbose => tracing::debug!(target: TARGET, kind, "{message}"),
        LogLevel::Debug => tracing::trace!(target: TARGET, kind, "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_one_kind_is_cut_and_hides_no_other() {
        let (mut log, start) = (Log::default(), Instant::now());
        let admitted = |log: &mut Log, kind, after_ms| {
            log.admit(start + Duration::from_millis(after_ms), LogLevel::Notice, kind)
        };
        let storm =
            (0..1000).filter(|after_ms| admitted(&mut log, MessageKind::Protocol, after_ms / 2)).count();
        assert_eq!(storm, MESSAGES_PER_PERIOD as usize);
        assert!(admitted(&mut log, MessageKind::Damage, 500), "another kind has its own limit");
        assert_eq!(log.periods[MessageKind::Protocol as usize].unwrap().suppressed, 995);
        log.tick(start + Duration::from_millis(999));
        assert_eq!(
            log.periods[MessageKind::Protocol as usize].unwrap().suppressed,
            995,
            "its period is not over"
        );
        log.tick(start + Duration::from_millis(1000));
        assert!(log.periods[MessageKind::Protocol as usize].is_none());
        assert!(admitted(&mut log, MessageKind::Protocol, 1000), "a period later it is heard again");
    }
}
