//! Positions and distances in requests and replies.

use tembo_wire::Protocol;

use super::cell::Position;
use crate::commands::args::is;
use crate::commands::context::{Context, Out};
use crate::commands::score;
use crate::commands::sorted_set::NOT_A_FLOAT;
use crate::fault::{Answer, Fault, quotable};
use crate::keyspace::collection::value::Collection;

/// Reads a longitude and a latitude.
pub(super) fn read_position(longitude: &[u8], latitude: &[u8]) -> Answer<Position> {
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
pub(super) fn read_unit(arg: &[u8]) -> Answer<f64> {
    match quotable(arg) {
        unit if is(unit, "m") => Ok(1.0),
        unit if is(unit, "km") => Ok(1000.0),
        unit if is(unit, "ft") => Ok(0.3048),
        unit if is(unit, "mi") => Ok(1609.34),
        _ => Err(Fault::Error("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// Writes a distance, with four decimals.
pub(super) fn write_distance(out: &mut Out<'_>, distance: f64) {
    let text = match distance.is_nan() {
        true if distance.is_sign_negative() => "-nan".to_owned(),
        true => "nan".to_owned(),
        false => format!("{distance:.4}"),
    };
    out.write().bulk(text);
}

/// Writes a longitude and a latitude, each with up to 17 decimals.
pub(super) fn write_position(out: &mut Out<'_>, position: Position) {
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

/// The place of a member.
pub(super) fn position_of(
    ctx: &mut Context<'_, '_>,
    sorted: Option<&Collection>,
    member: &[u8],
) -> Answer<Option<Position>> {
    let score = sorted.map(|sorted| ctx.keys.score(sorted, member)).transpose()?.flatten();
    Ok(score.map(|score| Position::of_score(score.number())))
}
