//! A master: the server has replicas, which may be Redis, Valkey or Tembo, and which may have replicas again.
//!
//! ```text
//!   effects             what commands did, in words (crate::effects)
//!   keyspace/backlog    the stream's last bytes, in the commit of their data
//!   master/propagation  from commands to effects
//!   |- copy             a whole copy for a replica that cannot go on where it is
//!   |- failover, handover    a master and a replica change places
//!   |- succession       whether a former replica has taken the place of a master that was started anew
//!   |- feed             the stream from the backlog into connections; timeouts, WAIT
//!   commands/replicas   PSYNC, REPLCONF, WAIT
//! ```
//!
//! # A replica is never ahead
//!
//! The bytes of the stream are read from what is committed, after the commit, and are held like replies until
//! the device has them. A master that is killed restarts with all data that any replica has.
//!
//! # A replica costs no memory
//!
//! Its connection gets bytes as it takes them, from the backlog, which all replicas share and which is in the
//! pool or in a file beside it. While one that is connected is behind, the backlog keeps what it lacks, up to
//! a limit (the class `replica` of `client-output-buffer-limit`, and a share of the pool); beyond that the
//! replica is disconnected.
//!
//! # The stream begins with the first replica
//!
//! Until a replica has asked for the first time, a write costs nothing more. From then on the pool has a
//! history, with an id and an offset, which restarts keep.

pub(crate) mod copy;
pub(crate) mod failover;
pub(crate) mod feed;
mod handover;
mod propagation;
pub(crate) mod succession;

use std::fs::File;
use std::rc::Rc;
use std::time::Instant;

use crate::client_ref::ClientRef;
use crate::keyspace::history::Master;

/// The share of the pool that may keep what replicas lack.
pub(crate) const POOL_SHARE: u64 = 8;

/// How far a replica is.
#[derive(Clone, Debug)]
pub(crate) enum ReplicaStage {
    /// The replica has told something about itself by REPLCONF.
    Introducing,
    /// The replica needs a whole copy.
    WantsCopy,
    /// The replica waits for the copy that is being written.
    AwaitsCopy,
    /// The replica gets a copy: the file, how much of it was taken, and how long it is.
    Copying(Rc<File>, u64, u64),
    /// The replica gets the stream.
    Online,
}

/// A connection of a replica.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) port: u16,
    pub(crate) ip: Option<String>,
    /// The replica can go on under another id.
    pub(crate) takes_new_ids: bool,
    /// The replica asked by SYNC: it gets no id, and acknowledges nothing.
    pub(crate) is_plain: bool,
    /// The client takes a backup: it is not listed, and does not count as a replica.
    pub(crate) is_backup: bool,
    /// The replica wants no stream behind its copy (`REPLCONF rdb-only 1`).
    pub(crate) wants_only_copy: bool,
    pub(crate) stage: ReplicaStage,
    /// The place in the stream where the bytes begin that its connection has not got yet.
    pub(crate) cursor: u64,
    pub(crate) acknowledged: u64,
    /// The position up to which the replica's device has the stream, as it has told.
    pub(crate) durable: u64,
    /// The time when the replica last said something, or took bytes of its copy.
    pub(crate) heard: Instant,
    /// The bytes that its connection had not taken, when it was last looked at in the middle of a copy.
    pub(crate) unsent: usize,
    /// The time since which the replica is behind by more than the soft limit.
    pub(crate) behind_since: Option<Instant>,
}

impl Replica {
    pub(crate) fn new(now: Instant) -> Self {
        Replica {
            port: 0,
            ip: None,
            takes_new_ids: false,
            is_plain: false,
            is_backup: false,
            wants_only_copy: false,
            stage: ReplicaStage::Introducing,
            cursor: 0,
            acknowledged: 0,
            durable: 0,
            heard: now,
            unsent: 0,
            behind_since: None,
        }
    }

    /// Whether the backlog keeps the bytes that the replica lacks.
    pub(crate) fn needs_backlog(&self) -> bool {
        !self.wants_only_copy && self.is_asking() && !matches!(self.stage, ReplicaStage::WantsCopy)
    }

    /// Whether the replica has asked for the stream.
    pub(crate) fn is_asking(&self) -> bool {
        !matches!(self.stage, ReplicaStage::Introducing)
    }

    pub(crate) fn is_online(&self) -> bool {
        matches!(self.stage, ReplicaStage::Online)
    }

    /// Redis's name of its stage.
    pub(crate) fn state(&self) -> &'static str {
        match self.stage {
            ReplicaStage::Introducing | ReplicaStage::WantsCopy | ReplicaStage::AwaitsCopy => "wait_bgsave",
            ReplicaStage::Copying(..) => "send_bulk",
            ReplicaStage::Online => "online",
        }
    }
}

/// A client that waits for copies of its writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaiting {
    pub(crate) offset: u64,
    /// The number of replicas that are to have the writes: in WAITAOF, on their devices.
    pub(crate) count: u64,
    /// In WAITAOF.
    pub(crate) device: Option<AwaitedDevice>,
    pub(crate) deadline: Option<Instant>,
}

/// The part of WAITAOF that is about this server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitedDevice {
    /// Whether this server's device is to have the writes.
    pub(crate) is_wanted: bool,
    /// The position in the journal behind the writes, once they are committed.
    pub(crate) position: Option<u64>,
}

/// The replicas of this server.
#[derive(Debug)]
pub(crate) struct Replicas {
    /// The replicas that have asked for the stream.
    pub(crate) list: Vec<ClientRef>,
    /// Clients in WAIT and WAITAOF.
    pub(crate) awaiting: Vec<ClientRef>,
    /// Replicas are to be asked how far they are.
    pub(crate) wants_acks: bool,
    /// A connection takes more than it got.
    pub(crate) is_feeding: bool,
    /// The number of changes of ids that the replicas know of.
    pub(crate) epoch: u64,
    pub(crate) pinged: Instant,
    /// The addresses of the replicas that get the stream, as the pool has them.
    pub(crate) remembered: Vec<Master>,
    /// The replicas that the pool had at the start, and that did not get the stream yet in this run, and the
    /// time before which they are not forgotten.
    pub(crate) awaited: (Vec<Master>, Instant),
    /// Whether the awaited replicas are being asked if one of them is the master.
    pub(crate) is_recalling: bool,
    /// The number of replicas that were heard of, by `min-replicas-max-lag`.
    pub(crate) good: u64,
    pub(crate) full: u64,
    pub(crate) partial: u64,
    pub(crate) partial_refused: u64,
}

impl Replicas {
    pub(crate) fn new(now: Instant) -> Self {
        Replicas {
            list: Vec::new(),
            awaiting: Vec::new(),
            wants_acks: false,
            is_feeding: false,
            epoch: 0,
            pinged: now,
            remembered: Vec::new(),
            awaited: (Vec::new(), now),
            is_recalling: false,
            good: 0,
            full: 0,
            partial: 0,
            partial_refused: 0,
        }
    }
}
