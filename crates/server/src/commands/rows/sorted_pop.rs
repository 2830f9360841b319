//! Rows of the command table: those of [`super::super::sorted_pop`].

use crate::commands::table::Command;
use crate::commands::table::flag::{BLOCKING, FAST, MOVABLE_KEYS, NOSCRIPT, WRITE};

const CHANGE: u32 = WRITE | FAST;
const WAIT: u32 = CHANGE | NOSCRIPT | BLOCKING;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("zpopmin", -2, CHANGE).keys(1, 1, 1).doc(
        "sorted-set",
        "5.0.0",
        "Removes the members with the lowest scores of a sorted set and returns them",
    ),
    Command::new("zpopmax", -2, CHANGE).keys(1, 1, 1).doc(
        "sorted-set",
        "5.0.0",
        "Removes the members with the highest scores of a sorted set and returns them",
    ),
    Command::new("zmpop", -4, WRITE | MOVABLE_KEYS).doc(
        "sorted-set",
        "7.0.0",
        "Removes members with the lowest or highest scores of the first sorted set that there is",
    ),
    Command::new("bzpopmin", -3, WAIT).keys(1, -2, 1).doc(
        "sorted-set",
        "5.0.0",
        "Removes the member with the lowest score of the first sorted set that there is, or waits for one",
    ),
    Command::new("bzpopmax", -3, WAIT).keys(1, -2, 1).doc(
        "sorted-set",
        "5.0.0",
        "Removes the member with the highest score of the first sorted set that there is, or waits for one",
    ),
    Command::new("bzmpop", -5, WRITE | BLOCKING | MOVABLE_KEYS).doc(
        "sorted-set",
        "7.0.0",
        "Removes members of the first sorted set that there is, or waits for one",
    ),
];
