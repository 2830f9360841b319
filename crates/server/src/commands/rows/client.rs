//! Rows of the command table: those of [`super::super::client`].

use crate::commands::table::Command;
use crate::commands::table::flag::{ADMIN, CONNECTION, LOADING, NOSCRIPT, STALE};

const OWN: u32 = NOSCRIPT | LOADING | STALE | CONNECTION;
const OTHERS: u32 = OWN | ADMIN;

pub(in crate::commands) const COMMANDS: &[Command] = &[Command::new("client", -2, 0)
    .doc("connection", "2.4.0", "Tells about connections and changes them")
    .subcommands(&[
        Command::new("client|id", 2, OWN).doc("connection", "5.0.0", "Returns the number of this connection"),
        Command::new("client|getname", 2, OWN).doc(
            "connection",
            "2.6.9",
            "Returns the name of this connection",
        ),
        Command::new("client|setname", 3, OWN).doc("connection", "2.6.9", "Names this connection"),
        Command::new("client|setinfo", 4, OWN).doc(
            "connection",
            "7.2.0",
            "Says which library this connection comes from",
        ),
        Command::new("client|info", 2, OWN).tips(&["nondeterministic_output"]).doc(
            "connection",
            "6.2.0",
            "Describes this connection",
        ),
        Command::new("client|list", -2, OTHERS).tips(&["nondeterministic_output"]).doc(
            "connection",
            "2.4.0",
            "Describes all connections",
        ),
        Command::new("client|kill", -3, OTHERS).doc("connection", "2.4.0", "Closes connections"),
        Command::new("client|reply", 3, OWN).doc("connection", "3.2.0", "Turns replies off and on"),
        Command::new("client|pause", -3, OTHERS).doc(
            "connection",
            "2.9.50",
            "Lets the commands of all clients wait",
        ),
        Command::new("client|unpause", 2, OTHERS).doc(
            "connection",
            "6.2.0",
            "Lets the commands of clients wait no longer",
        ),
        Command::new("client|unblock", -3, OTHERS).doc(
            "connection",
            "5.0.0",
            "Lets a client go on that waits in a command",
        ),
        Command::new("client|no-evict", 3, OTHERS).doc(
            "connection",
            "7.0.0",
            "Exempts this connection from eviction",
        ),
        Command::new("client|caching", 3, OWN).doc(
            "connection",
            "6.0.0",
            "Says whether the next command's reads are tracked",
        ),
        Command::new("client|getredir", 2, OWN).doc(
            "connection",
            "6.0.0",
            "Returns which client gets this one's invalidations",
        ),
        Command::new("client|tracking", -3, OWN).doc(
            "connection",
            "6.0.0",
            "Turns the tracking of keys for client-side caching on or off",
        ),
        Command::new("client|trackinginfo", 2, OWN).doc(
            "connection",
            "6.2.0",
            "Describes the tracking of keys of this connection",
        ),
        Command::new("client|help", 2, LOADING | STALE | CONNECTION).doc(
            "connection",
            "5.0.0",
            "Explains the subcommands",
        ),
    ])];
