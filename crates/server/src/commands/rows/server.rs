//! Rows of the command table: those of [`super::super::server`].

use crate::commands::table::Command;
use crate::commands::table::flag::{
    ADMIN, ALLOW_BUSY, FAST, LOADING, NO_MULTI, NOSCRIPT, READONLY, STALE, WALKS,
};

const ADMINISTRATION: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("time", 1, LOADING | STALE | FAST).tips(&["nondeterministic_output"]).doc(
        "server",
        "2.6.0",
        "Returns the Unix time in seconds and microseconds",
    ),
    Command::new("debug", -2, ADMINISTRATION | WALKS).doc(
        "server",
        "1.0.0",
        "Looks inside and makes the server sleep, for tests",
    ),
    Command::new("monitor", 1, ADMINISTRATION).doc("server", "1.0.0", "Shows all commands as they are run"),
    Command::new("module", -2, 0)
        .doc("server", "4.0.0", "Tells about modules, of which there are none")
        .subcommands(&[
            Command::new("module|list", 2, ADMIN | NOSCRIPT).tips(&["nondeterministic_output_order"]).doc(
                "server",
                "4.0.0",
                "Returns that there are no modules",
            ),
            Command::new("module|help", 2, LOADING | STALE).doc(
                "server",
                "5.0.0",
                "Explains the subcommands",
            ),
        ]),
    Command::new("lolwut", -1, READONLY | FAST).doc(
        "server",
        "5.0.0",
        "Returns the version of Redis whose commands these are; there is no art",
    ),
    Command::new("shutdown", -1, ADMINISTRATION | NO_MULTI | ALLOW_BUSY).doc(
        "server",
        "1.0.0",
        "Stops the server",
    ),
];
