//! What the whole server knows, apart from the keys and the clients.

use std::net::SocketAddr;
use std::time::Instant;

use crate::commands::Registry;
use crate::config::Config;
use crate::cursors::Cursors;
use crate::random::Random;

/// Counts for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) connections: u64,
    pub(crate) rejected_connections: u64,
    pub(crate) commands: u64,
    /// Commands that were in a batch that was committed or failed.
    pub(crate) batched_commands: u64,
    pub(crate) errors: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) turns: u64,
}

/// Counts at the times of some of the last cron ticks, for what INFO calls instantaneous.
#[derive(Debug, Default)]
struct Samples {
    ring: [Option<(Instant, Stats)>; Samples::LEN],
    next: usize,
}

impl Samples {
    const LEN: usize = 16;

    fn push(&mut self, now: Instant, stats: Stats) {
        self.ring[self.next] = Some((now, stats));
        self.next = (self.next + 1) % Self::LEN;
    }

    /// What `count` grew by per second, lately.
    fn rate(&self, now: Instant, stats: &Stats, count: impl Fn(&Stats) -> u64) -> f64 {
        let Some((then, before)) = self.ring.iter().flatten().min_by_key(|(then, _)| *then) else {
            return 0.0;
        };
        let seconds = now.saturating_duration_since(*then).as_secs_f64().max(0.001);
        count(stats).saturating_sub(count(before)) as f64 / seconds
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    /// The address that is listened on.
    pub(crate) listen: SocketAddr,
    pub(crate) registry: Registry,
    pub(crate) stats: Stats,
    samples: Samples,
    pub(crate) cursors: Cursors,
    pub(crate) random: Random,
    pub(crate) started: Instant,
    /// The time that this turn acts at.
    pub(crate) now: Instant,
    /// Names this run of the server: 40 hexadecimal digits.
    pub(crate) run_id: String,
    /// SHUTDOWN was called.
    pub(crate) stopping: bool,
}

impl State {
    pub(crate) fn new(config: Config, listen: SocketAddr) -> Self {
        let mut random = Random::new();
        let run_id = (0..3).map(|_| format!("{:016x}", random.next())).collect::<String>();
        let now = Instant::now();
        State {
            config,
            listen,
            registry: Registry::new(),
            stats: Stats::default(),
            samples: Samples::default(),
            cursors: Cursors::default(),
            random,
            started: now,
            now,
            run_id: run_id[..40].to_owned(),
            stopping: false,
        }
    }

    pub(crate) fn reset_stats(&mut self) {
        self.stats = Stats::default();
        self.samples = Samples::default();
    }

    /// Remembers the counts as they are now.
    pub(crate) fn sample(&mut self) {
        self.samples.push(self.now, self.stats);
    }

    /// What `count` grew by per second, lately.
    pub(crate) fn rate(&self, count: impl Fn(&Stats) -> u64) -> f64 {
        self.samples.rate(self.now, &self.stats, count)
    }
}
