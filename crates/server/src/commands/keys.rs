//! Commands on keys, whatever type of value is under them.

use tembo_wire::Request;

use super::args::{self, Options, is};
use super::context::{Context, Handler};
use crate::fault::{Answer, DB_OUT_OF_RANGE, Fault, NO_SUCH_KEY, SYNTAX};
use crate::keyspace::events::class;
use crate::keyspace::format::DATABASES;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("del", del),
    ("unlink", del),
    ("exists", exists),
    ("touch", exists),
    ("type", kind),
    ("rename", rename),
    ("renamenx", renamenx),
    ("copy", copy),
    ("move", move_to_database),
    ("swapdb", swapdb),
    ("randomkey", randomkey),
    ("dbsize", dbsize),
    ("flushdb", flushdb),
    ("flushall", flushall),
];

fn del(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let database = ctx.database();
    let mut removed = 0;
    for key in request.args().skip(1) {
        let found = ctx.keys.find(database, key)?;
        let (is_live, present, old) = (found.live.is_some(), found.present, found.old);
        if present {
            ctx.keys.remove(database, key, old)?;
        }
        if is_live {
            ctx.keys.notify(class::GENERIC, "del", database, key);
        }
        removed += i64::from(is_live);
    }
    ctx.out.write().integer(removed);
    Ok(())
}

fn exists(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let mut existing = 0;
    for key in request.args().skip(1) {
        existing += i64::from(ctx.keys.read(ctx.session.database, key)?.is_some());
    }
    ctx.out.write().integer(existing);
    Ok(())
}

fn kind(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let stored = ctx.keys.read(ctx.session.database, &request[1])?;
    ctx.out.write().simple(stored.map_or("none", |stored| stored.meta.kind.name()));
    Ok(())
}

fn rename(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    move_key(ctx, request, true)?;
    ctx.out.write().ok();
    Ok(())
}

fn renamenx(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let moved = move_key(ctx, request, false)?;
    ctx.out.write().integer(moved.into());
    Ok(())
}

/// Moves a key and its deadline; tells whether it did.
fn move_key(ctx: &mut Context<'_, '_>, request: &Request<'_>, replace: bool) -> Answer<bool> {
    let (database, from, to) = (ctx.database(), &request[1], &request[2]);
    let source = ctx.keys.find(database, from)?;
    let (stored, from_old) = (source.live.ok_or(NO_SUCH_KEY)?, source.old);
    if from == to {
        return Ok(false);
    }
    let (meta, payload) = (stored.meta, stored.payload.to_vec());
    let target = ctx.keys.find(database, to)?;
    if target.live.is_some() && !replace {
        return Ok(false);
    }
    let (to_old, replaced) = (target.old, target.live.is_some());
    ctx.keys.put(database, to, meta, to_old, &[&payload])?;
    if replaced {
        ctx.keys.notify(class::NEW, "new", database, to);
    }
    // The elements of a large collection belong to the other key now.
    ctx.keys.remove(database, from, from_old.kept())?;
    ctx.keys.notify(class::GENERIC, "rename_from", database, from);
    ctx.keys.notify(class::GENERIC, "rename_to", database, to);
    Ok(true)
}

/// The database that COPY copies to, and whether it may replace a key there.
pub(super) fn copy_options(request: &Request<'_>, selected: usize) -> Answer<(usize, bool)> {
    let (mut database, mut replace) = (selected, false);
    let mut options = Options::after(request, 3);
    while let Some(word) = options.next() {
        if is(word, "REPLACE") {
            replace = true;
        } else if is(word, "DB") {
            database = args::database(options.value()?)?;
        } else {
            return Err(SYNTAX);
        }
    }
    Ok((database, replace))
}

fn copy(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, from, to) = (ctx.database(), &request[1], &request[2]);
    let (target_database, replace) = copy_options(request, database)?;
    if target_database >= ctx.keys.layout().databases() {
        return Err(Fault::Error("ERR Copying to another database is not allowed in cluster mode"));
    }
    if database == target_database && from == to {
        return Err(Fault::Error("ERR source and destination objects are the same"));
    }
    if ctx.keys.find(database, from)?.live.is_none() {
        ctx.keys.notify(class::MISS, "keymiss", database, from);
    }
    let copied = copy_key(ctx, (database, from), (target_database, to), replace)?;
    ctx.out.write().integer(copied.into());
    Ok(())
}

/// Copies a key with its deadline; tells whether it did.
fn copy_key(
    ctx: &mut Context<'_, '_>,
    from: (usize, &[u8]),
    to: (usize, &[u8]),
    replace: bool,
) -> Answer<bool> {
    if ctx.keys.find(from.0, from.1)?.live.is_none() {
        return Ok(false);
    }
    let target = ctx.keys.find(to.0, to.1)?;
    let (old, replaced) = (target.old, target.live.is_some());
    if replaced && !replace {
        return Ok(false);
    }
    ctx.keys.copy(from, to, old)?;
    if replaced {
        // Redis removes the old key first.
        ctx.keys.notify(class::NEW, "new", to.0, to.1);
    }
    ctx.keys.notify(class::GENERIC, "copy_to", to.0, to.1);
    Ok(true)
}

fn move_to_database(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if ctx.state.cluster.is_some() {
        return Err(Fault::Error("ERR MOVE is not allowed in cluster mode"));
    }
    let (database, key) = (ctx.database(), &request[1]);
    let target = args::database(&request[2])?;
    if target == database {
        return Err(Fault::Error("ERR source and destination objects are the same"));
    }
    let moved =
        ctx.keys.find(target, key)?.live.is_none() && ctx.keys.change_database(database, target, key)?;
    if moved {
        ctx.keys.notify(class::GENERIC, "move_from", database, key);
        ctx.keys.notify(class::GENERIC, "move_to", target, key);
    }
    ctx.out.write().integer(moved.into());
    Ok(())
}

/// The two databases that SWAPDB names.
pub(super) fn swapped(request: &Request<'_>) -> Answer<(usize, usize)> {
    let number = |at: usize, invalid| {
        args::integer(&request[at]).ok().filter(|number| i32::try_from(*number).is_ok()).ok_or(invalid)
    };
    let a = number(1, Fault::Error("ERR invalid first DB index"))?;
    let b = number(2, Fault::Error("ERR invalid second DB index"))?;
    let database = |number| usize::try_from(number).ok().filter(|&number| number < DATABASES);
    Ok((database(a).ok_or(DB_OUT_OF_RANGE)?, database(b).ok_or(DB_OUT_OF_RANGE)?))
}

fn swapdb(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if ctx.state.cluster.is_some() {
        return Err(Fault::Error("ERR SWAPDB is not allowed in cluster mode"));
    }
    let (a, b) = swapped(request)?;
    ctx.keys.swap(a, b)?;
    ctx.out.write().ok();
    Ok(())
}

fn randomkey(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let key = ctx.keys.random_key(ctx.session.database, &mut ctx.state.random)?;
    ctx.out.bulk_or_null(key.as_deref())
}

fn dbsize(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let keys = ctx.keys.len(ctx.session.database)?;
    ctx.out.write().integer(keys as i64);
    Ok(())
}

/// Removes the keys of databases, and keeps them as long as `flush-grace` says.
pub(super) fn flush(ctx: &mut Context<'_, '_>, databases: std::ops::Range<usize>) -> Answer {
    ctx.keys.keeping.grace_ms = ctx.state.config.flush_grace.as_millis() as u64;
    ctx.keys.flush(databases)
}

fn flushdb(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    check_flush_option(request)?;
    let database = ctx.session.database;
    flush(ctx, database..database + 1)?;
    ctx.keys.pubsub.invalidate_all();
    ctx.out.write().ok();
    Ok(())
}

fn flushall(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    check_flush_option(request)?;
    flush(ctx, 0..DATABASES)?;
    ctx.keys.pubsub.invalidate_all();
    ctx.out.write().ok();
    Ok(())
}

/// ASYNC and SYNC are accepted; both reply when the removal is durable.
fn check_flush_option(request: &Request<'_>) -> Answer {
    match request.get(1) {
        None => Ok(()),
        Some(word) if request.arg_count() == 2 && (is(word, "ASYNC") || is(word, "SYNC")) => Ok(()),
        Some(_) => Err(SYNTAX),
    }
}
