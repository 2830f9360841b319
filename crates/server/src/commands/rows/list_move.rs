//! Rows of the command table: those of [`super::super::list_move`].

use crate::commands::table::Command;
use crate::commands::table::flag::{BLOCKING, DENYOOM, MOVABLE_KEYS, NOSCRIPT, WRITE};

const WAIT: u32 = WRITE | NOSCRIPT | BLOCKING;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("lmove", 5, WRITE | DENYOOM).keys(1, 2, 1).doc(
        "list",
        "6.2.0",
        "Moves an element from an end of a list to an end of another",
    ),
    Command::new("rpoplpush", 3, WRITE | DENYOOM).keys(1, 2, 1).doc(
        "list",
        "1.2.0",
        "Moves the last element of a list to the left end of another",
    ),
    Command::new("lmpop", -4, WRITE | MOVABLE_KEYS).doc(
        "list",
        "7.0.0",
        "Removes elements of the first of several lists that has some, and returns them",
    ),
    Command::new("blpop", -3, WAIT).keys(1, -2, 1).doc(
        "list",
        "2.0.0",
        "Removes the first element of the first of several lists that has one, or waits for one",
    ),
    Command::new("brpop", -3, WAIT).keys(1, -2, 1).doc(
        "list",
        "2.0.0",
        "Removes the last element of the first of several lists that has one, or waits for one",
    ),
    Command::new("blmove", 6, WAIT | DENYOOM).keys(1, 2, 1).doc(
        "list",
        "6.2.0",
        "Moves an element from one list to another, or waits for one",
    ),
    Command::new("brpoplpush", 4, WAIT | DENYOOM).keys(1, 2, 1).doc(
        "list",
        "2.2.0",
        "Moves the last element of a list to another, or waits for one",
    ),
    Command::new("blmpop", -5, WRITE | BLOCKING | MOVABLE_KEYS).doc(
        "list",
        "7.0.0",
        "Removes elements of the first of several lists that has some, or waits for some",
    ),
];
