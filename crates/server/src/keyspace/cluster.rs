//! The node of a cluster: its id, and the topology that was pushed to it.
//!
//! # Media layout
//!
//! The map "db.cluster". A pool that has it, with records or without, is that of a cluster's node:
//!
//! ```text
//!   'i' -> id                40 bytes                 the id of this node, once it has one
//!   't' -> version_le text   8 bytes, and the rest    the topology, as CLUSTERX SETNODES takes it
//!   'm' -> text                                       the moves of slots: see moves.rs
//!   'l' -> version_le id     8 and 40 bytes           the latest election of a master that is known
//! ```
//!
//! The keys of such a pool lie in maps of other names, behind their slots ([`placement`](super::placement)).
//! A pool that has keys does not change over: the map is created, durably, while there are none, after the
//! empty maps of the other layout were dropped.
//!
//! # Invariants
//!
//! Those of [`format`](super::format): I13, I14 and I15.
//!
//! # Commit point
//!
//! The commit of the batch. The id, the topology and its version, and the role that they give to the server
//! (the master in [`replication`](super::replication), and the new id of the history of one that is promoted)
//! are in one commit: a server that is killed comes back with all of the old or all of the new. An election
//! has a commit of its own. A node that forgets its id, and one that takes a topology by force, forgets it in
//! the same commit.
//!
//! # Recovery
//!
//! None. If the map was not completely created, the pool belongs to no cluster, and has no keys.

use tembo::{Map, Pool};

use super::Keyspace;
use super::batch::writer;
use super::check_report::CheckError;
use super::format::{CLUSTER, DATABASES, Malformed};
use super::history::{Id, Master};
use super::kept_states::stored_kept;
use super::moves::{MOVES, put, write_moves};
use super::placement::Layout;
use crate::cluster::lease::Election;
use crate::cluster::migration::Moves;
use crate::cluster::topology::{NodeId, Topology};
use crate::fault::{Answer, Fault};
use crate::keyspace::key_count::count_keys;

const ID: &[u8] = b"i";
const TOPOLOGY: &[u8] = b"t";
const ELECTION: &[u8] = b"l";

/// The id of a node, and its topology.
pub(crate) type Membership = (Option<NodeId>, Option<Topology>);

/// The role that a topology gives to a server: a master, or the replica of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewRole {
    Master,
    Replica(Master),
}

/// Why a pool cannot be served in a mode.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModeError {
    #[error(
        "the pool has keys and is not that of a cluster's node: dump it (`tembo dump --rdb`), and load the file \
         into a new pool that was opened with cluster-enabled yes"
    )]
    HasKeys,
    #[error("the pool is that of a cluster's node: start the server with cluster-enabled yes")]
    IsNode,
    #[error(transparent)]
    Pool(#[from] tembo::Error),
}

/// Makes a pool that of a cluster's node, if it has no keys; or sees that it is none.
pub(crate) fn prepare(pool: &Pool, is_node: bool) -> Result<(), ModeError> {
    match (Layout::of(pool)?, is_node) {
        (Layout::Slots, true) | (Layout::Plain, false) => Ok(()),
        (Layout::Slots, false) => Err(ModeError::IsNode),
        (Layout::Plain, true) => {
            // Kept states have the maps of a pool that is no cluster's.
            if count_keys(pool)? > 0 || stored_kept(pool)?.bits() != 0 {
                return Err(ModeError::HasKeys);
            }
            let names = pool.map_names()?;
            for (data, expires) in (0..DATABASES).map(|number| Layout::Plain.map_names(number)) {
                for name in [data, expires].iter().filter(|name| names.contains(name)) {
                    pool.drop_map(name)?;
                }
            }
            pool.open_map(CLUSTER)?;
            Ok(())
        }
    }
}

fn decode_topology(value: &[u8]) -> Result<Topology, Malformed> {
    let (version, text) = value.split_first_chunk().ok_or(Malformed)?;
    Topology::parse(text, u64::from_le_bytes(*version)).map_err(|_| Malformed)
}

fn decode_id(value: &[u8]) -> Result<NodeId, Malformed> {
    NodeId::parse(value).ok_or(Malformed)
}

fn read(map: &Map) -> Answer<Membership> {
    let id = map.get(ID)?.map(|value| decode_id(&value)).transpose()?;
    let topology = map.get(TOPOLOGY)?.map(|value| decode_topology(&value)).transpose()?;
    Ok((id, topology))
}

impl Keyspace<'_> {
    /// The node's id and topology, if the pool is that of a cluster's node.
    pub(crate) fn stored_membership(&self) -> Answer<Option<Membership>> {
        self.pool.find_map(CLUSTER)?.map(|map| read(&map)).transpose()
    }

    /// The latest election that the pool has, if there is one.
    pub(crate) fn stored_election(&self) -> Answer<Option<Election>> {
        let Some(map) = &self.cluster_map else { return Ok(None) };
        map.get(ELECTION)?.map(|value| Election::decode(&value).ok_or(Fault::Malformed)).transpose()
    }

    /// Stores an election. One commit. There must be no batch.
    pub(crate) fn store_election(&mut self, election: &Election) -> Answer {
        self.put_election(election).inspect_err(|_| self.abandon_batch())
    }

    fn put_election(&mut self, election: &Election) -> Answer {
        let map = self.pool.find_map(CLUSTER)?.ok_or(Fault::Malformed)?;
        put(writer(self.pool, &mut self.batch)?, &map, ELECTION, Some(&election.encode()))?;
        self.dirty = true;
        Ok(self.commit()?)
    }

    /// Stores the node's id and topology, and its role and the moves of slots if these have changed. The
    /// election is forgotten without an id, and by force. One commit. There must be no batch.
    pub(crate) fn store_membership(
        &mut self,
        membership: (Option<&NodeId>, Option<&Topology>),
        moves: Option<&Moves>,
        role: Option<&NewRole>,
        new_id: Id,
        is_forced: bool,
    ) -> Answer {
        self.put_membership(membership, moves, role, new_id, is_forced).inspect_err(|_| self.abandon_batch())
    }

    fn put_membership(
        &mut self,
        (id, topology): (Option<&NodeId>, Option<&Topology>),
        moves: Option<&Moves>,
        role: Option<&NewRole>,
        new_id: Id,
        is_forced: bool,
    ) -> Answer {
        let map = self.pool.find_map(CLUSTER)?.ok_or(Fault::Malformed)?;
        let roles = role.map(|_| self.replication_map()).transpose()?;
        let batch = writer(self.pool, &mut self.batch)?;
        put(batch, &map, ID, id.map(NodeId::as_bytes))?;
        if id.is_none() || is_forced {
            put(batch, &map, ELECTION, None)?;
        }
        let record = topology
            .map(|topology| [&topology.version.to_le_bytes()[..], topology.to_text().as_bytes()].concat());
        put(batch, &map, TOPOLOGY, record.as_deref())?;
        let master = match role {
            Some(NewRole::Replica(master)) => Some(master),
            _ => None,
        };
        if let Some(moves) = moves {
            write_moves(batch, &map, moves)?;
        }
        if let Some(roles) = &roles {
            self.write_master(roles, master, new_id)?;
        }
        self.dirty = true;
        self.commit()?;
        if roles.is_some() {
            self.replication.take_up(master.is_none());
        }
        Ok(())
    }
}

/// Proves I14 and I15; returns the version of the topology of a cluster's node.
pub(crate) fn check_cluster(pool: &Pool) -> Result<Option<Option<u64>>, CheckError> {
    let Some(map) = pool.find_map(CLUSTER)? else {
        return Ok(None);
    };
    let damaged = |place: &[u8], what: &str| CheckError::Collection {
        place: format!("the cluster, entry \"{}\"", place.escape_ascii()),
        what: what.to_owned(),
    };
    let mut version = None;
    for entry in map.iter() {
        let entry = entry?;
        match entry.key() {
            ID => decode_id(entry.value()).map(drop),
            TOPOLOGY => decode_topology(entry.value()).map(|topology| version = Some(topology.version)),
            ELECTION => Election::decode(entry.value()).map(drop).ok_or(Malformed),
            MOVES => Moves::parse(entry.value()).map(drop).ok_or(Malformed),
            _ => Err(Malformed),
        }
        .map_err(|Malformed| damaged(entry.key(), "malformed"))?;
    }
    for number in 0..DATABASES {
        let (data, _) = Layout::Plain.map_names(number);
        if pool.find_map(&data)?.is_some() {
            return Err(damaged(
                data.as_bytes(),
                "a database of no cluster is in the pool of a cluster's node",
            ));
        }
    }
    Ok(Some(version))
}
