//! Rows of the command table: those of [`super::super::object`].

use crate::commands::table::Command;
use crate::commands::table::flag::{KEYSPACE, LOADING, READONLY, STALE};

const VARIES: &[&str] = &["nondeterministic_output"];

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("object", -2, 0).doc("generic", "2.2.3", "Tells how a key is kept").subcommands(&[
        Command::new("object|encoding", 3, READONLY | KEYSPACE).only_looks().keys(2, 2, 1).tips(VARIES).doc(
            "generic",
            "2.2.3",
            "Returns what Redis would call the encoding of a value",
        ),
        Command::new("object|freq", 3, READONLY | KEYSPACE).only_looks().keys(2, 2, 1).tips(VARIES).doc(
            "generic",
            "4.0.0",
            "Returns how often a key is used, if a policy of the LFU kind is set",
        ),
        Command::new("object|idletime", 3, READONLY | KEYSPACE).only_looks().keys(2, 2, 1).tips(VARIES).doc(
            "generic",
            "2.2.3",
            "Returns how many seconds a key was not used, if a policy of the LRU kind is set",
        ),
        Command::new("object|refcount", 3, READONLY | KEYSPACE).only_looks().keys(2, 2, 1).tips(VARIES).doc(
            "generic",
            "2.2.3",
            "Returns 1",
        ),
        Command::new("object|help", 2, LOADING | STALE | KEYSPACE).doc(
            "generic",
            "6.2.0",
            "Explains the subcommands",
        ),
    ]),
    Command::new("memory", -2, 0).doc("server", "4.0.0", "Tells how much memory is used").subcommands(&[
        Command::new("memory|usage", -3, READONLY).only_looks().keys(2, 2, 1).doc(
            "server",
            "4.0.0",
            "Estimates how many bytes of the pool a key takes",
        ),
        Command::new("memory|stats", 2, 0)
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
            .doc("server", "4.0.0", "Returns what memory is used for"),
        Command::new("memory|doctor", 2, 0)
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
            .doc("server", "4.0.0", "Says in words how full the pool is"),
        Command::new("memory|malloc-stats", 2, 0)
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
            .doc("server", "4.0.0", "Returns that the allocator of the process has no statistics"),
        Command::new("memory|purge", 2, 0)
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
            .doc("server", "4.0.0", "Does nothing: space comes back by itself"),
        Command::new("memory|help", 2, LOADING | STALE).doc("server", "4.0.0", "Explains the subcommands"),
    ]),
];
