//! The stream of effects, as far as it is about keys that a copy has sent.

use tembo_wire::{Limits, Parsed, Request, RequestParser};

use super::copy::{Commands, Copy};
use crate::cluster::ranges::Ranges;
use crate::cluster::slot::slot_of;
use crate::commands::args::is;
use crate::commands::key_arguments::places_of_keys;
use crate::commands::registry::Registry;
use crate::keyspace::placement::place_of;

/// Effects that are not about keys: the stream's own words, and messages.
const OTHERS: [&str; 9] =
    ["select", "multi", "exec", "ping", "replconf", "publish", "spublish", "clusterx", "script"];

/// Gives the effects of the stream to the copy, and those to be run to the target.
///
/// # Errors
/// An effect cannot be told to the target: the move has to begin anew.
pub(crate) fn filter(
    registry: &Registry,
    mut stream: &[u8],
    slots: &Ranges,
    copy: &mut Copy,
    out: &mut Commands,
) -> Result<(), String> {
    let mut parser = RequestParser::new();
    while !stream.is_empty() {
        let consumed = match parser.parse(stream, &Limits::default()) {
            Ok(Parsed::Request(request)) => {
                filter_one(registry, &request, slots, copy, out)?;
                request.consumed()
            }
            Ok(Parsed::Empty { consumed }) => consumed,
            Ok(Parsed::Incomplete { .. }) | Err(_) => return Err("an effect cannot be read".to_owned()),
        };
        stream = &stream[consumed..];
    }
    Ok(())
}

fn filter_one(
    registry: &Registry,
    request: &Request<'_>,
    slots: &Ranges,
    copy: &mut Copy,
    out: &mut Commands,
) -> Result<(), String> {
    let name = request.name();
    if OTHERS.iter().any(|other| is(name, other)) {
        return Ok(());
    }
    if is(name, "unlink") || is(name, "del") {
        // One command may remove keys of several slots.
        for key in request.args().skip(1).filter(|key| slots.contains(slot_of(key))) {
            if copy.note(&[place_of(key)]) {
                out.remove(key);
            }
        }
        return Ok(());
    }
    let shown = || String::from_utf8_lossy(name).to_uppercase();
    let command = registry.get(name).ok_or_else(|| format!("{} is no command", shown()))?;
    let keys = places_of_keys(command, request).filter(|places| !places.is_empty());
    let keys = keys.ok_or_else(|| format!("{} was run meanwhile", shown()))?;
    let places: Vec<_> = keys.into_iter().map(|place| place_of(&request[place])).collect();
    if slots.contains(slot_of(&places[0][2..])) && copy.note(&places) {
        out.add(request.args().collect::<Vec<_>>());
    }
    Ok(())
}
