//! Strings as arrays of integers of any width: BITFIELD and BITFIELD_RO.

use tembo_wire::Request;
use tembo_wire::number::parse_i64;

use super::args::{integer, is};
use super::bitmap::{in_string, read_offset};
use super::context::{Context, Handler, Out};
use super::key_arguments::argument_count;
use crate::fault::{Answer, Fault, SYNTAX, quotable};
use crate::keyspace::events::class;
use crate::keyspace::format::{Meta, Stored};

pub(super) const HANDLERS: &[(&str, Handler)] = &[("bitfield", bitfield), ("bitfield_ro", bitfield_ro)];

/// An integer of 1 to 64 bits, or of 1 to 63 without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Integer {
    signed: bool,
    bits: u32,
}

/// The treatment of a number that is too large for its integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// One of the subcommands.
#[derive(Clone, Copy, Debug)]
struct Step {
    action: Action,
    integer: Integer,
    /// The first bit of the integer.
    offset: u64,
    overflow: Overflow,
}

impl Integer {
    fn read(arg: &[u8]) -> Answer<Self> {
        let text = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
        let (signed, digits) = match quotable(arg) {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(Fault::Error(text)),
        };
        let bits_max = if signed { 64 } else { 63 };
        let bits = parse_i64(digits).filter(|bits| (1..=bits_max).contains(bits));
        Ok(Integer { signed, bits: bits.ok_or(Fault::Error(text))? as u32 })
    }

    /// The lowest and the highest number.
    fn ends(self) -> [i128; 2] {
        match self.signed {
            true => [-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1],
            false => [0, (1 << self.bits) - 1],
        }
    }

    /// The number with these bits, of which the higher ones do not count.
    fn number(self, bits: u64) -> i128 {
        let unused = 64 - self.bits;
        match self.signed {
            true => ((bits << unused) as i64 >> unused).into(),
            false => (bits << unused >> unused).into(),
        }
    }

    /// The number that SET stores for another, if there is no limit. As in Redis, whose subtraction overflows
    /// there, the lowest numbers are beyond the highest that a narrower integer has.
    fn asked(self, number: i64) -> i128 {
        let [_, highest] = self.ends();
        let overflows = self.bits < 64 && highest - i128::from(number) > i64::MAX.into();
        i128::from(number) + if overflows { 1 << 64 } else { 0 }
    }

    /// The number that is stored in place of another one, unless the overflow is to fail.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i128> {
        let [lowest, highest] = self.ends();
        match overflow {
            _ if (lowest..=highest).contains(&number) => Some(number),
            Overflow::Wrap => Some(self.number(number as u64)),
            Overflow::Saturate => Some(number.clamp(lowest, highest)),
            Overflow::Fail => None,
        }
    }
}

/// The bytes that an integer touches, at most nine, as one number, and how far its last bit is from the end.
fn window(bytes: &[u8], offset: u64, bits: u32) -> (u128, u32) {
    let first = (offset / 8) as usize;
    let byte = |at: usize| u128::from(bytes.get(at).copied().unwrap_or(0));
    let number = (first..first + 9).fold(0, |number, at| number << 8 | byte(at));
    (number, 72 - (offset % 8) as u32 - bits)
}

/// Reads bits; those behind the end are clear.
fn read_bits(bytes: &[u8], offset: u64, bits: u32) -> u64 {
    let (number, shift) = window(bytes, offset, bits);
    (number >> shift & ((1 << bits) - 1)) as u64
}

/// Writes the lowest bits of a number into bytes that have room for them.
fn write_bits(bytes: &mut [u8], offset: u64, bits: u32, value: u64) {
    let (number, shift) = window(bytes, offset, bits);
    let mask = ((1 << bits) - 1) << shift;
    let number = number & !mask | u128::from(value) << shift & mask;
    let touched = bytes.iter_mut().skip((offset / 8) as usize);
    touched.zip(&number.to_be_bytes()[7..]).for_each(|(byte, new)| *byte = *new);
}

impl Step {
    /// The end of the last byte that the step writes.
    fn end(&self) -> u64 {
        (self.offset + u64::from(self.integer.bits)).div_ceil(8)
    }

    fn get(&self, bytes: &[u8]) -> i128 {
        self.integer.number(read_bits(bytes, self.offset, self.integer.bits))
    }

    /// Does it, and answers; returns whether it wrote a number, and whether that is another one.
    fn run(&self, bytes: &mut [u8], out: &mut Out<'_>) -> (bool, bool) {
        let old = self.get(bytes);
        let wanted = match self.action {
            Action::Get => {
                out.write().integer(old as i64);
                return (false, false);
            }
            // Without a sign, a negative number is a very large one.
            Action::Set(number) if self.integer.signed => self.integer.asked(number),
            Action::Set(number) => (number as u64).into(),
            Action::Add(number) => old + i128::from(number),
        };
        let Some(new) = self.integer.fit(wanted, self.overflow) else {
            out.write().null();
            return (false, false);
        };
        write_bits(bytes, self.offset, self.integer.bits, new as u64);
        out.write().integer(if matches!(self.action, Action::Set(_)) { old } else { new } as i64);
        (true, old != new)
    }
}

/// Reads the subcommands.
fn read_steps(request: &Request<'_>, bytes_max: usize) -> Answer<Vec<Step>> {
    let (mut steps, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while let Some(word) = request.get(at) {
        let next = at + 1 + argument_count(word).ok_or(SYNTAX)?;
        if next > request.arg_count() {
            return Err(SYNTAX);
        }
        if is(word, "OVERFLOW") {
            overflow = match &request[at + 1] {
                kind if is(kind, "WRAP") => Overflow::Wrap,
                kind if is(kind, "SAT") => Overflow::Saturate,
                kind if is(kind, "FAIL") => Overflow::Fail,
                _ => return Err(Fault::Error("ERR Invalid OVERFLOW type specified")),
            };
        } else {
            let kind = Integer::read(&request[at + 1])?;
            let offset = match &request[at + 2] {
                // The offset counts integers of this width.
                [b'#', number @ ..] => {
                    let offset = parse_i64(number).map(|number| number.wrapping_mul(kind.bits.into()));
                    in_string(offset, bytes_max)?
                }
                number => read_offset(number, bytes_max)?,
            };
            let action = match word {
                _ if is(word, "GET") => Action::Get,
                _ if is(word, "SET") => Action::Set(integer(&request[at + 3])?),
                _ => Action::Add(integer(&request[at + 3])?),
            };
            steps.push(Step { action, integer: kind, offset, overflow });
        }
        at = next;
    }
    Ok(steps)
}

fn bitfield(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let steps = read_steps(request, ctx.state.config.limits.max_bulk_bytes)?;
    let writes = steps.iter().filter(|step| step.action != Action::Get);
    match writes.map(Step::end).max() {
        Some(end) => change(ctx, &request[1], &steps, end as usize),
        None => answer(ctx, &request[1], &steps),
    }
}

fn bitfield_ro(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let steps = read_steps(request, ctx.state.config.limits.max_bulk_bytes)?;
    if steps.iter().any(|step| step.action != Action::Get) {
        return Err(Fault::Error("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    answer(ctx, &request[1], &steps)
}

/// Runs subcommands that only read.
fn answer(ctx: &mut Context<'_, '_>, key: &[u8], steps: &[Step]) -> Answer {
    let stored = ctx.keys.read_string(ctx.session.database, key)?;
    let bytes = stored.map_or(&[][..], |stored| stored.payload);
    let mut reply = ctx.out.write();
    reply.array(steps.len());
    steps.iter().for_each(|step| reply.integer(step.get(bytes) as i64));
    Ok(())
}

/// Runs subcommands of which some write, in a string that has at least `end` bytes from then on.
fn change(ctx: &mut Context<'_, '_>, key: &[u8], steps: &[Step], end: usize) -> Answer {
    let database = ctx.database();
    let found = ctx.keys.find(database, key)?;
    let replaced = found.old;
    let stored = found.live.map(Stored::string).transpose()?;
    let old = stored.map_or(&[][..], |stored| stored.payload);
    let meta = Meta { modified: true, ..stored.map(|stored| stored.meta).unwrap_or_default() };
    let grown = end > old.len();
    let mut bytes = vec![0; end.max(old.len())];
    bytes[..old.len()].copy_from_slice(old);
    ctx.out.write().array(steps.len());
    let mut changed = false;
    for step in steps {
        let (wrote, differs) = step.run(&mut bytes, &mut ctx.out);
        // As in Redis, all that is written into a string that has grown counts as a change.
        changed |= differs || wrote && grown;
    }
    if grown || changed {
        ctx.keys.put(database, key, meta, replaced, &[&bytes])?;
    }
    if changed {
        ctx.keys.notify(class::STRING, "setbit", database, key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::key_arguments::only_reads;

    #[test]
    fn bits_are_read_back_from_every_place() {
        for bits in 1..=64 {
            for offset in 0..70 {
                for value in [0, 1, u64::MAX, 0xA5A5_5A5A_DEAD_BEEF] {
                    let value = value & (u64::MAX >> (64 - bits));
                    for fill in [0x00, 0xFF] {
                        let mut bytes = vec![fill; (offset + u64::from(bits)).div_ceil(8) as usize];
                        write_bits(&mut bytes, offset, bits, value);
                        assert_eq!(read_bits(&bytes, offset, bits), value, "{bits} at {offset}");
                        write_bits(&mut bytes, offset, bits, if fill == 0 { 0 } else { u64::MAX });
                        assert!(bytes.iter().all(|byte| *byte == fill), "{bits} at {offset}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_or_saturate_or_fail() {
        use Overflow::{Fail, Saturate, Wrap};
        let kind = |arg: &[u8]| Integer::read(arg).unwrap();
        for (arg, number, overflow, expected) in [
            (&b"i8"[..], 127, Fail, Some(127)),
            (b"i8", 128, Fail, None),
            (b"i8", 128, Wrap, Some(-128)),
            (b"i8", -129, Wrap, Some(127)),
            (b"i8", 1000, Saturate, Some(127)),
            (b"i8", -1000, Saturate, Some(-128)),
            (b"u8", 256, Wrap, Some(0)),
            (b"u8", -1, Wrap, Some(255)),
            (b"u8", -1, Saturate, Some(0)),
            (b"i1", 1, Wrap, Some(-1)),
            (b"u63", 1 << 63, Wrap, Some(0)),
            (b"i64", 1 << 63, Wrap, Some(-(1 << 63))),
            (b"i64", i128::from(i64::MAX) * 2, Wrap, Some(-2)),
            (b"i64", i128::from(i64::MIN) * 2, Saturate, Some(-(1 << 63))),
        ] {
            assert_eq!(kind(arg).fit(number, overflow), expected, "{} {number}", arg.escape_ascii());
        }
        assert_eq!(kind(b"i8").fit(kind(b"i8").asked(i64::MIN + 126), Saturate), Some(127));
        assert_eq!(kind(b"i8").fit(kind(b"i8").asked(i64::MIN + 127), Saturate), Some(127));
        assert_eq!(kind(b"i8").fit(kind(b"i8").asked(i64::MIN + 128), Saturate), Some(-128));
        assert_eq!(kind(b"i64").fit(kind(b"i64").asked(i64::MIN), Saturate), Some(i64::MIN.into()));
        for arg in [&b""[..], b"i", b"u64", b"i65", b"i0", b"x8", b"I8", b"i08", b"u+1", b"i-1"] {
            assert!(Integer::read(arg).is_err(), "{}", arg.escape_ascii());
        }
    }

    #[test]
    fn a_bitfield_that_only_reads_is_known_by_its_arguments() {
        for (args, expected) in [
            ("", true),
            ("get u8 0", true),
            ("get u8 0 overflow sat GET i5 #3", true),
            ("get u8", false),
            ("set u8 0 1", false),
            ("get u8 0 incrby u8 0 1", false),
            ("nosuch", false),
        ] {
            assert_eq!(only_reads(args.split_whitespace().map(str::as_bytes)), expected, "{args}");
        }
    }
}
