//! CLUSTERX MIGRATE and IMPORT: slots with their keys to another node. See [`crate::cluster::migration`].

use std::time::Duration;

use tembo_wire::Request;

use super::args::{integer, is};
use super::cluster_arguments::{id, node, ranges_of};
use super::context::{Context, Handler};
use super::heartbeat::LEASE_EXPIRED;
use super::replicas::wait_for_copies;
use crate::client_ref::ClientRef;
use crate::cluster::migration::{Move, Moves, TRY_AGAIN, Verdict};
use crate::cluster::ranges::Ranges;
use crate::cluster::topology::{NodeId, Topology};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::history::is_id;
use crate::master::Awaiting;
use crate::master::feed::{acknowledged, progress_of_replicas};

pub(super) const HANDLERS: &[(&str, Handler)] =
    &[("clusterx|import", import), ("clusterx|migrate", migrate), ("clusterx|moves", moves)];

/// How long a source waits for a replica of the target, while clients wait for it; and afterwards.
const READY_MAX: Duration = Duration::from_millis(80);
const DONE_MAX: Duration = Duration::from_millis(1000);

const REPLICA: Fault = Fault::Error("ERR Can't migrate slots: this node is not a master");
const NO_IMPORT: Fault = Fault::Error("ERR there is no such import");
const BUSY: Fault = Fault::Error("ERR There is already a migrating job");

/// The topology, and this node's place in it, if it is a master there and by its role.
fn master<'c>(ctx: &'c Context<'_, '_>) -> Answer<(&'c Topology, usize, &'c Moves)> {
    let cluster = node(ctx)?;
    if cluster.is_unreadable() {
        return Err(TRY_AGAIN);
    }
    let (topology, place) = cluster.known()?;
    let is_master = |place: &usize| topology.nodes[*place].master.is_none();
    if ctx.state.is_fenced() {
        return Err(Fault::Error(LEASE_EXPIRED));
    }
    let place = place.filter(is_master).filter(|_| ctx.state.role.master.is_none()).ok_or(REPLICA)?;
    Ok((topology, place, cluster.moves()))
}

/// Stores new records of moves, which hold from now on.
pub(super) fn store(ctx: &mut Context<'_, '_>, moves: Moves) -> Answer {
    ctx.keys.store_moves(&moves)?;
    // The reply waits for the device.
    ctx.session.is_plain = false;
    if let Some(cluster) = &mut ctx.state.cluster {
        cluster.set_moves(moves);
    }
    Ok(ctx.keys.pool().make_durable()?)
}

pub(super) fn migrate(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let slots = Ranges::new(ranges_of(&request[2])?);
    let target = id(&request[3])?;
    let timeout = match (request.get(4), request.get(5)) {
        (None, _) => None,
        (Some(word), None) if is(word, "ASYNC") => None,
        (Some(word), None) if is(word, "SYNC") => Some(0),
        (Some(word), Some(seconds)) if is(word, "SYNC") && request.arg_count() == 6 => {
            let seconds = integer(seconds)?;
            Some(u64::try_from(seconds).map_err(|_| Fault::Error("ERR timeout should not be negative"))?)
        }
        _ => return Err(SYNTAX),
    };
    if ctx.keys.has_batch() {
        return Err(Fault::NeedsCommit);
    }
    let (topology, place, moves) = master(ctx)?;
    expect_movable(topology, place, moves, &slots, &target)?;
    let (source, mut moves) = (topology.nodes[place].id, moves.clone());
    let id = ctx.state.random_id();
    moves.begin(Move { id, slots, source, target });
    store(ctx, moves)?;
    match timeout {
        None => ctx.out.write().ok(),
        Some(seconds) => {
            let deadline = (seconds > 0).then(|| ctx.state.now.checked_add(Duration::from_secs(seconds)));
            let awaiting =
                Awaiting { offset: u64::MAX, count: u64::MAX, device: None, deadline: deadline.flatten() };
            ctx.session.awaiting = Some(Box::new(awaiting));
            let client = ClientRef { slot: ctx.session.slot, id: ctx.session.id };
            ctx.state.moving.waiting.push((client, id));
        }
    }
    Ok(())
}

/// Fails unless the slots may go from the node at a place to another one.
fn expect_movable(
    topology: &Topology,
    place: usize,
    moves: &Moves,
    slots: &Ranges,
    target: &NodeId,
) -> Answer {
    let to = topology.find(target).ok_or(Fault::Error("ERR Can't find the destination node id"))?;
    if to == place {
        return Err(Fault::Error("ERR Can't migrate slots to myself"));
    }
    if topology.nodes[to].master.is_some() {
        return Err(Fault::Error("ERR Can't migrate slots to a slave"));
    }
    if let Some(slot) = slots.slots().find(|&slot| topology.owner(slot) != Some(place)) {
        let text = format!("ERR Can't migrate slot {slot} which doesn't belong to me");
        return Err(Fault::Quoting(text.into_bytes()));
    }
    if moves.sending().is_some() {
        return Err(BUSY);
    }
    if moves.removing.touches(slots) {
        return Err(TRY_AGAIN);
    }
    if !moves.has_room() {
        return Err(Fault::Error("ERR too many moves that the topology does not know: push it first"));
    }
    Ok(())
}

pub(super) fn import(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if ctx.keys.has_batch() {
        return Err(Fault::NeedsCommit);
    }
    let word = &request[2];
    let move_id = request.get(3).and_then(|id| id.try_into().ok().filter(|_| is_id(id))).ok_or(SYNTAX)?;
    match request.arg_count() {
        7 if is(word, "BEGIN") => {
            let moving = read_move(request, move_id)?;
            begin(ctx, moving)
        }
        4 if is(word, "READY") => {
            let importing = node(ctx)?.moves().importing().is_some_and(|moving| moving.id == move_id);
            if importing { reply_when_replicated(ctx, READY_MAX) } else { Err(NO_IMPORT) }
        }
        4 if is(word, "COMMIT") => {
            master(ctx)?;
            let mut moves = node(ctx)?.moves().clone();
            if !moves.accept(&move_id) {
                return Err(NO_IMPORT);
            }
            store(ctx, moves)?;
            ctx.session.importing = false;
            ctx.state.moving.importer = None;
            reply_when_replicated(ctx, DONE_MAX)
        }
        8 if is(word, "ASK") => {
            let moving = read_move(request, move_id)?;
            let version = integer(&request[7])?;
            answer(ctx, &moving, u64::try_from(version).map_err(|_| SYNTAX)?)
        }
        _ => Err(SYNTAX),
    }
}

fn read_move(request: &Request<'_>, id: [u8; 40]) -> Answer<Move> {
    let node = |at: usize| NodeId::parse(&request[at]).ok_or(SYNTAX);
    let slots = str::from_utf8(&request[6]).ok().and_then(|text| Ranges::parse(text).ok()).ok_or(SYNTAX)?;
    Ok(Move { id, source: node(4)?, target: node(5)?, slots })
}

fn begin(ctx: &mut Context<'_, '_>, moving: Move) -> Answer {
    let (topology, place, moves) = master(ctx)?;
    if topology.nodes[place].id != moving.target {
        return Err(Fault::Error("ERR this is another node than the target"));
    }
    let from = topology.find(&moving.source).filter(|from| topology.nodes[*from].master.is_none());
    let is_from = |slot| from.is_some() && topology.owner(slot) == from;
    if from == Some(place) || !moving.slots.slots().all(is_from) {
        return Err(Fault::Error("ERR by the topology that this node has the slots are not the source's"));
    }
    let is_leaving = moves.sending().is_some_and(|(leaving, _)| leaving.slots.touches(&moving.slots));
    if is_leaving || !moves.has_room() {
        return Err(BUSY);
    }
    if moves.importing().is_some() {
        let has_ended = ctx.state.moving.importer.is_none_or(|client| !is_connected(ctx, client));
        return Err(if has_ended {
            TRY_AGAIN
        } else {
            Fault::Error("ERR There is already an importing job")
        });
    }
    if moves.has_denied(&moving.id) {
        return Err(NO_IMPORT);
    }
    if moves.removing.touches(&moving.slots) {
        return Err(TRY_AGAIN);
    }
    let mut moves = moves.clone();
    let left: Vec<_> = moving.slots.as_slice().iter().map(|range| ctx.keys.has_keys_in(range)).collect();
    if left.into_iter().collect::<Answer<Vec<_>>>()?.contains(&true) {
        // Keys of another time.
        moves.removing.add(&moving.slots);
        store(ctx, moves)?;
        return Err(TRY_AGAIN);
    }
    if !ctx.keys.exists(0) {
        return Err(Fault::MissingDatabase(0));
    }
    moves.import(moving);
    store(ctx, moves)?;
    ctx.session.importing = true;
    ctx.state.moving.importer = Some(ClientRef { slot: ctx.session.slot, id: ctx.session.id });
    ctx.out.write().ok();
    Ok(())
}

fn is_connected(ctx: &Context<'_, '_>, client: ClientRef) -> bool {
    ctx.clients.iter().any(|conn| conn.session.id == client.id && !conn.session.killed)
}

fn answer(ctx: &mut Context<'_, '_>, asked: &Move, version: u64) -> Answer {
    let (topology, place, moves) = master(ctx)?;
    let own = topology.nodes[place].id;
    let target = topology.find(&asked.target);
    if target.map(|target| topology.nodes[target].master.unwrap_or(target)) != Some(place) {
        return Err(Fault::Error("ERR this node is not of the target's shard"));
    }
    let mut next = moves.clone();
    let verdict = next.answer(asked, version, (topology, own));
    if next != *moves {
        store(ctx, next)?;
    }
    // The records behind the answer may be on their way to the device: a topology makes an import DONE, too.
    ctx.session.is_plain = false;
    ctx.keys.pool().make_durable()?;
    match verdict {
        Verdict::Handed => reply_when_replicated(ctx, DONE_MAX),
        Verdict::Never => {
            ctx.out.write().simple("never");
            Ok(())
        }
        Verdict::Newer => {
            ctx.out.write().simple("newer");
            Ok(())
        }
    }
}

/// Answers 1 when a replica has all that this node has; 0 after a while; 1 if the topology has no replica of
/// this node that has not failed. One that is not connected is waited for.
fn reply_when_replicated(ctx: &mut Context<'_, '_>, most: Duration) -> Answer {
    let offset = ctx.keys.replication.position.map_or(0, |position| position.offset);
    let has_replica = node(ctx)?.has_replica();
    let replicas = progress_of_replicas(ctx.clients.iter());
    if !has_replica || acknowledged(&replicas, offset) > 0 {
        ctx.out.write().integer(1);
        return Ok(());
    }
    let deadline = ctx.state.now.checked_add(most);
    wait_for_copies(ctx, Awaiting { offset, count: 1, device: None, deadline })
}

/// The records of the master of this replica.
pub(super) fn moves(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if !ctx.session.is_master {
        return Err(Fault::Error("ERR only a master tells its moves"));
    }
    put(ctx, Moves::parse(&request[2]).ok_or(SYNTAX)?)?;
    ctx.out.write().ok();
    Ok(())
}

/// Puts other records into the batch; they hold from now on. If the commit fails, the server takes up those
/// that the pool has.
pub(super) fn put(ctx: &mut Context<'_, '_>, moves: Moves) -> Answer {
    ctx.keys.put_moves(&moves)?;
    if let Some(cluster) = &mut ctx.state.cluster {
        cluster.set_moves(moves);
    }
    Ok(())
}
