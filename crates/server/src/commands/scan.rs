//! Finding keys: SCAN and KEYS.
//!
//! Both walk the ordered map of committed keys, so the pending batch is committed first; but within EXEC, see
//! [`Keyspace::walk`].

use std::ops::{Bound, ControlFlow};

use tembo_wire::number::parse_u64;
use tembo_wire::{Protocol, ReplyWriter, Request};

use super::args::{Options, integer, is};
use super::context::{Context, Handler};
use super::keys_job::{Filter, KeysJob, SLICE_KEYS};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::glob;
use crate::keyspace::Keyspace;
use crate::keyspace::cursor::ScanPlace;
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[("keys", keys), ("scan", scan)];

const SCAN_KEYS_DEFAULT: usize = 10;

const INVALID_CURSOR: Fault = Fault::Error("ERR invalid cursor");

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
    best: Option<(ScanPlace, usize, usize)>,
    /// The place where the scan stops.
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
            let place = ScanPlace::between(&self.last, here);
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
    let job = KeysJob::new(&request[1], ctx.database(), ctx.state.config.reply_bytes_max);
    *ctx.job = job.advance(ctx.keys, ctx.out.protocol, |out| ctx.out.raw(out))?;
    Ok(())
}
