//! Rows of the command table: those of [`super::super::sorted_algebra`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, MOVABLE_KEYS, READONLY, WRITE};

const READ: u32 = READONLY | MOVABLE_KEYS;
const STORE: u32 = WRITE | DENYOOM | MOVABLE_KEYS;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("zunion", -3, READ).doc(
        "sorted-set",
        "6.2.0",
        "Returns the members that any of the sorted sets has",
    ),
    Command::new("zinter", -3, READ).doc(
        "sorted-set",
        "6.2.0",
        "Returns the members that all of the sorted sets have",
    ),
    Command::new("zintercard", -3, READ).doc(
        "sorted-set",
        "7.0.0",
        "Returns the number of members that all of the sorted sets have",
    ),
    Command::new("zdiff", -3, READ).doc(
        "sorted-set",
        "6.2.0",
        "Returns the members of the first sorted set that none of the others has",
    ),
    Command::new("zunionstore", -4, STORE).keys(1, 1, 1).doc(
        "sorted-set",
        "2.0.0",
        "Stores the members that any of the sorted sets has",
    ),
    Command::new("zinterstore", -4, STORE).keys(1, 1, 1).doc(
        "sorted-set",
        "2.0.0",
        "Stores the members that all of the sorted sets have",
    ),
    Command::new("zdiffstore", -4, STORE).keys(1, 1, 1).doc(
        "sorted-set",
        "6.2.0",
        "Stores the members of the first sorted set that none of the others has",
    ),
];
