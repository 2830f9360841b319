//! Rows of the command table: those of [`super::super::set_algebra`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, MOVABLE_KEYS, READONLY, SET, WRITE};

const STORE: u32 = WRITE | DENYOOM | SET;
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("sinter", -2, READONLY | SET).keys(1, -1, 1).tips(UNORDERED).doc(
        "set",
        "1.0.0",
        "Returns the members that all of the sets have",
    ),
    Command::new("sintercard", -3, READONLY | SET | MOVABLE_KEYS).doc(
        "set",
        "7.0.0",
        "Returns the number of members that all of the sets have",
    ),
    Command::new("sinterstore", -3, STORE).keys(1, -1, 1).doc(
        "set",
        "1.0.0",
        "Stores the members that all of the sets have",
    ),
    Command::new("sunion", -2, READONLY | SET).keys(1, -1, 1).tips(UNORDERED).doc(
        "set",
        "1.0.0",
        "Returns the members that any of the sets has",
    ),
    Command::new("sunionstore", -3, STORE).keys(1, -1, 1).doc(
        "set",
        "1.0.0",
        "Stores the members that any of the sets has",
    ),
    Command::new("sdiff", -2, READONLY | SET).keys(1, -1, 1).tips(UNORDERED).doc(
        "set",
        "1.0.0",
        "Returns the members of the first set that none of the others has",
    ),
    Command::new("sdiffstore", -3, STORE).keys(1, -1, 1).doc(
        "set",
        "1.0.0",
        "Stores the members of the first set that none of the others has",
    ),
];
