//! Hashes.

use std::ops::ControlFlow;

use tembo_wire::decimal::{Decimal, DecimalError};
use tembo_wire::{Protocol, Request};

use super::args::{Options, integer, is};
use super::context::{Context, Handler};
use super::{element_scan, sampling};
use crate::config::Encodings;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::Keyspace;
use crate::keyspace::collection::places::Many;
use crate::keyspace::collection::value::Collection;
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("hset", hset),
    ("hmset", hmset),
    ("hsetnx", hsetnx),
    ("hget", hget),
    ("hmget", hmget),
    ("hgetall", hgetall),
    ("hkeys", hkeys),
    ("hvals", hvals),
    ("hlen", hlen),
    ("hstrlen", hstrlen),
    ("hexists", hexists),
    ("hdel", hdel),
    ("hincrby", hincrby),
    ("hincrbyfloat", hincrbyfloat),
    ("hrandfield", hrandfield),
    ("hscan", hscan),
];

/// Gives a field its value; returns whether it had one.
pub(super) fn put(
    keys: &mut Keyspace<'_>,
    hash: &mut Collection,
    limits: &Encodings,
    field: &[u8],
    value: &[u8],
) -> Answer<bool> {
    let replaced = keys.put_element(hash, field, value)?;
    if field.len().max(value.len()) as u64 > limits.hash_value_bytes || hash.len() > limits.hash_entries {
        hash.convert();
    }
    Ok(replaced)
}

/// Gives many fields of a large hash their values; returns how many are new.
fn put_many<'e>(
    keys: &mut Keyspace<'_>,
    hash: &mut Collection,
    limits: &Encodings,
    fields: &Many<impl Fn(usize) -> &'e [u8]>,
    value: impl Fn(usize) -> &'e [u8],
) -> Answer<i64> {
    let (mut created, mut longest) = (0, 0);
    keys.put_many(hash, fields, |number, old| {
        let value = value(number);
        created += i64::from(old.is_none());
        longest = longest.max((fields.field)(number).len()).max(value.len());
        Some(value)
    })?;
    if longest as u64 > limits.hash_value_bytes || hash.len() > limits.hash_entries {
        hash.convert();
    }
    Ok(created)
}

fn hset(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let created = put_all(ctx, request, "hset")?;
    ctx.out.write().integer(created);
    Ok(())
}

fn hmset(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    put_all(ctx, request, "hmset")?;
    ctx.out.write().ok();
    Ok(())
}

/// Gives the fields among the arguments their values; returns how many are new.
fn put_all(ctx: &mut Context<'_, '_>, request: &Request<'_>, name: &str) -> Answer<i64> {
    if !request.arg_count().is_multiple_of(2) {
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(Fault::Quoting(text.into_bytes()));
    }
    let (database, key) = (ctx.database(), &request[1]);
    let mut hash = ctx.keys.collection(database, key, Kind::Hash)?.in_parts();
    let mut created = 0;
    let limits = &ctx.state.config.encodings;
    for at in (2..request.arg_count()).step_by(2) {
        let count = (request.arg_count() - at) / 2;
        if hash.takes_many(count) {
            let fields = Many { count, field: |n| &request[at + 2 * n] };
            created += put_many(ctx.keys, &mut hash, limits, &fields, |n| &request[at + 2 * n + 1])?;
            break;
        }
        created += i64::from(!put(ctx.keys, &mut hash, limits, &request[at], &request[at + 1])?);
    }
    ctx.keys.store_changed(key, hash, "hset")?;
    Ok(created)
}

fn hsetnx(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key, field) = (ctx.database(), &request[1], &request[2]);
    let mut hash = ctx.keys.collection(database, key, Kind::Hash)?;
    let is_new = ctx.keys.element(&hash, field)?.is_none();
    if is_new {
        put(ctx.keys, &mut hash, &ctx.state.config.encodings, field, &request[3])?;
        ctx.keys.store_changed(key, hash, "hset")?;
    }
    ctx.out.write().integer(is_new.into());
    Ok(())
}

/// The hash that a command reads.
fn read(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer<Option<Collection>> {
    ctx.keys.read_collection(ctx.session.database, &request[1], Kind::Hash)
}

fn hget(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let hash = read(ctx, request)?;
    let value = hash.as_ref().map(|hash| ctx.keys.element(hash, &request[2])).transpose()?.flatten();
    ctx.out.bulk_or_null(value)
}

fn hmget(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let hash = read(ctx, request)?;
    ctx.out.write().array(request.arg_count() - 2);
    for field in request.args().skip(2) {
        let value = hash.as_ref().map(|hash| ctx.keys.element(hash, field)).transpose()?.flatten();
        ctx.out.bulk_or_null(value)?;
    }
    Ok(())
}

fn hstrlen(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let hash = read(ctx, request)?;
    let value = hash.as_ref().map(|hash| ctx.keys.element(hash, &request[2])).transpose()?.flatten();
    ctx.out.write().integer(value.map_or(0, |value| value.len() as i64));
    Ok(())
}

fn hexists(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let hash = read(ctx, request)?;
    let value = hash.as_ref().map(|hash| ctx.keys.element(hash, &request[2])).transpose()?.flatten();
    ctx.out.write().integer(value.is_some().into());
    Ok(())
}

fn hlen(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let len = read(ctx, request)?.map_or(0, |hash| hash.len());
    ctx.out.write().integer(len as i64);
    Ok(())
}

fn hgetall(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    all(ctx, request, true, true)
}

fn hkeys(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    all(ctx, request, true, false)
}

fn hvals(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    all(ctx, request, false, true)
}

/// Answers all fields, all values, or both.
fn all(ctx: &mut Context<'_, '_>, request: &Request<'_>, fields: bool, values: bool) -> Answer {
    let hash = read(ctx, request)?;
    let len = hash.as_ref().map_or(0, Collection::len) as usize;
    if fields && values {
        ctx.out.write().map(len);
    } else {
        ctx.out.write().array(len);
    }
    let Some(hash) = hash else {
        return Ok(());
    };
    let (mut written, out) = (Ok(()), &mut ctx.out);
    ctx.keys.walk_elements(&hash, 0, |_, field, value| {
        written = if fields { out.bulk(field) } else { Ok(()) };
        if values && written.is_ok() {
            written = out.bulk(value);
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written
}

fn hdel(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let mut hash = ctx.keys.collection(database, key, Kind::Hash)?;
    let mut removed = 0;
    for field in request.args().skip(2) {
        removed += i64::from(ctx.keys.remove_element(&mut hash, field)?);
    }
    if removed > 0 {
        ctx.keys.store_changed(key, hash, "hdel")?;
    }
    ctx.out.write().integer(removed);
    Ok(())
}

fn hincrby(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key, field) = (ctx.database(), &request[1], &request[2]);
    let increment = integer(&request[3])?;
    let mut hash = ctx.keys.collection(database, key, Kind::Hash)?;
    let old = ctx.keys.element(&hash, field)?.map_or(Ok(0), integer);
    let old = old.map_err(|_| Fault::Error("ERR hash value is not an integer"))?;
    let overflow = Fault::Error("ERR increment or decrement would overflow");
    let new = old.checked_add(increment).ok_or(overflow)?;
    let mut text = itoa::Buffer::new();
    let text = text.format(new).as_bytes();
    put(ctx.keys, &mut hash, &ctx.state.config.encodings, field, text)?;
    ctx.keys.store_changed(key, hash, "hincrby")?;
    ctx.out.write().integer(new);
    Ok(())
}

fn hincrbyfloat(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key, field) = (ctx.database(), &request[1], &request[2]);
    let increment = Decimal::parse(&request[3]).map_err(|error| match error {
        DecimalError::Infinite => Fault::Error("ERR value is NaN or Infinity"),
        _ => Fault::Error("ERR value is not a valid float"),
    })?;
    let mut hash = ctx.keys.collection(database, key, Kind::Hash)?;
    let infinite = Fault::Error("ERR increment would produce NaN or Infinity");
    let old = match Decimal::parse(ctx.keys.element(&hash, field)?.unwrap_or(b"0")) {
        Ok(old) => old,
        Err(DecimalError::Infinite) => return Err(infinite),
        Err(_) => return Err(Fault::Error("ERR hash value is not a float")),
    };
    let mut text = Vec::new();
    old.checked_add(increment).map_err(|_| infinite)?.write(&mut text);
    put(ctx.keys, &mut hash, &ctx.state.config.encodings, field, &text)?;
    ctx.keys.store_changed(key, hash, "hincrbyfloat")?;
    ctx.tell([&b"HSET"[..], key, field, &text]);
    ctx.out.bulk(&text)
}

fn hrandfield(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let Some(count) = request.get(2) else {
        let field = match read(ctx, request)? {
            Some(hash) => ctx.keys.draw_element(&hash, &mut ctx.state.random)?,
            None => None,
        };
        return ctx.out.bulk_or_null(field.as_ref().map(|(field, _)| &field[..]));
    };
    let count = sampling::signed_count(count)?;
    let mut options = Options::after(request, 3);
    let with_values = options.next().is_some_and(|word| is(word, "WITHVALUES"));
    if request.arg_count() > 4 || request.arg_count() == 4 && !with_values {
        return Err(SYNTAX);
    }
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(Fault::Error("ERR value is out of range"));
    }
    let hash = read(ctx, request)?;
    let nested = with_values && ctx.out.protocol == Protocol::Resp3;
    sampling::answer(
        ctx,
        hash.as_ref(),
        count,
        |out, len| out.write().array(if with_values && !nested { 2 * len } else { len }),
        |out, (field, value)| {
            if nested {
                out.write().array(2);
            }
            out.bulk(field)?;
            if with_values { out.bulk(value) } else { Ok(()) }
        },
    )
}

fn hscan(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    element_scan::scan(ctx, request, Kind::Hash)
}
