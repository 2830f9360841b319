//! Rows of the command table: those of [`super::super::info`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DANGEROUS, LOADING, STALE};

pub(in crate::commands) const COMMANDS: &[Command] = &[Command::new("info", -1, LOADING | STALE | DANGEROUS)
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .doc("server", "1.0.0", "Describes the server, by sections")];
