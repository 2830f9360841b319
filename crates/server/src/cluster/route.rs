//! The keys of commands, and whether they are served here.
//!
//! The checks are Redis's, in its order: an owner of the first key's slot, one slot for all keys, this node.
//! Within MULTI each command is checked when it is queued, and all of them together before EXEC, which then
//! discards the transaction: slots may have moved meanwhile. A script is checked by the keys that it
//! declares, and each of its commands by its own keys.
//!
//! Without cluster mode this costs one branch.

use tembo_wire::Request;

use super::migration::{TRY_AGAIN, is_try_again};
use super::slot::slot_of;
use super::{Access, Cluster, NOT_SERVED};
use crate::commands::key_arguments::{ONCE_COMMAND, places_of_keys, results_of_radius};
use crate::commands::registry::Registry;
use crate::commands::table::Command;
use crate::commands::table::flag::{MOVABLE_KEYS, NOT_KEYS, READONLY, RUNS_QUEUE};
use crate::commands::transaction::discard;
use crate::executor::Executor;
use crate::fault::Fault;
use crate::session::Session;

const CROSS_SLOT: Fault = Fault::Error("CROSSSLOT Keys in request don't hash to the same slot");
const CROSS_SLOT_SCRIPT: Fault =
    Fault::Error("ERR Script attempted to access keys that do not hash to the same slot");
const NOT_IMPORTED: Fault = Fault::Error("ERR The slot is not being imported by this connection");
/// Commands that remove the keys of many slots.
const SWEEPING: [&str; 4] = ["flushall", "flushdb", "tembo.unlink", "clusterx|flushslots"];
const NOT_LOCAL: Fault = Fault::Error("ERR Script attempted to access a non local key in a cluster node");

/// The slots of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots<'g> {
    /// The slot of the first key.
    first: Option<u16>,
    /// Another key has another slot.
    crosses: bool,
    /// A key that takes no writes.
    guarded: Option<&'g [u8]>,
    /// The guarded key is among the keys.
    has_guarded: bool,
    /// A command is about the keys of all slots.
    sweeps: bool,
}

impl Slots<'_> {
    fn add(&mut self, key: &[u8]) {
        let slot = slot_of(key);
        self.crosses |= *self.first.get_or_insert(slot) != slot;
        self.has_guarded |= self.guarded == Some(key);
    }

    /// Adds the keys of a command, or the channels that stand for keys.
    fn add_keys(&mut self, registry: &Registry, command: &Command, request: &Request<'_>) {
        self.sweeps |= SWEEPING.contains(&command.name);
        if command.name == "tembo.once" {
            let inner = request.from(ONCE_COMMAND);
            let command = registry.get(inner.name()).filter(|command| command.takes(inner.arg_count()));
            // A command that TEMBO.ONCE does not run has no subcommands, and TEMBO.ONCE does not run itself.
            if let Some(command) = command.filter(|command| command.name != "tembo.once") {
                self.add_keys(registry, command, &inner);
            }
        } else if command.has(MOVABLE_KEYS) && !command.has(NOT_KEYS) {
            // A request that does not tell its keys fails when it runs.
            let mut places = places_of_keys(command, request).unwrap_or_default();
            if command.name.ends_with("store") && !places.is_empty() {
                // Redis looks at the key of the result last.
                places.rotate_left(1);
            }
            if command.group == "geo" {
                places.extend(results_of_radius(request));
            }
            places.into_iter().for_each(|place| self.add(&request[place]));
        } else {
            command.keys.positions(request.arg_count()).for_each(|place| self.add(&request[place]));
        }
    }
}

impl Executor<'_, '_> {
    /// Why the keys of a command are not served here, if they are not.
    #[inline(always)]
    pub(crate) fn elsewhere(
        &self,
        session: &Session,
        command: &Command,
        request: &Request<'_>,
    ) -> Option<Fault> {
        match &self.state.cluster {
            None => None,
            Some(cluster) => self.elsewhere_in(cluster, session, command, request),
        }
    }

    fn elsewhere_in(
        &self,
        cluster: &Cluster,
        session: &Session,
        command: &Command,
        request: &Request<'_>,
    ) -> Option<Fault> {
        if session.is_master {
            return None;
        }
        let registry = &self.state.registry;
        let mut slots = Slots { guarded: cluster.guarded.as_deref(), ..Slots::default() };
        match &session.queue {
            Some(queue) if command.has(RUNS_QUEUE) => {
                queue.iter().for_each(|(command, request)| slots.add_keys(registry, command, &request));
            }
            _ => slots.add_keys(registry, command, request),
        }
        if slots.sweeps
            && let Some(fault) = cluster.sweeping_refusal()
        {
            return Some(fault);
        }
        let slot = slots.first?;
        if slots.crosses {
            return Some(if cluster.has_owner(slot) { CROSS_SLOT } else { NOT_SERVED });
        }
        if session.importing {
            let is_importer = self.state.moving.importer.is_some_and(|client| client.id == session.id);
            let moving = cluster.moves.importing().filter(|_| is_importer);
            return moving.is_none_or(|moving| !moving.slots.contains(slot)).then_some(NOT_IMPORTED);
        }
        let access = self.access(session, command);
        cluster.refusal(slot, access).or_else(|| (slots.has_guarded && access.writes).then_some(TRY_AGAIN))
    }

    fn access(&self, session: &Session, command: &Command) -> Access {
        // Channels of shards are at replicas, too.
        let is_write = session.writes(command);
        let from_replica = command.has(NOT_KEYS) || session.reads_replica && !is_write;
        let writes = is_write || command.runs_script() && !command.has(READONLY);
        Access { from_replica, writes, is_replica: self.state.role.master.is_some() }
    }

    /// Refuses a command whose keys are elsewhere. Within MULTI, EXEC will fail; EXEC itself discards all.
    #[cold]
    pub(crate) fn redirect(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        request: &Request<'_>,
        output: &mut Vec<u8>,
        fault: &Fault,
    ) {
        self.state.commands.entry(command).rejected += 1;
        if command.has(RUNS_QUEUE) {
            discard(session, &mut self.keys);
            return self.write_fault(output, session.protocol, command.name, fault);
        }
        self.refuse(session, request, output, fault);
    }

    /// The slot of the keys that a script declares, if this is a node of a cluster.
    pub(crate) fn declared_slot(&self, command: &Command, request: &Request<'_>) -> Option<u16> {
        self.state.cluster.as_ref()?;
        let mut slots = Slots::default();
        slots.add_keys(&self.state.registry, command, request);
        slots.first
    }

    /// The reason why a script may not use the keys of its command, if there is one. If the script has to
    /// stay in one slot, that is the slot of the first keys that it uses.
    #[inline]
    pub(crate) fn not_in_script(
        &self,
        session: &Session,
        command: &Command,
        request: &Request<'_>,
        slot_of_script: Option<&mut Option<u16>>,
    ) -> Option<Fault> {
        let cluster = self.state.cluster.as_ref()?;
        let mut slots = Slots { guarded: cluster.guarded.as_deref(), ..Slots::default() };
        slots.add_keys(&self.state.registry, command, request);
        if slots.sweeps
            && let Some(fault) = cluster.sweeping_refusal()
        {
            return Some(fault);
        }
        let (slot, access) = (slots.first?, self.access(session, command));
        if slots.has_guarded && access.writes {
            return Some(TRY_AGAIN);
        }
        match cluster.refusal(slot, access) {
            None if !slots.crosses => {}
            Some(fault) if !slots.crosses && is_try_again(&fault) => return Some(fault),
            _ => return Some(NOT_LOCAL),
        }
        let is_other = slot_of_script.is_some_and(|known| *known.get_or_insert(slot) != slot);
        is_other.then_some(CROSS_SLOT_SCRIPT)
    }
}
