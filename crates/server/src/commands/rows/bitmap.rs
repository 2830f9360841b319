//! Rows of the command table: those of [`super::super::bitmap`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, READONLY, WRITE};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("setbit", 4, WRITE | DENYOOM).keys(1, 1, 1).doc(
        "bitmap",
        "2.2.0",
        "Sets or clears a bit of the string under a key, and returns what it was",
    ),
    Command::new("getbit", 3, READONLY | FAST).keys(1, 1, 1).doc(
        "bitmap",
        "2.2.0",
        "Returns a bit of the string under a key",
    ),
    Command::new("bitcount", -2, READONLY).keys(1, 1, 1).doc(
        "bitmap",
        "2.6.0",
        "Counts the bits that are set in the string under a key, or in a part of it",
    ),
    Command::new("bitpos", -3, READONLY).keys(1, 1, 1).doc(
        "bitmap",
        "2.8.7",
        "Finds the first bit that is set, or clear, in the string under a key, or in a part of it",
    ),
    Command::new("bitop", -4, WRITE | DENYOOM).keys(2, -1, 1).doc(
        "bitmap",
        "2.6.0",
        "Stores what an operation on the bits of several strings gives",
    ),
];
