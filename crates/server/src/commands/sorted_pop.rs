//! Taking members from the ends of sorted sets, and the commands that wait for some.

use tembo_wire::{Protocol, Request};

use super::args::{Options, integer, is};
use super::blocking::{Timeout, wait};
use super::context::{Context, Handler};
use super::score;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::collection::sorted::Member;
use crate::keyspace::collection::value::Collection;
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("zpopmin", zpopmin),
    ("zpopmax", zpopmax),
    ("zmpop", zmpop),
    ("bzpopmin", bzpopmin),
    ("bzpopmax", bzpopmax),
    ("bzmpop", bzmpop),
];

fn zpopmin(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    pop_one(ctx, request, false)
}

fn zpopmax(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    pop_one(ctx, request, true)
}

fn pop_one(ctx: &mut Context<'_, '_>, request: &Request<'_>, highest: bool) -> Answer {
    if request.arg_count() > 3 {
        return Err(SYNTAX);
    }
    let out_of_range = Fault::Error("ERR value is out of range, must be positive");
    let count = match request.get(2) {
        Some(count) => {
            Some(integer(count).ok().and_then(|count| u64::try_from(count).ok()).ok_or(out_of_range)?)
        }
        None => None,
    };
    let (database, key) = (ctx.database(), &request[1]);
    let sorted = ctx.keys.collection(database, key, Kind::SortedSet)?;
    let popped = pop(ctx, key, sorted, highest, count.unwrap_or(1))?;
    let nested = count.is_some() && ctx.out.protocol == Protocol::Resp3;
    ctx.out.write().array(if nested { popped.len() } else { 2 * popped.len() });
    popped.iter().try_for_each(|member| write_popped(ctx, member, nested))
}

/// Answers a member and its score, in an array of their own or not.
fn write_popped(ctx: &mut Context<'_, '_>, (member, score): &Member, nested: bool) -> Answer {
    if nested {
        ctx.out.write().array(2);
    }
    ctx.out.bulk(member)?;
    score::write(&mut ctx.out, score.number());
    Ok(())
}

/// Removes members from one end.
fn pop(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    mut sorted: Collection,
    highest: bool,
    count: u64,
) -> Answer<Vec<Member>> {
    let from = if highest { sorted.len().saturating_sub(1) } else { 0 };
    let popped = ctx.keys.members_from(&sorted, from, highest, count.min(sorted.len()))?;
    ctx.keys.remove_members(&mut sorted, &popped)?;
    if !popped.is_empty() {
        ctx.keys.store_changed(key, sorted, if highest { "zpopmax" } else { "zpopmin" })?;
    }
    Ok(popped)
}

/// Removes members of the first of several sorted sets that exists. Answers the key, and what `write` makes
/// of the members; returns whether there was such a set. A client that has waited gets members of the key
/// that became ready.
fn pop_first(
    ctx: &mut Context<'_, '_>,
    keys: &[&[u8]],
    (highest, count): (bool, Option<u64>),
    write: impl Fn(&mut Context<'_, '_>, &[u8], &[Member]) -> Answer,
) -> Answer<bool> {
    let database = ctx.database();
    let given = ctx.session.waiting.as_ref().and_then(|waiting| waiting.given.clone());
    for key in keys {
        if given.as_ref().is_some_and(|given| given[..] != **key) {
            continue;
        }
        let sorted = ctx.keys.collection(database, key, Kind::SortedSet)?;
        if sorted.len() > 0 {
            let popped = pop(ctx, key, sorted, highest, count.unwrap_or(1))?;
            let word = if highest { &b"ZPOPMAX"[..] } else { b"ZPOPMIN" };
            match count {
                Some(_) => ctx.tell([word, key, popped.len().to_string().as_bytes()]),
                None => ctx.tell([word, key]),
            }
            write(ctx, key, &popped)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// The arguments of ZMPOP from the number of keys on.
struct ManyPop<'a> {
    keys: Vec<&'a [u8]>,
    highest: bool,
    count: u64,
}

impl<'a> ManyPop<'a> {
    fn parse(request: &'a Request<'_>, at: usize) -> Answer<Self> {
        let positive = |arg: &[u8], text| {
            let number = integer(arg).ok().filter(|number| *number > 0);
            number.and_then(|number| usize::try_from(number).ok()).ok_or(Fault::Error(text))
        };
        let number = positive(&request[at], "ERR numkeys should be greater than 0")?;
        let keys = score::keys_at(request, at, number).ok_or(SYNTAX)?;
        let mut options = Options::after(request, keys.end);
        let highest = match options.next() {
            Some(word) if is(word, "MIN") => false,
            Some(word) if is(word, "MAX") => true,
            _ => return Err(SYNTAX),
        };
        let mut count = None;
        while let Some(word) = options.next() {
            if count.is_some() || !is(word, "COUNT") {
                return Err(SYNTAX);
            }
            count = Some(positive(options.value()?, "ERR count should be greater than 0")?);
        }
        let keys = keys.map(|at| &request[at]).collect();
        Ok(ManyPop { keys, highest, count: count.unwrap_or(1) as u64 })
    }

    fn run(&self, ctx: &mut Context<'_, '_>) -> Answer<bool> {
        pop_first(ctx, &self.keys, (self.highest, Some(self.count)), |ctx, key, popped| {
            ctx.out.write().array(2);
            ctx.out.bulk(key)?;
            ctx.out.write().array(popped.len());
            popped.iter().try_for_each(|member| write_popped(ctx, member, true))
        })
    }
}

fn zmpop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if !ManyPop::parse(request, 1)?.run(ctx)? {
        ctx.out.write().null_array();
    }
    Ok(())
}

fn bzmpop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let popping = ManyPop::parse(request, 2)?;
    let timeout = Timeout::parse(ctx, &request[1])?;
    if !popping.run(ctx)? && !wait(ctx, request, Kind::SortedSet, &popping.keys, timeout) {
        ctx.out.write().null_array();
    }
    Ok(())
}

fn bzpopmin(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    pop_or_wait(ctx, request, false)
}

fn bzpopmax(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    pop_or_wait(ctx, request, true)
}

fn pop_or_wait(ctx: &mut Context<'_, '_>, request: &Request<'_>, highest: bool) -> Answer {
    let last = request.arg_count() - 1;
    let timeout = Timeout::parse(ctx, &request[last])?;
    let keys: Vec<_> = (1..last).map(|at| &request[at]).collect();
    let popped = pop_first(ctx, &keys, (highest, None), |ctx, key, popped| {
        ctx.out.write().array(3);
        ctx.out.bulk(key)?;
        popped.iter().try_for_each(|member| write_popped(ctx, member, false))
    })?;
    if !popped && !wait(ctx, request, Kind::SortedSet, &keys, timeout) {
        ctx.out.write().null_array();
    }
    Ok(())
}
