//! Strings as numbers: the INCR and DECR commands.

use tembo_wire::Request;
use tembo_wire::decimal::{Decimal, DecimalError};

use super::args::integer;
use super::context::{Context, Handler};
use crate::fault::{Answer, Fault};
use crate::keyspace::events::class;
use crate::keyspace::format::{Meta, Stored};

pub(super) const HANDLERS: &[(&str, Handler)] =
    &[("incr", incr), ("decr", decr), ("incrby", incrby), ("decrby", decrby), ("incrbyfloat", incrbyfloat)];

fn incr(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    add(ctx, &request[1], 1)
}

fn decr(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    add(ctx, &request[1], -1)
}

fn incrby(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let increment = integer(&request[2])?;
    add(ctx, &request[1], increment)
}

fn decrby(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let decrement = integer(&request[2])?;
    let increment = decrement.checked_neg().ok_or(Fault::Error("ERR decrement would overflow"))?;
    add(ctx, &request[1], increment)
}

fn add(ctx: &mut Context<'_, '_>, key: &[u8], increment: i64) -> Answer {
    let database = ctx.database();
    let found = ctx.keys.find(database, key)?;
    let replaced = found.old;
    let stored = found.live.map(Stored::string).transpose()?;
    let old = stored.map_or(Ok(0), |stored| integer(stored.payload))?;
    let deadline = stored.and_then(|stored| stored.meta.deadline);
    let overflow = Fault::Error("ERR increment or decrement would overflow");
    let new = old.checked_add(increment).ok_or(overflow)?;
    let mut text = itoa::Buffer::new();
    let meta = Meta { deadline, ..Meta::default() };
    ctx.keys.put(database, key, meta, replaced, &[text.format(new).as_bytes()])?;
    ctx.keys.notify(class::STRING, "incrby", database, key);
    ctx.out.write().integer(new);
    Ok(())
}

fn incrbyfloat(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let found = ctx.keys.find(database, key)?;
    let replaced = found.old;
    let stored = found.live.map(Stored::string).transpose()?;
    let old = stored.map_or(&b"0"[..], |stored| stored.payload);
    let deadline = stored.and_then(|stored| stored.meta.deadline);
    let sum = match (Decimal::parse(old), Decimal::parse(&request[2])) {
        // A text that is not a number takes precedence over an infinity, in either order.
        (Err(DecimalError::Infinite), Err(error)) => Err(error),
        (old, increment) => old.and_then(|old| old.checked_add(increment?)),
    };
    let mut text = Vec::new();
    sum.map_err(refused)?.write(&mut text);
    ctx.keys.put(database, key, Meta { deadline, ..Meta::default() }, replaced, &[&text])?;
    ctx.tell([&b"SET"[..], key, &text, b"KEEPTTL"]);
    ctx.keys.notify(class::STRING, "incrbyfloat", database, key);
    ctx.out.bulk(&text)
}

fn refused(error: DecimalError) -> Fault {
    match error {
        DecimalError::Infinite => Fault::Error("ERR increment would produce NaN or Infinity"),
        _ => Fault::Error("ERR value is not a valid float"),
    }
}
