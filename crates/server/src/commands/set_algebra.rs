//! Intersections, unions and differences of sets.
//!
//! An intersection walks over the smallest set and looks its members up in the others; a difference walks
//! over the first one. A result that is stored, or is a union, is collected in memory first.

use std::collections::HashSet;
use std::ops::ControlFlow;

use foldhash::fast::RandomState;
use tembo_wire::Request;

use super::args::{Options, integer, is};
use super::context::{Context, Handler};
use super::set;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::collection::value::Collection;
use crate::keyspace::events::class;
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("sinter", sinter),
    ("sintercard", sintercard),
    ("sinterstore", sinterstore),
    ("sunion", sunion),
    ("sunionstore", sunionstore),
    ("sdiff", sdiff),
    ("sdiffstore", sdiffstore),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum SetOperation {
    Intersection,
    Union,
    Difference,
}

impl SetOperation {
    /// Redis's name for the change of the key that has the result.
    fn stored_event(self) -> &'static str {
        match self {
            SetOperation::Intersection => "sinterstore",
            SetOperation::Union => "sunionstore",
            SetOperation::Difference => "sdiffstore",
        }
    }
}

type Members = HashSet<Vec<u8>, RandomState>;

fn sinter(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, SetOperation::Intersection)
}

fn sunion(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, SetOperation::Union)
}

fn sdiff(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, SetOperation::Difference)
}

fn sinterstore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    store(ctx, request, SetOperation::Intersection)
}

fn sunionstore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    store(ctx, request, SetOperation::Union)
}

fn sdiffstore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    store(ctx, request, SetOperation::Difference)
}

/// The sets under the keys; an absent one has no members.
fn open<'a>(
    ctx: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Answer<Vec<Option<Collection>>> {
    let database = ctx.session.database;
    keys.map(|key| ctx.keys.read_collection(database, key, Kind::Set)).collect()
}

/// Gives the members of the result to `take`, each once, until it breaks.
fn compute(
    ctx: &mut Context<'_, '_>,
    sets: &[Option<Collection>],
    operation: SetOperation,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Answer {
    match operation {
        SetOperation::Union => {
            let mut seen = Members::default();
            for set in sets.iter().flatten() {
                ctx.keys.walk_elements(set, 0, |_, member, _| {
                    if seen.insert(member.to_vec()) { take(member) } else { ControlFlow::Continue(()) }
                })?;
            }
            Ok(())
        }
        SetOperation::Intersection => {
            let Some(mut sets) = sets.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
                return Ok(());
            };
            sets.sort_by_key(|set| set.len());
            select(ctx, sets[0], &sets[1..], true, take)
        }
        SetOperation::Difference => {
            let Some(first) = &sets[0] else {
                return Ok(());
            };
            let others: Vec<_> = sets[1..].iter().flatten().collect();
            select(ctx, first, &others, false, take)
        }
    }
}

/// Members that are looked up together, as the walk has to stop for it.
const PART_MEMBERS: usize = 256;

/// Gives the members of `set` to `take` that all of the others have, or that none of them has.
fn select(
    ctx: &mut Context<'_, '_>,
    set: &Collection,
    others: &[&Collection],
    wanted: bool,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Answer {
    let mut from = Some(0);
    while let Some(position) = from {
        let (mut part, mut last) = (Vec::new(), position);
        from = None;
        ctx.keys.walk_elements(set, position, |position, member, _| {
            if part.len() >= PART_MEMBERS && position != last {
                from = Some(position);
                return ControlFlow::Break(());
            }
            last = position;
            part.push(member.to_vec());
            ControlFlow::Continue(())
        })?;
        for member in part {
            let mut is_taken = true;
            for other in others {
                is_taken = ctx.keys.element(other, &member)?.is_some() == wanted;
                if !is_taken {
                    break;
                }
            }
            if is_taken && take(&member).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Collects the members of the result, which may have this many bytes as a reply.
fn collect(
    ctx: &mut Context<'_, '_>,
    sets: &[Option<Collection>],
    operation: SetOperation,
) -> Answer<Vec<Vec<u8>>> {
    let (mut members, mut bytes) = (Vec::new(), 0_usize);
    let max_bytes = ctx.state.config.reply_bytes_max;
    compute(ctx, sets, operation, |member| {
        bytes += member.len();
        if bytes > max_bytes {
            return ControlFlow::Break(());
        }
        members.push(member.to_vec());
        ControlFlow::Continue(())
    })?;
    if bytes > max_bytes {
        return Err(Fault::Error("ERR the result exceeds the maximum (reply-max-bytes)"));
    }
    Ok(members)
}

fn answer(ctx: &mut Context<'_, '_>, request: &Request<'_>, operation: SetOperation) -> Answer {
    let sets = open(ctx, request.args().skip(1))?;
    let members = collect(ctx, &sets, operation)?;
    ctx.out.write().set(members.len());
    members.iter().try_for_each(|member| ctx.out.bulk(member))
}

fn store(ctx: &mut Context<'_, '_>, request: &Request<'_>, operation: SetOperation) -> Answer {
    let (database, target) = (ctx.database(), &request[1]);
    let sets = open(ctx, request.args().skip(2))?;
    let members = collect(ctx, &sets, operation)?;
    let mut result = ctx.keys.replacement(database, target, Kind::Set)?;
    for member in &members {
        set::add(ctx.keys, &mut result, &ctx.state.config.encodings, member)?;
    }
    let (len, had_target) = (result.len(), ctx.keys.find(database, target)?.live.is_some());
    if len > 0 {
        ctx.keys.store_changed(target, result, operation.stored_event())?;
    } else {
        ctx.keys.store(target, result)?;
        if had_target {
            ctx.keys.notify(class::GENERIC, "del", database, target);
        }
    }
    ctx.out.write().integer(len as i64);
    Ok(())
}

fn sintercard(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let none = Fault::Error("ERR numkeys should be greater than 0");
    let count = integer(&request[1]).ok().and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|&count| count > 0).ok_or(none)?;
    if count > request.arg_count() - 2 {
        return Err(Fault::Error("ERR Number of keys can't be greater than number of args"));
    }
    let (mut options, mut limit) = (Options::after(request, 2 + count), 0);
    while let Some(word) = options.next() {
        if !is(word, "LIMIT") {
            return Err(SYNTAX);
        }
        let negative = Fault::Error("ERR LIMIT can't be negative");
        let value = integer(options.value()?).ok().and_then(|limit| u64::try_from(limit).ok());
        limit = value.ok_or(negative)?;
    }
    let sets = open(ctx, request.args().skip(2).take(count))?;
    let mut found = 0;
    compute(ctx, &sets, SetOperation::Intersection, |_| {
        found += 1;
        if found == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    ctx.out.write().integer(found as i64);
    Ok(())
}
