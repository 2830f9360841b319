//! Rows of the command table: those of [`super::super::config`].

use crate::commands::table::Command;
use crate::commands::table::flag::{ADMIN, LOADING, NOSCRIPT, STALE};

const FLAGS: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

pub(in crate::commands) const COMMANDS: &[Command] =
    &[Command::new("config", -2, 0).doc("server", "2.0.0", "Reads and changes settings").subcommands(&[
        Command::new("config|get", -3, FLAGS).doc(
            "server",
            "2.0.0",
            "Returns the settings that match patterns",
        ),
        Command::new("config|set", -4, FLAGS)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .doc("server", "2.0.0", "Changes settings, all or none"),
        Command::new("config|resetstat", 2, FLAGS).doc("server", "2.0.0", "Sets the statistics to zero"),
        Command::new("config|rewrite", 2, FLAGS).doc(
            "server",
            "2.8.0",
            "Writes the settings into the configuration file",
        ),
        Command::new("config|help", 2, LOADING | STALE).doc("server", "5.0.0", "Explains the subcommands"),
    ])];
