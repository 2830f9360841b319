//! Rows of the command table: those of [`super::super::clusterx`].

use crate::commands::table::Command;
use crate::commands::table::flag::{ADMIN, NO_MULTI, NOSCRIPT, STALE, WRITE};

const CHANGES: u32 = ADMIN | NOSCRIPT | STALE | NO_MULTI;

pub(in crate::commands) const COMMANDS: &[Command] =
    &[Command::new("clusterx", -2, ADMIN | NOSCRIPT | STALE)
        .doc("cluster", "7.0.0", "Tells this node about its cluster; not a command of Redis, but of Kvrocks")
        .subcommands(&[
            Command::new("clusterx|flushslots", -3, ADMIN | NOSCRIPT | WRITE).doc(
                "cluster",
                "7.0.0",
                "Removes the keys of slots that are here",
            ),
            super::heartbeat::HEARTBEAT,
            Command::new("clusterx|import", -4, CHANGES).doc(
                "cluster",
                "7.0.0",
                "Said by a node that moves slots to this one",
            ),
            Command::new("clusterx|migrate", -4, CHANGES).doc(
                "cluster",
                "7.0.0",
                "Moves slots with their keys to another node",
            ),
            Command::new("clusterx|moves", 3, ADMIN | NOSCRIPT | WRITE).doc(
                "cluster",
                "7.0.0",
                "Said by a master to its replicas: its moves of slots",
            ),
            Command::new("clusterx|myid", 2, ADMIN | NOSCRIPT | STALE).doc(
                "cluster",
                "7.0.0",
                "Returns the id of this node",
            ),
            Command::new("clusterx|setnodeid", 3, CHANGES).doc(
                "cluster",
                "7.0.0",
                "Gives this node its id, and the role that the topology has for it",
            ),
            Command::new("clusterx|setnodes", -4, CHANGES).doc(
                "cluster",
                "7.0.0",
                "Gives this node a topology, and the role that it has in it",
            ),
            Command::new("clusterx|setslot", 6, CHANGES).doc(
                "cluster",
                "7.0.0",
                "Gives slots to another master, as the next version of the topology",
            ),
            Command::new("clusterx|version", 2, ADMIN | NOSCRIPT | STALE).doc(
                "cluster",
                "7.0.0",
                "Returns the version of the topology, or -1",
            ),
            Command::new("clusterx|help", 2, STALE).doc("cluster", "7.0.0", "Explains the subcommands"),
        ])];
