//! Whole strings: SET and GET in all their forms.

use tembo::PREFETCH_KEYS_MAX;
use tembo_wire::Request;
use tembo_wire::number::parse_i64;

use super::args::{Options, is};
use super::context::{Context, Handler};
use super::table::KeyRange;
use crate::fault::{Answer, Fault, NOT_AN_INTEGER, SYNTAX};
use crate::keyspace::entry::Old;
use crate::keyspace::events::class;
use crate::keyspace::format::{Meta, Stored};

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("get", get),
    ("set", set),
    ("setnx", setnx),
    ("setex", setex),
    ("psetex", psetex),
    ("getset", getset),
    ("getdel", getdel),
    ("getex", getex),
    ("mget", mget),
    ("mset", mset),
    ("msetnx", msetnx),
    ("strlen", strlen),
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

/// A time as an option gives it.
#[derive(Clone, Copy)]
struct Expiry<'a> {
    /// The option's name.
    name: &'static str,
    time: &'a [u8],
    unit: Unit,
    /// Since the Unix epoch, not from now.
    absolute: bool,
}

/// The options of SET and GETEX.
#[derive(Default)]
struct SetOptions<'a> {
    only_new: bool,
    only_existing: bool,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    expiry: Option<Expiry<'a>>,
}

impl<'a> SetOptions<'a> {
    /// Reads the options of SET or, with `for_get`, of GETEX.
    fn parse(mut options: Options<'a>, for_get: bool) -> Answer<Self> {
        let mut parsed = SetOptions::default();
        while let Some(word) = options.next() {
            if let Some(&(name, unit, absolute)) = EXPIRY_OPTIONS.iter().find(|option| is(word, option.0)) {
                let other = parsed.expiry.is_some_and(|expiry| expiry.name != name);
                if other || parsed.keep_ttl || parsed.persist {
                    return Err(SYNTAX);
                }
                parsed.expiry = Some(Expiry { name, time: options.value()?, unit, absolute });
            } else if for_get && is(word, "PERSIST") && parsed.expiry.is_none() {
                parsed.persist = true;
            } else if for_get {
                return Err(SYNTAX);
            } else if is(word, "NX") && !parsed.only_existing {
                parsed.only_new = true;
            } else if is(word, "XX") && !parsed.only_new {
                parsed.only_existing = true;
            } else if is(word, "GET") {
                parsed.get = true;
            } else if is(word, "KEEPTTL") && parsed.expiry.is_none() {
                parsed.keep_ttl = true;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(parsed)
    }

    /// Whether the present value of the key matters.
    fn looks_at_old(&self) -> bool {
        self.only_new || self.only_existing || self.get || self.keep_ttl
    }
}

/// Its name, its unit, and whether it is absolute.
type ExpiryOption = (&'static str, Unit, bool);

const EX: ExpiryOption = ("EX", Unit::Seconds, false);
const PX: ExpiryOption = ("PX", Unit::Milliseconds, false);
const EXPIRY_OPTIONS: &[ExpiryOption] =
    &[EX, PX, ("EXAT", Unit::Seconds, true), ("PXAT", Unit::Milliseconds, true)];

/// The deadline that an option or argument means. Only times after the epoch are deadlines.
fn deadline(expiry: Expiry<'_>, now_ms: u64, command: &str) -> Answer<u64> {
    let time = parse_i64(expiry.time).ok_or(NOT_AN_INTEGER)?;
    let factor = if expiry.unit == Unit::Seconds { 1000 } else { 1 };
    let base = if expiry.absolute { 0 } else { now_ms as i64 };
    let deadline = Some(time)
        .filter(|&time| time > 0)
        .and_then(|time| time.checked_mul(factor))
        .and_then(|time| time.checked_add(base));
    deadline.map(|deadline| deadline as u64).ok_or_else(|| invalid_expire_time(command))
}

pub(super) fn invalid_expire_time(command: &str) -> Fault {
    Fault::Quoting(format!("ERR invalid expire time in '{command}' command").into_bytes())
}

fn get(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let stored = ctx.keys.read_string(ctx.session.database, &request[1])?;
    ctx.out.bulk_or_null(stored.map(|stored| stored.payload))
}

fn strlen(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let stored = ctx.keys.read_string(ctx.session.database, &request[1])?;
    ctx.out.write().integer(stored.map_or(0, |stored| stored.payload.len() as i64));
    Ok(())
}

fn mget(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    ctx.out.write().array(request.arg_count() - 1);
    let mut ahead = request.args().skip(1);
    for (index, key) in request.args().skip(1).enumerate() {
        if index % PREFETCH_KEYS_MAX == 0 {
            ctx.keys.prefetch(ctx.session.database, ahead.by_ref().take(PREFETCH_KEYS_MAX));
        }
        let stored = ctx.keys.read(ctx.session.database, key)?.and_then(|stored| stored.string().ok());
        ctx.out.bulk_or_null(stored.map(|stored| stored.payload))?;
    }
    Ok(())
}

fn set(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (key, value) = (&request[1], &request[2]);
    let options = SetOptions::parse(Options::after(request, 3), false)?;
    if set_generic(ctx, key, value, &options, "set")? {
        if !options.get {
            ctx.out.write().ok();
        }
    } else if !options.get {
        ctx.out.write().null();
    }
    Ok(())
}

fn setnx(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let options = SetOptions { only_new: true, ..SetOptions::default() };
    let done = set_generic(ctx, &request[1], &request[2], &options, "setnx")?;
    ctx.out.write().integer(done.into());
    Ok(())
}

fn setex(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    set_with_ttl(ctx, request, EX, "setex")
}

fn psetex(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    set_with_ttl(ctx, request, PX, "psetex")
}

fn set_with_ttl(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    (name, unit, absolute): ExpiryOption,
    command: &str,
) -> Answer {
    let expiry = Some(Expiry { name, time: &request[2], unit, absolute });
    let options = SetOptions { expiry, ..SetOptions::default() };
    set_generic(ctx, &request[1], &request[3], &options, command)?;
    ctx.out.write().ok();
    Ok(())
}

fn getset(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let options = SetOptions { get: true, ..SetOptions::default() };
    set_generic(ctx, &request[1], &request[2], &options, "getset").map(drop)
}

/// Sets, if the conditions hold, and tells whether they did. With the GET option the old string is written
/// as the reply, and nothing else may be.
fn set_generic(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    value: &[u8],
    options: &SetOptions<'_>,
    name: &str,
) -> Answer<bool> {
    let database = ctx.database();
    let now_ms = ctx.keys.now_ms;
    let mut deadline = options.expiry.map(|expiry| deadline(expiry, now_ms, name)).transpose()?;
    let old = if options.looks_at_old() {
        let found = ctx.keys.find(database, key)?;
        if options.get {
            let stored = found.live.map(Stored::string).transpose()?;
            ctx.out.bulk_or_null(stored.map(|stored| stored.payload))?;
        }
        let (is_live, replaced) = (found.live.is_some(), found.old);
        let kept = found.live.and_then(|stored| stored.meta.deadline);
        if options.get && !is_live {
            ctx.keys.notify(class::MISS, "keymiss", database, key);
        }
        if options.only_new && is_live || options.only_existing && !is_live {
            return Ok(false);
        }
        if options.keep_ttl {
            deadline = kept;
        }
        replaced
    } else {
        ctx.keys.old(database, key)?
    };
    ctx.keys.put(database, key, Meta { deadline, ..Meta::default() }, old, &[value])?;
    if ctx.tells() && (options.expiry.is_some() || options.get) {
        match deadline.map(|deadline| deadline.to_string()) {
            Some(deadline) => ctx.tell([&b"SET"[..], key, value, b"PXAT", deadline.as_bytes()]),
            None => ctx.tell([&b"SET"[..], key, value]),
        }
    }
    ctx.keys.notify(class::STRING, "set", database, key);
    if options.expiry.is_some() {
        ctx.keys.notify(class::GENERIC, "expire", database, key);
    }
    Ok(true)
}

fn getdel(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let database = ctx.database();
    let found = ctx.keys.find(database, &request[1])?;
    let (present, old, is_live) = (found.present, found.old, found.live.is_some());
    let stored = found.live.map(Stored::string).transpose()?;
    ctx.out.bulk_or_null(stored.map(|stored| stored.payload))?;
    if present {
        ctx.keys.remove(database, &request[1], old)?;
        ctx.tell([&b"DEL"[..], &request[1]]);
    }
    if is_live {
        ctx.keys.notify(class::GENERIC, "del", database, &request[1]);
    } else {
        ctx.keys.notify(class::MISS, "keymiss", database, &request[1]);
    }
    Ok(())
}

fn getex(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let options = SetOptions::parse(Options::after(request, 2), true)?;
    let (database, now_ms, key) = (ctx.database(), ctx.keys.now_ms, &request[1]);
    let Some(stored) = ctx.keys.read_string(database, key)? else {
        ctx.out.write().null();
        return Ok(());
    };
    let (meta, old) = (stored.meta, Old::of(&stored));
    let deadline = options.expiry.map(|expiry| deadline(expiry, now_ms, "getex")).transpose()?;
    ctx.out.bulk(stored.payload)?;
    if deadline.is_some_and(|deadline| deadline <= now_ms) {
        ctx.keys.remove(database, key, old)?;
        ctx.tell([&b"DEL"[..], key]);
        ctx.keys.notify(class::GENERIC, "del", database, key);
        return Ok(());
    }
    if deadline.is_some() || options.persist && meta.deadline.is_some() {
        ctx.keys.set_deadline(database, key, deadline)?;
        match deadline {
            Some(deadline) => ctx.tell([&b"PEXPIREAT"[..], key, deadline.to_string().as_bytes()]),
            None => ctx.tell([&b"PERSIST"[..], key]),
        }
        let event = if deadline.is_some() { "expire" } else { "persist" };
        ctx.keys.notify(class::GENERIC, event, database, key);
    }
    Ok(())
}

/// The pairs of MSET and MSETNX.
fn pairs<'a>(request: &'a Request<'a>, name: &str) -> Answer<impl Iterator<Item = (&'a [u8], &'a [u8])>> {
    let count = request.arg_count();
    if count.is_multiple_of(2) {
        return Err(Fault::Quoting(
            format!("ERR wrong number of arguments for '{name}' command").into_bytes(),
        ));
    }
    let keys = KeyRange { first: 1, last: -1, step: 2 };
    Ok(keys.positions(count).map(|at| (&request[at], &request[at + 1])))
}

fn mset(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let pairs = pairs(request, "mset")?;
    put_all(ctx, pairs)?;
    ctx.out.write().ok();
    Ok(())
}

fn msetnx(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    for (key, _) in pairs(request, "msetnx")? {
        if ctx.keys.find(ctx.session.database, key)?.live.is_some() {
            ctx.out.write().integer(0);
            return Ok(());
        }
    }
    put_all(ctx, pairs(request, "msetnx")?)?;
    ctx.out.write().integer(1);
    Ok(())
}

fn put_all<'a>(ctx: &mut Context<'_, '_>, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Answer {
    let (database, pairs) = (ctx.database(), pairs.collect::<Vec<_>>());
    for some in pairs.chunks(PREFETCH_KEYS_MAX) {
        if pairs.len() > 1 {
            ctx.keys.prefetch(database, some.iter().map(|(key, _)| *key));
        }
        for (key, value) in some {
            let old = ctx.keys.old(database, key)?;
            ctx.keys.put(database, key, Meta::default(), old, &[value])?;
            ctx.keys.notify(class::STRING, "set", database, key);
        }
    }
    Ok(())
}
