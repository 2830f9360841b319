//! Rows of the command table: those of [`super::super::substring`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, READONLY, STRING, WRITE};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("append", 3, WRITE | DENYOOM | FAST | STRING).keys(1, 1, 1).doc(
        "string",
        "2.0.0",
        "Appends to the string under a key",
    ),
    Command::new("getrange", 4, READONLY | STRING).keys(1, 1, 1).doc(
        "string",
        "2.4.0",
        "Returns a part of the string under a key",
    ),
    Command::new("substr", 4, READONLY | STRING).keys(1, 1, 1).doc(
        "string",
        "1.0.0",
        "Returns a part of the string under a key; GETRANGE by its old name",
    ),
    Command::new("setrange", 4, WRITE | DENYOOM | STRING).keys(1, 1, 1).doc(
        "string",
        "2.2.0",
        "Overwrites a part of the string under a key",
    ),
];
