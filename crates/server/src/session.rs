//! The state of one client, apart from its socket and buffers.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tembo_wire::Protocol;

use crate::acl::user::User;
use crate::address::Address;
use crate::commands::table::Command;
use crate::commands::table::flag::{RUNS_QUEUE, WRITE};
use crate::master::{Awaiting, Replica};
use crate::queue::{Queue, Watched};
use crate::subscriptions::{SubscriptionKind, Subscriptions};
use crate::tracking::{Mode, OwnTracking, Tracked};
use crate::waiting::Waiting;

/// Which replies a client gets. Messages come in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// All but that to the command under way, which turns them off, and the next one.
    SkipNext,
    /// All replies but the one to the command under way are sent.
    Skip,
}

/// A client's state.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    /// Its place among the clients.
    pub(crate) slot: usize,
    pub(crate) peer: Address,
    pub(crate) local: Address,
    /// The socket's file descriptor, for CLIENT LIST.
    pub(crate) fd: i32,
    pub(crate) since: Instant,
    /// When it last sent something or took output.
    pub(crate) active: Instant,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    pub(crate) name: Vec<u8>,
    pub(crate) library_name: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    /// The command it ran last.
    pub(crate) command: &'static str,
    pub(crate) no_evict: bool,
    /// The client has given a password, or came when none was needed.
    pub(crate) authenticated: bool,
    /// The client accepts the data of a replica of a cluster: READONLY.
    pub(crate) reads_replica: bool,
    /// The client's user; the default user until the client authenticates.
    pub(crate) user: Arc<User>,
    /// The session is the link to the master.
    pub(crate) is_master: bool,
    /// The commands since MULTI.
    pub(crate) queue: Option<Rc<Queue>>,
    pub(crate) watched: Watched,
    /// The key for which the client waits.
    pub(crate) waiting: Option<Box<Waiting>>,
    /// The replicas for which the client waits.
    pub(crate) awaiting: Option<Box<Awaiting>>,
    /// The client has run commands that may write.
    pub(crate) has_written: bool,
    /// This server was a replica after that write: the write may be taken back.
    pub(crate) in_doubt: bool,
    /// The client waits for the end of SAVE.
    pub(crate) is_saving: bool,
    /// The client brings, or brought, the keys of slots that move to this node.
    pub(crate) importing: bool,
    /// When it said CLUSTERX HEARTBEAT last, by the time since boot.
    pub(crate) heartbeat: Option<Duration>,
    /// The client is a replica.
    pub(crate) replica: Option<Box<Replica>>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) tracking: OwnTracking,
    /// The client sees all commands (MONITOR), under this number.
    pub(crate) monitors: Option<u64>,
    /// The replies of this round say nothing of the data.
    pub(crate) is_plain: bool,
    /// Its last command sent messages.
    pub(crate) publishing: bool,
    pub(crate) replies: Replies,
    /// The client is to be disconnected once its output is sent.
    pub(crate) quitting: bool,
    /// The client is to be disconnected now; its remaining replies are not sent.
    pub(crate) killed: bool,
    /// The connection's buffers when its commands of this turn began.
    pub(crate) buffers: BufferSizes,
}

impl Session {
    pub(crate) fn new(
        id: u64,
        (peer, local): (Address, Address),
        fd: i32,
        now: Instant,
        user: Arc<User>,
    ) -> Self {
        Session {
            id,
            slot: 0,
            peer,
            local,
            fd,
            since: now,
            active: now,
            database: 0,
            protocol: Protocol::Resp2,
            name: Vec::new(),
            library_name: Vec::new(),
            library_version: Vec::new(),
            command: "NULL",
            no_evict: false,
            authenticated: false,
            reads_replica: false,
            user,
            is_master: false,
            queue: None,
            watched: Watched::default(),
            waiting: None,
            awaiting: None,
            has_written: false,
            in_doubt: false,
            is_saving: false,
            importing: false,
            heartbeat: None,
            replica: None,
            subscriptions: Subscriptions::default(),
            tracking: OwnTracking::default(),
            monitors: None,
            is_plain: false,
            publishing: false,
            replies: Replies::On,
            quitting: false,
            killed: false,
            buffers: BufferSizes::default(),
        }
    }

    /// Memory held in addition to the connection's buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.name.capacity()
            + self.library_name.capacity()
            + self.library_version.capacity()
            + self.subscriptions.bytes
            + self.tracking.bytes
            + self.waiting.as_ref().map_or(0, |waiting| waiting.memory_bytes())
            + self.transaction_bytes()
    }

    /// Whether it has subscribed to something.
    pub(crate) fn is_subscriber(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Whether a command writes, or commands that it runs.
    pub(crate) fn writes(&self, command: &Command) -> bool {
        match &self.queue {
            Some(queue) if command.has(RUNS_QUEUE) => queue.has(WRITE),
            _ => command.has(WRITE),
        }
    }

    /// Notes that the reply of a command that waits is not wanted, or is wanted again.
    pub(crate) fn note_replies(&mut self, replies: Replies) {
        if let Some(waiting) = &mut self.waiting {
            waiting.muted = replies != Replies::On;
        }
    }

    /// Whether the client runs on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.peer.is_local()
    }
}

/// How much a connection buffers, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferSizes {
    pub(crate) input: usize,
    pub(crate) input_capacity: usize,
    /// Replies of this turn.
    pub(crate) output: usize,
    pub(crate) output_capacity: usize,
    /// Replies of earlier turns that the client has not taken: their memory and their number of chunks.
    pub(crate) queue_capacity: usize,
    pub(crate) queue_chunks: usize,
    /// Memory for the arguments of the request under way.
    pub(crate) arguments: usize,
    /// All memory that the connection has.
    pub(crate) memory: usize,
    /// There is output that the socket does not take.
    pub(crate) output_waits: bool,
}

/// The part of CLIENT LIST that a session does not know by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'a> {
    /// A key that the client watches was changed.
    pub(crate) changed: bool,
    pub(crate) tracked: Option<&'a Tracked>,
}

/// How the log names the client: by number and address, not by the name that it chose.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.id, self.peer)
    }
}

impl Session {
    /// How many bytes the commands since MULTI and the watched keys take.
    pub(crate) fn transaction_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.memory_bytes()) + self.watched.bytes
    }

    /// The letters of CLIENT LIST.
    fn flags(&self, Standing { changed, tracked }: Standing<'_>) -> String {
        let flags = [
            (self.monitors.is_some(), 'O'),
            (self.replica.as_ref().is_some_and(|replica| replica.is_asking()), 'S'),
            (!self.subscriptions.is_empty(), 'P'),
            (self.queue.is_some(), 'x'),
            (self.waiting.is_some() || self.awaiting.is_some() || self.is_saving, 'b'),
            (tracked.is_some(), 't'),
            (tracked.is_some_and(|tracked| tracked.is_broken), 'R'),
            (tracked.is_some_and(|tracked| tracked.mode == Mode::Broadcast), 'B'),
            (changed, 'd'),
            (self.quitting, 'c'),
            (matches!(self.peer, Address::Unix(_)), 'U'),
            (self.reads_replica, 'r'),
            (self.no_evict, 'e'),
        ];
        let flags: String = flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)).collect();
        if flags.is_empty() { "N".to_owned() } else { flags }
    }

    /// A line of CLIENT LIST, with its line end.
    pub(crate) fn describe(&self, now: Instant, standing: Standing<'_>, buffers: BufferSizes) -> Vec<u8> {
        let seconds = |since| now.saturating_duration_since(since).as_secs();
        let flags = self.flags(standing);
        let redirect = standing.tracked.map_or(-1, Tracked::redirect_id);
        let multi = self.queue.as_ref().map_or(-1, |queue| queue.len() as i64);
        let multi_bytes = self.transaction_bytes();
        let events = if buffers.output_waits { "rw" } else { "r" };
        let input_free = buffers.input_capacity - buffers.input;
        let name = String::from_utf8_lossy(&self.name);
        let user = String::from_utf8_lossy(&self.user.name);
        let library_name = String::from_utf8_lossy(&self.library_name);
        let library_version = String::from_utf8_lossy(&self.library_version);
        format!(
            "id={} addr={} laddr={} fd={} name={name} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} \
             multi={multi} watch={} qbuf={} qbuf-free={input_free} argv-mem={} multi-mem={multi_bytes} rbs={} rbp=0 obl={} oll={} omem={} \
             tot-mem={} events={events} cmd={} user={user} redir={redirect} resp={} lib-name={library_name} \
             lib-ver={library_version}\n",
            self.id,
            self.peer,
            self.local,
            self.fd,
            seconds(self.since),
            seconds(self.active),
            self.database,
            self.subscriptions.len(SubscriptionKind::Channel),
            self.subscriptions.len(SubscriptionKind::Pattern),
            self.subscriptions.len(SubscriptionKind::Shard),
            self.watched.keys.len(),
            buffers.input,
            buffers.arguments,
            buffers.output_capacity,
            buffers.output,
            buffers.queue_chunks,
            buffers.queue_capacity,
            buffers.memory,
            self.command,
            self.protocol.version(),
        )
        .into_bytes()
    }
}
