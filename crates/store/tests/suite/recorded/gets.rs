//! The checker of gets outside a transaction.
//!
//! A get names no snapshot, so a place is looked for: the lowest snapshot that has the value which the get
//! found, and that is no older than
//!
//! * every commit that was acknowledged before the get began,
//! * every snapshot that was fixed before it began,
//! * the place of every get that had returned before it began.
//!
//! No commit up to that place may have been asked for after the get returned. Such places, with the numbers
//! of the commits, are points of linearization: the lowest place restrains the later ones least, so that a
//! history without lowest places has no others.

use super::checker::{Anomaly, Highest, Kind, anomaly};
use super::model::Model;
use super::record::{Mode, Op, Record};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The clock's view of the commits and snapshots of a round; each has pairs of a moment and a number.
pub(crate) struct Clock<'h> {
    /// Commits, from the moment at which they were acknowledged.
    pub(crate) acknowledged: &'h Highest,
    /// Snapshots, from the moment at which they were fixed.
    pub(crate) fixed: &'h Highest,
    /// The moments at which commits were asked for, from the lowest number to the highest.
    pub(crate) asked: &'h Highest,
    /// All commits of earlier rounds, up to this number, were acknowledged.
    pub(crate) earlier: u64,
}

/// Checks the gets of a round, all of whose commits are in the model; returns their places, from the moments
/// at which they returned.
pub(crate) fn places(records: &[Record], model: &Model, clock: &Clock<'_>) -> Result<Highest, Anomaly> {
    let mut gets: Vec<&Record> = records.iter().filter(|record| record.mode == Mode::Get).collect();
    gets.sort_by_key(|record| record.begun);
    let mut places = Vec::with_capacity(gets.len());
    // Those that had not returned when the one before began, and the highest place of the others.
    let (mut running, mut returned) = (BinaryHeap::new(), 0);
    for get in gets {
        while let Some(Reverse((done, place))) = running.pop() {
            if done >= get.begun {
                running.push(Reverse((done, place)));
                break;
            }
            returned = returned.max(place);
        }
        let least = clock.acknowledged.before(get.begun).max(clock.fixed.before(get.begun));
        let place = place(get, model, least.max(clock.earlier).max(returned))?;
        if clock.asked.before(place + 1) > get.done {
            return anomaly(Kind::FutureRead, format!("it needs snapshot {place}: {get:?}"));
        }
        running.push(Reverse((get.done, place)));
        places.push((get.done, place));
    }
    Ok(Highest::of(places.into_iter()))
}

/// The lowest snapshot from `least` on in which the key has the value that a get found.
fn place(get: &Record, model: &Model, least: u64) -> Result<u64, Anomaly> {
    let [Op::Get { space, key, found }] = get.ops[..] else { panic!("a get is one operation: {get:?}") };
    if model.value(space, key, least) == found {
        return Ok(least);
    }
    if let Some(number) = model.first_with(space, key, found, least) {
        return Ok(number);
    }
    // No key has a value before its first commit.
    let stale = model.first_with(space, key, found, 0).or(found.is_none().then_some(0));
    match stale {
        Some(number) => anomaly(Kind::StaleRead, format!("not {number} but {least}, or later: {get:?}")),
        None => anomaly(Kind::WrongRead, format!("no snapshot has that: {get:?}")),
    }
}
