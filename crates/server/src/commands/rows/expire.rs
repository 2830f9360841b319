//! Rows of the command table: those of [`super::super::expire`].

use crate::commands::table::Command;
use crate::commands::table::flag::{FAST, KEYSPACE, READONLY, WRITE};

const SET_FLAGS: u32 = WRITE | FAST | KEYSPACE;
const GET_FLAGS: u32 = READONLY | FAST | KEYSPACE;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("expire", -3, SET_FLAGS).keys(1, 1, 1).doc(
        "generic",
        "1.0.0",
        "Lets a key expire after so many seconds",
    ),
    Command::new("pexpire", -3, SET_FLAGS).keys(1, 1, 1).doc(
        "generic",
        "2.6.0",
        "Lets a key expire after so many milliseconds",
    ),
    Command::new("expireat", -3, SET_FLAGS).keys(1, 1, 1).doc(
        "generic",
        "1.2.0",
        "Lets a key expire at a Unix time in seconds",
    ),
    Command::new("pexpireat", -3, SET_FLAGS).keys(1, 1, 1).doc(
        "generic",
        "2.6.0",
        "Lets a key expire at a Unix time in milliseconds",
    ),
    Command::new("ttl", 2, GET_FLAGS).only_looks().keys(1, 1, 1).tips(&["nondeterministic_output"]).doc(
        "generic",
        "1.0.0",
        "Returns in how many seconds a key expires",
    ),
    Command::new("pttl", 2, GET_FLAGS).only_looks().keys(1, 1, 1).tips(&["nondeterministic_output"]).doc(
        "generic",
        "2.6.0",
        "Returns in how many milliseconds a key expires",
    ),
    Command::new("expiretime", 2, GET_FLAGS).only_looks().keys(1, 1, 1).doc(
        "generic",
        "7.0.0",
        "Returns the Unix time in seconds at which a key expires",
    ),
    Command::new("pexpiretime", 2, GET_FLAGS).only_looks().keys(1, 1, 1).doc(
        "generic",
        "7.0.0",
        "Returns the Unix time in milliseconds at which a key expires",
    ),
    Command::new("persist", 2, SET_FLAGS).keys(1, 1, 1).doc("generic", "2.2.0", "Lets a key expire no more"),
];
