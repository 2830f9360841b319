//! Rows of the command table: those of [`super::super::failover`].

use crate::commands::table::Command;
use crate::commands::table::flag::{ADMIN, NOSCRIPT, STALE};

pub(in crate::commands) const COMMANDS: &[Command] = &[Command::new(
    "failover",
    -1,
    ADMIN | NOSCRIPT | STALE,
)
.doc("server", "6.2.0", "Lets this master and one of its replicas change places")];
