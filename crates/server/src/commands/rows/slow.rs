//! Rows of the command table: those of [`super::super::slow`].

use crate::commands::table::Command;
use crate::commands::table::flag::{ADMIN, LOADING, NOSCRIPT, STALE};

const LATENCY: u32 = ADMIN | NOSCRIPT | LOADING | STALE;
const FLAGS: u32 = ADMIN | LOADING | STALE;
const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];
const VARIES: &[&str] = &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("slowlog", -2, 0).doc("server", "2.2.12", "Tells which commands took long").subcommands(&[
        Command::new("slowlog|get", -2, FLAGS)
            .tips(&["request_policy:all_nodes", "nondeterministic_output"])
            .doc("server", "2.2.12", "Returns commands that took long, the last one first"),
        Command::new("slowlog|len", 2, FLAGS)
            .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"])
            .doc("server", "2.2.12", "Returns how many commands are in the log"),
        Command::new("slowlog|reset", 2, FLAGS).tips(ALL_NODES).doc("server", "2.2.12", "Empties the log"),
        Command::new("slowlog|help", 2, LOADING | STALE).doc("server", "6.2.0", "Explains the subcommands"),
    ]),
    Command::new("latency", -2, 0).doc("server", "2.8.13", "Tells what made clients wait").subcommands(&[
        Command::new("latency|graph", 3, LATENCY).tips(VARIES).doc(
            "server",
            "2.8.13",
            "Draws the times of an event",
        ),
        Command::new("latency|latest", 2, LATENCY).tips(VARIES).doc(
            "server",
            "2.8.13",
            "Returns the last and the longest time of each event",
        ),
        Command::new("latency|history", 3, LATENCY).tips(VARIES).doc(
            "server",
            "2.8.13",
            "Returns the times of an event",
        ),
        Command::new("latency|reset", -2, LATENCY).tips(ALL_NODES).doc(
            "server",
            "2.8.13",
            "Forgets the times of events",
        ),
        Command::new("latency|histogram", -2, LATENCY).tips(VARIES).doc(
            "server",
            "7.0.0",
            "Returns how the times of commands are distributed",
        ),
        Command::new("latency|doctor", 2, LATENCY).tips(VARIES).doc(
            "server",
            "2.8.13",
            "Says in words what made clients wait",
        ),
        Command::new("latency|help", 2, LOADING | STALE).doc("server", "2.8.13", "Explains the subcommands"),
    ]),
];
