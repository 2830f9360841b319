//! The topology in Redis's words.

use std::fmt::Write as _;

use tembo_wire::ReplyWriter;

use super::migration::{Importing, Move, Moves, Sending};
use super::topology::{Node, Topology, shown_range};

/// Nodes of Redis listen for each other at their port and this many more. Nobody listens there; clients
/// expect the number.
const BUS_OFFSET: u32 = 10_000;

/// The line of a node in CLUSTER NODES, without its end.
pub(crate) struct Lines<'t> {
    topology: &'t Topology,
    myself: Option<usize>,
    ranges: Vec<Vec<std::ops::RangeInclusive<u16>>>,
    now_ms: u64,
}

impl<'t> Lines<'t> {
    pub(crate) fn new((topology, myself): (&'t Topology, Option<usize>), now_ms: u64) -> Self {
        Lines { topology, myself, ranges: topology.ranges_by_node(), now_ms }
    }

    pub(crate) fn of(&self, place: usize) -> String {
        let node = &self.topology.nodes[place];
        let Node { id, host, port, flags, .. } = node;
        let myself = if self.myself == Some(place) { "myself," } else { "" };
        let comma = if flags.is_empty() { "" } else { "," };
        let master = node.master.map_or("-".to_owned(), |master| self.topology.nodes[master].id.to_string());
        let pong = if self.myself == Some(place) { 0 } else { self.now_ms };
        let (bus, role, version) = (u32::from(*port) + BUS_OFFSET, node.role(), self.topology.version);
        let link = if node.has_failed() { "disconnected" } else { "connected" };
        let mut line = format!(
            "{id} {host}:{port}@{bus} {myself}{role}{comma}{flags} {master} 0 {pong} {version} {link}"
        );
        for range in &self.ranges[place] {
            // Writing to a string cannot fail.
            let _ = write!(line, " {}", shown_range(range));
        }
        line
    }
}

/// CLUSTER NODES.
pub(crate) fn nodes(known: (&Topology, Option<usize>), now_ms: u64) -> String {
    let lines = Lines::new(known, now_ms);
    let mut text = String::new();
    for place in 0..known.0.nodes.len() {
        text.push_str(&lines.of(place));
        text.push('\n');
    }
    text
}

/// CLUSTER INFO.
pub(crate) fn info(topology: &Topology) -> String {
    let (assigned, nodes, size, version) =
        (topology.assigned(), topology.nodes.len(), topology.size(), topology.version);
    format!(
        "cluster_state:ok\r\ncluster_slots_assigned:{assigned}\r\ncluster_slots_ok:{assigned}\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{nodes}\r\ncluster_size:{size}\r\n\
         cluster_current_epoch:{version}\r\ncluster_my_epoch:{version}\r\ncluster_stats_messages_sent:0\r\n\
         cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n"
    )
}

/// The latest moves, in the words of Kvrocks; for slots that leave, in the words of both of its generations.
pub(crate) fn moves(moves: &Moves) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if let Some((Move { slots, target, .. }, stage)) = &moves.outgoing {
        let state = state_name(stage);
        let _ = write!(
            text,
            "migrating_slot:{slots}\r\nmigrating_slot(s):{slots}\r\ndestination_node:{target}\r\n\
             migrating_state:{state}\r\n"
        );
    }
    if let Some((Move { slots, .. }, stage)) = &moves.incoming {
        let state = match stage {
            Importing::Receiving => "start",
            Importing::Done => "success",
            Importing::Failed => "error",
        };
        let _ =
            write!(text, "importing_slot:{slots}\r\nimporting_slot(s):{slots}\r\nimport_state:{state}\r\n");
    }
    text
}

/// CLUSTER SLOTS: each range, and the master and the replicas that have it.
pub(crate) fn write_slots(reply: &mut ReplyWriter<'_>, topology: &Topology) {
    let (ranges, replicas) = (topology.ranges(), topology.replicas_by_node());
    reply.array(ranges.len());
    for (owner, range) in ranges {
        let alive = || replicas[owner].iter().copied().filter(|&place| !topology.nodes[place].has_failed());
        reply.array(3 + alive().count());
        reply.integer((*range.start()).into());
        reply.integer((*range.end()).into());
        for place in std::iter::once(owner).chain(alive()) {
            let Node { id, host, port, .. } = &topology.nodes[place];
            reply.array(4);
            reply.bulk(host);
            reply.integer((*port).into());
            reply.bulk(id.as_bytes());
            // More names of the host.
            reply.array(0);
        }
    }
}

/// CLUSTER SHARDS: each master with its slots and its replicas. `offset` is how far this node is.
pub(crate) fn write_shards(
    reply: &mut ReplyWriter<'_>,
    (topology, myself): (&Topology, Option<usize>),
    offset: u64,
) {
    let (ranges, replicas) = (topology.ranges_by_node(), topology.replicas_by_node());
    let masters = || (0..topology.nodes.len()).filter(|&place| topology.nodes[place].master.is_none());
    reply.array(masters().count());
    for master in masters() {
        reply.map(2);
        reply.bulk("slots");
        reply.array(ranges[master].len() * 2);
        for range in &ranges[master] {
            reply.integer((*range.start()).into());
            reply.integer((*range.end()).into());
        }
        reply.bulk("nodes");
        reply.array(1 + replicas[master].len());
        for place in std::iter::once(master).chain(replicas[master].iter().copied()) {
            let node = &topology.nodes[place];
            let offset = if myself == Some(place) { offset as i64 } else { 0 };
            reply.map(7);
            reply.bulk("id");
            reply.bulk(node.id.as_bytes());
            reply.bulk("port");
            reply.integer(node.port.into());
            for name in ["ip", "endpoint"] {
                reply.bulk(name);
                reply.bulk(&node.host);
            }
            reply.bulk("role");
            reply.bulk(if node.master.is_some() { "replica" } else { "master" });
            reply.bulk("replication-offset");
            reply.integer(offset);
            reply.bulk("health");
            reply.bulk(if node.has_failed() { "fail" } else { "online" });
        }
    }
}

/// The name of a stage for controllers.
fn state_name(stage: &Sending) -> &'static str {
    match stage {
        Sending::Copying | Sending::Doubt => "start",
        Sending::Done => "success",
        Sending::Failed(_) => "fail",
    }
}
