//! The commands that Redis cannot have: they use the order of the keys, or the commit.

use tembo_wire::Request;

use super::args::integer;
use super::context::{Context, Handler};
use super::key_arguments::ONCE_COMMAND;
use super::table::Command;
use super::table::flag::{BLOCKING, WRITE};
use crate::fault::{Answer, Fault};
use crate::glob;
use crate::keyspace::tokens::TOKEN_BYTES_MAX;

pub(super) const HANDLERS: &[(&str, Handler)] =
    &[("tembo.count", count), ("tembo.unlink", unlink), ("tembo.unflush", unflush), ("tembo.once", once)];

/// The beginning of keys that an argument names: a literal beginning, and a star.
fn prefix(arg: &[u8]) -> Answer<Vec<u8>> {
    glob::as_prefix(arg)
        .ok_or(Fault::Error("ERR the pattern is to be a beginning of keys, and a * behind it"))
}

fn count(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let keys = ctx.keys.count_prefix(ctx.session.database, &prefix(&request[1])?)?;
    ctx.out.write().integer(keys as i64);
    Ok(())
}

fn unlink(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, prefix) = (ctx.database(), prefix(&request[1])?);
    let removed = if prefix.is_empty() {
        let keys = ctx.keys.len(database)?;
        super::keys::flush(ctx, database..database + 1)?;
        ctx.tell(["FLUSHDB"]);
        ctx.keys.pubsub.invalidate_all();
        keys
    } else {
        ctx.keys.remove_prefix(database, &prefix)?
    };
    ctx.out.write().integer(removed as i64);
    Ok(())
}

/// The command that TEMBO.ONCE is to run.
fn command_of(ctx: &Context<'_, '_>, request: &Request<'_>) -> Answer<&'static Command> {
    let refused = Fault::Error("ERR TEMBO.ONCE runs commands that write and do not wait");
    let command =
        ctx.state.registry.get(request.name()).ok_or(Fault::Error("ERR unknown command in TEMBO.ONCE"))?;
    if !command.takes(request.arg_count()) {
        let text = format!("ERR wrong number of arguments for '{}' command", command.name);
        return Err(Fault::Quoting(text.into_bytes()));
    }
    if !command.has(WRITE) || command.has(BLOCKING) || command.name == "tembo.once" {
        return Err(refused);
    }
    Ok(command)
}

/// The restoring is one commit, without other changes. Replicas take a whole copy: see
/// [`crate::keyspace::retention`].
fn unflush(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    if ctx.state.role.master.is_some() {
        return Err(Fault::Error("ERR a replica has the data of its master; REPLICAOF NO ONE comes first"));
    }
    if ctx.keys.is_dirty() || ctx.keys.pending_words() > 0 {
        return Err(Fault::NeedsCommit);
    }
    let id = ctx.state.random_id();
    ctx.keys.replication.effects.tell_only();
    if !ctx.keys.unflush(id)? {
        return Err(Fault::Error("ERR nothing is kept: see flush-grace"));
    }
    ctx.out.write().ok();
    Ok(())
}

fn once(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (token, ttl) = (&request[1], integer(&request[2])?);
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(Fault::Error("ERR a token has 1 to 512 bytes"));
    }
    let ttl = u64::try_from(ttl).ok().filter(|ttl| *ttl > 0);
    let deadline = ttl.and_then(|ttl| ctx.keys.now_ms.checked_add(ttl));
    let deadline = deadline.ok_or(Fault::Error("ERR invalid expire time in 'tembo.once' command"))?;
    let inner = request.from(ONCE_COMMAND);
    let command = command_of(ctx, &inner)?;
    let name = command.name.as_bytes();
    let digest = ctx.keys.digest(ctx.session.database, std::iter::once(name).chain(inner.args().skip(1)))?;
    let protocol = ctx.out.protocol;
    if let Some(reply) = ctx.keys.known(token, &digest, protocol)? {
        ctx.out.expect_room(reply.len())?;
        ctx.out.raw(&reply);
        return Ok(());
    }
    let start = ctx.out.len();
    ctx.handlers.of(command)(ctx, &inner)?;
    if !ctx.keys.replication.effects.is_told() {
        ctx.tell(inner.args());
    }
    let reply = ctx.out.since(start);
    ctx.keys.remember(token, deadline, &digest, (protocol, reply))
}
