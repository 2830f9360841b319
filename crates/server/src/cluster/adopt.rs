//! A new topology: what changes with it, once it is durable.

use tembo_wire::ReplyWriter;

use super::lease::Lease;
use super::migration::{Decided, Moves, is_try_again};
use super::slot::slot_of;
use super::{Access, Cluster};
use crate::clients::Clients;
use crate::commands::context::Context;
use crate::config::LogLevel;
use crate::fault::{Answer, Fault, shown};
use crate::keyspace::Keyspace;
use crate::keyspace::cluster::{Membership, NewRole};
use crate::log::MessageKind;
use crate::state::State;
use crate::subscriptions::SubscriptionKind as Channels;
use crate::wait_service::redirect_waiting;

/// Takes up the place in a cluster that the pool has.
pub(crate) fn begin_membership(keys: &Keyspace<'_>, state: &mut State) {
    state.cluster = match keys.stored_membership() {
        Ok(membership) => membership.map(|membership| Box::new(Cluster::new(membership, Moves::default()))),
        Err(fault) => {
            let why = shown(&fault);
            let message = format_args!("the topology of the cluster is unreadable; push it again: {why}");
            state.log(LogLevel::Warning, MessageKind::Damage, message);
            Some(Box::default())
        }
    };
    match keys.stored_election() {
        Ok(election) => state.lease = Lease::new(election),
        Err(fault) => {
            let message = format_args!("the latest election of a master is unreadable: {}", shown(&fault));
            state.log(LogLevel::Warning, MessageKind::Damage, message);
        }
    }
}

impl Context<'_, '_> {
    /// Makes the node's id and topology durable, with the role in the same commit; then they hold. The
    /// topology is a decision about some slots.
    pub(crate) fn adopt(
        &mut self,
        membership: Membership,
        decided: &Decided,
        role: Option<NewRole>,
    ) -> Answer {
        if self.keys.has_batch() {
            return Err(Fault::NeedsCommit);
        }
        let moves = self.state.cluster.as_ref().map_or_else(Moves::default, |now| now.moves().clone());
        let mut next = Cluster::new(membership, Moves::default());
        next.set_moves(self.moves_under(&next, moves, decided, role.as_ref()));
        let master = |role: &NewRole| match role {
            NewRole::Master => None,
            NewRole::Replica(master) => Some(master.clone()),
        };
        let role = role.or_else(|| next.role()).filter(|role| master(role) != self.state.role.master);
        let new_id = self.state.random_id();
        // After a decision about everything, records that could not be read count as no records.
        let was_unreadable = self.state.cluster.as_ref().is_some_and(|now| now.is_unreadable());
        if was_unreadable && *decided != Decided::Everything {
            next.set_unreadable();
        }
        let changed = self.state.cluster.as_ref().is_none_or(|now| now.moves() != next.moves())
            || was_unreadable && !next.is_unreadable();
        let moves = changed.then_some(next.moves());
        let stored = (next.id.as_ref(), next.topology.as_ref());
        // A wrong election must not keep this node from all leases for ever.
        let is_forced = *decided == Decided::Everything;
        self.keys.store_membership(stored, moves, role.as_ref(), new_id, is_forced)?;
        // The reply waits for the device.
        self.session.is_plain = false;
        if let Some(role) = &role {
            self.state.role.choose(master(role));
            self.state.role.is_changed = false;
        }
        let version = next.topology.as_ref().map_or(-1, |topology| topology.version as i64);
        let shown = match &role {
            None => String::new(),
            Some(NewRole::Master) => "; this is a master from now on".to_owned(),
            Some(NewRole::Replica(master)) => {
                format!("; this is a replica of {}:{} from now on", master.host, master.port)
            }
        };
        let message = format_args!("the version of the cluster's topology is {version}{shown}");
        self.state.log(LogLevel::Notice, MessageKind::Replication, message);
        if next.id.is_none() || is_forced {
            self.state.lease = Lease::default();
        }
        let is_draining = self.state.cluster.as_ref().is_some_and(|now| now.is_draining);
        self.state.cluster = Some(Box::new(next));
        if let Some(cluster) = self.state.cluster.as_mut().filter(|_| is_draining) {
            cluster.set_draining(true);
        }
        part_with_lost_slots(self.keys, self.state, self.clients);
        Ok(())
    }

    /// The moves of slots under another topology. A replica's moves are those of its master, which reports
    /// them.
    fn moves_under(
        &self,
        next: &Cluster,
        mut moves: Moves,
        decided: &Decided,
        role: Option<&NewRole>,
    ) -> Moves {
        let Some(topology) = &next.topology else { return Moves::default() };
        let is_master = match role.cloned().or_else(|| next.role()) {
            Some(role) => role == NewRole::Master,
            None => self.state.role.master.is_none(),
        };
        if is_master {
            moves.adopt(topology, decided);
        }
        moves
    }
}

/// Redirects the clients that wait for keys of slots that are not served here any more, and ends the
/// subscriptions to channels of such slots.
pub(crate) fn part_with_lost_slots(keys: &mut Keyspace<'_>, state: &State, clients: &mut Clients) {
    let Some(cluster) = &state.cluster else { return };
    // While nothing was taken from slots that stay, keys in them may have come for which clients wait.
    keys.waiters.try_all |= keys.waiters.len() > 0;
    let is_replica = state.role.master.is_some();
    let lost = |key: &[u8], from_replica| {
        let access = Access { from_replica, writes: false, is_replica };
        // Clients that wait for a key of a slot in doubt wait on until the slot's fate is known.
        cluster.refusal(slot_of(key), access).filter(|fault| !is_try_again(fault))
    };
    let mut changed = Vec::new();
    for slot in 0..clients.slots() {
        let Some(conn) = clients.get_mut(slot) else { continue };
        let mut is_changed = redirect_waiting(conn, keys, |key| lost(key, false));
        for name in conn.session.subscriptions.names(Channels::Shard) {
            if lost(&name, true).is_none() {
                continue;
            }
            keys.pubsub.unsubscribe(&mut conn.session, Channels::Shard, &name);
            let count = conn.session.subscriptions.count(Channels::Shard) as i64;
            let mut reply = ReplyWriter::new(&mut conn.output.bytes, conn.session.protocol);
            reply.push(3);
            reply.bulk("sunsubscribe");
            reply.bulk(&*name);
            reply.integer(count);
            is_changed = true;
        }
        changed.extend(is_changed.then_some(slot));
    }
    changed.into_iter().for_each(|slot| clients.note_unblocked(slot));
}
