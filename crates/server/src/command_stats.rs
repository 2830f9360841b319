//! How often commands were run, how long they took, and how they failed: for `INFO commandstats`,
//! `latencystats` and `errorstats`, SLOWLOG and LATENCY.
//!
//! The clock is looked at once for each command: one begins when the one before it has ended.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use hdrhistogram::Histogram;
use tembo_wire::Request;

use crate::clock;
use crate::commands::table::Command;
use crate::commands::table::flag::{FAST, SKIP_SLOWLOG};
use crate::config::Noted;
use crate::quotation::is_secret;
use crate::session::Session;

/// Arguments of a slow command that are kept, and bytes of each.
const SLOW_ARGUMENTS_MAX: usize = 32;
const SLOW_ARGUMENT_BYTES_MAX: usize = 128;
/// Kinds of errors that are counted by themselves.
const ERRORS_MAX: usize = 128;
/// Bytes of a first word that is a kind by itself. Scripts make errors of any length.
const ERROR_BYTES_MAX: usize = 64;
/// The kind of all errors with longer first words.
const LONG_WORD: &[u8] = b"LONG_WORD";
/// Seconds of which the worst is kept, for each event.
const SAMPLES_MAX: usize = 160;
/// Longer times count as this, in nanoseconds.
const NANOS_MAX: u64 = 1_000_000_000;

/// How often one command was run, and how long that took.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) command: &'static Command,
    pub(crate) calls: u64,
    nanos: u64,
    /// Calls that were refused before they were run.
    pub(crate) rejected: u64,
    /// Ended in an error.
    pub(crate) failed: u64,
    /// How the times in nanoseconds are distributed.
    pub(crate) times: Option<Box<Histogram<u64>>>,
}

impl Entry {
    fn new(command: &'static Command) -> Self {
        Entry { command, calls: 0, nanos: 0, rejected: 0, failed: 0, times: None }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }

    pub(crate) fn micros(&self) -> u64 {
        self.nanos / 1000
    }

    pub(crate) fn micros_per_call(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.nanos as f64 / 1000.0 / self.calls as f64 }
    }
}

/// A command that took long.
#[derive(Debug)]
pub(crate) struct Slow {
    pub(crate) number: i64,
    pub(crate) unix_seconds: u64,
    pub(crate) micros: u64,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) peer: String,
    pub(crate) name: Vec<u8>,
}

/// The worst times of an event, by seconds: the Unix time and milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) samples: VecDeque<(u64, u64)>,
    pub(crate) worst_ms: u64,
}

#[derive(Debug)]
pub(crate) struct CommandStats {
    entries: HashMap<usize, Entry, FixedState>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) slow: VecDeque<Slow>,
    next_slow: i64,
    pub(crate) events: BTreeMap<&'static str, Event>,
    /// When the command before ended.
    last: Instant,
}

impl Default for CommandStats {
    fn default() -> Self {
        CommandStats {
            entries: HashMap::default(),
            errors: BTreeMap::new(),
            slow: VecDeque::new(),
            next_slow: 0,
            events: BTreeMap::new(),
            last: Instant::now(),
        }
    }
}

impl CommandStats {
    /// Forgets the counts of commands and errors, as CONFIG RESETSTAT does.
    pub(crate) fn reset(&mut self) {
        self.entries.clear();
        self.errors.clear();
    }

    /// How many commands were slow since the server began.
    pub(crate) fn slow_count(&self) -> u64 {
        self.next_slow.unsigned_abs()
    }

    /// The entries of all commands that were run or refused, by name.
    pub(crate) fn entries(&self) -> Vec<&Entry> {
        let mut entries: Vec<_> = self.entries.values().collect();
        entries.sort_unstable_by_key(|entry| entry.command.name);
        entries
    }

    /// The entry of a command.
    pub(crate) fn entry(&mut self, command: &'static Command) -> &mut Entry {
        // Names are unique, and so are their places.
        let key = command.name.as_ptr() as usize;
        self.entries.entry(key).or_insert_with(|| Entry::new(command))
    }

    /// The next command begins now.
    pub(crate) fn begin(&mut self) {
        self.last = Instant::now();
    }

    /// Notes that a command has ended. It began at the end of the command before it, or at
    /// [`CommandStats::begin`].
    #[inline]
    pub(crate) fn note(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        session: &Session,
        noted: &Noted,
    ) {
        let now = Instant::now();
        let took = now.saturating_duration_since(std::mem::replace(&mut self.last, now));
        self.note_time(command, took, noted);
        if noted.slower_than.is_some_and(|least| took >= least) && !command.has(SKIP_SLOWLOG) {
            self.note_slow(command, request, session, took, noted);
        }
        if noted.latency_threshold.is_some_and(|least| took >= least) {
            let event = if command.has(FAST) { "fast-command" } else { "command" };
            self.note_event(event, took);
        }
    }

    /// Notes how long a command of a transaction took, whose transaction is noted, too.
    pub(crate) fn note_time(&mut self, command: &'static Command, took: Duration, noted: &Noted) {
        let nanos = took.as_nanos() as u64;
        let entry = self.entry(command);
        (entry.calls, entry.nanos) = (entry.calls + 1, entry.nanos + nanos);
        if noted.histograms {
            let fresh = || Histogram::new_with_max(NANOS_MAX, 2).ok().map(Box::new);
            if let Some(times) = entry.times.take().or_else(fresh) {
                entry.times = Some(times);
            }
            if let Some(times) = &mut entry.times {
                times.saturating_record(nanos.max(1));
            }
        }
    }

    #[cold]
    fn note_slow(
        &mut self,
        command: &Command,
        request: &Request<'_>,
        session: &Session,
        took: Duration,
        noted: &Noted,
    ) {
        let count = request.arg_count();
        let kept = if count > SLOW_ARGUMENTS_MAX { SLOW_ARGUMENTS_MAX - 1 } else { count };
        let shown = |at: usize| match &request[at] {
            _ if is_secret(command, request, at) => b"(redacted)".to_vec(),
            arg if arg.len() > SLOW_ARGUMENT_BYTES_MAX => {
                let more = format!("... ({} more bytes)", arg.len() - SLOW_ARGUMENT_BYTES_MAX);
                [&arg[..SLOW_ARGUMENT_BYTES_MAX], more.as_bytes()].concat()
            }
            arg => arg.to_vec(),
        };
        let mut arguments: Vec<_> = (0..kept).map(shown).collect();
        if kept < count {
            arguments.push(format!("... ({} more arguments)", count - kept).into_bytes());
        }
        self.slow.push_front(Slow {
            number: self.next_slow,
            unix_seconds: clock::unix_time().as_secs(),
            micros: took.as_micros() as u64,
            arguments,
            peer: session.peer.to_string(),
            name: session.name.clone(),
        });
        self.next_slow += 1;
        self.slow.truncate(noted.slow_len_max);
    }

    /// Notes that something took long.
    #[cold]
    pub(crate) fn note_event(&mut self, event: &'static str, took: Duration) {
        let (now, ms) = (clock::unix_time().as_secs(), took.as_millis() as u64);
        let event = self.events.entry(event).or_default();
        event.worst_ms = event.worst_ms.max(ms);
        match event.samples.back_mut() {
            Some((second, worst)) if *second == now => *worst = ms.max(*worst),
            _ => event.samples.push_back((now, ms)),
        }
        if event.samples.len() > SAMPLES_MAX {
            event.samples.pop_front();
        }
    }

    /// Counts an error by its first word.
    #[cold]
    pub(crate) fn note_error(&mut self, line: &[u8]) {
        let head = &line[..line.len().min(ERROR_BYTES_MAX + 1)];
        let word = head.split(|&byte| byte == b' ').next().unwrap_or_default();
        let word = if word.len() > ERROR_BYTES_MAX { LONG_WORD } else { word };
        let word = String::from_utf8_lossy(word).into_owned();
        if self.errors.len() < ERRORS_MAX || self.errors.contains_key(&word) {
            *self.errors.entry(word).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_the_worst_of_each_second() {
        let mut stats = CommandStats::default();
        stats.note_event("command", Duration::from_millis(5));
        stats.note_event("command", Duration::from_millis(9));
        stats.note_event("command", Duration::from_millis(3));
        let event = &stats.events["command"];
        assert!(event.worst_ms == 9 && event.samples.len() <= 2);
    }

    #[test]
    fn errors_are_counted_by_their_first_words() {
        let mut stats = CommandStats::default();
        for line in [&b"ERR syntax error"[..], b"ERR x", b"WRONGTYPE y"] {
            stats.note_error(line);
        }
        let errors: Vec<_> = stats.errors.iter().map(|(word, count)| (&word[..], *count)).collect();
        assert_eq!(errors, [("ERR", 2), ("WRONGTYPE", 1)]);
        for len in [64, 65, 1 << 20] {
            stats.note_error(&vec![b'x'; len]);
        }
        stats.note_error(&[&[b'y'; 100][..], b" z"].concat());
        assert_eq!((stats.errors["LONG_WORD"], stats.errors[&"x".repeat(64)]), (3, 1));
        assert_eq!(stats.errors.len(), 4);
        (0..1000).for_each(|word| stats.note_error(word.to_string().as_bytes()));
        assert_eq!(stats.errors.len(), ERRORS_MAX);
    }
}
