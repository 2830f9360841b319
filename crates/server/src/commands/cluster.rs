//! CLUSTER, READONLY, READWRITE and ASKING: see [`crate::cluster`].

use tembo_wire::Request;

use super::args::{integer, is, quoting};
use super::cluster_arguments::{DISABLED, node};
use super::context::{Context, Handler, write_help};
use super::heartbeat::lease_info;
use crate::cluster::migration::Decided;
use crate::cluster::slot::{parse_slot, slot_of};
use crate::cluster::topology::{NodeId, Topology};
use crate::cluster::{NOT_INITIALISED, report};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::cluster::NewRole;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("cluster", help),
    ("readonly", readonly),
    ("readwrite", readwrite),
    ("asking", asking),
    ("cluster|count-failure-reports", count_failure_reports),
    ("cluster|countkeysinslot", countkeysinslot),
    ("cluster|getkeysinslot", getkeysinslot),
    ("cluster|info", info),
    ("cluster|keyslot", keyslot),
    ("cluster|links", links),
    ("cluster|myid", myid),
    ("cluster|nodes", nodes),
    ("cluster|replicas", replicas),
    ("cluster|reset", reset),
    ("cluster|shards", shards),
    ("cluster|slaves", replicas),
    ("cluster|slots", slots),
    ("cluster|help", help),
];

/// The topology that this node knows.
fn known<'c>(ctx: &'c Context<'_, '_>) -> Answer<(&'c Topology, Option<usize>)> {
    node(ctx)?.known()
}

fn slot(arg: &[u8], wrong: Fault) -> Answer<u16> {
    integer(arg)?;
    str::from_utf8(arg).ok().and_then(parse_slot).ok_or(wrong)
}

/// The place of the node that a request names.
fn named(ctx: &Context<'_, '_>, request: &Request<'_>) -> Answer<usize> {
    let place = NodeId::parse(&request[2]).map(|id| Ok::<_, Fault>(known(ctx)?.0.find(&id)));
    place.transpose()?.flatten().ok_or_else(|| quoting("ERR Unknown node ", &request[2], ""))
}

fn count_failure_reports(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    known(ctx)?;
    named(ctx, request)?;
    ctx.out.write().integer(0);
    Ok(())
}

fn countkeysinslot(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    node(ctx)?;
    let keys = ctx.keys.count_slot(slot(&request[2], Fault::Error("ERR Invalid slot"))?)?;
    ctx.out.write().integer(keys as i64);
    Ok(())
}

fn getkeysinslot(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    node(ctx)?;
    let wrong = || Fault::Error("ERR Invalid slot or number of keys");
    let slot = slot(&request[2], wrong())?;
    let most = usize::try_from(integer(&request[3])?).map_err(|_| wrong())?;
    let keys = ctx.keys.keys_of_slot(slot, most, ctx.state.config.reply_bytes_max)?;
    ctx.out.expect_room(keys.iter().map(Vec::len).sum())?;
    let mut reply = ctx.out.write();
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

fn info(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let text = report::info(known(ctx)?.0) + &report::moves(node(ctx)?.moves()) + &lease_info(ctx.state);
    ctx.out.write().verbatim(*b"txt", text);
    Ok(())
}

fn keyslot(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    node(ctx)?;
    ctx.out.write().integer(slot_of(&request[2]).into());
    Ok(())
}

fn links(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    node(ctx)?;
    ctx.out.write().array(0);
    Ok(())
}

pub(super) fn myid(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let id = node(ctx)?.id.ok_or(NOT_INITIALISED)?;
    ctx.out.write().bulk(id.as_bytes());
    Ok(())
}

fn nodes(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let text = report::nodes(known(ctx)?, ctx.keys.now_ms);
    ctx.out.write().verbatim(*b"txt", text);
    Ok(())
}

fn replicas(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (topology, myself) = known(ctx)?;
    let master = named(ctx, request)?;
    if topology.nodes[master].master.is_some() {
        return Err(Fault::Error("ERR The specified node is not a master"));
    }
    let lines = report::Lines::new((topology, myself), ctx.keys.now_ms);
    let lines: Vec<_> =
        topology.replicas_by_node()[master].iter().map(|&replica| lines.of(replica)).collect();
    let mut reply = ctx.out.write();
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line));
    Ok(())
}

/// HARD and SOFT are the same: without an id of its own making, a node has none to keep.
fn reset(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    node(ctx)?;
    let is_known = |word: &[u8]| is(word, "HARD") || is(word, "SOFT");
    if request.arg_count() > 3 || !request.get(2).is_none_or(is_known) {
        return Err(SYNTAX);
    }
    // Reading through the batch would begin a batch.
    if ctx.keys.has_batch() {
        return Err(Fault::NeedsCommit);
    }
    if ctx.keys.committed_len(0)? > 0 {
        let text = "ERR CLUSTER RESET can't be called with nodes that contain keys";
        return Err(Fault::Error(text));
    }
    let moves = node(ctx)?.moves();
    if moves.sending().is_some() || moves.importing().is_some() {
        return Err(Fault::Error("ERR Can't reset the cluster while slots are moved"));
    }
    ctx.adopt((None, None), &Decided::Everything, Some(NewRole::Master))?;
    ctx.out.write().ok();
    Ok(())
}

fn shards(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let offset = ctx.keys.replication.position.map_or(0, |position| position.offset);
    let Some(cluster) = &ctx.state.cluster else { return Err(DISABLED) };
    report::write_shards(&mut ctx.out.write(), cluster.known()?, offset);
    Ok(())
}

fn slots(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let Some(cluster) = &ctx.state.cluster else { return Err(DISABLED) };
    report::write_slots(&mut ctx.out.write(), cluster.known()?.0);
    Ok(())
}

fn readonly(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    node(ctx)?;
    ctx.session.reads_replica = true;
    ctx.out.write().ok();
    Ok(())
}

fn readwrite(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    node(ctx)?;
    ctx.session.reads_replica = false;
    ctx.out.write().ok();
    Ok(())
}

/// A slot changes its owner at once, with all keys, so that no client gets ASK.
fn asking(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    node(ctx)?;
    ctx.out.write().ok();
    Ok(())
}

fn help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    node(ctx)?;
    let lines = [
        "COUNT-FAILURE-REPORTS <node-id>",
        "    0: nodes do not report failures.",
        "COUNTKEYSINSLOT <slot>",
        "    How many keys a slot has here.",
        "GETKEYSINSLOT <slot> <count>",
        "    Keys of a slot that are here.",
        "INFO",
        "    The state of the cluster.",
        "KEYSLOT <key>",
        "    The slot of a key.",
        "LINKS",
        "    Nothing: nodes have no links to each other.",
        "MYID",
        "    The id of this node.",
        "NODES",
        "    A line for each node.",
        "REPLICAS <node-id>",
        "    The lines of the replicas of a master.",
        "RESET [HARD|SOFT]",
        "    Lets an empty node forget its id, the topology and its master.",
        "SHARDS",
        "    The slots and the nodes of each shard.",
        "SLOTS",
        "    The ranges of slots with their nodes.",
    ];
    write_help(&mut ctx.out, "cluster", &lines);
    Ok(())
}
