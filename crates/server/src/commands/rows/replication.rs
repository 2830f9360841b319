//! Rows of the command table: those of [`super::super::replication`].

use crate::commands::table::Command;
use crate::commands::table::flag::{
    ADMIN, ADMIN_ONLY, DANGEROUS, FAST, LOADING, NO_ASYNC_LOADING, NOSCRIPT, STALE,
};

const FLAGS: u32 = ADMIN | NOSCRIPT | STALE | NO_ASYNC_LOADING;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("replicaof", 3, FLAGS).doc(
        "server",
        "5.0.0",
        "Makes the server a replica of another one, or a master",
    ),
    Command::new("slaveof", 3, FLAGS).doc("server", "1.0.0", "The old name of REPLICAOF"),
    Command::new("role", 1, NOSCRIPT | LOADING | STALE | FAST | ADMIN_ONLY | DANGEROUS).doc(
        "server",
        "2.8.12",
        "Returns whether this is a master or a replica, and how far it is",
    ),
];
