//! Rows of the command table: those of [`super::super::dump`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DANGEROUS, DENYOOM, KEYSPACE, READONLY, WRITE};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("dump", 2, READONLY | KEYSPACE).keys(1, 1, 1).tips(&["nondeterministic_output"]).doc(
        "generic",
        "2.6.0",
        "Returns what is under a key as bytes that RESTORE takes, here and in Redis",
    ),
    Command::new("restore", -4, WRITE | DENYOOM | KEYSPACE | DANGEROUS).keys(1, 1, 1).doc(
        "generic",
        "2.6.0",
        "Puts what DUMP returned under a key",
    ),
];
