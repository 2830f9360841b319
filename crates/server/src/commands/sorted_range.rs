//! Ranges of sorted sets. Each kind of range is turned into ranks first, in O(log n).

use std::ops::{ControlFlow, Range};

use tembo_wire::Request;

use super::args::{integer, is};
use super::context::{Context, Handler};
use super::score::{self, LexEnd, write_count, write_member};
use super::sorted_set::{put, read};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::Keyspace;
use crate::keyspace::collection::ordered::{Cut, Score};
use crate::keyspace::collection::sorted::Member;
use crate::keyspace::collection::value::Collection;
use crate::keyspace::events::class;
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("zrange", zrange),
    ("zrangestore", zrangestore),
    ("zrevrange", zrevrange),
    ("zrangebyscore", zrangebyscore),
    ("zrevrangebyscore", zrevrangebyscore),
    ("zrangebylex", zrangebylex),
    ("zrevrangebylex", zrevrangebylex),
    ("zcount", zcount),
    ("zlexcount", zlexcount),
    ("zremrangebyrank", zremrangebyrank),
    ("zremrangebyscore", zremrangebyscore),
    ("zremrangebylex", zremrangebylex),
];

/// The meaning of a range's ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// The ends of a range.
#[derive(Clone, Copy)]
enum Ends<'a> {
    Ranks(i64, i64),
    Scores([Cut<'static>; 2]),
    Names([LexEnd<'a>; 2]),
}

impl<'a> Ends<'a> {
    fn read(by: By, min: &'a [u8], max: &'a [u8]) -> Answer<Self> {
        Ok(match by {
            By::Rank => Ends::Ranks(integer(min)?, integer(max)?),
            By::Score => Ends::Scores(score::score_range(min, max)?),
            By::Lex => Ends::Names(score::lex_range(min, max)?),
        })
    }

    /// The ranks of the members in the range. Ranks that are given may be counted from the end.
    fn ranks(self, keys: &mut Keyspace<'_>, sorted: &Collection, downwards: bool) -> Answer<Range<u64>> {
        let len = sorted.len();
        let cuts = match self {
            Ends::Ranks(start, end) => {
                let from_start = |rank: i64| if rank < 0 { rank.saturating_add(len as i64) } else { rank };
                let (start, end) = (from_start(start).max(0) as u64, from_start(end).saturating_add(1));
                let range = start.min(len)..(end.max(0) as u64).min(len);
                let range = if range.is_empty() { 0..0 } else { range };
                return Ok(if downwards { len - range.end..len - range.start } else { range });
            }
            Ends::Scores(cuts) => cuts,
            Ends::Names([min, max]) => {
                // The order by names is one among members of one score; Redis does not say which others
                // count.
                let first = keys.members_from(sorted, 0, false, 1)?;
                let score = first.first().map_or(Score::new(0.0), |(_, score)| *score);
                [min.cut(score, false), max.cut(score, true)]
            }
        };
        let [start, end] = cuts;
        let start = keys.rank(sorted, start)?;
        Ok(start..keys.rank(sorted, end)?.max(start))
    }
}

/// A range, and the requested part of it.
struct Wanted<'a> {
    ends: Ends<'a>,
    downwards: bool,
    /// How many members are passed over, and how many are taken at most. A negative number takes all.
    limit: (i64, i64),
    with_scores: bool,
}

/// The kind of range that a command's name says.
#[derive(Clone, Copy, Default)]
struct RangeForm {
    by: Option<By>,
    downwards: Option<bool>,
    stores: bool,
}

impl<'a> Wanted<'a> {
    /// Reads the arguments from the range's first end on.
    fn read(request: &'a Request<'a>, at: usize, form: RangeForm) -> Answer<Self> {
        let RangeForm { mut by, mut downwards, stores } = form;
        let (mut limit, mut with_scores) = ((0, -1), false);
        let mut option = at + 2;
        while let Some(word) = request.get(option) {
            option += 1;
            match word {
                _ if !stores && is(word, "WITHSCORES") => with_scores = true,
                _ if is(word, "LIMIT") && option + 2 <= request.arg_count() => {
                    limit = (integer(&request[option])?, integer(&request[option + 1])?);
                    option += 2;
                }
                _ if downwards.is_none() && is(word, "REV") => downwards = Some(true),
                _ if by.is_none() && is(word, "BYLEX") => by = Some(By::Lex),
                _ if by.is_none() && is(word, "BYSCORE") => by = Some(By::Score),
                _ => return Err(SYNTAX),
            }
        }
        let (by, downwards) = (by.unwrap_or(By::Rank), downwards.unwrap_or(false));
        if limit.1 != -1 && by == By::Rank {
            let text =
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(Fault::Error(text));
        }
        if with_scores && by == By::Lex {
            let text = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";
            return Err(Fault::Error(text));
        }
        // Downwards the higher end comes first.
        let (min, max) = if downwards && by != By::Rank { (at + 1, at) } else { (at, at + 1) };
        let ends = Ends::read(by, &request[min], &request[max])?;
        Ok(Wanted { ends, downwards, limit, with_scores })
    }

    /// The rank of the first member that is wanted, and how many are.
    fn resolve(&self, keys: &mut Keyspace<'_>, sorted: &Collection) -> Answer<(u64, u64)> {
        let ranks = self.ends.ranks(keys, sorted, self.downwards)?;
        let (offset, count) = match self.ends {
            Ends::Ranks(..) => (0, u64::MAX),
            // With a negative number of members to pass over, Redis passes over all.
            _ => (
                u64::try_from(self.limit.0).unwrap_or(u64::MAX),
                u64::try_from(self.limit.1).unwrap_or(u64::MAX),
            ),
        };
        let len = ranks.end - ranks.start;
        let count = len.saturating_sub(offset).min(count);
        let passed = offset.min(len);
        let first =
            if self.downwards { (ranks.end - passed).saturating_sub(1) } else { ranks.start + passed };
        Ok((first, count))
    }
}

fn zrange(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, RangeForm::default())
}

fn zrevrange(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, RangeForm { by: Some(By::Rank), downwards: Some(true), stores: false })
}

fn zrangebyscore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, RangeForm { by: Some(By::Score), downwards: Some(false), stores: false })
}

fn zrevrangebyscore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, RangeForm { by: Some(By::Score), downwards: Some(true), stores: false })
}

fn zrangebylex(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, RangeForm { by: Some(By::Lex), downwards: Some(false), stores: false })
}

fn zrevrangebylex(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, RangeForm { by: Some(By::Lex), downwards: Some(true), stores: false })
}

fn answer(ctx: &mut Context<'_, '_>, request: &Request<'_>, form: RangeForm) -> Answer {
    let wanted = Wanted::read(request, 2, form)?;
    let Some(sorted) = read(ctx, &request[1])? else {
        ctx.out.write().array(0);
        return Ok(());
    };
    let (first, count) = wanted.resolve(ctx.keys, &sorted)?;
    write_count(&mut ctx.out, count as usize, wanted.with_scores);
    if count == 0 {
        return Ok(());
    }
    let (mut left, mut written, out) = (count, Ok(()), &mut ctx.out);
    ctx.keys.walk_ranks(&sorted, first, wanted.downwards, |member, score| {
        written = write_member(out, member, score, wanted.with_scores);
        left -= 1;
        if written.is_ok() && left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written?;
    if left == 0 { Ok(()) } else { Err(Fault::Malformed) }
}

fn zrangestore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let wanted = Wanted::read(request, 3, RangeForm { stores: true, ..RangeForm::default() })?;
    let members = match read(ctx, &request[2])? {
        Some(sorted) => {
            let (first, count) = wanted.resolve(ctx.keys, &sorted)?;
            ctx.keys.members_from(&sorted, first, wanted.downwards, count)?
        }
        None => Vec::new(),
    };
    let len = store(ctx, &request[1], &members, "zrangestore")?;
    ctx.out.write().integer(len as i64);
    Ok(())
}

/// Stores members in place of a key's value; returns their number.
pub(super) fn store(ctx: &mut Context<'_, '_>, key: &[u8], members: &[Member], event: &str) -> Answer<u64> {
    let database = ctx.database();
    let mut result = ctx.keys.replacement(database, key, Kind::SortedSet)?;
    for (member, score) in members {
        put(ctx.keys, &mut result, &ctx.state.config.encodings, member, *score)?;
    }
    let (len, had_target) = (result.len(), ctx.keys.find(database, key)?.live.is_some());
    if len > 0 {
        ctx.keys.store_changed(key, result, event)?;
    } else {
        ctx.keys.store(key, result)?;
        if had_target {
            ctx.keys.notify(class::GENERIC, "del", database, key);
        }
    }
    Ok(len)
}

fn zcount(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    count(ctx, request, By::Score)
}

fn zlexcount(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    count(ctx, request, By::Lex)
}

fn count(ctx: &mut Context<'_, '_>, request: &Request<'_>, by: By) -> Answer {
    let ends = Ends::read(by, &request[2], &request[3])?;
    let count = match read(ctx, &request[1])? {
        Some(sorted) => {
            let ranks = ends.ranks(ctx.keys, &sorted, false)?;
            (ranks.end - ranks.start) as i64
        }
        None => 0,
    };
    ctx.out.write().integer(count);
    Ok(())
}

fn zremrangebyrank(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    remove(ctx, request, By::Rank, "zremrangebyrank")
}

fn zremrangebyscore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    remove(ctx, request, By::Score, "zremrangebyscore")
}

fn zremrangebylex(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    remove(ctx, request, By::Lex, "zremrangebylex")
}

fn remove(ctx: &mut Context<'_, '_>, request: &Request<'_>, by: By, event: &str) -> Answer {
    let ends = Ends::read(by, &request[2], &request[3])?;
    let (database, key) = (ctx.database(), &request[1]);
    let mut sorted = ctx.keys.collection(database, key, Kind::SortedSet)?;
    let ranks = ends.ranks(ctx.keys, &sorted, false)?;
    let members = ctx.keys.members_from(&sorted, ranks.start, false, ranks.end - ranks.start)?;
    ctx.keys.remove_elements(&mut sorted, members.iter().map(|(member, _)| &member[..]))?;
    if !members.is_empty() {
        ctx.keys.store_changed(key, sorted, event)?;
    }
    ctx.out.write().integer(members.len() as i64);
    Ok(())
}
