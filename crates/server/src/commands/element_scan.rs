//! Scans of collections: what HSCAN, SSCAN and ZSCAN have in common.
//!
//! A cursor is the position of the next element, so it needs no memory of the server's: any number of scans
//! can be under way, and their cursors hold after a restart. Elements of one position are returned together.
//! A packed collection is returned as a whole.

use std::ops::ControlFlow;

use tembo_wire::number::parse_u64;
use tembo_wire::{ReplyWriter, Request};

use super::args::{Options, integer, is};
use super::context::Context;
use super::score;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::glob;
use crate::keyspace::collection::ordered::Score;
use crate::keyspace::format::Kind;

const COUNT_DEFAULT: usize = 10;
/// Elements that one call may look at: it takes about a millisecond.
const SLICE_ELEMENTS: usize = 4096;
const INVALID_CURSOR: Fault = Fault::Error("ERR invalid cursor");

struct ScanOptions<'a> {
    pattern: &'a [u8],
    count: usize,
}

impl<'a> ScanOptions<'a> {
    fn parse(mut options: Options<'a>) -> Answer<Self> {
        let mut parsed = ScanOptions { pattern: b"*", count: COUNT_DEFAULT };
        while let Some(word) = options.next() {
            let value = options.value()?;
            if is(word, "COUNT") {
                let count = integer(value)?;
                parsed.count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(SYNTAX)?;
            } else if is(word, "MATCH") {
                parsed.pattern = value;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(parsed)
    }
}

/// Reads a cursor as C's strtoul does, but for blanks: with a sign, and zeros before it.
fn cursor(arg: &[u8]) -> Answer<u64> {
    if arg.is_empty() {
        return Ok(0);
    }
    let digits = arg.strip_prefix(b"-").or(arg.strip_prefix(b"+")).unwrap_or(arg);
    let zeros = digits.iter().take_while(|&&byte| byte == b'0').count();
    let significant =
        if zeros == digits.len() { &digits[zeros.saturating_sub(1)..] } else { &digits[zeros..] };
    let number = parse_u64(significant).ok_or(INVALID_CURSOR)?;
    Ok(if arg.first() == Some(&b'-') { number.wrapping_neg() } else { number })
}

/// Runs HSCAN, SSCAN or ZSCAN.
pub(super) fn scan(ctx: &mut Context<'_, '_>, request: &Request<'_>, kind: Kind) -> Answer {
    let cursor = cursor(&request[2])?;
    let collection = ctx.keys.read_collection(ctx.session.database, &request[1], kind)?;
    let (mut body, mut taken, mut next) = (Vec::new(), 0, 0);
    if let Some(collection) = collection {
        let options = ScanOptions::parse(Options::after(request, 3))?;
        let count = options.count.min(SLICE_ELEMENTS);
        let mut reply = ReplyWriter::new(&mut body, ctx.out.protocol);
        let (mut looked_at, mut last) = (0, None);
        // The upper bits of a cursor that no scan has returned mean nothing, as in Redis.
        ctx.keys.walk_elements(&collection, cursor as u32, |position, field, value| {
            if looked_at >= count && last != Some(position) {
                next = i64::from(position);
                return ControlFlow::Break(());
            }
            (looked_at, last) = (looked_at + 1, Some(position));
            if glob::matches(options.pattern, field, false) {
                reply.bulk(field);
                match kind {
                    Kind::Hash => reply.bulk(value),
                    // An unreadable score is shown as an absent one.
                    Kind::SortedSet => {
                        reply.bulk(Score::read(value).map_or(Vec::new(), |its| score::format(its.number())));
                    }
                    _ => {}
                }
                taken += if kind == Kind::Set { 1 } else { 2 };
            }
            ControlFlow::Continue(())
        })?;
    }
    ctx.out.expect_room(body.len())?;
    let mut reply = ctx.out.write();
    reply.array(2);
    reply.bulk_integer(next);
    reply.array(taken);
    ctx.out.raw(&body);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::cursor;

    #[test]
    fn cursors_are_read_as_numbers() {
        for (text, expected) in [
            ("", 0),
            ("0", 0),
            ("00", 0),
            ("+7", 7),
            ("-0", 0),
            ("-1", u64::MAX),
            ("0012", 12),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(cursor(text.as_bytes()).ok(), Some(expected), "{text}");
        }
        for text in ["x", "+", "-", "1x", " 1", "18446744073709551616", "--1"] {
            assert!(cursor(text.as_bytes()).is_err(), "{text}");
        }
    }
}
