//! Rows of the command table: those of [`super::super::list`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, FAST, READONLY, WRITE};

const PUSH: u32 = WRITE | DENYOOM | FAST;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("lpush", -3, PUSH).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Adds elements at the left end of a list",
    ),
    Command::new("rpush", -3, PUSH).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Adds elements at the right end of a list",
    ),
    Command::new("lpushx", -3, PUSH).keys(1, 1, 1).doc(
        "list",
        "2.2.0",
        "Adds elements at the left end of a list that exists",
    ),
    Command::new("rpushx", -3, PUSH).keys(1, 1, 1).doc(
        "list",
        "2.2.0",
        "Adds elements at the right end of a list that exists",
    ),
    Command::new("lpop", -2, WRITE | FAST).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Removes the first elements of a list and returns them",
    ),
    Command::new("rpop", -2, WRITE | FAST).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Removes the last elements of a list and returns them",
    ),
    Command::new("llen", 2, READONLY | FAST).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Returns the length of a list",
    ),
    Command::new("lrange", 4, READONLY).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Returns a range of the elements of a list",
    ),
    Command::new("lindex", 3, READONLY).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Returns the element of an index of a list",
    ),
    Command::new("lset", 4, WRITE | DENYOOM).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Replaces the element of an index of a list",
    ),
    Command::new("ltrim", 4, WRITE).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Keeps only a range of the elements of a list",
    ),
    Command::new("linsert", 5, WRITE | DENYOOM).keys(1, 1, 1).doc(
        "list",
        "2.2.0",
        "Inserts an element beside another one of a list",
    ),
    Command::new("lrem", 4, WRITE).keys(1, 1, 1).doc(
        "list",
        "1.0.0",
        "Removes the elements of a list that equal a value",
    ),
    Command::new("lpos", -3, READONLY).keys(1, 1, 1).doc(
        "list",
        "6.0.6",
        "Returns the indices of the elements of a list that equal a value",
    ),
];
