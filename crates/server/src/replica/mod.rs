//! A replica: the server follows a master, which may be Redis, Valkey or any server of their protocol.
//!
//! ```text
//!   link                 the stages of the connection, in the event loop: asking, loading, streaming
//!   |- handshake         a thread that connects, shakes hands and receives a whole state into a file
//!   |- load              that file into free maps, beside the old state, some keys in each turn
//!   |- applied_stream    the stream's commands through the executor
//!   keyspace/replication    the master, the position, and the arrival on media
//! ```
//!
//! # An effect is committed with its place
//!
//! The position in the stream is part of the commit that makes its commands durable. It moves at the end of a
//! command, and of MULTI at the end of EXEC. A server that is killed continues at its pool's position, with a
//! partial resynchronisation; nothing is applied twice and nothing is left out. It acknowledges only
//! committed bytes.
//!
//! # The old state stays until the new one is whole
//!
//! A whole state is received into a file without a name, and read to its end, before anything of it reaches
//! the pool. It is then loaded into maps that hold nothing, which no client sees, and takes the place of the
//! old state in one commit. If more than sixteen databases would be needed for both, the old state is cleared
//! before, and that is logged.
//!
//! # Time is the master's
//!
//! A replica removes no key because its deadline has come: the master sends a DEL. Its own clients do not see
//! such a key; the master's commands do, since the two clocks may differ: they run as if no deadline had
//! come.
//!
//! # Commands that cannot be applied
//!
//! A command that is unknown here, or fails, ends the replication, with the data as they were before it. INFO
//! names the command, its key and its offset. Replication stays ended until REPLICAOF is called again or the
//! server restarts. After errors of the connection, of a broken file or of a full pool, the replica tries
//! again, at growing intervals.

pub(crate) mod applied_stream;
pub(crate) mod handshake;
pub(crate) mod link;
pub(crate) mod load;
pub(crate) mod socket;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) use crate::keyspace::history::Master;
use crate::password::Password;

/// How a server replicates, as a replica and as a master. All but the master are *settable*.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// The master of a new pool, `replicaof`. A pool that has data, or whose role was chosen by REPLICAOF,
    /// has its own. None.
    pub master: Option<Master>,
    /// The master's password, `masterauth`. None.
    pub password: Option<Password>,
    /// The user for the master's password, `masteruser`. None.
    pub user: Option<String>,
    /// Clients may not write to a replica, `replica-read-only`.
    pub read_only: bool,
    /// Clients may read from a replica without a link to its master, `replica-serve-stale-data`.
    pub serves_stale: bool,
    /// `replica-priority`, which is shown. 100.
    pub priority: u64,
    /// Whether the replica is to be listed by tools, `replica-announced`, which is shown.
    pub is_announced: bool,
    /// The address that is announced to the master, `replica-announce-ip`. None: that of the connection.
    pub announced_ip: Option<String>,
    /// The port that is announced to the master, `replica-announce-port`. None: the port on which the server
    /// listens.
    pub announced_port: Option<u16>,
    /// A link on which nothing came for this long is broken, `repl-timeout`. 60 s.
    pub timeout: Duration,
    /// How many bytes of the stream are kept for replicas that come back, `repl-backlog-size`. None: a 64th
    /// of the pool's maximum length, from 1 to 64 MiB.
    pub backlog_bytes: Option<u64>,
    /// How often replicas get a sign of life, `repl-ping-replica-period`. 10 s.
    pub ping_period: Duration,
    /// Writes are refused with fewer replicas that were heard of lately, `min-replicas-to-write`. 0.
    pub min_replicas: u64,
    /// The silence after which a replica does not count for `min-replicas-to-write`, `min-replicas-max-lag`.
    /// 10 s.
    pub max_lag: Duration,
    /// A replica that has more of the history than this server gets no copy of this server's data,
    /// `repl-refuse-ahead`.
    pub refuses_ahead: bool,
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        ReplicaSettings {
            master: None,
            password: None,
            user: None,
            read_only: true,
            serves_stale: true,
            priority: 100,
            is_announced: true,
            announced_ip: None,
            announced_port: None,
            timeout: Duration::from_secs(60),
            backlog_bytes: None,
            ping_period: Duration::from_secs(10),
            min_replicas: 0,
            max_lag: Duration::from_secs(10),
            refuses_ahead: true,
        }
    }
}

/// How far a link is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The link waits before it is tried again, or is not wanted.
    #[default]
    Down,
    /// The link is connecting and shaking hands.
    Asking,
    /// A whole state is received or loaded.
    Synchronising,
    /// The stream is applied.
    Up,
    /// A command cannot be applied.
    Stopped,
}

impl Phase {
    /// The name in ROLE.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Down | Phase::Stopped => "connect",
            Phase::Asking => "connecting",
            Phase::Synchronising => "sync",
            Phase::Up => "connected",
        }
    }
}

/// The bytes of a whole state that is on its way.
#[derive(Debug, Default)]
pub(crate) struct Transfer {
    /// The number of all bytes, if the master has told it.
    pub(crate) total: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) is_begun: std::sync::atomic::AtomicBool,
}

/// The role of the server, and INFO's figures about it.
#[derive(Debug)]
pub(crate) struct Role {
    /// The master, if the server is a replica.
    pub(crate) master: Option<Master>,
    /// The master was changed, and the pool does not know yet.
    pub(crate) is_changed: bool,
    /// How often the master was changed.
    pub(crate) epoch: u64,
    pub(crate) phase: Phase,
    /// Why the link is down.
    pub(crate) error: Option<String>,
    pub(crate) down_since: Instant,
    pub(crate) last_io: Option<Instant>,
    pub(crate) transfer: Arc<Transfer>,
}

impl Role {
    pub(crate) fn new() -> Self {
        Role {
            master: None,
            is_changed: false,
            epoch: 0,
            phase: Phase::Down,
            error: None,
            down_since: Instant::now(),
            last_io: None,
            transfer: Arc::default(),
        }
    }

    /// Makes the server a replica of another master, or a master.
    pub(crate) fn choose(&mut self, master: Option<Master>) {
        (self.master, self.is_changed) = (master, true);
        self.begin();
    }

    /// Lets the link begin anew.
    pub(crate) fn begin(&mut self) {
        self.epoch += 1;
        (self.phase, self.error, self.last_io) = (Phase::Down, None, None);
        self.down_since = Instant::now();
    }

    /// How many bytes of a whole state are expected and were received.
    pub(crate) fn transferred(&self) -> (u64, u64) {
        (self.transfer.total.load(Ordering::Relaxed), self.transfer.received.load(Ordering::Relaxed))
    }
}
