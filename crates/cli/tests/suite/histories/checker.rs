//! The checker of recorded operations.
//!
//! * **Lost.** The last reading of each key has every append that was acknowledged, every element that an
//!   acknowledged read showed, and no value of a register that an acknowledged write had replaced.
//! * **Invented.** No read shows a value that nobody wrote, one that was refused, or an element twice.
//! * **Forked.** Of two acknowledged readings of a list, one is a beginning of the other.
//! * **Not linearizable.** There is an order of the acknowledged operations of a key, and of some of those
//!   that are unknown, that explains every reading, and in which nothing comes before what had ended when it
//!   began. Unknown writes may happen at any time after they began.
//! * **Split.** A node says that a write is done in its own terms only.
//!
//! # The order
//!
//! Every write has a value of its own, so that no order has to be searched for; `mutants.rs` compares the
//! verdicts with those of an exhaustive search.
//!
//! - A list's longest reading is the order of the appends that happened. An append has its place as its rank,
//!   a reading comes behind the last append that it shows. All that is left is the clock: nothing of a lower
//!   rank may have begun after something of a higher rank had ended. Acknowledged appends that no reading
//!   shows come behind all of them.
//! - A register's write and the readings of its value are a *zone*. From the first end to the last beginning
//!   among them, if these are in this order, the register must have that value. Two of these spans must not
//!   overlap; and a zone without such a span must have a moment, between its last beginning and its first
//!   end, that is in no other's span (Gibbons and Korach, "Testing Shared Memories", 1997).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::record::{Event, History, Op, Outcome, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Lost,
    Invented,
    Forked,
    NotLinearizable,
    Split,
}

#[derive(Debug)]
pub(crate) struct Anomaly {
    pub(crate) kind: Kind,
    story: String,
}

impl std::fmt::Display for Anomaly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.story)
    }
}

pub(crate) type Verdict = Result<(), Anomaly>;

fn anomaly(kind: Kind, story: impl Into<String>) -> Verdict {
    Err(Anomaly { kind, story: story.into() })
}

/// An event as a story shows it: lists by their ends.
fn shown(event: &Event) -> String {
    let Event { client, key, op, node, began, answered, ended, outcome } = event;
    let op = match op {
        Op::List(list) if list.len() > 8 => {
            format!("List({} elements, the last {:?})", list.len(), &list[list.len() - 4..])
        }
        op => format!("{op:?}"),
    };
    let ms = |time: Time| format!("{:.3} ms", time as f64 / 1e6);
    let answered = answered.map_or(String::new(), |time| format!(", done at {}", ms(time)));
    format!(
        "client {client} at node {node}, {key}: {op} from {} to {}{answered}, {outcome:?}",
        ms(*began),
        ms(*ended)
    )
}

/// Checks a history whose readings at the end are there.
pub(crate) fn check(history: &History) -> Verdict {
    for last in &history.last {
        expect_nothing_lost(last, &history.events)?;
    }
    expect_no_split(history)?;
    expect_linearizable(history.all())
}

/// Checks the operations of all keys.
pub(crate) fn expect_linearizable<'e>(events: impl Iterator<Item = &'e Event>) -> Verdict {
    let mut keys: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in events {
        keys.entry(&event.key).or_default().push(event);
    }
    keys.values().try_for_each(|events| match events[0].op.is_of_list() {
        true => expect_list(events),
        false => expect_register(events),
    })
}

fn of_key<'e>(last: &'e Event, events: &'e [Event], outcome: Outcome) -> impl Iterator<Item = &'e Event> {
    events.iter().filter(move |event| event.key == last.key && event.outcome == outcome)
}

/// Every acknowledged change is in the last reading.
fn expect_nothing_lost(last: &Event, events: &[Event]) -> Verdict {
    let lost = |event: &Event| anomaly(Kind::Lost, format!("{}\n  is not in {}", shown(event), shown(last)));
    let acknowledged = of_key(last, events, Outcome::Acknowledged);
    match &last.op {
        Op::List(found) => {
            let found: BTreeSet<u64> = found.iter().copied().collect();
            for event in acknowledged {
                let is_there = match &event.op {
                    Op::Append(element) => found.contains(element),
                    Op::List(seen) => seen.iter().all(|element| found.contains(element)),
                    _ => true,
                };
                if !is_there {
                    return lost(event);
                }
            }
        }
        Op::Get(found) => {
            let writer = |event: &&Event| matches!(event.op, Op::Set(value) if Some(value) == *found);
            let of_last = events.iter().find(|event| event.key == last.key && writer(event));
            // A value that nobody wrote is another matter.
            let over = if found.is_none() { Some(0) } else { of_last.map(Event::last) };
            let is_replaced = |event: &&Event| over.is_some_and(|over| event.began >= over);
            let mut writes = acknowledged.filter(|event| event.op.is_write() && !writer(event));
            if let Some(event) = writes.find(is_replaced) {
                return lost(event);
            }
        }
        _ => {}
    }
    Ok(())
}

/// The writes by their values. One value is written once.
fn writers<'e>(events: &[&'e Event]) -> HashMap<u64, &'e Event> {
    let mut writers = HashMap::new();
    for event in events {
        if let Op::Append(value) | Op::Set(value) = event.op {
            assert!(writers.insert(value, *event).is_none(), "two writes of {value}");
        }
    }
    writers
}

fn acknowledged<'e>(events: &'e [&'e Event]) -> impl Iterator<Item = &'e Event> {
    events.iter().copied().filter(|event| event.outcome == Outcome::Acknowledged)
}

/// The write of a value that a reading shows, which may have happened.
fn writer_of<'e>(
    value: u64,
    writers: &HashMap<u64, &'e Event>,
    reading: &Event,
) -> Result<&'e Event, Anomaly> {
    let story = match writers.get(&value) {
        Some(write) if write.outcome == Outcome::Refused => format!("this was refused: {}", shown(write)),
        Some(write) => return Ok(write),
        None => format!("nobody wrote {value}"),
    };
    Err(Anomaly { kind: Kind::Invented, story: format!("{story}\n  and is in {}", shown(reading)) })
}

fn expect_list(events: &[&Event]) -> Verdict {
    let writers = writers(events);
    let readings = || {
        acknowledged(events).filter_map(|event| match &event.op {
            Op::List(found) => Some((event, found)),
            _ => None,
        })
    };
    let empty = Vec::new();
    let longest = readings().max_by_key(|(_, found)| found.len());
    let order = longest.map_or(&empty, |(_, found)| found);
    for (reading, found) in readings() {
        if order[..found.len()] != **found {
            let longest = longest.map_or_else(String::new, |(event, _)| shown(event));
            return anomaly(Kind::Forked, format!("{}\n  is no beginning of {longest}", shown(reading)));
        }
    }
    // Ranks: the append at a place, and readings that end there.
    let mut ranked: Vec<(usize, &Event)> = Vec::new();
    let mut seen = BTreeSet::new();
    for (place, value) in order.iter().enumerate() {
        let reading = longest.expect("there is an order").0;
        ranked.push((2 * place + 1, writer_of(*value, &writers, reading)?));
        if !seen.insert(*value) {
            return anomaly(Kind::Invented, format!("{value} is there twice: {}", shown(reading)));
        }
    }
    ranked.extend(readings().map(|(event, found)| (2 * found.len(), event)));
    for event in acknowledged(events) {
        if let Op::Append(value) = event.op
            && !seen.contains(&value)
        {
            ranked.push((usize::MAX, event));
        }
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    expect_in_time(&ranked)
}

/// Nothing of a lower rank began after something of a higher one had ended.
fn expect_in_time(ranked: &[(usize, &Event)]) -> Verdict {
    // The one that began last among those of lower ranks, and of this rank.
    let mut below: Option<&Event> = None;
    for group in ranked.chunk_by(|(one, _), (other, _)| one == other) {
        for (_, event) in group {
            if let Some(first) = below.filter(|first| first.began > event.last()) {
                let story = format!("{}\n  comes before {}, which had ended", shown(first), shown(event));
                return anomaly(Kind::NotLinearizable, story);
            }
        }
        let latest = group.iter().map(|(_, event)| *event).chain(below);
        below = latest.max_by_key(|event| event.began);
    }
    Ok(())
}

/// The write of a value and its readings. Times are later by one: nothing was written at time 0.
struct Zone<'e> {
    first_end: (Time, Option<&'e Event>),
    last_begin: (Time, Option<&'e Event>),
}

impl Zone<'_> {
    /// The span in which the register must have the value.
    fn span(&self) -> Option<(Time, Time)> {
        (self.first_end.0 < self.last_begin.0).then_some((self.first_end.0, self.last_begin.0))
    }

    fn shown(&self) -> String {
        let [one, other] = [self.first_end.1, self.last_begin.1].map(|event| event.map(shown));
        let one = one.unwrap_or_else(|| "the beginning".to_owned());
        match other.filter(|other| *other != one) {
            Some(other) => format!("{one}\n  and {other}"),
            None => one,
        }
    }
}

fn expect_register(events: &[&Event]) -> Verdict {
    let writers = writers(events);
    let mut zones: BTreeMap<Option<u64>, Zone<'_>> = BTreeMap::new();
    zones.insert(None, Zone { first_end: (0, None), last_begin: (0, None) });
    for event in acknowledged(events) {
        let value = match event.op {
            Op::Set(value) => Some(value),
            Op::Get(found) => found,
            _ => continue,
        };
        let write = value.map(|value| writer_of(value, &writers, event)).transpose()?;
        if let Some(write) = write.filter(|write| write.began > event.ended) {
            let story = format!("{}\n  shows what began later: {}", shown(event), shown(write));
            return anomaly(Kind::NotLinearizable, story);
        }
        let zone = zones.entry(value).or_insert_with(|| {
            let write = write.expect("it is a value that was written");
            let (first, last) = (write.last().saturating_add(1), write.began + 1);
            Zone { first_end: (first, Some(write)), last_begin: (last, Some(write)) }
        });
        if event.ended + 1 < zone.first_end.0 {
            zone.first_end = (event.ended + 1, Some(event));
        }
        if event.began + 1 > zone.last_begin.0 {
            zone.last_begin = (event.began + 1, Some(event));
        }
    }
    expect_apart(&zones.into_values().collect::<Vec<_>>())
}

/// Spans do not overlap, and each zone without one has a moment outside of them.
fn expect_apart(zones: &[Zone<'_>]) -> Verdict {
    let mut spans: Vec<(Time, Time, &Zone<'_>)> =
        zones.iter().filter_map(|zone| zone.span().map(|(from, to)| (from, to, zone))).collect();
    spans.sort_by_key(|(from, ..)| *from);
    let conflict = |one: &Zone<'_>, other: &Zone<'_>| {
        let story = format!("the value of {}\n  does not agree with {}", one.shown(), other.shown());
        anomaly(Kind::NotLinearizable, story)
    };
    for pair in spans.windows(2) {
        if pair[1].0 < pair[0].1 {
            return conflict(pair[0].2, pair[1].2);
        }
    }
    for zone in zones.iter().filter(|zone| zone.span().is_none()) {
        let (from, to) = (zone.last_begin.0, zone.first_end.0);
        let at = spans.partition_point(|(begin, ..)| *begin < from);
        if let Some((_, end, other)) = at.checked_sub(1).map(|at| &spans[at])
            && to < *end
        {
            return conflict(other, zone);
        }
    }
    Ok(())
}

/// Writes are done in the terms of their nodes.
fn expect_no_split(history: &History) -> Verdict {
    let terms = &history.terms;
    for event in history.events.iter().filter(|event| event.op.is_write()) {
        let Some(done) = event.answered else { continue };
        // The terms that overlap with it.
        let first = terms.partition_point(|term| term.from <= event.began).saturating_sub(1);
        let end = terms.partition_point(|term| term.from <= done);
        if terms[first..end].iter().any(|term| term.node == event.node) {
            continue;
        }
        let term = &terms[first];
        let is_rival =
            |other: &&Event| other.node == term.node && other.key == event.key && other.answered.is_some();
        let rival = history.events.iter().filter(is_rival).find(|other| other.ended > term.from);
        let rival = rival.map_or_else(String::new, |rival| format!("\n  which did {}", shown(rival)));
        let story = format!("{}\n  was done in a term of node {}{rival}", shown(event), term.node);
        return anomaly(Kind::Split, story);
    }
    Ok(())
}
