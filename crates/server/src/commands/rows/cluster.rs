//! Rows of the command table: those of [`super::super::cluster`].

use crate::commands::table::Command;
use crate::commands::table::flag::{ADMIN, CONNECTION, FAST, LOADING, NOSCRIPT, STALE};

const CHANGING: &[&str] = &["nondeterministic_output"];
const OF_CLIENTS: u32 = LOADING | STALE | FAST | CONNECTION;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("cluster", -2, 0)
        .doc("cluster", "3.0.0", "Commands about the cluster that this server is a node of")
        .subcommands(SUBCOMMANDS),
    Command::new("readonly", 1, OF_CLIENTS).doc(
        "cluster",
        "3.0.0",
        "Lets the connection read from a replica in a cluster",
    ),
    Command::new("readwrite", 1, OF_CLIENTS).doc("cluster", "3.0.0", "Ends READONLY"),
    Command::new("asking", 1, FAST | CONNECTION).doc(
        "cluster",
        "3.0.0",
        "Sent by clients of clusters before a command that was redirected by ASK",
    ),
];

const SUBCOMMANDS: &[Command] = &[
    Command::new("cluster|count-failure-reports", 3, ADMIN | STALE).tips(CHANGING).doc(
        "cluster",
        "3.0.0",
        "Returns 0: nodes do not report failures",
    ),
    Command::new("cluster|countkeysinslot", 3, STALE).doc(
        "cluster",
        "3.0.0",
        "Returns how many keys a slot has here",
    ),
    Command::new("cluster|getkeysinslot", 4, STALE).tips(CHANGING).doc(
        "cluster",
        "3.0.0",
        "Returns keys of a slot that are here",
    ),
    Command::new("cluster|info", 2, STALE).tips(CHANGING).doc(
        "cluster",
        "3.0.0",
        "Describes the state of the cluster",
    ),
    Command::new("cluster|keyslot", 3, STALE).doc("cluster", "3.0.0", "Returns the slot of a key"),
    Command::new("cluster|links", 2, STALE).tips(CHANGING).doc(
        "cluster",
        "7.0.0",
        "Returns nothing: nodes have no links to each other",
    ),
    Command::new("cluster|myid", 2, STALE).doc("cluster", "3.0.0", "Returns the id of this node"),
    Command::new("cluster|nodes", 2, STALE).tips(CHANGING).doc(
        "cluster",
        "3.0.0",
        "Returns a line for each node",
    ),
    Command::new("cluster|replicas", 3, ADMIN | STALE).tips(CHANGING).doc(
        "cluster",
        "5.0.0",
        "Returns the lines of the replicas of a master",
    ),
    Command::new("cluster|reset", -2, ADMIN | NOSCRIPT | STALE).doc(
        "cluster",
        "3.0.0",
        "Lets an empty node forget its id, the topology and its master",
    ),
    Command::new("cluster|shards", 2, STALE).tips(CHANGING).doc(
        "cluster",
        "7.0.0",
        "Returns the slots and the nodes of each shard",
    ),
    Command::new("cluster|slaves", 3, ADMIN | STALE).tips(CHANGING).doc(
        "cluster",
        "3.0.0",
        "The old name of CLUSTER REPLICAS",
    ),
    Command::new("cluster|slots", 2, STALE).tips(CHANGING).doc(
        "cluster",
        "3.0.0",
        "Returns the ranges of slots with their nodes",
    ),
    Command::new("cluster|help", 2, LOADING | STALE).doc("cluster", "5.0.0", "Explains the subcommands"),
];
