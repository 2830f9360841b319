//! Rows of the command table: those of [`super::super::heartbeat`].

use crate::commands::table::Command;
use crate::commands::table::flag::{ADMIN, NO_MULTI, NOSCRIPT, STALE};

pub(super) const HEARTBEAT: Command =
    Command::new("clusterx|heartbeat", 5, ADMIN | NOSCRIPT | STALE | NO_MULTI).doc(
        "cluster",
        "7.0.0",
        "Said by a controller: the master of the shard, and for how long it may take writes",
    );
