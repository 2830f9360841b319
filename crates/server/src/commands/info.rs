//! INFO.

use tembo_wire::Request;

use super::Context;
use super::replicas::replicas_of;
use super::table::Command;
use super::table::flag::{DANGEROUS, LOADING, STALE};
use crate::fault::Answer;
use crate::info::{self, Facts};
use crate::keyspace::DATABASES;
use crate::pubsub::Kind;

pub(super) const COMMANDS: &[Command] = &[Command::new("info", -1, LOADING | STALE | DANGEROUS, info)
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .doc("server", "1.0.0", "Describes the server, by sections")];

fn info(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let mut keyspace = Vec::new();
    for database in 0..DATABASES {
        let keys = ctx.keys.len(database)?;
        if keys > 0 {
            keyspace.push((database, keys, ctx.keys.expires_len(database)?));
        }
    }
    let stats = ctx.keys.pool().stats();
    ctx.state.note_used(stats.used_bytes());
    let facts = Facts {
        state: ctx.state,
        scripts: ctx.scripts,
        keys: ctx.keys.stats,
        pool: ctx.keys.pool(),
        clients: ctx.clients.len(),
        client_bytes: ctx.clients.memory_bytes(),
        is_reclaiming: ctx.keys.is_reclaiming(),
        watched_keys: ctx.keys.watches.len(),
        blocked_clients: ctx.keys.waiters.len(),
        tracking_counts: ctx.keys.pubsub.tracking.counts(),
        pubsub_counts: [
            ctx.keys.pubsub.channels_len(Kind::Channel),
            ctx.keys.pubsub.patterns_len(),
            ctx.keys.pubsub.channels_len(Kind::Shard),
        ],
        keyspace,
        position: ctx.keys.replication.position,
        second: ctx.keys.replication.second,
        backlog_first: ctx.keys.replication.backlog.first(),
        replicas: replicas_of(ctx.clients.iter()),
    };
    let wanted: Vec<_> = request.args().skip(1).collect();
    let text = info::write(&facts, &wanted);
    ctx.out.write().verbatim(*b"txt", text);
    Ok(())
}
