//! Rows of the command table: those of [`super::super::set`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, READONLY, SET, WRITE};

const LOOK_UP: u32 = READONLY | FAST | SET;
const VARIES: &[&str] = &["nondeterministic_output"];

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("sadd", -3, WRITE | DENYOOM | FAST | SET).keys(1, 1, 1).doc(
        "set",
        "1.0.0",
        "Adds members to a set",
    ),
    Command::new("srem", -3, WRITE | FAST | SET).keys(1, 1, 1).doc(
        "set",
        "1.0.0",
        "Removes members of a set",
    ),
    Command::new("smembers", 2, READONLY | SET).keys(1, 1, 1).tips(&["nondeterministic_output_order"]).doc(
        "set",
        "1.0.0",
        "Returns all members of a set",
    ),
    Command::new("sismember", 3, LOOK_UP).keys(1, 1, 1).doc(
        "set",
        "1.0.0",
        "Tells whether a set has a member",
    ),
    Command::new("smismember", -3, LOOK_UP).keys(1, 1, 1).doc(
        "set",
        "6.2.0",
        "Tells which of several members a set has",
    ),
    Command::new("scard", 2, LOOK_UP).keys(1, 1, 1).doc(
        "set",
        "1.0.0",
        "Returns the number of members of a set",
    ),
    Command::new("spop", -2, WRITE | FAST | SET).keys(1, 1, 1).tips(VARIES).doc(
        "set",
        "1.0.0",
        "Removes random members of a set and returns them",
    ),
    Command::new("srandmember", -2, READONLY | SET).keys(1, 1, 1).tips(VARIES).doc(
        "set",
        "1.0.0",
        "Returns random members of a set",
    ),
    Command::new("smove", 4, WRITE | FAST | SET).keys(1, 2, 1).doc(
        "set",
        "1.0.0",
        "Moves a member from one set to another",
    ),
    Command::new("sscan", -3, READONLY | SET).keys(1, 1, 1).tips(VARIES).doc(
        "set",
        "2.8.0",
        "Returns some members of a set, and a cursor for the next ones",
    ),
];
