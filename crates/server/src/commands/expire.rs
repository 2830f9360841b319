//! When keys expire.

use tembo_wire::Request;

use super::args::{Options, integer, is, quoting};
use super::context::{Context, Handler};
use super::string::{Unit, invalid_expire_time};
use crate::fault::{Answer, Fault};
use crate::keyspace::events::class;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("expire", expire),
    ("pexpire", pexpire),
    ("expireat", expireat),
    ("pexpireat", pexpireat),
    ("ttl", ttl),
    ("pttl", pttl),
    ("expiretime", expiretime),
    ("pexpiretime", pexpiretime),
    ("persist", persist),
];

fn expire(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let now_ms = ctx.keys.now_ms as i64;
    expire_generic(ctx, request, Unit::Seconds, now_ms, "expire")
}

fn pexpire(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let now_ms = ctx.keys.now_ms as i64;
    expire_generic(ctx, request, Unit::Milliseconds, now_ms, "pexpire")
}

fn expireat(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    expire_generic(ctx, request, Unit::Seconds, 0, "expireat")
}

fn pexpireat(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    expire_generic(ctx, request, Unit::Milliseconds, 0, "pexpireat")
}

/// The conditions of a new deadline.
#[derive(Default)]
struct Conditions {
    none: bool,
    some: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn parse(options: Options<'_>) -> Answer<Self> {
        let mut parsed = Conditions::default();
        for word in options {
            let condition = match word {
                _ if is(word, "NX") => &mut parsed.none,
                _ if is(word, "XX") => &mut parsed.some,
                _ if is(word, "GT") => &mut parsed.later,
                _ if is(word, "LT") => &mut parsed.earlier,
                _ => return Err(quoting("ERR Unsupported option ", word, "")),
            };
            *condition = true;
        }
        if parsed.none && (parsed.some || parsed.later || parsed.earlier) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(Fault::Error(text));
        }
        if parsed.later && parsed.earlier {
            return Err(Fault::Error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(parsed)
    }

    /// A key that does not expire has, for these, a deadline beyond all others.
    fn allow(&self, old: Option<u64>, new: i64) -> bool {
        let old = old.map(|old| old as i64);
        !(self.none && old.is_some()
            || self.some && old.is_none()
            || self.later && old.is_none_or(|old| new <= old)
            || self.earlier && old.is_some_and(|old| new >= old))
    }
}

fn expire_generic(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    unit: Unit,
    base: i64,
    name: &str,
) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let conditions = Conditions::parse(Options::after(request, 3))?;
    let factor = if unit == Unit::Seconds { 1000 } else { 1 };
    let deadline = integer(&request[2])?.checked_mul(factor).and_then(|time| time.checked_add(base));
    let deadline = deadline.ok_or_else(|| invalid_expire_time(name))?;
    let found = ctx.keys.find(database, key)?;
    let (live, old) = (found.live.is_some(), found.old);
    if !live || !conditions.allow(old.listed, deadline) {
        ctx.out.write().integer(0);
        return Ok(());
    }
    match u64::try_from(deadline) {
        Ok(deadline) if deadline > ctx.keys.now_ms => {
            ctx.keys.set_deadline(database, key, Some(deadline))?;
            ctx.tell([&b"PEXPIREAT"[..], key, deadline.to_string().as_bytes()]);
            ctx.keys.notify(class::GENERIC, "expire", database, key);
        }
        _ => {
            ctx.keys.remove(database, key, old)?;
            ctx.tell([&b"DEL"[..], key]);
            ctx.keys.notify(class::GENERIC, "del", database, key);
        }
    }
    ctx.out.write().integer(1);
    Ok(())
}

fn ttl(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let now_ms = ctx.keys.now_ms;
    reply_deadline(ctx, request, |deadline| rounded_to_seconds(deadline - now_ms))
}

fn pttl(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let now_ms = ctx.keys.now_ms;
    reply_deadline(ctx, request, |deadline| deadline - now_ms)
}

fn expiretime(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    reply_deadline(ctx, request, rounded_to_seconds)
}

fn pexpiretime(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    reply_deadline(ctx, request, |deadline| deadline)
}

fn rounded_to_seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

/// Answers -2 for no key, -1 for no deadline, else what `shown` makes of the deadline, which is in the
/// future.
fn reply_deadline(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    shown: impl FnOnce(u64) -> u64,
) -> Answer {
    let reply = match ctx.keys.read(ctx.session.database, &request[1])?.map(|stored| stored.meta.deadline) {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => shown(deadline) as i64,
    };
    ctx.out.write().integer(reply);
    Ok(())
}

fn persist(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let had_deadline =
        ctx.keys.find(database, key)?.live.is_some_and(|stored| stored.meta.deadline.is_some());
    if had_deadline {
        ctx.keys.set_deadline(database, key, None)?;
        ctx.keys.notify(class::GENERIC, "persist", database, key);
    }
    ctx.out.write().integer(had_deadline.into());
    Ok(())
}
