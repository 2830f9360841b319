//! Rows of the command table: those of [`super::super::replicas`].

use crate::commands::table::Command;
use crate::commands::table::flag::{
    ADMIN, ALLOW_BUSY, CONNECTION, LOADING, NO_ASYNC_LOADING, NO_MULTI, NOSCRIPT, STALE,
};

const SYNC: u32 = ADMIN | NO_ASYNC_LOADING | NO_MULTI | NOSCRIPT;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("psync", -3, SYNC).doc(
        "server",
        "2.8.0",
        "Asks for the stream of effects from an offset on, or for a whole copy before",
    ),
    Command::new("sync", 1, SYNC).doc("server", "1.0.0", "Asks for a whole copy and the stream of effects"),
    Command::new("replconf", -1, ADMIN | NOSCRIPT | LOADING | STALE | ALLOW_BUSY).doc(
        "server",
        "3.0.0",
        "Tells a master about its replica",
    ),
    Command::new("wait", 3, NOSCRIPT | CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .doc("generic", "3.0.0", "Waits until so many replicas have the writes of this connection"),
    Command::new("waitaof", 4, NOSCRIPT | CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .doc("generic", "7.2.0", "Waits until the devices of this server and of so many replicas have them"),
];
