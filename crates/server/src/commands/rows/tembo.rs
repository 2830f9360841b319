//! Rows of the command table: those of [`super::super::tembo`].

use crate::commands::table::Command;
use crate::commands::table::flag::{
    DANGEROUS, DENYOOM, FAST, KEYSPACE, MOVABLE_KEYS, NO_MULTI, NOSCRIPT, READONLY, WRITE,
};

const UNFLUSH: u32 = WRITE | KEYSPACE | DANGEROUS | NO_MULTI | NOSCRIPT;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("tembo.count", 2, READONLY | FAST | KEYSPACE).doc(
        "generic",
        "7.0.0",
        "Returns the number of keys that begin so, in logarithmic time; not a command of Redis",
    ),
    Command::new("tembo.unlink", 2, WRITE | KEYSPACE | DANGEROUS).doc(
        "generic",
        "7.0.0",
        "Removes the keys that begin so, all or none; not a command of Redis",
    ),
    Command::new("tembo.unflush", 1, UNFLUSH).doc(
        "server",
        "7.0.0",
        "Brings back what was flushed last, or replaced by a master's data; not a command of Redis",
    ),
    Command::new("tembo.once", -4, WRITE | DENYOOM | MOVABLE_KEYS).doc(
        "generic",
        "7.0.0",
        "Runs a command that writes once for a token, and returns its reply each time; not a command of Redis",
    ),
];
