//! Rows of the command table: those of [`super::super::keys`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DANGEROUS, DENYOOM, FAST, KEYSPACE, READONLY, WALKS, WRITE};

const SUM: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
const ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("del", -2, WRITE | KEYSPACE).keys(1, -1, 1).tips(SUM).doc(
        "generic",
        "1.0.0",
        "Removes keys",
    ),
    Command::new("unlink", -2, WRITE | FAST | KEYSPACE).keys(1, -1, 1).tips(SUM).doc(
        "generic",
        "4.0.0",
        "Removes keys; the same as DEL",
    ),
    Command::new("exists", -2, READONLY | FAST | KEYSPACE).only_looks().keys(1, -1, 1).tips(SUM).doc(
        "generic",
        "1.0.0",
        "Counts how many of the keys exist",
    ),
    Command::new("touch", -2, READONLY | FAST | KEYSPACE).keys(1, -1, 1).tips(SUM).doc(
        "generic",
        "3.2.1",
        "Counts how many of the keys exist; there are no access times to change",
    ),
    Command::new("type", 2, READONLY | FAST | KEYSPACE).only_looks().keys(1, 1, 1).doc(
        "generic",
        "1.0.0",
        "Returns the type of what is under a key",
    ),
    Command::new("rename", 3, WRITE | KEYSPACE).keys(1, 2, 1).doc(
        "generic",
        "1.0.0",
        "Gives a key another name, in place of what had that name",
    ),
    Command::new("renamenx", 3, WRITE | FAST | KEYSPACE).keys(1, 2, 1).doc(
        "generic",
        "1.0.0",
        "Gives a key another name that is not in use",
    ),
    Command::new("copy", -3, WRITE | DENYOOM | KEYSPACE).keys(1, 2, 1).doc(
        "generic",
        "6.2.0",
        "Copies what is under a key to another, also to another database",
    ),
    Command::new("move", 3, WRITE | FAST | KEYSPACE).keys(1, 1, 1).doc(
        "generic",
        "1.0.0",
        "Moves a key to another database",
    ),
    Command::new("swapdb", 3, WRITE | FAST | KEYSPACE | DANGEROUS).doc(
        "server",
        "4.0.0",
        "Lets two databases have each other's keys",
    ),
    Command::new("randomkey", 1, READONLY | KEYSPACE | WALKS)
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .doc("generic", "1.0.0", "Returns a random key"),
    Command::new("dbsize", 1, READONLY | FAST | KEYSPACE)
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .doc("server", "1.0.0", "Returns the number of keys"),
    Command::new("flushdb", -1, WRITE | KEYSPACE | DANGEROUS).tips(ALL).doc(
        "server",
        "1.0.0",
        "Removes all keys of the selected database",
    ),
    Command::new("flushall", -1, WRITE | KEYSPACE | DANGEROUS).tips(ALL).doc(
        "server",
        "1.0.0",
        "Removes all keys of all databases",
    ),
];
