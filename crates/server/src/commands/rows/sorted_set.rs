//! Rows of the command table: those of [`super::super::sorted_set`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, READONLY, WRITE};

const LOOK_UP: u32 = READONLY | FAST;
const CHANGE: u32 = WRITE | FAST;
const VARIES: &[&str] = &["nondeterministic_output"];

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("zadd", -4, CHANGE | DENYOOM).keys(1, 1, 1).doc(
        "sorted-set",
        "1.2.0",
        "Adds members with scores to a sorted set, or gives members other scores",
    ),
    Command::new("zincrby", 4, CHANGE | DENYOOM).keys(1, 1, 1).doc(
        "sorted-set",
        "1.2.0",
        "Adds to the score of a member of a sorted set",
    ),
    Command::new("zrem", -3, CHANGE).keys(1, 1, 1).doc(
        "sorted-set",
        "1.2.0",
        "Removes members of a sorted set",
    ),
    Command::new("zscore", 3, LOOK_UP).keys(1, 1, 1).doc(
        "sorted-set",
        "1.2.0",
        "Returns the score of a member of a sorted set",
    ),
    Command::new("zmscore", -3, LOOK_UP).keys(1, 1, 1).doc(
        "sorted-set",
        "6.2.0",
        "Returns the scores of members of a sorted set",
    ),
    Command::new("zcard", 2, LOOK_UP).keys(1, 1, 1).doc(
        "sorted-set",
        "1.2.0",
        "Returns the number of members of a sorted set",
    ),
    Command::new("zrank", 3, LOOK_UP).keys(1, 1, 1).doc(
        "sorted-set",
        "2.0.0",
        "Returns how many members of a sorted set come before a member",
    ),
    Command::new("zrevrank", 3, LOOK_UP).keys(1, 1, 1).doc(
        "sorted-set",
        "2.0.0",
        "Returns how many members of a sorted set come behind a member",
    ),
    Command::new("zrandmember", -2, READONLY).keys(1, 1, 1).tips(VARIES).doc(
        "sorted-set",
        "6.2.0",
        "Returns random members of a sorted set",
    ),
    Command::new("zscan", -3, READONLY).keys(1, 1, 1).tips(VARIES).doc(
        "sorted-set",
        "2.8.0",
        "Returns some members of a sorted set with their scores, and a cursor for the next ones",
    ),
];
