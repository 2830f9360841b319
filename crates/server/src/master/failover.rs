//! FAILOVER: this master and one of its replicas change places, with nothing lost.
//!
//! ```text
//!   waiting   clients may not write; the replica is asked how far it is until it has everything
//!   taking    this server asks it for the stream, with the word FAILOVER: that one is the master now
//!             It refuses if it has less than this master, which goes on then, unless that was forced
//!   up        this is a replica, durably; clients are told so
//! ```
//!
//! The role is stored at the end. A server that is killed before that restarts as the master, and asks its
//! earlier replicas whether they have taken its place ([`recall`](super::succession)).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::keyspace::history::Master;

/// How far a failover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailoverStage {
    Waiting,
    Taking,
}

#[derive(Clone, Debug)]
pub(crate) struct Failover {
    pub(crate) stage: FailoverStage,
    /// The replica that is to take over; none: the first one that has everything.
    pub(crate) target: Option<Master>,
    pub(crate) deadline: Option<Instant>,
    /// At the deadline the replica takes over with the data that it has. While it is taking over: it has less
    /// than this server.
    pub(crate) is_forced: bool,
    /// The heir was told that it is the master now, or may have been.
    pub(crate) is_told: Arc<AtomicBool>,
    /// FAILOVER ABORT was said.
    pub(crate) is_given_up: bool,
}

impl Failover {
    /// Redis's name of a state.
    pub(crate) fn state(failover: Option<&Failover>) -> &'static str {
        match failover.map(|failover| failover.stage) {
            None => "no-failover",
            Some(FailoverStage::Waiting) => "waiting-for-sync",
            Some(FailoverStage::Taking) => "failover-in-progress",
        }
    }
}
