//! Rows of the command table: those of [`super::super::sort`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DANGEROUS, DENYOOM, MOVABLE_KEYS, READONLY, SET, WRITE};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("sort", -2, WRITE | DENYOOM | SET | DANGEROUS | MOVABLE_KEYS).keys(1, 1, 1).doc(
        "generic",
        "1.0.0",
        "Sorts the elements of a list, a set or a sorted set, and returns or stores them",
    ),
    Command::new("sort_ro", -2, READONLY | SET | DANGEROUS | MOVABLE_KEYS).keys(1, 1, 1).doc(
        "generic",
        "7.0.0",
        "Sorts the elements of a list, a set or a sorted set, and returns them",
    ),
];
