//! Rows of the command table: those of [`super::super::string`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, READONLY, STRING, WRITE};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("get", 2, READONLY | FAST | STRING).keys(1, 1, 1).doc(
        "string",
        "1.0.0",
        "Returns the string under a key",
    ),
    Command::new("set", -3, WRITE | DENYOOM | STRING).keys(1, 1, 1).doc(
        "string",
        "1.0.0",
        "Puts a string under a key, on conditions and with an expiry time if asked",
    ),
    Command::new("setnx", 3, WRITE | DENYOOM | FAST | STRING).keys(1, 1, 1).doc(
        "string",
        "1.0.0",
        "Puts a string under a key that does not exist",
    ),
    Command::new("setex", 4, WRITE | DENYOOM | STRING).keys(1, 1, 1).doc(
        "string",
        "2.0.0",
        "Puts a string under a key that expires after so many seconds",
    ),
    Command::new("psetex", 4, WRITE | DENYOOM | STRING).keys(1, 1, 1).doc(
        "string",
        "2.6.0",
        "Puts a string under a key that expires after so many milliseconds",
    ),
    Command::new("getset", 3, WRITE | DENYOOM | FAST | STRING).keys(1, 1, 1).doc(
        "string",
        "1.0.0",
        "Puts a string under a key and returns the one before",
    ),
    Command::new("getdel", 2, WRITE | FAST | STRING).keys(1, 1, 1).doc(
        "string",
        "6.2.0",
        "Returns the string under a key and removes the key",
    ),
    Command::new("getex", -2, WRITE | FAST | STRING).keys(1, 1, 1).doc(
        "string",
        "6.2.0",
        "Returns the string under a key and changes when it expires",
    ),
    Command::new("mget", -2, READONLY | FAST | STRING)
        .keys(1, -1, 1)
        .tips(&["request_policy:multi_shard"])
        .doc("string", "1.0.0", "Returns the strings under several keys"),
    Command::new("mset", -3, WRITE | DENYOOM | STRING)
        .keys(1, -1, 2)
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .doc("string", "1.0.1", "Puts strings under several keys, all at once"),
    Command::new("msetnx", -3, WRITE | DENYOOM | STRING)
        .keys(1, -1, 2)
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .doc("string", "1.0.1", "Puts strings under several keys if none of them exists"),
    Command::new("strlen", 2, READONLY | FAST | STRING).keys(1, 1, 1).doc(
        "string",
        "2.2.0",
        "Returns the length of the string under a key",
    ),
];
