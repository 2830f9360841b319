//! Rows of the command table: those of [`super::super::command`].

use crate::commands::table::Command;
use crate::commands::table::flag::{CONNECTION, LOADING, STALE};

const FLAGS: u32 = LOADING | STALE | CONNECTION;
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

pub(in crate::commands) const COMMANDS: &[Command] = &[Command::new("command", -1, FLAGS)
    .tips(UNORDERED)
    .doc("server", "2.8.13", "Tells about all commands")
    .subcommands(&[
        Command::new("command|count", 2, FLAGS).doc("server", "2.8.13", "Returns the number of commands"),
        Command::new("command|docs", -2, FLAGS).tips(UNORDERED).doc(
            "server",
            "7.0.0",
            "Returns what commands are for",
        ),
        Command::new("command|info", -2, FLAGS).tips(UNORDERED).doc(
            "server",
            "2.8.13",
            "Tells about the commands named",
        ),
        Command::new("command|getkeys", -4, FLAGS).doc(
            "server",
            "2.8.13",
            "Returns the keys among the arguments of a command",
        ),
        Command::new("command|getkeysandflags", -4, FLAGS).doc(
            "server",
            "7.0.0",
            "Returns the keys among the arguments of a command, and what it does to them",
        ),
        Command::new("command|list", -2, FLAGS).tips(UNORDERED).doc(
            "server",
            "7.0.0",
            "Returns the names of commands",
        ),
        Command::new("command|help", 2, FLAGS).doc("server", "5.0.0", "Explains the subcommands"),
    ])];
