//! Values as bytes, in Redis's format: DUMP and RESTORE.

use std::io;
use std::ops::ControlFlow;

use tembo_rdb::{Element, Encodings, Event, NodeSize, Problem, Reader, dump_payload};
use tembo_wire::Request;

use super::args::{Options, integer, is};
use super::arrival::{Arrival, Refusal, kind_of};
use super::context::{Context, Handler, Out};
use crate::eviction::policy::UseMeasure as Use;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::Keyspace;
use crate::keyspace::collection::ordered::Score;
use crate::keyspace::collection::value::Collection;
use crate::keyspace::events::class;
use crate::keyspace::format::Kind;
use crate::kinds::rdb_kind;

const BUSY: Fault = Fault::Error("BUSYKEY Target key name already exists.");
const BAD_TTL: Fault = Fault::Error("ERR Invalid TTL value, must be >= 0");
const BAD_IDLE_TIME: Fault = Fault::Error("ERR Invalid IDLETIME value, must be >= 0");
const BAD_FREQUENCY: Fault = Fault::Error("ERR Invalid FREQ value, must be >= 0 and <= 255");
const BAD_FOOTER: Fault = Fault::Error("ERR DUMP payload version or checksum are wrong");
const BAD_VALUE: Fault = Fault::Error("ERR Bad data format");

pub(super) const HANDLERS: &[(&str, Handler)] = &[("dump", dump), ("restore", restore)];

/// Ends the writing of a payload.
struct Failed(Fault);

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Failed(fault)
    }
}

impl From<io::Error> for Failed {
    fn from(_: io::Error) -> Self {
        Failed(Fault::Error("ERR the value cannot be written as bytes"))
    }
}

fn dump(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let Some(stored) = ctx.keys.read(database, key)? else {
        ctx.out.write().null();
        return Ok(());
    };
    let (kind, limits) = (stored.meta.kind, &ctx.state.config.encodings);
    if kind == Kind::String {
        let encodings = encodings(limits, false);
        let payload = dump_payload::<Failed>(&encodings, tembo_rdb::Kind::String, 1, |push| {
            Ok(push(Element::Text(stored.payload))?)
        });
        return ctx.out.bulk(&payload.map_err(|Failed(fault)| fault)?);
    }
    let collection = ctx.keys.collection(database, key, kind)?;
    let encodings = encodings(limits, collection.is_converted());
    let payload = dump_payload(&encodings, rdb_kind(kind), collection.len(), |push| {
        push_elements(ctx.keys, &collection, &ctx.out, push)
    });
    ctx.out.bulk(&payload.map_err(|Failed(fault)| fault)?)
}

/// The encodings for a value; Redis does not go back to a compact one that it has given up.
fn encodings(limits: &crate::config::Encodings, is_converted: bool) -> Encodings {
    let entries = |max: u64| if is_converted { 0 } else { max };
    Encodings {
        hash_entries: entries(limits.hash_entries),
        hash_bytes: limits.hash_value_bytes as usize,
        sorted_set_entries: entries(limits.zset_entries),
        sorted_set_bytes: limits.zset_value_bytes as usize,
        set_integers: entries(limits.set_intset_entries),
        list_node: NodeSize::Bytes(8192),
        list_bytes: usize::MAX,
        compress: true,
    }
}

/// Hands the elements over in Redis's order: that of a sorted set is upwards if it is packed.
fn push_elements(
    keys: &mut Keyspace<'_>,
    collection: &Collection,
    out: &Out<'_>,
    push: &mut dyn FnMut(Element<'_>) -> io::Result<()>,
) -> Result<(), Failed> {
    let (mut bytes, mut outcome) = (0, Ok(()));
    let mut next = |element: Element<'_>| {
        bytes += match element {
            Element::Text(item) | Element::Item(item) => item.len(),
            Element::Field { field, value, .. } => field.len() + value.len(),
            Element::Scored { member, .. } => member.len() + 8,
        };
        // A payload that is too long for a reply is not made first.
        outcome = out.expect_room(bytes).map_err(Failed).and_then(|()| Ok(push(element)?));
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    match collection.kind() {
        Kind::SortedSet => {
            let downwards = collection.is_converted();
            let from = if downwards { collection.len().saturating_sub(1) } else { 0 };
            keys.walk_ranks(collection, from, downwards, |member, score: Score| {
                next(Element::Scored { member, score: score.number() })
            })?;
        }
        Kind::Hash => keys.walk_elements(collection, 0, |_, field, value| {
            next(Element::Field { field, value, deadline_ms: None })
        })?,
        _ => keys.walk_elements(collection, 0, |_, item, _| next(Element::Item(item)))?,
    }
    outcome
}

/// The options of RESTORE.
#[derive(Clone, Copy, Debug, Default)]
struct RestoreOptions {
    replace: bool,
    /// The deadline is a time, not a time span.
    absolute: bool,
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
}

impl RestoreOptions {
    fn read(request: &Request<'_>) -> Answer<Self> {
        let mut chosen = Self::default();
        let mut options = Options::after(request, 4);
        while let Some(word) = options.next() {
            if is(word, "REPLACE") {
                chosen.replace = true;
            } else if is(word, "ABSTTL") {
                chosen.absolute = true;
            } else if is(word, "IDLETIME") && options.left() > 0 && chosen.frequency.is_none() {
                let seconds = u64::try_from(integer(options.value()?)?);
                chosen.idle_seconds = Some(seconds.map_err(|_| BAD_IDLE_TIME)?);
            } else if is(word, "FREQ") && options.left() > 0 && chosen.idle_seconds.is_none() {
                let count = u8::try_from(integer(options.value()?)?);
                chosen.frequency = Some(count.map_err(|_| BAD_FREQUENCY)?);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(chosen)
    }

    /// Gives a key the use that it is said to have.
    fn set_use(&self, ctx: &mut Context<'_, '_>, key: &[u8]) {
        let database = ctx.database();
        let Some(accesses) = &mut ctx.keys.accesses else { return };
        match accesses.kind() {
            Use::Recency => {
                self.idle_seconds.into_iter().for_each(|idle| accesses.set_idle(database, key, idle));
            }
            Use::Frequency => {
                self.frequency.into_iter().for_each(|count| accesses.set_count(database, key, count));
            }
        }
    }
}

fn restore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let options = RestoreOptions::read(request)?;
    let found = ctx.keys.find(database, key)?;
    let (is_live, old) = (found.live.is_some(), found.old);
    if is_live && !options.replace {
        return Err(BUSY);
    }
    let ttl = integer(&request[2])?;
    if ttl < 0 {
        return Err(BAD_TTL);
    }
    // A deadline beyond all times has passed, in Redis too.
    let base = if options.absolute { 0 } else { ctx.keys.now_ms as i64 };
    let deadline = (ttl != 0).then(|| u64::try_from(ttl.wrapping_add(base)).unwrap_or(0));
    let has_passed = deadline.is_some_and(|deadline| deadline <= ctx.keys.now_ms);
    let arrival = arrive(ctx, request, has_passed)?;
    match arrival {
        Some(arrival) => {
            if !arrival.store(ctx.keys, key, deadline)? {
                return Err(BAD_VALUE);
            }
            options.set_use(ctx, key);
            if let Some(deadline) = deadline.map(|deadline| deadline.to_string()) {
                let words = [b"RESTORE", key, deadline.as_bytes(), &request[3], b"REPLACE", b"ABSTTL"];
                ctx.tell(words);
            }
            if is_live {
                // Redis removes the old key first.
                ctx.keys.notify(class::NEW, "new", database, key);
            }
            ctx.keys.notify(class::GENERIC, "restore", database, key);
        }
        None if is_live => {
            ctx.keys.remove(database, key, old)?;
            ctx.tell([&b"DEL"[..], key]);
            ctx.keys.notify(class::GENERIC, "del", database, key);
        }
        None => {}
    }
    ctx.out.write().ok();
    Ok(())
}

/// Reads the payload to its end; returns its value, unless that has expired.
fn arrive(ctx: &mut Context<'_, '_>, request: &Request<'_>, has_passed: bool) -> Answer<Option<Arrival>> {
    let (database, key) = (ctx.database(), &request[1]);
    let mut reader = Reader::payload(&request[3]).map_err(|_| BAD_FOOTER)?;
    reader.set_string_bytes_max(ctx.state.config.limits.max_bulk_bytes as u64);
    let (mut arrival, mut elements) = (None, 0);
    while let Some(event) = reader.next().map_err(|error| bad_value(error.problem()))? {
        match event {
            Event::Key(found) if !has_passed => {
                arrival = Some(Arrival::begin(ctx.keys, database, key, kind_of(found.kind))?);
            }
            Event::Key(_) | Event::KeyEnd | Event::End { .. } => {}
            Event::Element(element) => {
                elements += 1;
                if let Some(arrival) = &mut arrival {
                    arrival.add(ctx.keys, &ctx.state.config.encodings, element).map_err(refused)?;
                }
            }
            _ => return Err(BAD_VALUE),
        }
    }
    if elements == 0 { Err(BAD_VALUE) } else { Ok(arrival) }
}

fn bad_value(problem: &Problem) -> Fault {
    match problem {
        Problem::TooLong { .. } => crate::fault::STRING_TOO_LONG,
        _ => BAD_VALUE,
    }
}

fn refused(refusal: Refusal) -> Fault {
    match refusal {
        Refusal::Unfit => BAD_VALUE,
        Refusal::FieldDeadline => Fault::Error("ERR deadlines of fields are not supported"),
        Refusal::Fault(fault) => fault,
    }
}
