//! The state of the whole server, apart from the keys and the clients.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tembo::{Domain, Pool};

use crate::acl::log::AclLog;
use crate::acl::users::Users;
use crate::cluster::Cluster;
use crate::cluster::lease::Lease;
use crate::cluster::migration::moving::Moving;
use crate::command_stats::CommandStats;
use crate::commands::registry::Registry;
use crate::compactor::Compactor;
use crate::config::{Config, LogLevel};
use crate::conn::{Conn, OverOutput};
use crate::copier::Copier;
use crate::eviction::memory::Eviction;
use crate::keyspace::history::Id;
use crate::log::{Log, MessageKind};
use crate::master::Replicas;
use crate::master::failover::Failover;
use crate::metrics::board::Board;
use crate::neighbour::Neighbour;
use crate::password::Password;
use crate::random::Random;
use crate::replica::Role;
use crate::saving::Saving;
use crate::supervision::Supervision;
use crate::tls::Tls;

/// Counts for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) connections: u64,
    pub(crate) rejected_connections: u64,
    /// Clients that were disconnected because all together had too much memory.
    pub(crate) evicted_clients: u64,
    /// Clients that were disconnected because of a request that was too long.
    pub(crate) query_limit_disconnections: u64,
    /// Clients that were disconnected because they did not take their replies.
    pub(crate) output_limit_disconnections: u64,
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

    /// The recent growth of `count` per second.
    fn rate(&self, now: Instant, stats: &Stats, count: impl Fn(&Stats) -> u64) -> f64 {
        let Some((then, before)) = self.ring.iter().flatten().min_by_key(|(then, _)| *then) else {
            return 0.0;
        };
        let seconds = now.saturating_duration_since(*then).as_secs_f64().max(0.001);
        count(stats).saturating_sub(count(before)) as f64 / seconds
    }
}

/// Space that has to become free in a full pool before it counts as having room again.
const ROOM_BYTES: u64 = 1 << 20;

/// How much space a pool has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pool_bytes: u64,
    used_bytes: u64,
    unused_bytes: u64,
    /// Bytes of freed blocks, which become unused as soon as a write needs them.
    limbo_bytes: u64,
}

impl Space {
    pub(crate) fn of(pool: &Pool) -> Space {
        let stats = pool.stats();
        Space {
            pool_bytes: stats.pool_bytes,
            used_bytes: stats.used_bytes(),
            unused_bytes: stats.unused_bytes,
            limbo_bytes: pool.limbo_bytes(),
        }
    }

    fn has_room_since(&self, full: &Space) -> bool {
        self.pool_bytes > full.pool_bytes
            || self.unused_bytes + self.limbo_bytes >= full.unused_bytes + full.limbo_bytes + ROOM_BYTES
    }
}

/// CLIENT PAUSE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) end: Instant,
    /// Commands that only read go on.
    pub(crate) of_writes_only: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    /// The length up to which the pool may grow.
    pub(crate) pool_bytes_max: u64,
    /// Most bytes of the pool that were seen in use.
    pub(crate) used_bytes_peak: u64,
    /// A write was refused for want of space, and there is no more of it since: how the pool was then.
    full: Option<Space>,
    pub(crate) compactor: Compactor,
    pub(crate) eviction: Eviction,
    domain: Domain,
    log: Log,
    /// The folder of the pool.
    pub(crate) folder: String,
    /// The address that is listened on.
    pub(crate) listen: SocketAddr,
    /// The address where TLS is spoken.
    pub(crate) tls_listen: Option<SocketAddr>,
    /// The ends of encrypted connections.
    pub(crate) tls: Tls,
    pub(crate) registry: Registry,
    pub(crate) users: Users,
    /// The latest denials.
    pub(crate) acl_log: AclLog,
    pub(crate) stats: Stats,
    pub(crate) commands: CommandStats,
    samples: Samples,
    pub(crate) saving: Saving,
    pub(crate) copier: Copier,
    pub(crate) role: Role,
    /// The cluster that this server is a node of, in cluster mode.
    pub(crate) cluster: Option<Box<Cluster>>,
    pub(crate) moving: Moving,
    pub(crate) lease: Lease,
    pub(crate) replicas: Replicas,
    /// FAILOVER is under way.
    pub(crate) failover: Option<Failover>,
    pub(crate) random: Random,
    pub(crate) started: Instant,
    /// The time that this turn acts at.
    pub(crate) now: Instant,
    /// Names this run of the server: 40 hexadecimal digits.
    pub(crate) run_id: String,
    /// Clients wait.
    pub(crate) pause: Option<Pause>,
    /// Writes wait until then for a failover, or for the answers of former replicas, whatever CLIENT UNPAUSE
    /// says.
    pub(crate) hold: Option<Instant>,
    /// Whether, at the last look, the pause also held clients that read.
    pub(crate) was_pause_of_all: bool,
    /// Clients may wait for the end of a pause.
    pub(crate) has_waiting: bool,
    /// Expired keys are not removed, though they are invisible: DEBUG SET-ACTIVE-EXPIRE.
    pub(crate) keeps_expired: bool,
    /// The number of the next client.
    pub(crate) next_client: u64,
    /// SHUTDOWN was called.
    pub(crate) stopping: bool,
    /// Where figures are published, if the metrics have an address.
    pub(crate) board: Option<Arc<Board>>,
    pub(crate) neighbour: Option<Arc<dyn Neighbour>>,
    pub(crate) supervision: Supervision,
}

impl State {
    pub(crate) fn new(config: Config, listen: SocketAddr, pool: &Pool) -> Self {
        let mut random = Random::new();
        let run_id = String::from_utf8_lossy(&random_id(&mut random)).into_owned();
        let now = Instant::now();
        let users = Users::new(config.password.as_ref().map(Password::bytes));
        let supervision = Supervision::new(config.supervised, now);
        State {
            config,
            pool_bytes_max: pool.stats().max_bytes,
            compactor: Compactor::new(),
            eviction: Eviction::new(now),
            used_bytes_peak: 0,
            full: None,
            domain: pool.domain(),
            folder: pool.path().and_then(std::path::Path::parent).map(folder_name).unwrap_or_default(),
            log: Log::default(),
            listen,
            tls_listen: None,
            tls: Tls::default(),
            registry: Registry::new(),
            users,
            acl_log: AclLog::default(),
            stats: Stats::default(),
            commands: CommandStats::default(),
            samples: Samples::default(),
            saving: Saving::new(),
            copier: Copier::default(),
            role: Role::new(),
            cluster: None,
            moving: Moving::default(),
            lease: Lease::default(),
            replicas: Replicas::new(now),
            failover: None,
            random,
            started: now,
            now,
            run_id,
            pause: None,
            hold: None,
            was_pause_of_all: false,
            has_waiting: false,
            keeps_expired: false,
            next_client: 1,
            stopping: false,
            board: None,
            neighbour: None,
            supervision,
        }
    }

    /// Says which directives of the configuration file have no meaning here.
    pub(crate) fn log_without_meaning(&mut self) {
        let names = std::mem::take(&mut self.config.without_meaning);
        if !names.is_empty() {
            let message =
                format_args!("directives of the configuration without meaning here: {}", names.join(", "));
            self.log(LogLevel::Notice, MessageKind::Configuration, message);
        }
    }

    pub(crate) fn reset_stats(&mut self) {
        self.stats = Stats::default();
        self.commands.reset();
        self.eviction.evicted = 0;
        self.samples = Samples::default();
    }

    /// Remembers the counts as they are now, and looks whether a full pool has room again.
    pub(crate) fn sample(&mut self, space: Space) {
        self.samples.push(self.now, self.stats);
        self.note_used(space.used_bytes);
        self.log.tick(self.now);
        if self.full.take_if(|full| space.has_room_since(full)).is_some() {
            self.log(LogLevel::Notice, MessageKind::Full, format_args!("the pool has room again"));
        }
    }

    /// Counts commands that wrote.
    #[inline]
    pub(crate) fn note_writes(&mut self, count: u64) {
        self.stats.batched_commands += count;
        self.saving.changes += count;
    }

    /// Remembers how much of the pool is in use, if it is more than ever.
    pub(crate) fn note_used(&mut self, used_bytes: u64) {
        self.used_bytes_peak = self.used_bytes_peak.max(used_bytes);
    }

    /// Whether the pool had no space for the last write that needed some.
    pub(crate) fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Whether an acknowledged write survives a power failure.
    pub(crate) fn survives_power_failure(&self) -> bool {
        matches!(self.domain, Domain::Dax | Domain::DaxCpuCache | Domain::Synced | Domain::Journaled)
    }

    /// The failures that writes survive, in the words of Redis.
    pub(crate) fn in_words_of_redis(&self) -> &'static str {
        match self.domain {
            _ if self.survives_power_failure() => "always",
            Domain::Relaxed => "everysec",
            _ => "no",
        }
    }

    /// Logs a message, within the limit of its kind.
    pub(crate) fn log(&mut self, level: LogLevel, kind: MessageKind, message: fmt::Arguments<'_>) {
        self.log.write(self.config.log_level, self.now, level, kind, message);
    }

    /// How many bytes of the stream are kept for replicas that come back.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        let share = (self.pool_bytes_max / 64).clamp(1 << 20, 64 << 20);
        self.config.replica.backlog_bytes.unwrap_or(share)
    }

    /// The port that is announced to masters of this server's replicas.
    pub(crate) fn port_for_replicas(&self) -> u16 {
        let tls = self.tls_listen.filter(|_| self.config.tls.replication);
        tls.map_or(self.listen.port(), |address| address.port())
    }

    /// The port that clients use; that of TLS, if there is no other.
    pub(crate) fn main_port(&self) -> u16 {
        match (self.listen.port(), self.tls_listen) {
            (0, Some(address)) => address.port(),
            (port, _) => port,
        }
    }

    /// How much memory all clients may have together, in bytes, if there is a limit.
    pub(crate) fn client_memory_limit(&self) -> Option<u64> {
        self.config.client_memory.limit_bytes(self.pool_bytes_max)
    }

    /// Counts and logs that a client is disconnected because it does not take its replies.
    #[cold]
    pub(crate) fn log_over_output(&mut self, conn: &Conn, over: OverOutput) {
        self.stats.output_limit_disconnections += 1;
        let limit = *self.config.output_limits.of(&conn.session);
        let (client, unsent) = (&conn.session, conn.output.unsent());
        let allowed = match over {
            OverOutput::Hard => format!("{} are", limit.hard_bytes),
            OverOutput::Soft => format!("{} for {} s are", limit.soft_bytes, limit.soft_seconds),
        };
        let message = format_args!(
            "client {client} is disconnected: it has not taken {unsent} bytes of its replies, and {allowed} \
             allowed (client-output-buffer-limit)"
        );
        self.log(LogLevel::Notice, MessageKind::OutputLimit, message);
    }

    /// Logs that a commit failed, and that this many replies are errors because of it.
    #[cold]
    pub(crate) fn log_failed_commit(&mut self, replies: usize, error: &tembo::Error, pool: &Pool) {
        let kind = match kind_of(error) {
            Some(MessageKind::Full) => {
                self.log_fault("a commit", error, pool);
                MessageKind::Commit
            }
            Some(MessageKind::Damage) => MessageKind::Damage,
            _ => MessageKind::Commit,
        };
        let message = format_args!("a commit failed, and what {replies} commands wrote is undone: {error}");
        self.log(LogLevel::Warning, kind, message);
    }

    /// Logs that the engine refused a command or a commit, if an operator should know. A full pool is logged
    /// when it becomes full, and not for each write.
    #[cold]
    pub(crate) fn log_fault(&mut self, command: &str, error: &tembo::Error, pool: &Pool) {
        match kind_of(error) {
            None => {}
            Some(MessageKind::Full) => {
                let was_full = self.full.replace(Space::of(pool)).is_some();
                if !was_full {
                    let message = format_args!(
                        "{error}; until then writes that need space are refused, and reads and deletes go on"
                    );
                    self.log(LogLevel::Warning, MessageKind::Full, message);
                }
            }
            Some(kind) => self.log(LogLevel::Warning, kind, format_args!("{command} failed: {error}")),
        }
    }

    /// A name for a history.
    pub(crate) fn random_id(&mut self) -> Id {
        random_id(&mut self.random)
    }

    /// Whether there is a pause, or was one.
    #[inline]
    pub(crate) fn may_pause(&self) -> bool {
        self.pause.is_some() || self.hold.is_some()
    }

    /// The pause under way: the stricter one of a client's and the server's own.
    pub(crate) fn pause(&self) -> Option<Pause> {
        let pause = self.pause.filter(|pause| pause.end > self.now);
        let hold = self.hold.filter(|end| *end > self.now);
        pause.or_else(|| hold.map(|end| Pause { end, of_writes_only: true }))
    }

    /// The recent growth of `count` per second.
    pub(crate) fn rate(&self, count: impl Fn(&Stats) -> u64) -> f64 {
        self.samples.rate(self.now, &self.stats, count)
    }
}

fn random_id(random: &mut Random) -> Id {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|_| DIGITS[random.below(16) as usize])
}

/// A folder as the system knows it.
fn folder_name(folder: &std::path::Path) -> String {
    let folder = if folder.as_os_str().is_empty() { std::path::Path::new(".") } else { folder };
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string()
}

/// The kind of message that this error deserves; `None` if it concerns only the client.
fn kind_of(error: &tembo::Error) -> Option<MessageKind> {
    use tembo::Error;
    match error {
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => None,
        Error::Full { .. } => Some(MessageKind::Full),
        Error::Pool(e) if e.is_damage() => Some(MessageKind::Damage),
        // The device's, or the server's own.
        _ => Some(MessageKind::Fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::is_at_maximum;

    #[test]
    fn damage_a_full_pool_and_the_clients_own_mistakes_are_told_apart() {
        let corrupt = tembo::PoolError::corrupt("a block", 64, 1, 2);
        let full = tembo::PoolErrorKind::Full { needed_bytes: 1, why: "no space".to_owned() };
        for (error, expected) in [
            (tembo::Error::from(corrupt), Some(MessageKind::Damage)),
            (tembo::PoolError::from(full).into(), Some(MessageKind::Full)),
            (tembo::Error::ReadOnly, Some(MessageKind::Fault)),
            (tembo::Error::Index(tembo::IndexError::Abandoned), Some(MessageKind::Fault)),
            (tembo::Error::KeyTooLong { bytes: 2, max_bytes: 1 }, None),
            (tembo::Error::ValueTooLong { bytes: 2, max_bytes: 1 }, None),
        ] {
            assert_eq!(kind_of(&error), expected, "{error}");
        }
    }

    #[test]
    fn the_maximum_is_blamed_only_if_it_is_in_the_way() {
        let pool = tembo::Stats { pool_bytes: 90, max_bytes: 100, unused_bytes: 3, journal_bytes: 0 };
        assert!(is_at_maximum(pool, 11) && !is_at_maximum(pool, 10));
    }
}
