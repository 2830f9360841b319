//! Rows of the command table: those of [`super::super::transaction`].

use crate::commands::table::Command;
use crate::commands::table::flag::{
    ALLOW_BUSY, AT_ONCE, FAST, LOADING, NOSCRIPT, RUNS_QUEUE, SKIP_SLOWLOG, STALE, TRANSACTION,
};

const FLAGS: u32 = NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY | TRANSACTION;
const EXEC_FLAGS: u32 = NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG | TRANSACTION;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("multi", 1, FLAGS | AT_ONCE).doc(
        "transactions",
        "1.2.0",
        "Begins a transaction: queues the commands that follow",
    ),
    Command::new("exec", 1, EXEC_FLAGS | AT_ONCE | RUNS_QUEUE).doc(
        "transactions",
        "1.2.0",
        "Runs the queued commands, all of them durably or none",
    ),
    Command::new("discard", 1, FLAGS | AT_ONCE).doc("transactions", "2.0.0", "Gives the transaction up"),
    Command::new("watch", -2, FLAGS | AT_ONCE).only_looks().keys(1, -1, 1).doc(
        "transactions",
        "2.2.0",
        "Lets the next EXEC do nothing if one of the keys is changed before it",
    ),
    Command::new("unwatch", 1, FLAGS).doc("transactions", "2.2.0", "Watches no key any more"),
];
