//! The lease of a master: a node that its controller cannot reach takes no writes any more.
//!
//! A controller says to each node, again and again, who the master of its shard is, for how long, and in
//! which election that was decided (`commands/heartbeat` has the words). A node that hears its own id may
//! take writes until the lease runs out.
//!
//! # Clock rules
//!
//! - A lease counts from the heartbeat *before*, on the same connection. The controller received the answer
//!   to that one before it sent this one, so that the lease began, by any clock, before the controller sent
//!   this one: a heartbeat that is delayed in the network, or by a process that is stopped, extends no lease.
//!   The first heartbeat of a connection gives no lease.
//! - Time is that of the system since its boot, sleep included, which no program can set.
//! - A hundredth of a lease is not used: the clocks of a node and a controller may differ by this much.
//! - A lease is not stored. A node that is started anew has none.
//!
//! A write is checked when it is run, after its bytes were read, against the clock at that moment.
//!
//! # What a controller does
//!
//! Between the answer to a heartbeat and the next one on that connection it makes sure that the election is
//! still the latest one (etcd: a read by quorum). After it has decided another election (etcd: by
//! compare-and-swap), it waits for the length of a lease before it lets another node take writes (SETNODES).
//! Then no two nodes of a shard take writes at the same time, whatever is late, lost, stopped or started
//! anew: the model in `lease_model_tests` exhausts that. A controller whose elections are decided by one
//! process, which waits for the length of a lease after the last answer that it has seen, does it as well.
//!
//! # Elections
//!
//! The pool keeps the latest election that the node knows of, in "db.cluster" (media: `keyspace/cluster`),
//! before the node says that it knows it. Heartbeats of older elections are refused, and so are those of the
//! same election with another master. An election of another master ends the lease.

use std::time::Duration;

use super::topology::{ID_BYTES, NodeId};

/// One part in this many of a lease is not used.
const UNUSED_PART: u32 = 100;

/// The choice of a shard's master, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Election {
    pub(crate) version: u64,
    pub(crate) master: NodeId,
}

impl Election {
    /// The record on media.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.version.to_le_bytes()[..], self.master.as_bytes()].concat()
    }

    /// Reads a record.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let (version, id) = value.split_first_chunk()?;
        let master = NodeId::parse(id).filter(|_| id.len() == ID_BYTES)?;
        Some(Election { version: u64::from_le_bytes(*version), master })
    }
}

/// Why a heartbeat is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A later election is known, of this version.
    Older(u64),
    /// This election chose another master.
    Contradiction,
}

/// The latest election that is known, and the lease of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    election: Option<Election>,
    until: Option<Duration>,
}

impl Lease {
    /// No lease, in the election that a pool has.
    pub(crate) fn new(election: Option<Election>) -> Self {
        Lease { election, until: None }
    }

    pub(crate) fn election(&self) -> Option<Election> {
        self.election
    }

    /// Whether an election is another one than the latest that is known.
    pub(crate) fn expect(&self, said: &Election) -> Result<bool, Refusal> {
        match &self.election {
            Some(known) if known.version > said.version => Err(Refusal::Older(known.version)),
            Some(known) if known.version == said.version && known.master != said.master => {
                Err(Refusal::Contradiction)
            }
            known => Ok(*known != Some(*said)),
        }
    }

    /// Takes a heartbeat of an election that is expected, and that is durable. The heartbeat before it on its
    /// connection came at a time, if there was one.
    pub(crate) fn take(
        &mut self,
        said: Election,
        myself: NodeId,
        length: Duration,
        before: Option<Duration>,
    ) {
        // The same master goes on.
        let until = self.until.filter(|_| self.election.is_some_and(|known| known.master == said.master));
        *self = Lease { election: Some(said), until };
        if said.master == myself
            && let Some(before) = before
        {
            let end = before.saturating_add(length - length / UNUSED_PART);
            self.until = self.until.max(Some(end));
        }
    }

    /// Whether the lease holds at a time.
    pub(crate) fn holds(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The rest of the lease at a time.
    pub(crate) fn rest(&self, now: Duration) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);

    fn id(letter: u8) -> NodeId {
        NodeId::parse(&[letter; 40]).unwrap()
    }

    fn election(version: u64, letter: u8) -> Election {
        Election { version, master: id(letter) }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_counts_from_the_heartbeat_before() {
        let mut lease = Lease::default();
        lease.take(election(1, b'a'), id(b'a'), LENGTH, None);
        assert!(!lease.holds(at(0)), "the first one of a connection gives none");
        lease.take(election(1, b'a'), id(b'a'), LENGTH, Some(at(5)));
        assert!(lease.holds(Duration::from_millis(14_899)) && !lease.holds(Duration::from_millis(14_900)));
        // A shorter lease does not shorten the controller's wait.
        lease.take(election(1, b'a'), id(b'a'), at(1), Some(at(6)));
        assert_eq!(lease.rest(at(10)), Duration::from_millis(4900));
    }

    #[test]
    fn another_election_ends_it_and_older_ones_are_refused() {
        let mut lease = Lease::default();
        lease.take(election(5, b'a'), id(b'a'), LENGTH, Some(at(5)));
        assert_eq!(lease.expect(&election(4, b'a')), Err(Refusal::Older(5)));
        assert_eq!(lease.expect(&election(5, b'b')), Err(Refusal::Contradiction));
        assert_eq!(
            (lease.expect(&election(5, b'a')), lease.expect(&election(6, b'b'))),
            (Ok(false), Ok(true))
        );
        lease.take(election(6, b'a'), id(b'a'), LENGTH, None);
        assert!(lease.holds(at(6)), "the same master was elected");
        lease.take(election(7, b'b'), id(b'a'), LENGTH, Some(at(6)));
        assert!(!lease.holds(at(6)), "another node is the master");
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let one = election(u64::MAX, b'z');
        assert_eq!(Election::decode(&one.encode()), Some(one));
        for wrong in [&[][..], &[0; 8], &[0; 48], &[b'a'; 47], &[b'a'; 49]] {
            assert_eq!(Election::decode(wrong), None);
        }
    }
}
