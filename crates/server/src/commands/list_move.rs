//! Lists, several at a time, and the commands that wait for them.

use tembo_wire::Request;

use super::args::{Options, is};
use super::blocking::{Timeout, wait};
use super::context::{Context, Handler};
use super::list::{natural, pop_event, push_event};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("lmove", lmove),
    ("rpoplpush", rpoplpush),
    ("lmpop", lmpop),
    ("blpop", blpop),
    ("brpop", brpop),
    ("blmove", blmove),
    ("brpoplpush", brpoplpush),
    ("blmpop", blmpop),
];

/// Whether an argument names the left end of a list.
fn is_left(arg: &[u8]) -> Answer<bool> {
    match arg {
        _ if is(arg, "LEFT") => Ok(true),
        _ if is(arg, "RIGHT") => Ok(false),
        _ => Err(SYNTAX),
    }
}

fn lmove(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let ends = (is_left(&request[3])?, is_left(&request[4])?);
    move_or_null(ctx, request, ends)
}

fn rpoplpush(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    move_or_null(ctx, request, (false, true))
}

fn move_or_null(ctx: &mut Context<'_, '_>, request: &Request<'_>, ends: (bool, bool)) -> Answer {
    if !move_element(ctx, (&request[1], &request[2]), ends)? {
        ctx.out.write().null();
    }
    Ok(())
}

/// Moves an element and answers it; tells whether there was one.
fn move_element(
    ctx: &mut Context<'_, '_>,
    (from, to): (&[u8], &[u8]),
    (pops_left, pushes_left): (bool, bool),
) -> Answer<bool> {
    let database = ctx.database();
    let mut source = ctx.keys.collection(database, from, Kind::List)?;
    if source.len() == 0 {
        return Ok(false);
    }
    let mut target = if from == to { None } else { Some(ctx.keys.collection(database, to, Kind::List)?) };
    let popped = ctx.keys.pop(&mut source, pops_left, 1)?;
    let pushed = popped.iter().map(|element| &element[..]);
    ctx.keys.push(target.as_mut().unwrap_or(&mut source), pushes_left, pushed)?;
    let (push, pop) = (push_event(pushes_left), pop_event(pops_left));
    match target {
        Some(target) => {
            ctx.keys.store_changed(to, target, push)?;
            ctx.keys.store_changed(from, source, pop)?;
        }
        None => {
            ctx.keys.store_changed(to, source, push)?;
            ctx.keys.notify(crate::keyspace::events::class::LIST, pop, database, from);
        }
    }
    ctx.out.bulk_or_null(popped.first().map(|element| &element[..]))?;
    Ok(true)
}

/// The arguments of LMPOP from the number of keys on.
struct ManyPop<'a> {
    keys: Vec<&'a [u8]>,
    left: bool,
    count: u64,
}

impl<'a> ManyPop<'a> {
    fn parse(request: &'a Request<'_>, at: usize) -> Answer<Self> {
        let none = Fault::Error("ERR numkeys should be greater than 0");
        let number = natural(&request[at]).filter(|number| *number > 0).ok_or(none)?;
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let end = at.saturating_add(1).saturating_add(number);
        let left = is_left(request.get(end).ok_or(SYNTAX)?)?;
        let keys = (at + 1..end).map(|at| &request[at]).collect();
        let (mut options, mut count) = (Options::after(request, end + 1), None);
        while let Some(word) = options.next() {
            if !is(word, "COUNT") || count.is_some() {
                return Err(SYNTAX);
            }
            let none = Fault::Error("ERR count should be greater than 0");
            count = Some(natural(options.value()?).filter(|count| *count > 0).ok_or(none)?);
        }
        Ok(ManyPop { keys, left, count: count.unwrap_or(1) })
    }

    /// Removes elements of the first list that has some, and answers them; tells whether there is one.
    fn run(&self, ctx: &mut Context<'_, '_>) -> Answer<bool> {
        pop_first(ctx, &self.keys, self.left, Some(self.count), |ctx, popped| {
            ctx.out.write().array(popped.len());
            popped.iter().try_for_each(|element| ctx.out.bulk(element))
        })
    }
}

/// Removes elements of the first of several lists that has some, and answers the key and what `write` makes
/// of them; tells whether there is one. Without a count it is one. A client that has waited gets what the key
/// has that was waited for.
fn pop_first(
    ctx: &mut Context<'_, '_>,
    keys: &[&[u8]],
    left: bool,
    count: Option<u64>,
    write: impl Fn(&mut Context<'_, '_>, &[Vec<u8>]) -> Answer,
) -> Answer<bool> {
    let database = ctx.database();
    let given = ctx.session.waiting.as_ref().and_then(|waiting| waiting.given.clone());
    for key in keys {
        if given.as_ref().is_some_and(|given| given[..] != **key) {
            continue;
        }
        let mut list = ctx.keys.collection(database, key, Kind::List)?;
        if list.len() > 0 {
            let popped = ctx.keys.pop(&mut list, left, count.unwrap_or(1))?;
            ctx.keys.store_changed(key, list, pop_event(left))?;
            let word = if left { &b"LPOP"[..] } else { b"RPOP" };
            match count {
                Some(_) => ctx.tell([word, key, popped.len().to_string().as_bytes()]),
                None => ctx.tell([word, key]),
            }
            ctx.out.write().array(2);
            ctx.out.bulk(key)?;
            write(ctx, &popped)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn lmpop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if !ManyPop::parse(request, 1)?.run(ctx)? {
        ctx.out.write().null_array();
    }
    Ok(())
}

fn blmpop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let pop = ManyPop::parse(request, 2)?;
    let timeout = Timeout::parse(ctx, &request[1])?;
    if pop.run(ctx)? {
        return Ok(());
    }
    if wait(ctx, request, Kind::List, &pop.keys, timeout) {
        return Ok(());
    }
    ctx.out.write().null_array();
    Ok(())
}

fn blpop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    pop_or_wait(ctx, request, true)
}

fn brpop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    pop_or_wait(ctx, request, false)
}

fn pop_or_wait(ctx: &mut Context<'_, '_>, request: &Request<'_>, left: bool) -> Answer {
    let last = request.arg_count() - 1;
    let timeout = Timeout::parse(ctx, &request[last])?;
    let keys: Vec<_> = (1..last).map(|at| &request[at]).collect();
    let popped = pop_first(ctx, &keys, left, None, |ctx, popped| {
        ctx.out.bulk_or_null(popped.first().map(|element| &element[..]))
    })?;
    if !popped && !wait(ctx, request, Kind::List, &keys, timeout) {
        ctx.out.write().null_array();
    }
    Ok(())
}

fn blmove(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let ends = (is_left(&request[3])?, is_left(&request[4])?);
    move_or_wait(ctx, request, ends, &request[5])
}

fn brpoplpush(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    move_or_wait(ctx, request, (false, true), &request[3])
}

fn move_or_wait(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    ends: (bool, bool),
    timeout: &[u8],
) -> Answer {
    let timeout = Timeout::parse(ctx, timeout)?;
    let moved = move_element(ctx, (&request[1], &request[2]), ends)?;
    if moved && request.arg_count() == 4 {
        ctx.tell([b"RPOPLPUSH", &request[1], &request[2]]);
    } else if moved {
        let end = |is_left| if is_left { &b"LEFT"[..] } else { b"RIGHT" };
        ctx.tell([b"LMOVE", &request[1], &request[2], end(ends.0), end(ends.1)]);
    }
    if !moved && !wait(ctx, request, Kind::List, &[&request[1]], timeout) {
        ctx.out.write().null();
    }
    Ok(())
}
