//! Rows of the command table: those of [`super::super::counter`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, STRING, WRITE};

const FLAGS: u32 = WRITE | DENYOOM | FAST | STRING;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("incr", 2, FLAGS).keys(1, 1, 1).doc(
        "string",
        "1.0.0",
        "Adds one to the integer under a key",
    ),
    Command::new("decr", 2, FLAGS).keys(1, 1, 1).doc(
        "string",
        "1.0.0",
        "Subtracts one from the integer under a key",
    ),
    Command::new("incrby", 3, FLAGS).keys(1, 1, 1).doc("string", "1.0.0", "Adds to the integer under a key"),
    Command::new("decrby", 3, FLAGS).keys(1, 1, 1).doc(
        "string",
        "1.0.0",
        "Subtracts from the integer under a key",
    ),
    Command::new("incrbyfloat", 3, FLAGS).keys(1, 1, 1).doc(
        "string",
        "2.6.0",
        "Adds to the number under a key",
    ),
];
