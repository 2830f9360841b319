//! Sorted sets, one at a time: members and their scores.

use tembo_wire::Request;

use super::args::is;
use super::context::{Context, Handler};
use super::score::{self, write_count, write_member};
use super::{element_scan, sampling};
use crate::config::Encodings;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::Keyspace;
use crate::keyspace::collection::ordered::{Cut, Score};
use crate::keyspace::collection::places::Many;
use crate::keyspace::collection::value::Collection;
use crate::keyspace::format::Kind;

pub(super) const NOT_A_FLOAT: Fault = Fault::Error("ERR value is not a valid float");
pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("zadd", zadd),
    ("zincrby", zincrby),
    ("zrem", zrem),
    ("zscore", zscore),
    ("zmscore", zmscore),
    ("zcard", zcard),
    ("zrank", zrank),
    ("zrevrank", zrevrank),
    ("zrandmember", zrandmember),
    ("zscan", zscan),
];

/// Gives a member a score.
pub(super) fn put(
    keys: &mut Keyspace<'_>,
    sorted: &mut Collection,
    limits: &Encodings,
    member: &[u8],
    score: Score,
) -> Answer {
    let is_new = !keys.put_element(sorted, member, &score.to_bytes())?;
    if is_new && (sorted.len() > limits.zset_entries || member.len() as u64 > limits.zset_value_bytes) {
        sorted.convert();
    }
    Ok(())
}

/// The options of ZADD.
#[derive(Clone, Copy, Default)]
pub(super) struct Adding {
    pub(super) new_only: bool,
    pub(super) old_only: bool,
    greater: bool,
    less: bool,
    pub(super) changed: bool,
    increment: bool,
}

impl Adding {
    /// Reads the options, which begin at the third argument; returns where the first score is.
    fn read(&mut self, request: &Request<'_>) -> usize {
        let mut at = 2;
        while let Some(word) = request.get(at) {
            match word {
                _ if is(word, "NX") => self.new_only = true,
                _ if is(word, "XX") => self.old_only = true,
                _ if is(word, "GT") => self.greater = true,
                _ if is(word, "LT") => self.less = true,
                _ if is(word, "CH") => self.changed = true,
                _ if is(word, "INCR") => self.increment = true,
                _ => break,
            }
            at += 1;
        }
        at
    }

    fn check(self, pairs: usize) -> Answer {
        let Adding { new_only, old_only, greater, less, increment, .. } = self;
        if new_only && old_only {
            return Err(Fault::Error("ERR XX and NX options at the same time are not compatible"));
        }
        if [greater, less, new_only].into_iter().filter(|chosen| *chosen).count() > 1 {
            let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(Fault::Error(text));
        }
        if increment && pairs > 1 {
            return Err(Fault::Error("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// The score that a member is to have, if it is to have another than `old`, or is to be added.
    fn score(self, old: Option<f64>, given: f64) -> Answer<Option<f64>> {
        let Some(old) = old else {
            return Ok((!self.old_only).then_some(given));
        };
        if self.new_only {
            return Ok(None);
        }
        let new = if self.increment { old + given } else { given };
        if new.is_nan() {
            return Err(Fault::Error("ERR resulting score is not a number (NaN)"));
        }
        let is_refused = self.greater && new <= old || self.less && new >= old;
        Ok((!is_refused).then_some(new))
    }
}

fn zadd(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    add(ctx, request, Adding::default())
}

fn zincrby(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    add(ctx, request, Adding { increment: true, ..Adding::default() })
}

fn add(ctx: &mut Context<'_, '_>, request: &Request<'_>, mut options: Adding) -> Answer {
    let first = options.read(request);
    let words = request.arg_count() - first;
    if words == 0 || !words.is_multiple_of(2) {
        return Err(SYNTAX);
    }
    options.check(words / 2)?;
    let pairs = (first..request.arg_count()).step_by(2);
    let pair = |at| Ok((score::read(&request[at]).ok_or(NOT_A_FLOAT)?, &request[at + 1]));
    let pairs = pairs.map(pair).collect::<Answer<Vec<_>>>()?;
    add_members(ctx, &request[1], options, &pairs)
}

/// Adds members with scores, and answers.
pub(super) fn add_members(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    options: Adding,
    pairs: &[(f64, &[u8])],
) -> Answer {
    let database = ctx.database();
    let mut sorted = ctx.keys.collection(database, key, Kind::SortedSet)?.in_parts();
    let (mut added, mut updated, mut last) = (0, 0, None);
    for (at, &(given, member)) in pairs.iter().enumerate() {
        let rest = &pairs[at..];
        if sorted.takes_many(rest.len()) {
            let (more, others) = add_many(ctx, &mut sorted, options, rest)?;
            (added, updated) = (added + more, updated + others);
            break;
        }
        let old = ctx.keys.score(&sorted, member)?;
        last = options.score(old.map(Score::number), given)?;
        let Some(new) = last.map(Score::new).filter(|new| Some(*new) != old) else {
            continue;
        };
        put(ctx.keys, &mut sorted, &ctx.state.config.encodings, member, new)?;
        if old.is_some() { updated += 1 } else { added += 1 }
    }
    if added + updated > 0 {
        let event = if options.increment { "zincr" } else { "zadd" };
        ctx.keys.store_changed(key, sorted, event)?;
    }
    match (options.increment, last) {
        (false, _) if options.changed => ctx.out.write().integer(added + updated),
        (false, _) => ctx.out.write().integer(added),
        (true, Some(new)) => score::write(&mut ctx.out, new),
        (true, None) => ctx.out.write().null(),
    }
    Ok(())
}

/// Adds many members to a large sorted set; returns how many are new, and how many have another score.
fn add_many(
    ctx: &mut Context<'_, '_>,
    sorted: &mut Collection,
    options: Adding,
    pairs: &[(f64, &[u8])],
) -> Answer<(i64, i64)> {
    let (mut added, mut updated, mut longest, mut failed) = (0, 0, 0, None);
    let members = Many { count: pairs.len(), field: |number: usize| pairs[number].1 };
    ctx.keys.put_many_scores(sorted, &members, |number, old| {
        let (given, member) = pairs[number];
        let new = options.score(old.map(Score::number), given).map_err(|e| failed = Some(e)).ok()?;
        let new = new.map(Score::new).filter(|new| Some(*new) != old)?;
        match old {
            Some(_) => updated += 1,
            None => (added, longest) = (added + 1, longest.max(member.len())),
        }
        Some(new)
    })?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    let limits = &ctx.state.config.encodings;
    if added > 0 && (sorted.len() > limits.zset_entries || longest as u64 > limits.zset_value_bytes) {
        sorted.convert();
    }
    Ok((added, updated))
}

/// The sorted set that a command reads.
pub(super) fn read(ctx: &mut Context<'_, '_>, key: &[u8]) -> Answer<Option<Collection>> {
    ctx.keys.read_collection(ctx.session.database, key, Kind::SortedSet)
}

fn zrem(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let mut sorted = ctx.keys.collection(database, key, Kind::SortedSet)?;
    let mut removed = 0;
    for member in request.args().skip(2) {
        removed += i64::from(ctx.keys.remove_element(&mut sorted, member)?);
    }
    if removed > 0 {
        ctx.keys.store_changed(key, sorted, "zrem")?;
    }
    ctx.out.write().integer(removed);
    Ok(())
}

fn zscore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let sorted = read(ctx, &request[1])?;
    write_score_of(ctx, sorted.as_ref(), &request[2])
}

fn zmscore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let sorted = read(ctx, &request[1])?;
    ctx.out.write().array(request.arg_count() - 2);
    request.args().skip(2).try_for_each(|member| write_score_of(ctx, sorted.as_ref(), member))
}

fn write_score_of(ctx: &mut Context<'_, '_>, sorted: Option<&Collection>, member: &[u8]) -> Answer {
    let score = sorted.map(|sorted| ctx.keys.score(sorted, member)).transpose()?.flatten();
    match score {
        Some(score) => score::write(&mut ctx.out, score.number()),
        None => ctx.out.write().null(),
    }
    Ok(())
}

fn zcard(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let len = read(ctx, &request[1])?.map_or(0, |sorted| sorted.len());
    ctx.out.write().integer(len as i64);
    Ok(())
}

fn zrank(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    rank(ctx, request, false)
}

fn zrevrank(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    rank(ctx, request, true)
}

fn rank(ctx: &mut Context<'_, '_>, request: &Request<'_>, from_end: bool) -> Answer {
    let (sorted, member) = (read(ctx, &request[1])?, &request[2]);
    if let Some(sorted) = sorted
        && let Some(score) = ctx.keys.score(&sorted, member)?
    {
        let rank = ctx.keys.rank(&sorted, Cut::Member { score, member, behind: from_end })?;
        let rank = if from_end { sorted.len().saturating_sub(rank) } else { rank };
        ctx.out.write().integer(rank as i64);
    } else {
        ctx.out.write().null();
    }
    Ok(())
}

fn zrandmember(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let Some(count) = request.get(2) else {
        let member = match read(ctx, &request[1])? {
            Some(sorted) => ctx.keys.draw_element(&sorted, &mut ctx.state.random)?,
            None => None,
        };
        return ctx.out.bulk_or_null(member.as_ref().map(|(member, _)| &member[..]));
    };
    let count = sampling::signed_count(count)?;
    let with_scores = request.get(3).is_some_and(|word| is(word, "WITHSCORES"));
    if request.arg_count() > 4 || request.arg_count() == 4 && !with_scores {
        return Err(SYNTAX);
    }
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(Fault::Error("ERR value is out of range"));
    }
    let sorted = read(ctx, &request[1])?;
    sampling::answer(
        ctx,
        sorted.as_ref(),
        count,
        |out, len| write_count(out, len, with_scores),
        |out, (member, score)| write_member(out, member, Score::read(score)?, with_scores),
    )
}

fn zscan(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    element_scan::scan(ctx, request, Kind::SortedSet)
}
