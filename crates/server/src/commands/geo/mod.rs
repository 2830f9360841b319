//! Places on the earth, as members of sorted sets whose scores are the numbers of small cells ([`cell`]).
//! Any command of sorted sets works on them, ZREM too.

mod cell;
mod earth;
mod search;

use tembo_wire::{Protocol, Request};

use super::args::is;
use super::context::{Context, Handler, Out};
use super::score;
use super::sorted_set::{Adding, NOT_A_FLOAT, add_members, read};
use crate::fault::{Answer, Fault, SYNTAX, quotable};
use crate::keyspace::collection::value::Collection;
use cell::Position;

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

/// Reads a longitude and a latitude.
fn read_position(longitude: &[u8], latitude: &[u8]) -> Answer<Position> {
    let [longitude, latitude] = [longitude, latitude].map(|arg| score::read(arg).ok_or(NOT_A_FLOAT));
    let position = Position { longitude: longitude?, latitude: latitude? };
    if position.is_valid() {
        return Ok(position);
    }
    let Position { longitude, latitude } = position;
    let text = format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
    Err(Fault::Quoting(text.into_bytes()))
}

/// Reads a unit of length; returns how many metres it is.
fn read_unit(arg: &[u8]) -> Answer<f64> {
    match quotable(arg) {
        unit if is(unit, "m") => Ok(1.0),
        unit if is(unit, "km") => Ok(1000.0),
        unit if is(unit, "ft") => Ok(0.3048),
        unit if is(unit, "mi") => Ok(1609.34),
        _ => Err(Fault::Error("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// Writes a distance, with four decimals.
fn write_distance(out: &mut Out<'_>, distance: f64) {
    let text = match distance.is_nan() {
        true if distance.is_sign_negative() => "-nan".to_owned(),
        true => "nan".to_owned(),
        false => format!("{distance:.4}"),
    };
    out.write().bulk(text);
}

/// Writes a longitude and a latitude, each with up to 17 decimals.
fn write_position(out: &mut Out<'_>, position: Position) {
    out.write().array(2);
    for number in [position.longitude, position.latitude] {
        let text = format!("{number:.17}");
        let text = match text.trim_end_matches('0').trim_end_matches('.') {
            "-0" => "0",
            text => text,
        };
        match out.protocol {
            Protocol::Resp2 => out.write().bulk(text),
            Protocol::Resp3 => out.raw(format!(",{text}\r\n").as_bytes()),
        }
    }
}

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

/// The place of a member.
fn position_of(
    ctx: &mut Context<'_, '_>,
    sorted: Option<&Collection>,
    member: &[u8],
) -> Answer<Option<Position>> {
    let score = sorted.map(|sorted| ctx.keys.score(sorted, member)).transpose()?.flatten();
    Ok(score.map(|score| Position::of_score(score.number())))
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
