//! The handlers of all families.

use super::context::Handlers;
use super::{
    acl, bitfield, bitmap, client, cluster, clusterx, command, config, connection, counter, dump, expire,
    failover, geo, hash, heartbeat, hyperloglog, info, keys, list, list_move, moves, object, pubsub,
    replicas, replication, saving, scan, scripting, server, set, set_algebra, slow, sort, sorted_algebra,
    sorted_pop, sorted_range, sorted_set, string, subsequence, substring, tembo, transaction,
};

/// The handlers of this program: one for each row of the command table.
pub(crate) fn handlers() -> Handlers {
    let families = [
        string::HANDLERS,
        substring::HANDLERS,
        subsequence::HANDLERS,
        counter::HANDLERS,
        hash::HANDLERS,
        set::HANDLERS,
        set_algebra::HANDLERS,
        list::HANDLERS,
        list_move::HANDLERS,
        sorted_set::HANDLERS,
        sorted_pop::HANDLERS,
        sorted_range::HANDLERS,
        sorted_algebra::HANDLERS,
        bitmap::HANDLERS,
        bitfield::HANDLERS,
        hyperloglog::HANDLERS,
        geo::HANDLERS,
        keys::HANDLERS,
        sort::HANDLERS,
        tembo::HANDLERS,
        dump::HANDLERS,
        scan::HANDLERS,
        expire::HANDLERS,
        object::HANDLERS,
        connection::HANDLERS,
        client::HANDLERS,
        command::HANDLERS,
        config::HANDLERS,
        info::HANDLERS,
        server::HANDLERS,
        saving::HANDLERS,
        replication::HANDLERS,
        failover::HANDLERS,
        replicas::HANDLERS,
        cluster::HANDLERS,
        clusterx::HANDLERS,
        transaction::HANDLERS,
        pubsub::HANDLERS,
        slow::HANDLERS,
        scripting::HANDLERS,
        acl::HANDLERS,
        heartbeat::HANDLERS,
        moves::HANDLERS,
    ];
    Handlers::new(families.into_iter().flatten().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::Registry;

    #[test]
    fn each_row_has_a_handler_and_each_handler_a_row() {
        let (handlers, registry) = (handlers(), Registry::new());
        let commands =
            registry.all().iter().flat_map(|&command| [command].into_iter().chain(command.subcommands));
        let with_handler = commands.filter(|command| handlers.has(command)).count();
        assert_eq!(with_handler, handlers.len());
    }
}
