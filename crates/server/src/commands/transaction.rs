//! MULTI, DISCARD, WATCH and UNWATCH. The executor runs EXEC: see [`crate::transaction`].

use std::rc::Rc;

use tembo_wire::Request;

use super::context::{Context, Handler};
use super::key_arguments::ONCE_COMMAND;
use super::table::flag::DENYOOM;
use super::{args, keys};
use crate::fault::{Answer, Fault};
use crate::keyspace::Keyspace;
use crate::keyspace::format::DATABASES;
use crate::queue::{Queue, Watched};
use crate::session::Session;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("multi", multi),
    ("exec", exec_alone),
    ("discard", discard_command),
    ("watch", watch),
    ("unwatch", unwatch),
];

/// Memory that a watched key takes, in addition to its own bytes.
const WATCH_OVERHEAD_BYTES: usize = 128;

fn multi(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    if ctx.session.queue.is_some() {
        return Err(Fault::Error("ERR MULTI calls can not be nested"));
    }
    ctx.session.queue = Some(Rc::default());
    ctx.out.write().ok();
    Ok(())
}

/// EXEC outside MULTI; within it the executor runs the queue itself.
fn exec_alone(_: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    Err(Fault::Error("ERR EXEC without MULTI"))
}

fn discard_command(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    if ctx.session.queue.is_none() {
        return Err(Fault::Error("ERR DISCARD without MULTI"));
    }
    discard(ctx.session, ctx.keys);
    ctx.out.write().ok();
    Ok(())
}

/// Gives up a client's transaction and watched keys, if any.
pub(crate) fn discard(session: &mut Session, keys: &mut Keyspace<'_>) {
    session.queue = None;
    forget_watched(session, keys);
}

/// Ends the watches of a client.
pub(crate) fn forget_watched(session: &mut Session, keys: &mut Keyspace<'_>) {
    let watched = std::mem::take(&mut session.watched);
    keys.watches.unwatch(session.id, watched.keys);
}

fn watch(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if ctx.session.queue.is_some() {
        return Err(Fault::Error("ERR WATCH inside MULTI is not allowed"));
    }
    if !has_changed(ctx.session, ctx.keys) {
        let bytes: usize = request.args().skip(1).map(|key| key.len() + WATCH_OVERHEAD_BYTES).sum();
        if ctx.session.watched.bytes + bytes > ctx.state.config.limits.max_request_bytes {
            return Err(Fault::Error("ERR the watched keys exceed the maximum (client-query-buffer-limit)"));
        }
        request.args().skip(1).try_for_each(|key| watch_key(ctx, key))?;
    }
    ctx.out.write().ok();
    Ok(())
}

fn watch_key(ctx: &mut Context<'_, '_>, key: &[u8]) -> Answer {
    let Context { keys, session, .. } = ctx;
    let live = keys.find(session.database, key)?.live;
    let (is_live, deadline) = (live.is_some(), live.and_then(|stored| stored.meta.deadline));
    let Watched { keys: watched, bytes, expires, .. } = &mut session.watched;
    if let Some(shared) = keys.watches.watch(session.id, session.database, key, is_live) {
        *bytes += key.len() + WATCH_OVERHEAD_BYTES;
        *expires = [*expires, deadline].into_iter().flatten().min();
        watched.push((session.database, shared));
    }
    Ok(())
}

/// Whether a key that a client watches was changed, or has expired.
pub(crate) fn has_changed(session: &Session, keys: &Keyspace<'_>) -> bool {
    let watched = &session.watched;
    if watched.expires.is_some_and(|deadline| deadline <= keys.now_ms) {
        watched.has_expired.set(true);
    }
    watched.has_expired.get() || keys.watches.has_changed(session.id)
}

fn unwatch(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    forget_watched(ctx.session, ctx.keys);
    ctx.out.write().ok();
    Ok(())
}

/// The databases to which the queued commands may write new keys, if `selected` is the one at the beginning.
pub(crate) fn databases_written(queue: &Queue, selected: usize) -> [bool; DATABASES] {
    let (mut written, mut selected) = ([false; DATABASES], selected);
    for (command, request) in queue.iter() {
        match command.name {
            "select" => selected = args::database(&request[1]).unwrap_or(selected),
            "tembo.once" => {
                written[selected] = true;
                note_named(&request.from(ONCE_COMMAND), selected, &mut written);
            }
            "move" | "copy" | "swapdb" => note_named(&request, selected, &mut written),
            _ => {
                let may_create = command.has(DENYOOM) || command.runs_script();
                written[selected] |= may_create || command.name == "smove";
            }
        }
    }
    written
}

/// Notes the databases that a command names, if it names any.
fn note_named(request: &Request<'_>, selected: usize, written: &mut [bool; DATABASES]) {
    let (name, count) = (request.name(), request.arg_count());
    if args::is(name, "move") && count == 3 {
        if let Ok(database) = args::database(&request[2]) {
            written[database] = true;
        }
    } else if args::is(name, "swapdb") && count == 3 {
        // Each of the two may be the database that the next commands write to.
        if let Ok((a, b)) = keys::swapped(request) {
            (written[a], written[b]) = (true, true);
        }
    } else if args::is(name, "copy")
        && count >= 3
        && let Ok((database, _)) = keys::copy_options(request, selected)
    {
        written[database] = true;
    }
}
