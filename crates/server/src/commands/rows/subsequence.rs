//! Rows of the command table: those of [`super::super::subsequence`].

use crate::commands::table::Command;
use crate::commands::table::flag::{READONLY, STRING};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[Command::new("lcs", -3, READONLY | STRING).keys(1, 2, 1).doc(
        "string",
        "7.0.0",
        "Returns the longest common subsequence of the strings under two keys, its length, or its places",
    )];
