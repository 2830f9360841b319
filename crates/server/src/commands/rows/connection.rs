//! Rows of the command table: those of [`super::super::connection`].

use crate::commands::table::Command;
use crate::commands::table::flag::{
    ALLOW_BUSY, AT_ONCE, CONNECTION, FAST, FOR_SUBSCRIBERS, LOADING, NO_AUTH, NOSCRIPT, STALE, UNSUBSCRIBES,
};

const HANDSHAKE: u32 = NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY | CONNECTION;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("ping", -1, FAST | CONNECTION | FOR_SUBSCRIBERS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .doc("connection", "1.0.0", "Returns PONG, or its argument"),
    Command::new("echo", 2, LOADING | STALE | FAST | CONNECTION).doc(
        "connection",
        "1.0.0",
        "Returns its argument",
    ),
    Command::new("hello", -1, HANDSHAKE).doc(
        "connection",
        "6.0.0",
        "Chooses the protocol and introduces the server",
    ),
    Command::new("auth", -2, HANDSHAKE).doc("connection", "1.0.0", "Authenticates the client"),
    Command::new("select", 2, LOADING | STALE | FAST | CONNECTION).doc(
        "connection",
        "1.0.0",
        "Selects the database that commands work on",
    ),
    Command::new("quit", -1, HANDSHAKE | AT_ONCE | FOR_SUBSCRIBERS).doc(
        "connection",
        "1.0.0",
        "Closes the connection",
    ),
    Command::new("reset", 1, HANDSHAKE | AT_ONCE | FOR_SUBSCRIBERS | UNSUBSCRIBES).doc(
        "connection",
        "6.2.0",
        "Makes the connection as it was at first",
    ),
];
