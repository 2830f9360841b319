//! Estimates of how many different elements there were: PFADD, PFCOUNT, PFMERGE, PFDEBUG and PFSELFTEST. A
//! [`sketch`] is a string, which GET returns and SET restores.

mod estimate;
mod hash;
mod registers;
mod sketch;

use tembo_wire::Request;

use super::args::{is, quoting};
use super::context::{Context, Handler};
use crate::fault::{Answer, Fault};
use crate::keyspace::entry::Old;
use crate::keyspace::events::class;
use crate::keyspace::format::{Meta, Stored};
use registers::REGISTERS;
use sketch::{Highest, Sketch, count_of};

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("pfadd", pfadd),
    ("pfcount", pfcount),
    ("pfmerge", pfmerge),
    ("pfdebug", pfdebug),
    ("pfselftest", pfselftest),
];

/// A sketch under a key, and the data that are needed to replace it.
struct Kept {
    sketch: Sketch,
    meta: Meta,
    old: Old,
}

/// Looks up a sketch for a command that changes it.
fn find(ctx: &mut Context<'_, '_>, key: &[u8]) -> Answer<Result<Kept, Old>> {
    let found = ctx.keys.find(ctx.session.database, key)?;
    match found.live.map(Stored::string).transpose()? {
        None => Ok(Err(found.old)),
        Some(stored) => {
            let meta = Meta { modified: true, ..stored.meta };
            Ok(Ok(Kept { sketch: Sketch::read(stored.payload)?, meta, old: found.old }))
        }
    }
}

/// A new sketch in place of an expired value.
fn fresh(old: Old) -> Kept {
    Kept { sketch: Sketch::new(), meta: Meta { modified: true, ..Meta::default() }, old }
}

impl Kept {
    fn put(&self, ctx: &mut Context<'_, '_>, key: &[u8]) -> Answer {
        ctx.keys.put(ctx.session.database, key, self.meta, self.old, &[self.sketch.as_bytes()])
    }

    /// Puts a sketch of which a register may be another.
    fn put_changed(&mut self, ctx: &mut Context<'_, '_>, key: &[u8]) -> Answer {
        self.sketch.forget_count();
        self.put(ctx, key)?;
        ctx.keys.notify(class::STRING, "pfadd", ctx.session.database, key);
        Ok(())
    }
}

fn pfadd(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let key = &request[1];
    let (mut kept, mut changed) = match find(ctx, key)? {
        Ok(kept) => (kept, false),
        Err(old) => (fresh(old), true),
    };
    for element in request.args().skip(2) {
        changed |= kept.sketch.add(element, ctx.state.config.hll_sparse_bytes)?;
    }
    if changed {
        kept.put_changed(ctx, key)?;
    }
    ctx.out.write().integer(changed.into());
    Ok(())
}

/// The sketch that a command reads.
fn read(ctx: &mut Context<'_, '_>, key: &[u8]) -> Answer<Option<Kept>> {
    let Some(stored) = ctx.keys.read_string(ctx.session.database, key)? else {
        return Ok(None);
    };
    let (meta, old) = (Meta { modified: true, ..stored.meta }, Old::of(&stored));
    Ok(Some(Kept { sketch: Sketch::read(stored.payload)?, meta, old }))
}

fn pfcount(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let count = if request.arg_count() == 2 {
        match read(ctx, &request[1])? {
            Some(kept) => count_one(ctx, &request[1], kept)?,
            None => 0,
        }
    } else {
        let mut highest: Highest = [0; REGISTERS];
        for key in request.args().skip(1) {
            if let Some(kept) = read(ctx, key)? {
                kept.sketch.merge_into(&mut highest)?;
            }
        }
        count_of(&highest)
    };
    ctx.out.write().integer(count as i64);
    Ok(())
}

/// The estimate of one sketch, which is kept with it, if there is room: the command is one that reads.
fn count_one(ctx: &mut Context<'_, '_>, key: &[u8], mut kept: Kept) -> Answer<u64> {
    if let Some(count) = kept.sketch.known_count() {
        return Ok(count);
    }
    let count = kept.sketch.count()?;
    kept.sketch.set_known_count(count);
    let begin = ctx.keys.begin_command()?;
    match kept.put(ctx, key) {
        Ok(()) => ctx.keys.end_command(),
        Err(Fault::Engine(tembo::Error::Full { .. })) => ctx.keys.rollback_to(begin),
        Err(fault) => {
            ctx.keys.rollback_to(begin);
            return Err(fault);
        }
    }
    Ok(count)
}

fn pfmerge(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (mut highest, mut some_dense) = ([0; REGISTERS], false);
    for key in request.args().skip(1) {
        if let Some(kept) = read(ctx, key)? {
            some_dense |= kept.sketch.is_dense();
            kept.sketch.merge_into(&mut highest)?;
        }
    }
    let target = &request[1];
    let mut kept = find(ctx, target)?.unwrap_or_else(fresh);
    if some_dense {
        kept.sketch.make_dense()?;
    }
    for (index, value) in highest.into_iter().enumerate().filter(|(_, value)| *value > 0) {
        kept.sketch.raise(index, value, ctx.state.config.hll_sparse_bytes)?;
    }
    kept.put_changed(ctx, target)?;
    ctx.out.write().ok();
    Ok(())
}

fn pfdebug(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (word, key) = (&request[1], &request[2]);
    let missing = Fault::Error("ERR The specified key does not exist");
    let mut kept = find(ctx, key)?.map_err(|_| missing)?;
    let was_dense = kept.sketch.is_dense();
    match word {
        _ if is(word, "GETREG") => {
            make_dense(ctx, key, &mut kept)?;
            let mut reply = ctx.out.write();
            reply.array(REGISTERS);
            (0..REGISTERS).for_each(|index| reply.integer(kept.sketch.register(index).into()));
        }
        _ if is(word, "DECODE") && was_dense => return Err(Fault::Error("ERR HLL encoding is not sparse")),
        _ if is(word, "DECODE") => {
            let runs: Vec<_> = kept.sketch.runs().map(|run| run.to_string()).collect();
            ctx.out.bulk(runs.join(" ").as_bytes())?;
        }
        _ if is(word, "ENCODING") => ctx.out.write().simple(if was_dense { "dense" } else { "sparse" }),
        _ if is(word, "TODENSE") => {
            make_dense(ctx, key, &mut kept)?;
            ctx.out.write().integer((!was_dense).into());
        }
        _ => return Err(quoting("ERR Unknown PFDEBUG subcommand '", word, "'")),
    }
    Ok(())
}

/// Gives the sketch under a key dense registers.
fn make_dense(ctx: &mut Context<'_, '_>, key: &[u8], kept: &mut Kept) -> Answer {
    if kept.sketch.is_dense() {
        return Ok(());
    }
    kept.sketch.make_dense()?;
    kept.put(ctx, key)
}

/// Elements that the test adds. Redis adds a hundred times as many, and serves nobody meanwhile.
const TESTED_ELEMENTS: u64 = 100_000;

fn pfselftest(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let sparse_bytes_max = ctx.state.config.hll_sparse_bytes;
    let (mut sketch, mut dense) = (Sketch::new(), Sketch::new());
    dense.make_dense()?;
    let (salt, mut next) = (ctx.state.random.next(), 1);
    for number in 1..=TESTED_ELEMENTS {
        let element = (number ^ salt).to_le_bytes();
        sketch.add(&element, sparse_bytes_max)?;
        dense.add(&element, sparse_bytes_max)?;
        if number != next {
            continue;
        }
        let count = dense.count()?;
        if sketch.count()? != count {
            return Err(Fault::Error("ERR TESTFAILED dense/sparse disagree"));
        }
        // Six times the standard error.
        let error_max = (1.04 / (REGISTERS as f64).sqrt() * 6.0 * number as f64).ceil() as u64;
        let error = count.abs_diff(number);
        if error > error_max {
            let text = format!("ERR TESTFAILED Too big error. card:{number} abserr:{error}");
            return Err(Fault::Quoting(text.into_bytes()));
        }
        next *= 10;
    }
    ctx.out.write().ok();
    Ok(())
}
