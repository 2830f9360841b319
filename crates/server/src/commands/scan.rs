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

    /// The first key to look at if all up to `after` were looked at.
    fn begin<'a>(&'a self, after: Option<&'a [u8]>) -> Bound<&'a [u8]> {
        match after {
            Some(after) if after >= &self.prefix[..] => Bound::Excluded(after),
            _ => Bound::Included(&self.prefix),
        }
    }
}

/// The findings of a walk over some keys.
struct Walked {
    /// The key at which it stopped, if there may be more.
    stopped_at: Option<Vec<u8>>,
    /// How many keys it was given.
    found: usize,
}

/// Gives to `take` the live keys that `filter` wants, behind `after`, having looked at no more than `limit`;
/// counts those that it took.
fn walk(
    keyspace: &Keyspace<'_>,
    database: usize,
    filter: &Filter,
    after: Option<&[u8]>,
    limit: usize,
    mut take: impl FnMut(&[u8], Kind) -> bool,
) -> Answer<Walked> {
    let mut walked = Walked { stopped_at: None, found: 0 };
    let (mut looked_at, mut last) = (0, Vec::new());
    keyspace.walk(database, filter.begin(after), |key, kind| {
        if !key.starts_with(&filter.prefix) {
            return ControlFlow::Break(());
        }
        if looked_at == limit {
            walked.stopped_at = Some(std::mem::take(&mut last));
            return ControlFlow::Break(());
        }
        looked_at += 1;
        if let Some(kind) = kind
            && glob::matches(&filter.pattern, key, false)
            && take(key, kind)
        {
            walked.found += 1;
        }
        if looked_at == limit {
            last = key.to_vec();
        }
        ControlFlow::Continue(())
    })?;
    Ok(walked)
}

fn scan(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let cursor = parse_u64(&request[1]).ok_or(INVALID_CURSOR)?;
    let options = ScanOptions::parse(Options::after(request, 2))?;
    let after = match cursor {
        0 => None,
        cursor => Some(ctx.state.cursors.position(cursor).ok_or(INVALID_CURSOR)?),
    };
    let mut body = Vec::new();
    let mut reply = ReplyWriter::new(&mut body, ctx.out.protocol);
    let take = |key: &[u8], kind: Kind| {
        let is_wanted = options.kind.is_none_or(|wanted| is(wanted, kind.name()));
        if is_wanted {
            reply.bulk(key);
        }
        is_wanted
    };
    let walked = walk(ctx.keys, ctx.session.database, &options.filter, after, options.count, take)?;
    let next = match walked.stopped_at {
        None => {
            ctx.state.cursors.end(cursor);
            0
        }
        Some(key) => ctx.state.cursors.advance(cursor, &key, &mut ctx.state.random),
    };
    let mut reply = ctx.out.write();
    reply.array(2);
    reply.bulk_integer(next as i64);
    reply.array(walked.found);
    ctx.out.raw(&body);
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
        let mut writer = ReplyWriter::new(&mut self.body, protocol);
        let take = |key: &[u8], _| {
            writer.bulk(key);
            true
        };
        let walked = walk(keyspace, self.database, &self.filter, self.after.as_deref(), SLICE_KEYS, take)?;
        self.found += walked.found;
        if self.body.len() > self.body_bytes_max {
            return Err(Fault::Error("ERR reply exceeds the maximum (reply-max-bytes)"));
        }
        if walked.stopped_at.is_some() {
            self.after = walked.stopped_at;
            return Ok(Some(self));
        }
        let mut header = Vec::new();
        ReplyWriter::new(&mut header, protocol).array(self.found);
        reply(&header);
        reply(&self.body);
        Ok(None)
    }
}
