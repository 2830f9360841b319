//! Rows of the command table: those of [`super::super::scan`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DANGEROUS, KEYSPACE, READONLY, WALKS};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("keys", 2, READONLY | KEYSPACE | DANGEROUS | WALKS)
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .doc("generic", "1.0.0", "Returns all keys that match a pattern, in order"),
    Command::new("scan", -2, READONLY | KEYSPACE | WALKS)
        .tips(&["nondeterministic_output", "request_policy:special"])
        .doc("generic", "2.8.0", "Returns some keys, and a cursor for the next ones"),
];
