//! Strings as rows of bits: SETBIT, GETBIT, BITCOUNT, BITPOS and BITOP. Bit 0 is the highest of the first
//! byte.
//!
//! A change writes the string anew, as SETRANGE does, at the cost of a string of that length.

use std::ops::Range;

use tembo_wire::Request;
use tembo_wire::number::parse_i64;

use super::args::{integer, is};
use super::context::{Context, Handler};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::events::class;
use crate::keyspace::format::{Meta, Stored};

pub(super) const HANDLERS: &[(&str, Handler)] =
    &[("setbit", setbit), ("getbit", getbit), ("bitcount", bitcount), ("bitpos", bitpos), ("bitop", bitop)];

/// Reads the number of a bit, which is in a string of at most `bytes_max` bytes.
pub(super) fn read_offset(arg: &[u8], bytes_max: usize) -> Answer<u64> {
    in_string(parse_i64(arg), bytes_max)
}

/// The number of a bit, if it is in a string of at most `bytes_max` bytes.
pub(super) fn in_string(offset: Option<i64>, bytes_max: usize) -> Answer<u64> {
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    let offset = offset.filter(|offset| offset / 8 < bytes_max as u64);
    offset.ok_or(Fault::Error("ERR bit offset is not an integer or out of range"))
}

fn setbit(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key) = (ctx.database(), &request[1]);
    let offset = read_offset(&request[2], ctx.state.config.limits.max_bulk_bytes)?;
    let bit = match parse_i64(&request[3]) {
        Some(bit @ (0 | 1)) => bit as u8,
        _ => return Err(Fault::Error("ERR bit is not an integer or out of range")),
    };
    let (at, shift) = ((offset / 8) as usize, 7 - offset % 8);
    let found = ctx.keys.find(database, key)?;
    let replaced = found.old;
    let stored = found.live.map(Stored::string).transpose()?;
    let old = stored.map_or(&[][..], |stored| stored.payload);
    let byte = old.get(at).copied();
    let was = byte.unwrap_or(0) >> shift & 1;
    if byte.is_none() || was != bit {
        let meta = Meta { modified: true, ..stored.map(|stored| stored.meta).unwrap_or_default() };
        let new = byte.unwrap_or(0) & !(1 << shift) | bit << shift;
        let old = old.to_vec();
        let head = &old[..at.min(old.len())];
        let gap = vec![0; at - head.len()];
        let tail = old.get(at + 1..).unwrap_or_default();
        ctx.keys.put(database, key, meta, replaced, &[head, &gap, &[new], tail])?;
        ctx.keys.notify(class::STRING, "setbit", database, key);
    }
    ctx.out.write().integer(was.into());
    Ok(())
}

fn getbit(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let offset = read_offset(&request[2], ctx.state.config.limits.max_bulk_bytes)?;
    let stored = ctx.keys.read_string(ctx.session.database, &request[1])?;
    let byte = stored.and_then(|stored| stored.payload.get((offset / 8) as usize));
    ctx.out.write().integer(byte.map_or(0, |byte| (byte >> (7 - offset % 8) & 1).into()));
    Ok(())
}

/// Reads the unit of a range.
fn is_in_bits(arg: &[u8]) -> Answer<bool> {
    match arg {
        _ if is(arg, "BIT") => Ok(true),
        _ if is(arg, "BYTE") => Ok(false),
        _ => Err(SYNTAX),
    }
}

/// The bits from `start` to `end`, both included, in the unit and counted from the end if negative; `None`
/// if there are none.
fn range(len: usize, start: i64, end: i64, in_bits: bool) -> Option<Range<usize>> {
    let unit_bits = if in_bits { 1 } else { 8 };
    let total = (len * 8 / unit_bits) as i64;
    let from_front = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(total - 1));
    (start <= end).then(|| start as usize * unit_bits..(end as usize + 1) * unit_bits)
}

fn bitcount(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let stored = ctx.keys.read_string(ctx.session.database, &request[1])?;
    let count = match stored.map(|stored| stored.payload) {
        // Without a string the arguments are not looked at.
        None => 0,
        Some(bytes) => match bits_to_count(request, bytes.len())? {
            Some(bits) => count_ones(bytes, bits),
            None => 0,
        },
    };
    ctx.out.write().integer(count as i64);
    Ok(())
}

fn bits_to_count(request: &Request<'_>, len: usize) -> Answer<Option<Range<usize>>> {
    match request.arg_count() {
        2 => return Ok(Some(0..len * 8)),
        4 | 5 => {}
        _ => return Err(SYNTAX),
    }
    let (start, end) = (integer(&request[2])?, integer(&request[3])?);
    if start < 0 && end < 0 && start > end {
        return Ok(None);
    }
    let in_bits = request.get(4).map_or(Ok(false), is_in_bits)?;
    Ok(range(len, start, end, in_bits))
}

/// How many of these bits are set.
fn count_ones(bytes: &[u8], bits: Range<usize>) -> u64 {
    let Some(touched) = bytes.get(bits.start / 8..bits.end.div_ceil(8)) else {
        return 0;
    };
    let (words, rest) = touched.as_chunks::<8>();
    let ones = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum::<u64>()
        + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    let ones_in = |byte: Option<&u8>, mask: u8| byte.map_or(0, |byte| u64::from((byte & mask).count_ones()));
    let before = ones_in(touched.first(), !(0xFF >> (bits.start % 8)));
    let behind = ones_in(touched.last(), !(0xFF << ((8 - bits.end % 8) % 8)));
    ones - before - behind
}

fn bitpos(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let wanted = match integer(&request[2])? {
        bit @ (0 | 1) => bit == 1,
        _ => return Err(Fault::Error("ERR The bit argument must be 1 or 0.")),
    };
    let stored = ctx.keys.read_string(ctx.session.database, &request[1])?;
    let found = match stored.map(|stored| stored.payload) {
        // An absent string counts as an endless one of clear bits.
        None => (!wanted).then_some(0),
        Some(bytes) => {
            let bits = bits_to_search(request, bytes.len())?;
            let found = bits.clone().and_then(|bits| find_bit(bytes, bits, wanted));
            // If the request has no end, the string counts as followed by clear bits.
            let has_end = request.arg_count() >= 5;
            found.or(bits.filter(|_| !wanted && !has_end).map(|bits| bits.end))
        }
    };
    ctx.out.write().integer(found.map_or(-1, |at| at as i64));
    Ok(())
}

fn bits_to_search(request: &Request<'_>, len: usize) -> Answer<Option<Range<usize>>> {
    let count = request.arg_count();
    if count > 6 {
        return Err(SYNTAX);
    }
    let start = request.get(3).map_or(Ok(0), integer)?;
    let in_bits = request.get(5).map_or(Ok(false), is_in_bits)?;
    let end = request.get(4).map_or(Ok(-1), integer)?;
    Ok(if len == 0 { None } else { range(len, start, end, in_bits) })
}

/// The first of these bits, of which there is at least one, that is set, or clear.
fn find_bit(bytes: &[u8], bits: Range<usize>, wanted: bool) -> Option<usize> {
    /// Bytes that are passed over at a time.
    const STEP: usize = 64;
    let passed = if wanted { 0x00 } else { 0xFF };
    let touched = bytes.get(bits.start / 8..bits.end.div_ceil(8))?;
    let (first, rest) = touched.split_first()?;
    let others = (first ^ passed) & 0xFF >> (bits.start % 8);
    let (at, others) = if others != 0 {
        (0, others)
    } else {
        let is_passed = |chunk: &&[u8]| **chunk == [passed; STEP][..chunk.len()];
        let skipped = rest.chunks(STEP).take_while(is_passed).count() * STEP;
        let left = rest.get(skipped..)?;
        let at = skipped + left.iter().position(|&byte| byte != passed)?;
        (1 + at, rest[at] ^ passed)
    };
    let found = (bits.start / 8 + at) * 8 + others.leading_zeros() as usize;
    (found < bits.end).then_some(found)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BitOperation {
    And,
    Or,
    Xor,
    Not,
}

impl BitOperation {
    fn read(word: &[u8]) -> Answer<Self> {
        match word {
            _ if is(word, "AND") => Ok(BitOperation::And),
            _ if is(word, "OR") => Ok(BitOperation::Or),
            _ if is(word, "XOR") => Ok(BitOperation::Xor),
            _ if is(word, "NOT") => Ok(BitOperation::Not),
            _ => Err(SYNTAX),
        }
    }

    /// Combines a result with another string. The shorter one of the two is followed by clear bits.
    fn apply(self, result: &mut Vec<u8>, other: &[u8]) {
        result.resize(result.len().max(other.len()), 0);
        let (head, tail) = result.split_at_mut(other.len());
        let pairs = head.iter_mut().zip(other);
        match self {
            BitOperation::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                tail.fill(0);
            }
            BitOperation::Or => pairs.for_each(|(byte, other)| *byte |= other),
            BitOperation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            BitOperation::Not => pairs.for_each(|(byte, other)| *byte = !other),
        }
    }
}

fn bitop(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let operation = BitOperation::read(&request[1])?;
    if operation == BitOperation::Not && request.arg_count() != 4 {
        return Err(Fault::Error("ERR BITOP NOT must be called with a single source key."));
    }
    let (database, target) = (ctx.database(), &request[2]);
    let mut result = Vec::new();
    for (nth, key) in request.args().skip(3).enumerate() {
        let stored = ctx.keys.read_string(database, key)?;
        let bytes = stored.map_or(&[][..], |stored| stored.payload);
        match operation {
            BitOperation::Not => operation.apply(&mut result, bytes),
            _ if nth == 0 => result = bytes.to_vec(),
            _ => operation.apply(&mut result, bytes),
        }
    }
    let found = ctx.keys.find(database, target)?;
    let (old, present, is_live) = (found.old, found.present, found.live.is_some());
    if !result.is_empty() {
        let meta = Meta { modified: true, ..Meta::default() };
        ctx.keys.put(database, target, meta, old, &[&result])?;
        ctx.keys.notify(class::STRING, "set", database, target);
    } else if present {
        ctx.keys.remove(database, target, old)?;
        if is_live {
            ctx.keys.notify(class::GENERIC, "del", database, target);
        }
    }
    ctx.out.write().integer(result.len() as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bit(bytes: &[u8], at: usize) -> bool {
        bytes[at / 8] >> (7 - at % 8) & 1 == 1
    }

    #[test]
    fn every_range_of_bits_is_counted_and_searched_as_bit_by_bit() {
        let mut noise: Vec<u8> = (0..19_u8).map(|n| n.wrapping_mul(77) ^ 0x5A).collect();
        noise.extend([0; 3]);
        let mut late = vec![0; 200];
        late[197] = 0x10;
        for bytes in [noise, late, vec![0xFF; 67], vec![0x01], vec![0x80, 0x00]] {
            let len = bytes.len() * 8;
            let ends = (0..len).step_by(if len > 500 { 37 } else { 1 });
            for (start, end) in ends.flat_map(|start| (start + 1..=len).map(move |end| (start, end))) {
                let ones = (start..end).filter(|&at| bit(&bytes, at)).count() as u64;
                assert_eq!(count_ones(&bytes, start..end), ones, "{bytes:?} {start}..{end}");
                for wanted in [false, true] {
                    let found = (start..end).find(|&at| bit(&bytes, at) == wanted);
                    assert_eq!(find_bit(&bytes, start..end, wanted), found, "{bytes:?} {start}..{end}");
                }
            }
        }
    }

    #[test]
    fn ranges_are_clipped_in_their_unit() {
        for (start, end, in_bits, expected) in [
            (0, -1, false, Some(0..24)),
            (0, -1, true, Some(0..24)),
            (1, 1, false, Some(8..16)),
            (-1, -1, true, Some(23..24)),
            (-100, -100, false, Some(0..8)),
            (2, 1, false, None),
            (3, 9, false, None),
            (5, 100, true, Some(5..24)),
            (i64::MIN, i64::MAX, true, Some(0..24)),
            (i64::MAX, i64::MIN, false, None),
        ] {
            assert_eq!(range(3, start, end, in_bits), expected, "{start} {end} {in_bits}");
        }
    }
}
