//! The settings of a server.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tembo::Domain;
use tembo_wire::Limits;

use crate::acl::users::Users;
use crate::eviction::policy::{EvictionSettings, Policy};
use crate::machine;
use crate::password::Password;
use crate::replica::ReplicaSettings;
use crate::tls::settings::TlsSettings;

/// How a server listens and what it allows its clients. Those marked *settable* can be changed while it runs,
/// by CONFIG SET.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Address to listen on; port 0 lets the system choose. 127.0.0.1:6379.
    pub listen: SocketAddr,
    /// The addresses to listen on, all at the port of [`listen`](Config::listen). None: that address only.
    pub bind: Vec<Bind>,
    /// Whether to listen on the network at all. `true`.
    pub tcp: bool,
    /// The port where TLS is spoken, certificates and authorities: the directives `tls-*`.
    pub(crate) tls: TlsSettings,
    /// A socket of the file system to listen on, too. None.
    pub unix_socket: Option<PathBuf>,
    /// Where figures for Prometheus and health for probes can be read, over HTTP: `metrics`. None.
    pub metrics: Option<SocketAddr>,
    /// Whether other machines may read the metrics, `metrics-public`. `false`.
    pub metrics_public: bool,
    /// Probes report that the event loop is stuck when it has shown no sign of life for this long. 60
    /// seconds, which only a test changes.
    #[doc(hidden)]
    pub stuck_after: Duration,
    /// The permissions of that socket. None: those that the process gives to files.
    pub unix_socket_mode: Option<u32>,
    /// As long as there is no password, clients of other machines are turned away, *settable* as
    /// `protected-mode`. `true`.
    pub protected_mode: bool,
    /// The password of the default user, *settable* as `requirepass`. None.
    pub password: Option<Password>,
    /// The file with the users, which ACL LOAD and ACL SAVE read and write. None: they are in the
    /// configuration file.
    pub acl_file: Option<PathBuf>,
    /// The users of the configuration file, and the default one.
    pub(crate) users: Users,
    /// The names of the users that the configuration file has lines of.
    pub(crate) user_lines: BTreeSet<Vec<u8>>,
    /// Settings about users.
    pub(crate) acl: AclSettings,
    /// The clients that may use DEBUG. None.
    pub debug_commands: DebugCommands,
    /// For the program that opens the pool: the folder that it is in. None.
    pub dir: Option<PathBuf>,
    /// The server is a node of a cluster, `cluster-enabled`. A pool is one from its first key on, or is not.
    /// `false`.
    pub cluster: bool,
    /// A master that is a node of a cluster takes no writes without a lease of its controller, *settable* as
    /// `master-lease-mode` (`disabled`, `block-write`). `false`.
    pub needs_lease: bool,
    /// Whether a topology may promote a replica although neither leases nor `min-replicas-to-write` keep the
    /// old master from writes, *settable* as `cluster-allow-unfenced-failover`. `false`.
    pub unfenced_failover: bool,
    /// The name of the file in the folder of the pool that SAVE and BGSAVE write, `dbfilename`. "dump.rdb".
    pub dump_file: String,
    /// The limit of the data's memory, and which keys are evicted beyond it.
    pub(crate) eviction: EvictionSettings,
    /// How long data that FLUSHALL, FLUSHDB or a master's copy replaced are retained, *settable* as
    /// `flush-grace`. 0: they are not retained.
    pub flush_grace: Duration,
    /// How the server follows a master.
    pub replica: ReplicaSettings,
    /// The classes of changes of keys that are published, *settable* as `notify-keyspace-events`. None.
    pub(crate) notified_events: u32,
    /// The facts about commands that are noted, *settable* as `slowlog-log-slower-than`, `slowlog-max-len`,
    /// `latency-monitor-threshold` and `latency-tracking`. 10 ms, 128, none, yes.
    pub(crate) noted: Noted,
    /// The time that a script has before other clients get BUSY, *settable* as `busy-reply-threshold` and
    /// `lua-time-limit`. 5 seconds; none: they wait.
    pub script_time: Option<Duration>,
    /// The configuration file, which CONFIG REWRITE writes. None.
    pub file: Option<PathBuf>,
    /// Directives of the file that have no meaning here.
    pub(crate) without_meaning: Vec<String>,
    /// Most clients at a time, *settable* as `maxclients`. 10000; fewer if the process may not open as many
    /// files.
    pub max_clients: usize,
    /// A client that neither sends nor takes anything for this long is disconnected, *settable* as `timeout`
    /// (in seconds, 0 for never). Never.
    pub idle_timeout: Option<Duration>,
    /// A silent connection is probed by TCP after this long, *settable* as `tcp-keepalive`. 300 s.
    pub tcp_keepalive: Option<Duration>,
    /// Limits on one request; `max_bulk_bytes` is *settable* as `proto-max-bulk-len`, `max_request_bytes`
    /// as `client-query-buffer-limit`. Redis's.
    pub limits: Limits,
    /// How much of replies that a client does not take is kept for it before it is disconnected, *settable*
    /// as `client-output-buffer-limit`. Redis's: no limit for ordinary clients, 32 MiB for subscribers.
    pub output_limits: OutputLimits,
    /// How much memory all clients may have together, *settable* as `maxmemory-clients`. Beyond it the
    /// largest are disconnected. A quarter of the memory that this process may use, and at least 256 MiB.
    pub client_memory: ClientMemory,
    /// Bytes of replies for one client after which others are served, before it is again. 512 KiB.
    pub turn_reply_bytes: usize,
    /// Longest reply to one command, *settable* as `reply-max-bytes`; a longer one becomes an error. 1 GiB.
    pub reply_bytes_max: usize,
    /// A batch with more pending words than this (an ordinary SET is about four) is committed in the middle
    /// of a turn. `None`: what suits the pool's domain, which is few where a commit is cheap and many where
    /// it waits for a disk.
    pub batch_words_max: Option<usize>,
    /// Expired keys that one turn may remove. 128.
    pub expire_per_turn: usize,
    /// Messages less important than this are not logged, *settable* as `loglevel`. [`LogLevel::Notice`].
    pub log_level: LogLevel,
    /// Whether a service manager is notified that the server is ready, alive and stopping, `supervised`.
    /// [`Supervised::Auto`].
    pub supervised: Supervised,
    /// For the program that writes the log: the form of its lines, `log-format`. [`LogFormat::Text`].
    pub log_format: LogFormat,
    /// Up to where Redis keeps a collection in a compact encoding, *settable*. Redis's.
    pub encodings: Encodings,
    /// The longest HyperLogLog in the sparse encoding, in bytes, *settable* as `hll-sparse-max-bytes`. 3000.
    pub hll_sparse_bytes: u64,
    /// Most keys that are remembered as read by clients that track them, *settable* as
    /// `tracking-table-max-keys` (0 for no limit but that of 256 MiB). 1,000,000.
    pub tracking_keys_max: u64,
    /// When and how the pool is compacted while clients are served.
    pub compaction: CompactionSettings,
    /// A turn of the event loop that takes longer is logged, *settable* as `slow-turn-ms` (0 for never).
    /// 250 ms.
    pub slow_turn: Option<Duration>,
}

/// When and how the pool is compacted while clients are served, by Redis's directives. *Waste* is the bytes
/// in holes, as a percentage of the bytes in use without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Whether compaction begins unasked, *settable* as `activedefrag`. Yes.
    pub is_on: bool,
    /// Compaction does not begin before this many bytes lie in holes, *settable* as
    /// `active-defrag-ignore-bytes`. 16 MiB.
    pub least_bytes: u64,
    /// Compaction begins at this percentage of waste, *settable* as `active-defrag-threshold-lower`. 25.
    pub lower_percent: u64,
    /// From this waste on it takes as much time as it may, *settable* as `active-defrag-threshold-upper`.
    /// 100.
    pub upper_percent: u64,
    /// The percentage of time that compaction takes at the lower threshold, *settable* as
    /// `active-defrag-cycle-min`. 5.
    pub cycle_min_percent: u64,
    /// The percentage at the upper threshold, *settable* as `active-defrag-cycle-max`. 10.
    pub cycle_max_percent: u64,
    /// Kept for CONFIG GET, *settable* as `active-defrag-max-scan-fields`: a step is bounded by time and by
    /// bytes. 1000.
    pub max_scan_fields: u64,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        CompactionSettings {
            is_on: true,
            least_bytes: 16 << 20,
            lower_percent: 25,
            upper_percent: 100,
            cycle_min_percent: 5,
            cycle_max_percent: 10,
            max_scan_fields: 1000,
        }
    }
}

/// Settings about users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AclSettings {
    /// A new user may use all channels, *settable* as `acl-pubsub-default`. No.
    pub(crate) all_channels: bool,
    /// Most entries of ACL LOG, *settable* as `acllog-max-len`. 128.
    pub(crate) log_len_max: usize,
}

impl Default for AclSettings {
    fn default() -> Self {
        AclSettings { all_channels: false, log_len_max: 128 }
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The address.
    pub ip: IpAddr,
    /// The machine need not have the address. In a configuration file it begins with a minus.
    pub optional: bool,
}

/// The clients that may use DEBUG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugCommands {
    /// Nobody.
    No,
    /// Clients on this machine.
    Local,
    /// Everybody.
    Yes,
}

/// Up to where Redis keeps a collection in a compact encoding. OBJECT ENCODING answers by these; how a
/// collection lies in the pool does not depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encodings {
    /// Most fields of a hash that is a listpack, *settable* as `hash-max-listpack-entries`. 512.
    pub hash_entries: u64,
    /// The longest field or value in a packed hash, in bytes, *settable* as `hash-max-listpack-value`. 64.
    pub hash_value_bytes: u64,
    /// Most members of a set of integers that is an intset, *settable* as `set-max-intset-entries`. 512.
    pub set_intset_entries: u64,
    /// Most members of a sorted set that is a listpack, *settable* as `zset-max-listpack-entries`. 128.
    pub zset_entries: u64,
    /// The longest member in a packed sorted set, in bytes, *settable* as `zset-max-listpack-value`. 64.
    pub zset_value_bytes: u64,
}

impl Default for Encodings {
    fn default() -> Self {
        Encodings {
            hash_entries: 512,
            hash_value_bytes: 64,
            set_intset_entries: 512,
            zset_entries: 128,
            zset_value_bytes: 64,
        }
    }
}

/// How important a message of the log is, by Redis's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For the search for a fault in the server or a client.
    Debug,
    /// Clients that come and go.
    Verbose,
    /// Clients that are disconnected for a cause, and slow turns.
    Notice,
    /// Something that an operator should look at.
    Warning,
}

impl LogLevel {
    /// All, in order, with Redis's names.
    pub const ALL: [(LogLevel, &'static str); 4] = [
        (LogLevel::Debug, "debug"),
        (LogLevel::Verbose, "verbose"),
        (LogLevel::Notice, "notice"),
        (LogLevel::Warning, "warning"),
    ];

    /// Redis's name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The level of this name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(level, _)| *level)
    }
}

/// The form of the log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A time, a level and a message.
    Text,
    /// A JSON object.
    Json,
}

impl LogFormat {
    /// The name in directives.
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }

    /// The format of this name, in any case.
    ///
    /// # Errors
    /// The names that there are. Redis's `legacy` is the text; its `logfmt` is not written.
    pub fn from_name(name: &str) -> Result<Self, &'static str> {
        match name.to_ascii_lowercase().as_str() {
            "text" | "legacy" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            "logfmt" => Err("logfmt is not written here; there are text and json"),
            _ => Err("argument must be 'text' or 'json'"),
        }
    }
}

/// Whether a service manager is notified about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervised {
    /// The server is not supervised.
    No,
    /// systemd supervises the server; if it has given no socket, the log says so.
    Systemd,
    /// systemd supervises the server if it has given a socket (`NOTIFY_SOCKET`).
    Auto,
}

/// How much of replies that a client does not take is kept for it. A client beyond a limit is disconnected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// At no time more bytes than this; 0 for no limit.
    pub hard_bytes: u64,
    /// A client may have more bytes than this for [`soft_seconds`](OutputLimit::soft_seconds) only; 0 for no
    /// limit.
    pub soft_bytes: u64,
    /// See [`soft_bytes`](OutputLimit::soft_bytes).
    pub soft_seconds: u64,
}

/// Redis's classes of clients, each with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// For ordinary clients.
    pub normal: OutputLimit,
    /// For replicas: how far one may be behind.
    pub replica: OutputLimit,
    /// For subscribers.
    pub pubsub: OutputLimit,
}

impl Default for OutputLimits {
    fn default() -> Self {
        let limit =
            |hard_bytes, soft_bytes, soft_seconds| OutputLimit { hard_bytes, soft_bytes, soft_seconds };
        OutputLimits {
            normal: limit(0, 0, 0),
            replica: limit(256 << 20, 64 << 20, 60),
            pubsub: limit(32 << 20, 8 << 20, 60),
        }
    }
}

/// How much memory all clients may have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMemory {
    /// A number of bytes; 0 for no limit.
    Bytes(u64),
    /// A percentage of the pool's maximum size.
    Percent(u8),
}

impl ClientMemory {
    /// The limit in bytes, for a pool that may grow to `pool_bytes_max`; `None` for no limit.
    pub(crate) fn limit_bytes(self, pool_bytes_max: u64) -> Option<u64> {
        let bytes = match self {
            ClientMemory::Bytes(bytes) => bytes,
            ClientMemory::Percent(percent) => (u128::from(pool_bytes_max) * u128::from(percent) / 100) as u64,
        };
        Some(bytes).filter(|&bytes| bytes > 0)
    }
}

/// The share of this process's memory that clients may have together.
const CLIENT_MEMORY_SHARE: u64 = 4;
/// Clients may have this much memory where that share is less, or the memory is not known.
const CLIENT_MEMORY_MIN: u64 = 256 << 20;

/// Bytes that a pool may have beyond half its data, at least, where keys are evicted.
const HOLE_BYTES_MIN: u64 = 16 << 20;

/// Where a commit costs a fence or two: some thirty SETs. What more of them would save by sharing is less
/// than what a larger record costs to put together (measured at 1 KiB values: 1.58 us of CPU time per SET up
/// to 64 words, 1.72 us at 400).
const BATCH_WORDS_IN_MEMORY: usize = 128;
/// The event loop is taken for stuck after this long without a sign of life. A slow device or the loading of
/// a large value hold it for seconds, and a probe's answer may have the server killed.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Where a commit waits for the disk.
const BATCH_WORDS_SYNCED: usize = 4096;

impl Config {
    /// For the program that opens the pool: the length up to which it may grow by `maxmemory`. With a policy
    /// of eviction, `maxmemory` bounds the live data, and the pool may have half as much again, for holes.
    pub fn pool_bytes_max(&self) -> Option<u64> {
        let bytes = self.eviction.memory_bytes;
        let holes = if self.eviction.policy == Policy::NoEviction { 0 } else { bytes / 2 + HOLE_BYTES_MIN };
        (bytes > 0).then(|| bytes.saturating_add(holes))
    }

    /// Whether there are addresses of the network to listen on: an empty `bind` has none, and `port 0` only
    /// turns the plain port off.
    pub(crate) fn has_addresses(&self) -> bool {
        self.tcp || self.listen.port() == 0 || !self.bind.is_empty()
    }

    /// The largest batch for a pool of this domain.
    pub(crate) fn batch_words_max(&self, domain: Domain) -> usize {
        self.batch_words_max.unwrap_or(match domain {
            domain if domain.waits_for_device() => BATCH_WORDS_SYNCED,
            _ => BATCH_WORDS_IN_MEMORY,
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6379)),
            bind: Vec::new(),
            tcp: true,
            tls: TlsSettings::default(),
            unix_socket: None,
            unix_socket_mode: None,
            metrics: None,
            metrics_public: false,
            stuck_after: STUCK_AFTER,
            protected_mode: true,
            password: None,
            acl_file: None,
            users: Users::new(None),
            user_lines: BTreeSet::new(),
            acl: AclSettings::default(),
            debug_commands: DebugCommands::No,
            dir: None,
            cluster: false,
            needs_lease: false,
            unfenced_failover: false,
            dump_file: "dump.rdb".to_owned(),
            eviction: EvictionSettings::default(),
            flush_grace: Duration::ZERO,
            replica: ReplicaSettings::default(),
            notified_events: 0,
            noted: Noted::default(),
            script_time: Some(Duration::from_secs(5)),
            file: None,
            without_meaning: Vec::new(),
            max_clients: 10_000,
            idle_timeout: None,
            tcp_keepalive: Some(Duration::from_secs(300)),
            limits: Limits::default(),
            output_limits: OutputLimits::default(),
            client_memory: ClientMemory::Bytes(
                (machine::memory_bytes().unwrap_or(0) / CLIENT_MEMORY_SHARE).max(CLIENT_MEMORY_MIN),
            ),
            turn_reply_bytes: 512 << 10,
            reply_bytes_max: 1 << 30,
            batch_words_max: None,
            expire_per_turn: 128,
            log_level: LogLevel::Notice,
            log_format: LogFormat::Text,
            supervised: Supervised::Auto,
            encodings: Encodings::default(),
            hll_sparse_bytes: 3000,
            tracking_keys_max: 1_000_000,
            compaction: CompactionSettings::default(),
            slow_turn: Some(Duration::from_millis(250)),
        }
    }
}

/// The facts about commands that are noted: see the directives of these names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// Commands that take longer are in the slow log.
    pub(crate) slower_than: Option<Duration>,
    pub(crate) slow_len_max: usize,
    /// Events that take as long are samples of LATENCY.
    pub(crate) latency_threshold: Option<Duration>,
    /// Keep histograms of times.
    pub(crate) histograms: bool,
}

impl Default for Noted {
    fn default() -> Self {
        Noted {
            slower_than: Some(Duration::from_millis(10)),
            slow_len_max: 128,
            latency_threshold: None,
            histograms: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_of_what_the_pool_may_grow_to() {
        assert_eq!(ClientMemory::Percent(5).limit_bytes(1000), Some(50));
        assert_eq!(ClientMemory::Percent(100).limit_bytes(u64::MAX), Some(u64::MAX));
        assert_eq!(ClientMemory::Percent(0).limit_bytes(1000), None);
        assert_eq!(ClientMemory::Bytes(7).limit_bytes(1000), Some(7));
        assert_eq!(ClientMemory::Bytes(0).limit_bytes(1000), None);
    }

    #[test]
    fn levels_have_names_in_their_order() {
        for (index, (level, name)) in LogLevel::ALL.into_iter().enumerate() {
            assert_eq!((level as usize, level.name()), (index, name));
            assert_eq!(LogLevel::from_name(&name.to_uppercase()), Some(level));
        }
        assert_eq!(LogLevel::from_name("nothing"), None);
        assert!(LogLevel::Debug < LogLevel::Warning);
    }
}
