//! Places on the earth, as members of sorted sets whose scores are the numbers of small cells ([`cell`]).
//! Any command of sorted sets works on them, ZREM too.

mod cell;
mod earth;
mod search;
mod units;

use tembo_wire::Request;

use super::args::is;
use super::context::{Context, Handler};
use super::sorted_set::{Adding, add_members, read};
use crate::fault::{Answer, SYNTAX};
use cell::Position;
use units::{position_of, read_position, read_unit, write_distance, write_position};

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("geoadd", geoadd),
    ("geodist", geodist),
    ("geohash", geohash),
    ("geopos", geopos),
    ("geosearch", search::geosearch),
    ("geosearchstore", search::geosearchstore),
    ("georadius", search::georadius),
    ("georadiusbymember", search::georadiusbymember),
    ("georadius_ro", search::georadius_ro),
    ("georadiusbymember_ro", search::georadiusbymember_ro),
];

fn geoadd(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (mut options, mut first) = (Adding::default(), 2);
    while let Some(word) = request.get(first) {
        match word {
            _ if is(word, "NX") => options.new_only = true,
            _ if is(word, "XX") => options.old_only = true,
            _ if is(word, "CH") => options.changed = true,
            _ => break,
        }
        first += 1;
    }
    if !(request.arg_count() - first).is_multiple_of(3) || options.new_only && options.old_only {
        return Err(SYNTAX);
    }
    let places = (first..request.arg_count()).step_by(3);
    let place = |at| Ok((read_position(&request[at], &request[at + 1])?.score(), &request[at + 2]));
    let places = places.map(place).collect::<Answer<Vec<_>>>()?;
    if places.is_empty() {
        return Err(SYNTAX);
    }
    add_members(ctx, &request[1], options, &places)?;
    if ctx.tells() {
        let words = [&b"ZADD"[..], &request[1]].into_iter().chain((2..first).map(|at| &request[at]));
        let mut words: Vec<_> = words.map(<[u8]>::to_vec).collect();
        for (score, member) in &places {
            words.extend([(*score as u64).to_string().into_bytes(), member.to_vec()]);
        }
        ctx.tell(words);
    }
    Ok(())
}

fn geodist(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() > 5 {
        return Err(SYNTAX);
    }
    let unit = request.get(4).map_or(Ok(1.0), read_unit)?;
    let sorted = read(ctx, &request[1])?;
    let a = position_of(ctx, sorted.as_ref(), &request[2])?;
    let b = position_of(ctx, sorted.as_ref(), &request[3])?;
    match (a, b) {
        (Some(a), Some(b)) => write_distance(&mut ctx.out, earth::distance(a, b) / unit),
        _ => ctx.out.write().null(),
    }
    Ok(())
}

fn geohash(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let sorted = read(ctx, &request[1])?;
    ctx.out.write().array(request.arg_count() - 2);
    for member in request.args().skip(2) {
        let position = position_of(ctx, sorted.as_ref(), member)?;
        ctx.out.bulk_or_null(position.map(Position::geohash).as_deref())?;
    }
    Ok(())
}

fn geopos(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let sorted = read(ctx, &request[1])?;
    ctx.out.write().array(request.arg_count() - 2);
    for member in request.args().skip(2) {
        match position_of(ctx, sorted.as_ref(), member)? {
            Some(position) => write_position(&mut ctx.out, position),
            None => ctx.out.write().null_array(),
        }
    }
    Ok(())
}
