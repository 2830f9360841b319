//! Sets, one at a time.

use std::ops::ControlFlow;

use tembo_wire::Request;
use tembo_wire::number::parse_i64;

use super::args::integer;
use super::context::{Context, Handler};
use super::{element_scan, sampling};
use crate::config::Encodings;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::Keyspace;
use crate::keyspace::collection::places::Many;
use crate::keyspace::collection::value::Collection;
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("sadd", sadd),
    ("srem", srem),
    ("smembers", smembers),
    ("sismember", sismember),
    ("smismember", smismember),
    ("scard", scard),
    ("spop", spop),
    ("srandmember", srandmember),
    ("smove", smove),
    ("sscan", sscan),
];

/// Adds a member; returns whether it is new.
pub(super) fn add(
    keys: &mut Keyspace<'_>,
    set: &mut Collection,
    limits: &Encodings,
    member: &[u8],
) -> Answer<bool> {
    if keys.element(set, member)?.is_some() {
        return Ok(false);
    }
    keys.put_element(set, member, &[])?;
    if !set.is_converted() && (set.len() > limits.set_intset_entries || parse_i64(member).is_none()) {
        set.convert();
    }
    Ok(true)
}

/// Adds many members to a large set; returns how many are new.
fn add_many<'e>(
    keys: &mut Keyspace<'_>,
    set: &mut Collection,
    limits: &Encodings,
    members: &Many<impl Fn(usize) -> &'e [u8]>,
) -> Answer<i64> {
    let (mut added, mut converts) = (0, set.is_converted());
    keys.put_many(set, members, |number, old| {
        if old.is_some() {
            return None;
        }
        added += 1;
        converts = converts || parse_i64((members.field)(number)).is_none();
        Some([])
    })?;
    if converts || set.len() > limits.set_intset_entries {
        set.convert();
    }
    Ok(added)
}

fn sadd(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let mut set = ctx.keys.collection(database, key, Kind::Set)?.in_parts();
    let (mut added, limits) = (0, &ctx.state.config.encodings);
    for at in 2..request.arg_count() {
        let count = request.arg_count() - at;
        if set.takes_many(count) {
            added += add_many(ctx.keys, &mut set, limits, &Many { count, field: |n| &request[at + n] })?;
            break;
        }
        added += i64::from(add(ctx.keys, &mut set, limits, &request[at])?);
    }
    if added > 0 {
        ctx.keys.store_changed(key, set, "sadd")?;
    }
    ctx.out.write().integer(added);
    Ok(())
}

fn srem(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let mut set = ctx.keys.collection(database, key, Kind::Set)?;
    let mut removed = 0;
    for member in request.args().skip(2) {
        removed += i64::from(ctx.keys.remove_element(&mut set, member)?);
    }
    if removed > 0 {
        ctx.keys.store_changed(key, set, "srem")?;
    }
    ctx.out.write().integer(removed);
    Ok(())
}

/// The set that a command reads.
fn read(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer<Option<Collection>> {
    ctx.keys.read_collection(ctx.session.database, &request[1], Kind::Set)
}

fn smembers(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let set = read(ctx, request)?;
    ctx.out.write().set(set.as_ref().map_or(0, Collection::len) as usize);
    let Some(set) = set else {
        return Ok(());
    };
    let (mut written, out) = (Ok(()), &mut ctx.out);
    ctx.keys.walk_elements(&set, 0, |_, member, _| {
        written = out.bulk(member);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written
}

fn sismember(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let is_member = match read(ctx, request)? {
        Some(set) => ctx.keys.element(&set, &request[2])?.is_some(),
        None => false,
    };
    ctx.out.write().integer(is_member.into());
    Ok(())
}

fn smismember(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let set = read(ctx, request)?;
    ctx.out.write().array(request.arg_count() - 2);
    for member in request.args().skip(2) {
        let is_member = match &set {
            Some(set) => ctx.keys.element(set, member)?.is_some(),
            None => false,
        };
        ctx.out.write().integer(is_member.into());
    }
    Ok(())
}

fn scard(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let len = read(ctx, request)?.map_or(0, |set| set.len());
    ctx.out.write().integer(len as i64);
    Ok(())
}

/// Members that one effect names.
const MEMBERS_TOLD: usize = 1024;

fn spop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let count = match request.get(2) {
        _ if request.arg_count() > 3 => return Err(SYNTAX),
        None => None,
        Some(count) => {
            let out_of_range = Fault::Error("ERR value is out of range, must be positive");
            Some(integer(count).ok().and_then(|count| u64::try_from(count).ok()).ok_or(out_of_range)?)
        }
    };
    let mut set = ctx.keys.collection(database, key, Kind::Set)?;
    let goes = count.is_some_and(|count| count >= set.len());
    let popped = match count {
        None => ctx.keys.draw_element(&set, &mut ctx.state.random)?.into_iter().collect(),
        Some(count) => ctx.keys.sample(&set, count, &mut ctx.state.random)?,
    };
    ctx.keys.remove_elements(&mut set, popped.iter().map(|(member, _)| &member[..]))?;
    if !popped.is_empty() {
        ctx.keys.store_changed(key, set, "spop")?;
    }
    if goes {
        ctx.tell([&b"DEL"[..], key]);
    } else if ctx.tells() {
        for members in popped.chunks(MEMBERS_TOLD) {
            let members = members.iter().map(|(member, _)| &member[..]);
            ctx.tell([&b"SREM"[..], key].into_iter().chain(members).collect::<Vec<_>>());
        }
    }
    if count.is_none() {
        return ctx.out.bulk_or_null(popped.first().map(|(member, _)| &member[..]));
    }
    ctx.out.write().set(popped.len());
    popped.iter().try_for_each(|(member, _)| ctx.out.bulk(member))
}

fn srandmember(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let Some(count) = request.get(2) else {
        let member = match read(ctx, request)? {
            Some(set) => ctx.keys.draw_element(&set, &mut ctx.state.random)?,
            None => None,
        };
        return ctx.out.bulk_or_null(member.as_ref().map(|(member, _)| &member[..]));
    };
    if request.arg_count() > 3 {
        return Err(SYNTAX);
    }
    let count = sampling::signed_count(count)?;
    let set = read(ctx, request)?;
    sampling::answer(
        ctx,
        set.as_ref(),
        count,
        |out, len| out.write().array(len),
        |out, (member, _)| out.bulk(member),
    )
}

fn smove(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, from, to, member) = (ctx.database(), &request[1], &request[2], &request[3]);
    let moved = move_member(ctx, database, (from, to), member)?;
    ctx.out.write().integer(moved.into());
    Ok(())
}

/// Moves a member between two sets; tells whether the first had it.
fn move_member(
    ctx: &mut Context<'_, '_>,
    database: usize,
    (from, to): (&[u8], &[u8]),
    member: &[u8],
) -> Answer<bool> {
    let mut source = ctx.keys.collection(database, from, Kind::Set);
    if matches!(&source, Ok(source) if source.len() == 0) {
        return Ok(false);
    }
    let mut target = ctx.keys.collection(database, to, Kind::Set)?;
    let source = source.as_mut().map_err(|_| crate::fault::WRONG_TYPE)?;
    if from == to {
        return Ok(ctx.keys.element(source, member)?.is_some());
    }
    let removed = ctx.keys.remove_element(source, member)?;
    if removed {
        ctx.keys.store_changed(from, source.clone(), "srem")?;
        if add(ctx.keys, &mut target, &ctx.state.config.encodings, member)? {
            ctx.keys.store_changed(to, target, "sadd")?;
        }
    }
    Ok(removed)
}

fn sscan(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    element_scan::scan(ctx, request, Kind::Set)
}
