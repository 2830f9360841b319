//! Unions, intersections and differences of sorted sets, and of sets, whose members have the score 1.
//!
//! An intersection walks over the smallest input and looks its members up in the others; a difference walks
//! over the first one. The result is collected in memory, and may have as many bytes as a reply.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use foldhash::fast::RandomState;
use tembo_wire::Request;

use super::args::{Options, integer, is};
use super::context::{Context, Handler};
use super::score;
use super::score::{keys_at, write_count, write_member};
use super::sorted_range::store;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::collection::ordered::Score;
use crate::keyspace::collection::sorted::Member;
use crate::keyspace::collection::value::Collection;
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("zunion", zunion),
    ("zinter", zinter),
    ("zintercard", zintercard),
    ("zdiff", zdiff),
    ("zunionstore", zunionstore),
    ("zinterstore", zinterstore),
    ("zdiffstore", zdiffstore),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum SortedOperation {
    Union,
    Intersection,
    Difference,
}

fn zunion(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, SortedOperation::Union, "zunion")
}

fn zinter(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, SortedOperation::Intersection, "zinter")
}

fn zdiff(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    answer(ctx, request, SortedOperation::Difference, "zdiff")
}

fn zunionstore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    store_result(ctx, request, SortedOperation::Union, "zunionstore")
}

fn zinterstore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    store_result(ctx, request, SortedOperation::Intersection, "zinterstore")
}

fn zdiffstore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    store_result(ctx, request, SortedOperation::Difference, "zdiffstore")
}

/// How the scores of one member become one.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn read(word: &[u8]) -> Answer<Self> {
        match word {
            _ if is(word, "SUM") => Ok(Aggregate::Sum),
            _ if is(word, "MIN") => Ok(Aggregate::Min),
            _ if is(word, "MAX") => Ok(Aggregate::Max),
            _ => Err(SYNTAX),
        }
    }

    fn join(self, score: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => or_zero(score + other),
            Aggregate::Min => {
                if other < score {
                    other
                } else {
                    score
                }
            }
            Aggregate::Max => {
                if other > score {
                    other
                } else {
                    score
                }
            }
        }
    }
}

/// Infinities that cancel out are 0, as is an infinity times 0.
fn or_zero(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number }
}

/// An input: a sorted set or a set.
struct Input {
    collection: Option<Collection>,
    weight: f64,
}

impl Input {
    fn len(&self) -> u64 {
        self.collection.as_ref().map_or(0, Collection::len)
    }

    /// The score of a member, not weighted.
    fn score(&self, ctx: &mut Context<'_, '_>, member: &[u8]) -> Answer<Option<f64>> {
        match &self.collection {
            Some(collection) => ctx.keys.element(collection, member)?.map(score_of).transpose(),
            None => Ok(None),
        }
    }

    /// Gives all members to `visit`, with their scores, until it breaks.
    fn walk(
        &self,
        ctx: &mut Context<'_, '_>,
        mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Answer {
        let Some(collection) = &self.collection else {
            return Ok(());
        };
        let mut outcome = Ok(());
        ctx.keys.walk_elements(collection, 0, |_, member, value| match score_of(value) {
            Ok(score) => visit(member, score),
            Err(fault) => {
                outcome = Err(fault);
                ControlFlow::Break(())
            }
        })?;
        outcome
    }
}

/// The score that an element's value says; a member of a set has none.
fn score_of(value: &[u8]) -> Answer<f64> {
    if value.is_empty() { Ok(1.0) } else { Ok(Score::read(value)?.number()) }
}

/// The parts of a request.
struct AlgebraRequest {
    inputs: Vec<Input>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: u64,
}

/// Which options a command has.
#[derive(Clone, Copy)]
struct AlgebraForm {
    combines: bool,
    answers: bool,
    counts: bool,
}

/// Opens the inputs, whose number is the argument at `at`, and reads the options behind them.
fn open(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    at: usize,
    name: &str,
    form: AlgebraForm,
) -> Answer<AlgebraRequest> {
    let count = integer(&request[at])?;
    if count < 1 {
        let text = format!("ERR at least 1 input key is needed for '{name}' command");
        return Err(Fault::Quoting(text.into_bytes()));
    }
    let keys = usize::try_from(count).ok().and_then(|count| keys_at(request, at, count)).ok_or(SYNTAX)?;
    let inputs = keys.clone().map(|key| input(ctx, &request[key])).collect::<Answer<Vec<_>>>()?;
    let mut asked = AlgebraRequest { inputs, aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
    read_options(&mut asked, request, keys, form)?;
    Ok(asked)
}

fn input(ctx: &mut Context<'_, '_>, key: &[u8]) -> Answer<Input> {
    let database = ctx.session.database;
    let kind = match ctx.keys.find(database, key)?.live {
        Some(stored) if stored.meta.kind == Kind::Set => Kind::Set,
        _ => Kind::SortedSet,
    };
    Ok(Input { collection: ctx.keys.read_collection(database, key, kind)?, weight: 1.0 })
}

fn read_options(
    asked: &mut AlgebraRequest,
    request: &Request<'_>,
    keys: Range<usize>,
    form: AlgebraForm,
) -> Answer {
    let mut options = Options::after(request, keys.end);
    while let Some(word) = options.next() {
        match word {
            _ if form.combines && is(word, "WEIGHTS") && options.left() >= keys.len() => {
                for input in &mut asked.inputs {
                    let weight = score::read(options.value()?);
                    input.weight = weight.ok_or(Fault::Error("ERR weight value is not a float"))?;
                }
            }
            _ if form.combines && is(word, "AGGREGATE") && options.left() >= 1 => {
                asked.aggregate = Aggregate::read(options.value()?)?;
            }
            _ if form.answers && is(word, "WITHSCORES") => asked.with_scores = true,
            _ if form.counts && is(word, "LIMIT") && options.left() >= 1 => {
                let limit = integer(options.value()?).ok().and_then(|limit| u64::try_from(limit).ok());
                asked.limit = limit.ok_or(Fault::Error("ERR LIMIT can't be negative"))?;
            }
            _ => return Err(SYNTAX),
        }
    }
    Ok(())
}

/// Keeps a result within the bytes that a reply may have.
struct Room {
    left: usize,
}

impl Room {
    fn of(ctx: &Context<'_, '_>) -> Self {
        Room { left: ctx.state.config.reply_bytes_max }
    }

    fn take(&mut self, member: &[u8]) -> Answer {
        let too_long = Fault::Error("ERR the result exceeds the maximum (reply-max-bytes)");
        self.left = self.left.checked_sub(member.len()).ok_or(too_long)?;
        Ok(())
    }
}

/// The members of the result, in order.
fn compute(
    ctx: &mut Context<'_, '_>,
    asked: &mut AlgebraRequest,
    operation: SortedOperation,
) -> Answer<Vec<Member>> {
    let mut members = match operation {
        SortedOperation::Union => union(ctx, asked)?,
        SortedOperation::Intersection => intersection(ctx, asked, u64::MAX)?,
        SortedOperation::Difference => difference(ctx, asked)?,
    };
    members.sort_unstable_by(|(a, its), (b, other)| (its, a).cmp(&(other, b)));
    Ok(members)
}

fn union(ctx: &mut Context<'_, '_>, asked: &mut AlgebraRequest) -> Answer<Vec<Member>> {
    // The order in which scores are added up is Redis's.
    asked.inputs.sort_by_key(Input::len);
    let mut scores: HashMap<Vec<u8>, f64, RandomState> = HashMap::default();
    let (mut room, mut outcome) = (Room::of(ctx), Ok(()));
    for input in &asked.inputs {
        input.walk(ctx, |member, score| {
            let score = or_zero(input.weight * score);
            if let Some(sum) = scores.get_mut(member) {
                *sum = asked.aggregate.join(*sum, score);
                return ControlFlow::Continue(());
            }
            outcome = room.take(member);
            scores.insert(member.to_vec(), score);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        std::mem::replace(&mut outcome, Ok(()))?;
    }
    Ok(scores.into_iter().map(|(member, score)| (member, Score::new(score))).collect())
}

/// The members of an input, as a walk has to stop before others are looked up.
fn all(ctx: &mut Context<'_, '_>, input: &Input) -> Answer<Vec<(Vec<u8>, f64)>> {
    let (mut members, mut room, mut outcome) = (Vec::new(), Room::of(ctx), Ok(()));
    input.walk(ctx, |member, score| {
        outcome = room.take(member);
        members.push((member.to_vec(), score));
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    Ok(members)
}

/// Up to `limit` members that all inputs have.
fn intersection(ctx: &mut Context<'_, '_>, asked: &mut AlgebraRequest, limit: u64) -> Answer<Vec<Member>> {
    asked.inputs.sort_by_key(Input::len);
    let mut found = Vec::new();
    let [first, others @ ..] = &asked.inputs[..] else {
        return Ok(found);
    };
    'members: for (member, score) in all(ctx, first)? {
        let mut joined = or_zero(first.weight * score);
        for other in others {
            let Some(score) = other.score(ctx, &member)? else {
                continue 'members;
            };
            joined = asked.aggregate.join(joined, other.weight * score);
        }
        found.push((member, Score::new(joined)));
        if found.len() as u64 == limit {
            break;
        }
    }
    Ok(found)
}

fn difference(ctx: &mut Context<'_, '_>, asked: &AlgebraRequest) -> Answer<Vec<Member>> {
    let mut found = Vec::new();
    let [first, others @ ..] = &asked.inputs[..] else {
        return Ok(found);
    };
    'members: for (member, score) in all(ctx, first)? {
        for other in others {
            if other.score(ctx, &member)?.is_some() {
                continue 'members;
            }
        }
        found.push((member, Score::new(score)));
    }
    Ok(found)
}

fn answer(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    operation: SortedOperation,
    name: &str,
) -> Answer {
    let form =
        AlgebraForm { combines: operation != SortedOperation::Difference, answers: true, counts: false };
    let mut asked = open(ctx, request, 1, name, form)?;
    let members = compute(ctx, &mut asked, operation)?;
    write_count(&mut ctx.out, members.len(), asked.with_scores);
    members
        .iter()
        .try_for_each(|(member, score)| write_member(&mut ctx.out, member, *score, asked.with_scores))
}

fn store_result(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    operation: SortedOperation,
    name: &str,
) -> Answer {
    let form =
        AlgebraForm { combines: operation != SortedOperation::Difference, answers: false, counts: false };
    let mut asked = open(ctx, request, 2, name, form)?;
    let members = compute(ctx, &mut asked, operation)?;
    let len = store(ctx, &request[1], &members, name)?;
    ctx.out.write().integer(len as i64);
    Ok(())
}

fn zintercard(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let form = AlgebraForm { combines: false, answers: false, counts: true };
    let mut asked = open(ctx, request, 1, "zintercard", form)?;
    let limit = if asked.limit == 0 { u64::MAX } else { asked.limit };
    let found = intersection(ctx, &mut asked, limit)?.len();
    ctx.out.write().integer(found as i64);
    Ok(())
}
