//! CLUSTERX: the topology that a controller pushes. The words are those of Kvrocks, so that its controllers
//! manage these nodes.

use std::net::{IpAddr, UdpSocket};

use tembo_wire::Request;

use super::args::{integer, is};
use super::cluster::myid;
use super::cluster_arguments::{id, node, ranges_of, refused};
use super::context::{Context, Handler, write_help};
use super::heartbeat::expect_fencing;
use crate::address::Address;
use crate::cluster::migration::Decided;
use crate::cluster::ranges::Ranges;
use crate::cluster::topology::{Error, Node, NodeId, Topology};
use crate::fault::{Answer, Fault, NOT_AN_INTEGER};

/// Keys that FLUSHSLOTS removes before it answers.
const FLUSHED_AT_ONCE: u64 = 1024;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("clusterx", help),
    ("clusterx|flushslots", flushslots),
    ("clusterx|myid", myid),
    ("clusterx|setnodeid", setnodeid),
    ("clusterx|setnodes", setnodes),
    ("clusterx|setslot", setslot),
    ("clusterx|version", version),
    ("clusterx|help", help),
];

/// Reads a version, of which there are 2^63.
fn version_of(arg: &[u8]) -> Answer<u64> {
    let number = integer(arg).map_err(|_| Fault::Error("ERR Invalid version"))?;
    u64::try_from(number).map_err(|_| refused(Error::Version))
}

fn setnodeid(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (id, cluster) = (id(&request[2])?, node(ctx)?);
    // Controllers send it before each topology. A role that Sentinel gave lasts until that topology arrives.
    if cluster.id != Some(id) {
        let topology = cluster.topology.clone();
        ctx.adopt((Some(id), topology), &Decided::Nothing, None)?;
    }
    ctx.out.write().ok();
    Ok(())
}

fn setnodes(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let is_forced = match request.get(4) {
        None => false,
        Some(word) if is(word, "FORCE") && request.arg_count() == 5 => true,
        Some(_) => return Err(Fault::Error("ERR Invalid setnodes options")),
    };
    let version = version_of(&request[3])?;
    let cluster = node(ctx)?;
    let current = cluster.topology.as_ref().map(|topology| topology.version).filter(|_| !is_forced);
    if current.is_some_and(|current| current > version) {
        return Err(refused(Error::Version));
    }
    if current != Some(version) {
        let topology = Topology::parse(&request[2], version).map_err(refused)?;
        if !is_forced {
            expect_fencing(ctx.state, cluster, &topology)?;
        }
        let found = || find_here(ctx, &topology);
        let id = match cluster.id {
            Some(id) if is_forced => found().or(Some(id)),
            Some(id) => Some(id),
            None => found(),
        };
        let decided = if is_forced { Decided::Everything } else { Decided::Nothing };
        ctx.adopt((id, Some(topology)), &decided, None)?;
    }
    ctx.out.write().ok();
    Ok(())
}

/// The node of a topology that has the address of this server: one that it is known to have, or the only one
/// whose host is an address of this machine.
fn find_here(ctx: &Context<'_, '_>, topology: &Topology) -> Option<NodeId> {
    let settings = &ctx.state.config.replica;
    let tls_port = ctx.state.tls_listen.map(|address| address.port());
    let ports = [Some(ctx.state.listen.port()), tls_port, settings.announced_port];
    let nodes = || topology.nodes.iter().filter(|node| ports.contains(&Some(node.port)));
    let bound = ctx.state.config.bind.iter().map(|bind| bind.ip).chain([ctx.state.listen.ip()]);
    // The client has reached this server by its address.
    let reached = match &ctx.session.local {
        Address::Ip(address) => Some(address.ip()),
        Address::Unix(_) => None,
    };
    let own: Vec<IpAddr> = bound.chain(reached).map(|ip| ip.to_canonical()).collect();
    let ip_of = |node: &Node| node.host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let is_known = |node: &&Node| {
        settings.announced_ip.as_deref() == Some(&node.host)
            || ip_of(node).is_some_and(|ip| own.contains(&ip))
    };
    // By default, the system binds a socket only to an address of this machine.
    let is_of_machine = |node: &&Node| {
        let ip = ip_of(node).filter(|ip| !ip.is_unspecified() && !ip.is_multicast());
        node.host == "localhost" || ip.is_some_and(|ip| UdpSocket::bind((ip, 0)).is_ok())
    };
    let mut here = nodes().filter(is_of_machine);
    let found = nodes().find(is_known).or_else(|| here.next().filter(|_| here.next().is_none()));
    found.map(|node| node.id)
}

fn setslot(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let ranges = Ranges::new(ranges_of(&request[2])?);
    if !is(&request[3], "NODE") {
        return Err(Fault::Error("ERR Invalid setslot options"));
    }
    let (target, version) = (id(&request[4])?, integer(&request[5]).map_err(|_| NOT_AN_INTEGER)?);
    let version = u64::try_from(version).map_err(|_| Fault::Error("ERR Invalid version"))?;
    let cluster = node(ctx)?;
    let mut topology = cluster.topology.clone().ok_or_else(|| refused(Error::Version))?;
    topology.assign(ranges.as_slice(), &target, version).map_err(refused)?;
    let id = cluster.id;
    ctx.adopt((id, Some(topology)), &Decided::Slots(ranges), None)?;
    ctx.out.write().ok();
    Ok(())
}

fn version(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let version = node(ctx)?.topology.as_ref().map_or(-1, |topology| topology.version as i64);
    ctx.out.write().bulk(version.to_string());
    Ok(())
}

fn flushslots(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let mut moves = node(ctx)?.moves().clone();
    let mut ranges = Vec::new();
    for arg in request.args().skip(2) {
        ranges.extend(ranges_of(arg)?);
    }
    let ranges = Ranges::new(ranges);
    let mut under_way = moves.sending().map(|(moving, _)| moving).into_iter().chain(moves.importing());
    if under_way.any(|moving| moving.slots.touches(&ranges)) {
        return Err(Fault::Error("ERR some of these slots are being moved"));
    }
    if ranges.is_everything() {
        ctx.keys.clear(0)?;
        ctx.tell(["FLUSHDB"]);
        ctx.keys.pubsub.invalidate_all();
    } else if ctx.keys.count_slots(ranges.as_slice(), FLUSHED_AT_ONCE + 1)? <= FLUSHED_AT_ONCE {
        ctx.keys.remove_slots(ranges.as_slice())?;
    } else {
        // The keys are removed in steps, at the ends of turns. The slots are not served meanwhile.
        moves.removing.add(&ranges);
        super::moves::put(ctx, moves)?;
    }
    ctx.out.write().ok();
    Ok(())
}

fn help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "FLUSHSLOTS <slot>|<first>-<last> [...]",
        "    Removes the keys of slots that are here.",
        super::heartbeat::HELP[0],
        super::heartbeat::HELP[1],
        super::heartbeat::HELP[2],
        "MIGRATE <slot>|<first>-<last> <node-id> [ASYNC|SYNC [<seconds>]]",
        "    Moves slots with their keys to another node. CLUSTER INFO tells how that goes.",
        "MYID",
        "    The id of this node.",
        "SETNODEID <node-id>",
        "    Gives this node its id.",
        "SETNODES <nodes> <version> [FORCE]",
        "    Gives this node a topology, a line for each node: <id> <host> <port> master - [<slots>], or",
        "    <id> <host> <port> slave <master-id>. An older version is refused.",
        "SETSLOT <slots> NODE <node-id> <version>",
        "    Gives slots to another master; the version is the next one.",
        "VERSION",
        "    The version of the topology, or -1.",
    ];
    write_help(&mut ctx.out, "clusterx", &lines);
    Ok(())
}
