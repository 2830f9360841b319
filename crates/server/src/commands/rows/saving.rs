//! Rows of the command table: those of [`super::super::saving`].

use crate::commands::table::Command;
use crate::commands::table::flag::{
    ADMIN, ADMIN_ONLY, DANGEROUS, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NOSCRIPT, STALE,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("save", 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI).doc(
        "server",
        "1.0.0",
        "Writes all keys into a file of Redis, and answers when it is on the device",
    ),
    Command::new("bgsave", -1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING).doc(
        "server",
        "1.0.0",
        "Writes all keys into a file of Redis while commands go on",
    ),
    Command::new("lastsave", 1, LOADING | STALE | FAST | ADMIN_ONLY | DANGEROUS)
        .tips(&["nondeterministic_output"])
        .doc("server", "1.0.0", "Returns when the keys were saved last, in seconds"),
];
