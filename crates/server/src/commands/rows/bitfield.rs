//! Rows of the command table: those of [`super::super::bitfield`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, READONLY, WRITE};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("bitfield", -2, WRITE | DENYOOM).keys(1, 1, 1).doc(
        "bitmap",
        "3.2.0",
        "Reads, sets and adds to integers of any width in the string under a key",
    ),
    Command::new("bitfield_ro", -2, READONLY | FAST).keys(1, 1, 1).doc(
        "bitmap",
        "6.0.0",
        "Reads integers of any width in the string under a key",
    ),
];
