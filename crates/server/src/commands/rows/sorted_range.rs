//! Rows of the command table: those of [`super::super::sorted_range`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, READONLY, WRITE};

const READ: u32 = READONLY;
const REMOVE: u32 = WRITE;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("zrange", -4, READ).keys(1, 1, 1).doc(
        "sorted-set",
        "1.2.0",
        "Returns members of a sorted set by their ranks, scores or names",
    ),
    Command::new("zrangestore", -5, WRITE | DENYOOM).keys(1, 2, 1).doc(
        "sorted-set",
        "6.2.0",
        "Stores members of a sorted set, by their ranks, scores or names",
    ),
    Command::new("zrevrange", -4, READ).keys(1, 1, 1).doc(
        "sorted-set",
        "1.2.0",
        "Returns members of a sorted set by their ranks from the highest",
    ),
    Command::new("zrangebyscore", -4, READ).keys(1, 1, 1).doc(
        "sorted-set",
        "1.0.5",
        "Returns members of a sorted set by their scores",
    ),
    Command::new("zrevrangebyscore", -4, READ).keys(1, 1, 1).doc(
        "sorted-set",
        "2.2.0",
        "Returns members of a sorted set by their scores, the highest first",
    ),
    Command::new("zrangebylex", -4, READ).keys(1, 1, 1).doc(
        "sorted-set",
        "2.8.9",
        "Returns members of a sorted set by their names",
    ),
    Command::new("zrevrangebylex", -4, READ).keys(1, 1, 1).doc(
        "sorted-set",
        "2.8.9",
        "Returns members of a sorted set by their names, the last first",
    ),
    Command::new("zcount", 4, READ | FAST).keys(1, 1, 1).doc(
        "sorted-set",
        "2.0.0",
        "Counts the members of a sorted set with scores in a range",
    ),
    Command::new("zlexcount", 4, READ | FAST).keys(1, 1, 1).doc(
        "sorted-set",
        "2.8.9",
        "Counts the members of a sorted set with names in a range",
    ),
    Command::new("zremrangebyrank", 4, REMOVE).keys(1, 1, 1).doc(
        "sorted-set",
        "2.0.0",
        "Removes members of a sorted set by their ranks",
    ),
    Command::new("zremrangebyscore", 4, REMOVE).keys(1, 1, 1).doc(
        "sorted-set",
        "1.2.0",
        "Removes members of a sorted set by their scores",
    ),
    Command::new("zremrangebylex", 4, REMOVE).keys(1, 1, 1).doc(
        "sorted-set",
        "2.8.9",
        "Removes members of a sorted set by their names",
    ),
];
