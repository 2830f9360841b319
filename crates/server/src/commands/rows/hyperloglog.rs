//! Rows of the command table: those of [`super::super::hyperloglog`].

use crate::commands::table::Command;
use crate::commands::table::flag::{ADMIN, AFTER_COMMIT, DENYOOM, FAST, READONLY, WRITE};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("pfadd", -2, WRITE | DENYOOM | FAST).keys(1, 1, 1).doc(
        "hyperloglog",
        "2.8.9",
        "Adds elements to a HyperLogLog",
    ),
    // PFCOUNT may write: the estimate is kept with the sketch.
    Command::new("pfcount", -2, READONLY | AFTER_COMMIT).keys(1, -1, 1).doc(
        "hyperloglog",
        "2.8.9",
        "Estimates how many elements were added to any of several HyperLogLogs",
    ),
    Command::new("pfmerge", -2, WRITE | DENYOOM).keys(1, -1, 1).doc(
        "hyperloglog",
        "2.8.9",
        "Merges HyperLogLogs into one",
    ),
    Command::new("pfdebug", 3, WRITE | DENYOOM | ADMIN).keys(2, 2, 1).doc(
        "hyperloglog",
        "2.8.9",
        "Shows how a HyperLogLog is kept",
    ),
    Command::new("pfselftest", 1, ADMIN).doc("hyperloglog", "2.8.9", "Tests the estimates of HyperLogLogs"),
];
