//! Lists, one at a time.

use std::ops::{ControlFlow, Range};

use tembo_wire::Request;

use super::args::{Options, integer, is};
use super::context::{Context, Handler};
use crate::fault::{Answer, Fault, NO_SUCH_KEY, SYNTAX};
use crate::keyspace::collection::value::Collection;
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("lpush", lpush),
    ("rpush", rpush),
    ("lpushx", lpushx),
    ("rpushx", rpushx),
    ("lpop", lpop),
    ("rpop", rpop),
    ("llen", llen),
    ("lrange", lrange),
    ("lindex", lindex),
    ("lset", lset),
    ("ltrim", ltrim),
    ("linsert", linsert),
    ("lrem", lrem),
    ("lpos", lpos),
];

/// The names of the events of changes at an end.
pub(super) fn push_event(left: bool) -> &'static str {
    if left { "lpush" } else { "rpush" }
}

pub(super) fn pop_event(left: bool) -> &'static str {
    if left { "lpop" } else { "rpop" }
}

fn lpush(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    push(ctx, request, true, true)
}

fn rpush(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    push(ctx, request, false, true)
}

fn lpushx(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    push(ctx, request, true, false)
}

fn rpushx(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    push(ctx, request, false, false)
}

fn push(ctx: &mut Context<'_, '_>, request: &Request<'_>, left: bool, create: bool) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let mut list = ctx.keys.collection(database, key, Kind::List)?.in_parts();
    if list.len() > 0 || create {
        ctx.keys.push(&mut list, left, request.args().skip(2))?;
        let len = list.len();
        let large = list.is_large().then(|| list.clone());
        ctx.keys.store_changed(key, list, push_event(left))?;
        ctx.keys.keep_end(key, left, large);
        ctx.out.write().integer(len as i64);
    } else {
        ctx.out.write().integer(0);
    }
    Ok(())
}

fn lpop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    pop(ctx, request, true)
}

fn rpop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    pop(ctx, request, false)
}

fn pop(ctx: &mut Context<'_, '_>, request: &Request<'_>, left: bool) -> Answer {
    if request.arg_count() > 3 {
        let text = format!("ERR wrong number of arguments for '{}' command", pop_event(left));
        return Err(Fault::Quoting(text.into_bytes()));
    }
    let out_of_range = || Fault::Error("ERR value is out of range, must be positive");
    let count = request.get(2).map(|count| natural(count).ok_or_else(out_of_range)).transpose()?;
    let (database, key) = (ctx.database(), &request[1]);
    let mut list = ctx.keys.collection(database, key, Kind::List)?;
    if list.len() == 0 {
        match count {
            None => ctx.out.write().null(),
            Some(_) => ctx.out.write().null_array(),
        }
        return Ok(());
    }
    let popped = match count {
        Some(0) => Vec::new(),
        count => {
            let popped = ctx.keys.pop(&mut list, left, count.unwrap_or(1))?;
            let large = list.is_large().then(|| list.clone());
            ctx.keys.store_changed(key, list, pop_event(left))?;
            ctx.keys.keep_end(key, left, large);
            popped
        }
    };
    if count.is_none() {
        return ctx.out.bulk_or_null(popped.first().map(|element| &element[..]));
    }
    ctx.out.write().array(popped.len());
    popped.iter().try_for_each(|element| ctx.out.bulk(element))
}

/// A number that is not negative.
pub(super) fn natural(arg: &[u8]) -> Option<u64> {
    integer(arg).ok().and_then(|number| u64::try_from(number).ok())
}

/// The list that a command reads.
fn read(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer<Option<Collection>> {
    ctx.keys.read_collection(ctx.session.database, &request[1], Kind::List)
}

fn llen(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let len = read(ctx, request)?.map_or(0, |list| list.len());
    ctx.out.write().integer(len as i64);
    Ok(())
}

/// The range of indices that two arguments stand for, negative ones counted from the end.
fn range(len: u64, start: i64, end: i64) -> Range<u64> {
    let from_start = |index: i64| if index < 0 { index.saturating_add(len as i64) } else { index };
    let start = from_start(start).max(0) as u64;
    let end = from_start(end).saturating_add(1).clamp(0, len as i64) as u64;
    start..end
}

fn lrange(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (start, end) = (integer(&request[2])?, integer(&request[3])?);
    let list = read(ctx, request)?;
    let range = list.as_ref().map_or(0..0, |list| range(list.len(), start, end));
    let Some(list) = list.filter(|_| !range.is_empty()) else {
        ctx.out.write().array(0);
        return Ok(());
    };
    ctx.out.write().array((range.end - range.start) as usize);
    let (mut written, out) = (Ok(()), &mut ctx.out);
    ctx.keys.walk_list(&list, range.start, |index, element| {
        if index == range.end {
            return ControlFlow::Break(());
        }
        written = out.bulk(element);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written
}

/// The index that an argument stands for, if it is one of the list.
fn index(list: &Collection, arg: &[u8]) -> Answer<Option<u64>> {
    let index = integer(arg)?;
    let index = if index < 0 { index.saturating_add(list.len() as i64) } else { index };
    Ok(u64::try_from(index).ok().filter(|index| *index < list.len()))
}

fn lindex(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let element = match read(ctx, request)? {
        Some(list) => match index(&list, &request[2])? {
            Some(index) => ctx.keys.element_at(&list, index)?,
            None => None,
        },
        None => None,
    };
    ctx.out.bulk_or_null(element.as_deref())
}

fn lset(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let mut list = ctx.keys.collection(database, key, Kind::List)?;
    if list.len() == 0 {
        return Err(NO_SUCH_KEY);
    }
    let index = index(&list, &request[2])?.ok_or(Fault::Error("ERR index out of range"))?;
    ctx.keys.set_at(&mut list, index, &request[3])?;
    ctx.keys.store_changed(key, list, "lset")?;
    ctx.out.write().ok();
    Ok(())
}

fn ltrim(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let (start, end) = (integer(&request[2])?, integer(&request[3])?);
    let mut list = ctx.keys.collection(database, key, Kind::List)?;
    if list.len() > 0 {
        let keep = range(list.len(), start, end);
        ctx.keys.trim(&mut list, keep)?;
        ctx.keys.store_changed(key, list, "ltrim")?;
    }
    ctx.out.write().ok();
    Ok(())
}

fn linsert(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let behind = match &request[2] {
        word if is(word, "BEFORE") => false,
        word if is(word, "AFTER") => true,
        _ => return Err(SYNTAX),
    };
    let (database, key, pivot) = (ctx.database(), &request[1], &request[3]);
    let mut list = ctx.keys.collection(database, key, Kind::List)?;
    let found = matches(ctx, &list, pivot, 1, 0, list.len())?;
    let answer = match found.first() {
        _ if list.len() == 0 => 0,
        None => -1,
        Some(index) => {
            ctx.keys.insert_at(&mut list, *index, behind, &request[4])?;
            let len = list.len();
            ctx.keys.store_changed(key, list, "linsert")?;
            len as i64
        }
    };
    ctx.out.write().integer(answer);
    Ok(())
}

/// The indices of the elements of a list between two indices that equal a value, up to this many.
fn matches(
    ctx: &mut Context<'_, '_>,
    list: &Collection,
    value: &[u8],
    most: usize,
    from: u64,
    to: u64,
) -> Answer<Vec<u64>> {
    let mut found = Vec::new();
    ctx.keys.walk_list(list, from, |index, element| {
        if index >= to {
            return ControlFlow::Break(());
        }
        if element == value {
            found.push(index);
        }
        if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

fn lrem(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let count = integer(&request[2])?;
    let (database, key) = (ctx.database(), &request[1]);
    let mut list = ctx.keys.collection(database, key, Kind::List)?;
    let most = if count > 0 { count as usize } else { usize::MAX };
    let mut found = matches(ctx, &list, &request[3], most, 0, list.len())?;
    if count < 0 {
        let kept = found.len().saturating_sub(count.unsigned_abs() as usize);
        found.drain(..kept);
    }
    if !found.is_empty() {
        ctx.keys.remove_at(&mut list, &found)?;
        ctx.keys.store_changed(key, list, "lrem")?;
    }
    ctx.out.write().integer(found.len() as i64);
    Ok(())
}

/// The options of LPOS.
struct Search {
    rank: i64,
    /// 0 means all.
    count: Option<u64>,
    /// 0 means all.
    elements_max: u64,
}

impl Search {
    fn parse(mut options: Options<'_>) -> Answer<Self> {
        let mut search = Search { rank: 1, count: None, elements_max: 0 };
        while let Some(word) = options.next() {
            let value = options.value()?;
            if is(word, "RANK") {
                search.rank = integer(value)?;
                if search.rank == 0 {
                    return Err(Fault::Error(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                         or use negative to start from the end of the list",
                    ));
                }
            } else if is(word, "COUNT") {
                search.count = Some(natural(value).ok_or(Fault::Error("ERR COUNT can't be negative"))?);
            } else if is(word, "MAXLEN") {
                search.elements_max = natural(value).ok_or(Fault::Error("ERR MAXLEN can't be negative"))?;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(search)
    }

    fn run(&self, ctx: &mut Context<'_, '_>, list: &Collection, value: &[u8]) -> Answer<Vec<u64>> {
        let wanted = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count as usize,
        };
        // Redis's negation of the smallest integer overflows, so that it means the last match.
        let skipped = self.rank.checked_abs().map_or(0, |rank| rank as usize - 1);
        let len = list.len();
        let span = if self.elements_max == 0 { len } else { self.elements_max.min(len) };
        if self.rank > 0 {
            let mut found = matches(ctx, list, value, wanted.saturating_add(skipped), 0, span)?;
            found.drain(..skipped.min(found.len()));
            return Ok(found);
        }
        let found = matches(ctx, list, value, usize::MAX, len - span, len)?;
        Ok(found.into_iter().rev().skip(skipped).take(wanted).collect())
    }
}

fn lpos(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let search = Search::parse(Options::after(request, 3))?;
    let found = match read(ctx, request)? {
        Some(list) => search.run(ctx, &list, &request[2])?,
        None => Vec::new(),
    };
    let mut reply = ctx.out.write();
    match (search.count, found.first()) {
        (Some(_), _) => {
            reply.array(found.len());
            found.iter().for_each(|index| reply.integer(*index as i64));
        }
        (None, Some(index)) => reply.integer(*index as i64),
        (None, None) => reply.null(),
    }
    Ok(())
}
