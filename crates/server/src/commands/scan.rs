//! Finding keys: SCAN and KEYS.
//!
//! Both walk the ordered map of committed keys, so the pending batch is committed first; but within EXEC, see
//! [`Keyspace::walk`].

use std::ops::{Bound, ControlFlow};

use tembo_wire::number::parse_u64;
use tembo_wire::{Protocol, ReplyWriter, Request};

use super::Context;
use super::args::{Options, integer, is};
use super::table::Command;
use super::table::flag::{DANGEROUS, KEYSPACE, READONLY, WALKS};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::glob;
use crate::keyspace::cursor::Place;
use crate::keyspace::{Keyspace, Kind};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("keys", 2, READONLY | KEYSPACE | DANGEROUS | WALKS, keys)
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .doc("generic", "1.0.0", "Returns all keys that match a pattern, in order"),
    Command::new("scan", -2, READONLY | KEYSPACE | WALKS, scan)
        .tips(&["nondeterministic_output", "request_policy:special"])
        .doc("generic", "2.8.0", "Returns some keys, and a cursor for the next ones"),
];

/// Keys that one call of SCAN, or one turn's part of KEYS, may look at: it takes about a millisecond.
const SLICE_KEYS: usize = 8192;
const SCAN_KEYS_DEFAULT: usize = 10;

const INVALID_CURSOR: Fault = Fault::Error("ERR invalid cursor");

/// Which keys are wanted.
#[derive(Debug)]
struct Filter {
    pattern: Vec<u8>,
    /// Every key wanted begins with this.
    prefix: Vec<u8>,
}

impl Filter {
    fn new(pattern: &[u8]) -> Self {
        Filter { pattern: pattern.to_vec(), prefix: glob::literal_prefix(pattern) }
    }
}

/// A part of a scan: the keys found, and the best place so far to stop at.
struct Slice<'a> {
    /// The keys that are taken, encoded.
    body: Vec<u8>,
    found: usize,
    looked_at: usize,
    /// The place of the last key, once there may be a stop behind it.
    last: Vec<u8>,
    options: &'a ScanOptions<'a>,
    /// Keys to be looked at beyond those asked for, for a place that needs no name.
    slack: usize,
    /// The place with the shortest prefix that has no name, and the length of `body` and `found` there.
    best: Option<(Place, usize, usize)>,
    /// Where it stops.
    cursor: Option<u64>,
}

impl Slice<'_> {
    /// Looks at a key, or stops before it.
    fn visit(
        &mut self,
        keyspace: &Keyspace<'_>,
        protocol: Protocol,
        here: &[u8],
        kind: Option<Kind>,
    ) -> Answer<ControlFlow<()>> {
        let ScanOptions { filter, count, kind: wanted } = self.options;
        if self.looked_at >= *count {
            let place = Place::between(&self.last, here);
            let is_shorter = self.best.as_ref().is_none_or(|(best, ..)| {
                place.prefix.len() < best.prefix.len() || place.prefix != best.prefix
            });
            if is_shorter {
                self.cursor = keyspace.cursor(&place)?;
                if self.cursor.is_some() {
                    return Ok(ControlFlow::Break(()));
                }
                if self.best.as_ref().is_none_or(|(best, ..)| place.prefix.len() < best.prefix.len()) {
                    self.best = Some((place, self.body.len(), self.found));
                }
            }
            if self.looked_at - count >= self.slack {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.looked_at += 1;
        let key = keyspace.layout().key(here);
        if let Some(kind) = kind
            && glob::matches(&filter.pattern, key, false)
            && wanted.is_none_or(|wanted| is(wanted, kind.name()))
        {
            ReplyWriter::new(&mut self.body, protocol).bulk(key);
            self.found += 1;
        }
        if self.looked_at >= *count {
            self.last.clear();
            self.last.extend_from_slice(here);
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Looks at the keys from `begin` on, and at `slack` more for a place that needs no name. The slice that is
/// returned has no cursor, and a place, if it stopped at one that needs a name.
fn scan_slice<'a>(
    ctx: &Context<'_, '_>,
    options: &'a ScanOptions<'a>,
    begin: &[u8],
    slack: usize,
) -> Answer<Slice<'a>> {
    let mut slice = Slice {
        body: Vec::new(),
        found: 0,
        looked_at: 0,
        last: Vec::new(),
        options,
        slack,
        best: None,
        cursor: None,
    };
    let (keyspace, protocol, prefix) = (&*ctx.keys, ctx.out.protocol, &options.filter.prefix);
    let (mut fault, mut is_over) = (None, true);
    keyspace.walk_prefix(ctx.session.database, Bound::Included(begin), prefix, |place, kind| {
        let visited = slice.visit(keyspace, protocol, place, kind);
        let visited = visited.unwrap_or_else(|error| {
            fault = Some(error);
            ControlFlow::Break(())
        });
        is_over = visited.is_continue();
        visited
    })?;
    if is_over {
        slice.best = None;
    }
    fault.map_or(Ok(slice), Err)
}

fn scan(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let cursor = parse_u64(&request[1]).ok_or(INVALID_CURSOR)?;
    let options = ScanOptions::parse(Options::after(request, 2))?;
    let begin = ctx.keys.position(cursor)?.ok_or(INVALID_CURSOR)?;
    let mut slice = scan_slice(ctx, &options, &begin, ctx.keys.scan_slack()?)?;
    if let (None, Some((place, body_bytes, found))) = (slice.cursor, slice.best.take()) {
        slice.cursor = ctx.keys.new_cursor(&place)?;
        if slice.cursor.is_some() {
            slice.body.truncate(body_bytes);
            slice.found = found;
        } else {
            // No place can get a name: one that has one, however far away, or the end.
            slice = scan_slice(ctx, &options, &begin, usize::MAX)?;
        }
    }
    ctx.out.expect_room(slice.body.len())?;
    let mut reply = ctx.out.write();
    reply.array(2);
    reply.bulk_integer(slice.cursor.unwrap_or(0) as i64);
    reply.array(slice.found);
    ctx.out.raw(&slice.body);
    Ok(())
}

struct ScanOptions<'a> {
    filter: Filter,
    count: usize,
    /// The name of the only type that is wanted.
    kind: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    fn parse(mut options: Options<'a>) -> Answer<Self> {
        let (mut pattern, mut count, mut kind) = (&b"*"[..], SCAN_KEYS_DEFAULT, None);
        while let Some(word) = options.next() {
            let value = options.value()?;
            if is(word, "COUNT") {
                let wanted = integer(value)?;
                count = usize::try_from(wanted).ok().filter(|&count| count > 0).ok_or(SYNTAX)?;
            } else if is(word, "MATCH") {
                pattern = value;
            } else if is(word, "TYPE") {
                kind = Some(value);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(ScanOptions { filter: Filter::new(pattern), count: count.min(SLICE_KEYS), kind })
    }
}

fn keys(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let job = KeysJob {
        filter: Filter::new(&request[1]),
        database: ctx.database(),
        after: None,
        body: Vec::new(),
        found: 0,
        body_bytes_max: ctx.state.config.reply_bytes_max,
    };
    *ctx.job = job.advance(ctx.keys, ctx.out.protocol, |out| ctx.out.raw(out))?;
    Ok(())
}

/// A KEYS under way. It walks the keys in slices, one for each turn, so that it holds no other client up for
/// long. Keys written meanwhile may or may not be in the reply; those there all the time are.
#[derive(Debug)]
pub(crate) struct KeysJob {
    filter: Filter,
    database: usize,
    /// The place of the last key that was looked at.
    after: Option<Vec<u8>>,
    /// The keys found so far, encoded.
    body: Vec<u8>,
    found: usize,
    body_bytes_max: usize,
}

impl KeysJob {
    /// Memory held for the reply, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.body.capacity()
    }

    /// Does a slice of the work. Either it is then done and `reply` was given the reply, in parts, or what is
    /// returned is to be continued.
    pub(crate) fn advance(
        mut self,
        keyspace: &Keyspace<'_>,
        protocol: Protocol,
        mut reply: impl FnMut(&[u8]),
    ) -> Answer<Option<Self>> {
        let database = self.database;
        let KeysJob { filter, after, body, found, .. } = &mut self;
        let (mut looked_at, mut stopped_at) = (0, None);
        let begin = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        keyspace.walk_prefix(database, begin, &filter.prefix, |place, kind| {
            let key = keyspace.layout().key(place);
            looked_at += 1;
            if kind.is_some() && glob::matches(&filter.pattern, key, false) {
                ReplyWriter::new(body, protocol).bulk(key);
                *found += 1;
            }
            if looked_at == SLICE_KEYS {
                stopped_at = Some(place.to_vec());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        if self.body.len() > self.body_bytes_max {
            return Err(Fault::Error("ERR reply exceeds the maximum (reply-max-bytes)"));
        }
        if stopped_at.is_some() {
            self.after = stopped_at;
            return Ok(Some(self));
        }
        let mut header = Vec::new();
        ReplyWriter::new(&mut header, protocol).array(self.found);
        reply(&header);
        reply(&self.body);
        Ok(None)
    }
}
