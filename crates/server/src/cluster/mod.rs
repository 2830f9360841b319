//! A node of a cluster: which keys it serves, and where the others are.
//!
//! ```text
//!   slot        the slot of a key
//!   topology    the nodes and their slots, as text: pushed by CLUSTERX SETNODES
//!   route       the keys of a command: MOVED, CROSSSLOT, CLUSTERDOWN
//!   adopt       a new topology: its commit, the role that it gives, clients of slots that went
//!   report      CLUSTER NODES, SLOTS, SHARDS and INFO
//!   ranges      sets of slots
//!   lease       a master that its controller cannot reach takes no writes
//!   migration   slots move to another node, with their keys
//!   keyspace/cluster    the id and the topology on media; keyspace/slots: keys behind their slots
//! ```
//!
//! Nodes do not talk to each other about the topology: a controller pushes it to each of them, whole, under a
//! version that grows. A node takes no older one. It finds itself in it by its id, or by its address if it
//! has none yet, and becomes the master or the replica that its line says, in the same commit.
//!
//! # Who serves
//!
//! - A master serves the slots of its line. It serves none while its role is another one than its line says:
//!   REPLICAOF and Sentinel change a role at once, and slots go with the next topology only. Clients that
//!   said READONLY still read what it has.
//! - A replica serves reads of its master's slots to clients that said READONLY.
//! - Everything else is somewhere else (MOVED), or nowhere (CLUSTERDOWN).
//!
//! - A slot that is on its way to another node, or has just arrived, has other rules: see [`migration`].
//!
//! Keys of slots that a topology takes away stay until CLUSTERX FLUSHSLOTS; no client can reach them.

pub(crate) mod adopt;
mod fence;
pub(crate) mod lease;
#[cfg(test)]
mod lease_model_tests;
pub(crate) mod migration;
pub(crate) mod ranges;
pub(crate) mod report;
pub(crate) mod route;
pub(crate) mod slot;
pub(crate) mod topology;
#[cfg(test)]
mod topology_tests;

use crate::fault::Fault;
use crate::keyspace::cluster::{Membership, NewRole};
use crate::keyspace::history::Master;
use migration::{Moves, TRY_AGAIN};
use topology::{Node, NodeId, Topology};

pub(crate) const NOT_INITIALISED: Fault = Fault::Error("CLUSTERDOWN The cluster is not initialized");
const NOT_SERVED: Fault = Fault::Error("CLUSTERDOWN Hash slot not served");
const NOT_YET: Fault = Fault::Error("CLUSTERDOWN This node has another role than the topology says");

/// The node's id and topology.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) id: Option<NodeId>,
    pub(crate) topology: Option<Topology>,
    /// The place of this node in the topology.
    myself: Option<usize>,
    moves: Moves,
    /// The topology with the owners by moves that it does not know yet, if there are such moves.
    ahead: Option<Topology>,
    /// The pool has records of moves that cannot be read.
    is_unreadable: bool,
    /// Some slots may be out of service.
    is_unsettled: bool,
    /// The slots that are being moved away take no writes.
    is_draining: bool,
    /// A key that takes no writes until it is copied.
    pub(crate) guarded: Option<Vec<u8>>,
}

/// How a client reaches a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// The client accepts the data of a replica.
    pub(crate) from_replica: bool,
    /// The command changes something.
    pub(crate) writes: bool,
    /// This server is a replica.
    pub(crate) is_replica: bool,
}

impl Cluster {
    pub(crate) fn new((id, topology): Membership, moves: Moves) -> Self {
        let myself = id.zip(topology.as_ref()).and_then(|(id, topology)| topology.find(&id));
        let mut cluster = Cluster { id, topology, myself, ..Cluster::default() };
        cluster.set_moves(moves);
        cluster
    }

    /// The topology with the present owners, and the place of this node in it, if it has one.
    pub(crate) fn known(&self) -> Result<(&Topology, Option<usize>), Fault> {
        self.present().map(|topology| (topology, self.myself)).ok_or(NOT_INITIALISED)
    }

    /// The topology with the present owners.
    fn present(&self) -> Option<&Topology> {
        self.ahead.as_ref().or(self.topology.as_ref())
    }

    pub(crate) fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Takes other records of moves.
    pub(crate) fn set_moves(&mut self, moves: Moves) {
        let topology = self.topology.as_ref().filter(|_| !moves.handed.is_empty());
        self.ahead = topology.map(|topology| topology.with_owners(|slot| moves.owner(topology, slot)));
        self.is_unsettled = moves.sending().is_some() || !moves.removing.is_empty();
        self.is_draining &= moves.sending().is_some_and(|(_, is_doubtful)| !is_doubtful);
        (self.moves, self.guarded, self.is_unreadable) = (moves, None, false);
    }

    /// Lets the slots that are being moved away take no writes, or take them again.
    pub(crate) fn set_draining(&mut self, is_draining: bool) {
        self.is_draining = is_draining && self.moves.sending().is_some_and(|(_, is_doubtful)| !is_doubtful);
    }

    /// Why commands that remove keys of many slots must wait, if they must.
    fn sweeping_refusal(&self) -> Option<Fault> {
        let is_doubtful = self.moves.sending().is_some_and(|(_, is_doubtful)| is_doubtful);
        (self.is_draining || is_doubtful || self.moves.importing().is_some()).then_some(TRY_AGAIN)
    }

    /// Why a slot that this node has is not served now, if it is not.
    #[inline]
    fn unsettled(&self, slot: u16, access: Access) -> Option<Fault> {
        if !self.is_unsettled {
            return None;
        }
        let is_stopped = |is_doubtful: bool| is_doubtful || self.is_draining && access.writes;
        let sending = self.moves.sending();
        let is_leaving = sending
            .is_some_and(|(moving, is_doubtful)| is_stopped(is_doubtful) && moving.slots.contains(slot));
        (is_leaving || self.is_unreadable || self.moves.removing.contains(slot)).then_some(TRY_AGAIN)
    }

    /// Whether the topology has a replica of this node that has not failed.
    pub(crate) fn has_replica(&self) -> bool {
        let is_own = |node: &Node| node.master.is_some() && node.master == self.myself && !node.has_failed();
        self.topology.as_ref().is_some_and(|topology| topology.nodes.iter().any(is_own))
    }

    /// The records of moves cannot be read: no slot is served until a decision ends them.
    pub(crate) fn set_unreadable(&mut self) {
        (self.is_unreadable, self.is_unsettled) = (true, true);
    }

    pub(crate) fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// The line of this node.
    pub(crate) fn myself(&self) -> Option<&Node> {
        Some(&self.topology.as_ref()?.nodes[self.myself?])
    }

    /// The role that the topology gives to this node, if it is in it.
    pub(crate) fn role(&self) -> Option<NewRole> {
        let topology = self.topology.as_ref()?;
        Some(match self.myself()?.master {
            None => NewRole::Master,
            Some(master) => {
                let Node { host, port, .. } = &topology.nodes[master];
                NewRole::Replica(Master { host: host.clone(), port: *port })
            }
        })
    }

    /// Whether a slot has an owner.
    fn has_owner(&self, slot: u16) -> bool {
        self.present().is_some_and(|topology| topology.owner(slot).is_some())
    }

    /// Why a slot is not served here, if it is not.
    pub(crate) fn refusal(&self, slot: u16, access: Access) -> Option<Fault> {
        let Some((topology, owner)) = self.present().and_then(|it| Some((it, it.owner(slot)?))) else {
            return Some(NOT_SERVED);
        };
        if self.myself == Some(owner) {
            let refusal = (access.is_replica && !access.from_replica).then_some(NOT_YET);
            return refusal.or_else(|| self.unsettled(slot, access));
        }
        if access.from_replica && self.myself().is_some_and(|node| node.master == Some(owner)) {
            return self.unsettled(slot, access);
        }
        let Node { host, port, .. } = &topology.nodes[owner];
        Some(Fault::Quoting(format!("MOVED {slot} {host}:{port}").into_bytes()))
    }
}
