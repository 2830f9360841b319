//! Rows of the command table: those of [`super::super::hash`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, HASH, READONLY, WRITE};

const PUT: u32 = WRITE | DENYOOM | FAST | HASH;
const LOOK_UP: u32 = READONLY | FAST | HASH;
const UNORDERED: &[&str] = &["nondeterministic_output_order"];
const VARIES: &[&str] = &["nondeterministic_output"];

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("hset", -4, PUT).keys(1, 1, 1).doc("hash", "2.0.0", "Gives fields of a hash their values"),
    Command::new("hmset", -4, PUT).keys(1, 1, 1).doc(
        "hash",
        "2.0.0",
        "Gives fields of a hash their values; HSET by its old name",
    ),
    Command::new("hsetnx", 4, PUT).keys(1, 1, 1).doc(
        "hash",
        "2.0.0",
        "Gives a field of a hash a value if it has none",
    ),
    Command::new("hget", 3, LOOK_UP).keys(1, 1, 1).doc(
        "hash",
        "2.0.0",
        "Returns the value of a field of a hash",
    ),
    Command::new("hmget", -3, LOOK_UP).keys(1, 1, 1).doc(
        "hash",
        "2.0.0",
        "Returns the values of fields of a hash",
    ),
    Command::new("hgetall", 2, READONLY | HASH).keys(1, 1, 1).tips(UNORDERED).doc(
        "hash",
        "2.0.0",
        "Returns all fields of a hash with their values",
    ),
    Command::new("hkeys", 2, READONLY | HASH).keys(1, 1, 1).tips(UNORDERED).doc(
        "hash",
        "2.0.0",
        "Returns all fields of a hash",
    ),
    Command::new("hvals", 2, READONLY | HASH).keys(1, 1, 1).tips(UNORDERED).doc(
        "hash",
        "2.0.0",
        "Returns all values of a hash",
    ),
    Command::new("hlen", 2, LOOK_UP).keys(1, 1, 1).doc(
        "hash",
        "2.0.0",
        "Returns the number of fields of a hash",
    ),
    Command::new("hstrlen", 3, LOOK_UP).keys(1, 1, 1).doc(
        "hash",
        "3.2.0",
        "Returns the length of the value of a field of a hash",
    ),
    Command::new("hexists", 3, LOOK_UP).keys(1, 1, 1).doc(
        "hash",
        "2.0.0",
        "Tells whether a hash has a field",
    ),
    Command::new("hdel", -3, WRITE | FAST | HASH).keys(1, 1, 1).doc(
        "hash",
        "2.0.0",
        "Removes fields of a hash",
    ),
    Command::new("hincrby", 4, PUT).keys(1, 1, 1).doc(
        "hash",
        "2.0.0",
        "Adds to the integer in a field of a hash",
    ),
    Command::new("hincrbyfloat", 4, PUT).keys(1, 1, 1).doc(
        "hash",
        "2.6.0",
        "Adds to the number in a field of a hash",
    ),
    Command::new("hrandfield", -2, READONLY | HASH).keys(1, 1, 1).tips(VARIES).doc(
        "hash",
        "6.2.0",
        "Returns random fields of a hash",
    ),
    Command::new("hscan", -3, READONLY | HASH).keys(1, 1, 1).tips(VARIES).doc(
        "hash",
        "2.8.0",
        "Returns some fields of a hash with their values, and a cursor for the next ones",
    ),
];
