//! Scores in requests and replies, and the ends of ranges of sorted sets.

use tembo_wire::number::parse_f64;
use tembo_wire::{Protocol, Request};

use super::context::Out;
use crate::fault::{Answer, Fault, quotable};
use crate::keyspace::collection::ordered::{Cut, Score};

/// Writes a number as C's `%.17g` does, which is how Redis shows scores: 0.1 has the digits that a double of
/// it has.
pub(super) fn format(number: f64) -> Vec<u8> {
    const DIGITS: i32 = 17;
    if number.is_infinite() {
        return if number > 0.0 { b"inf".to_vec() } else { b"-inf".to_vec() };
    }
    let exponential = format!("{number:.16e}");
    let (mantissa, exponent) = exponential.split_once('e').unwrap_or((&exponential, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let text = if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent) as usize;
        format!("{number:.decimals$}")
    } else {
        mantissa.to_owned()
    };
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if (-4..DIGITS).contains(&exponent) {
        return short.as_bytes().to_vec();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{short}e{sign}{:02}", exponent.abs()).into_bytes()
}

/// Writes a score: a double of RESP3, or a bulk string.
pub(super) fn write(out: &mut Out<'_>, number: f64) {
    let text = format(number);
    match out.protocol {
        Protocol::Resp2 => out.write().bulk(text),
        Protocol::Resp3 => out.raw(&[&b","[..], &text, b"\r\n"].concat()),
    }
}

/// Writes how many members follow, with their scores or without. In RESP3 each is a pair.
pub(super) fn write_count(out: &mut Out<'_>, count: usize, with_scores: bool) {
    let flat = with_scores && out.protocol == Protocol::Resp2;
    out.write().array(if flat { 2 * count } else { count });
}

/// Writes a member, with its score or without.
pub(super) fn write_member(out: &mut Out<'_>, member: &[u8], score: Score, with_scores: bool) -> Answer {
    if with_scores && out.protocol == Protocol::Resp3 {
        out.write().array(2);
    }
    out.bulk(member)?;
    if with_scores {
        write(out, score.number());
    }
    Ok(())
}

/// Reads a number, which is not NaN.
pub(super) fn read(arg: &[u8]) -> Option<f64> {
    parse_f64(arg).or_else(|| hexadecimal(arg))
}

/// Reads a hexadecimal float as C writes them: `0x1.8p-2`.
fn hexadecimal(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    let digits = std::str::from_utf8(digits.strip_prefix(b"0x").or(digits.strip_prefix(b"0X"))?).ok()?;
    let (mantissa, exponent) = digits.split_once(['p', 'P']).unwrap_or((digits, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 || exponent.unsigned_abs() > 2000 {
        return None;
    }
    let (mut bits, mut power) = (0_u64, exponent - 4 * fraction.len() as i32);
    for digit in whole.chars().chain(fraction.chars()) {
        let digit = u64::from(digit.to_digit(16)?);
        if bits >> 59 == 0 {
            bits = bits << 4 | digit;
        } else {
            // A digit that no double has room for only says to which side to round.
            (bits, power) = (bits | u64::from(digit != 0), power + 4);
        }
    }
    let half = |power: i32| 2_f64.powi(power);
    let number = bits as f64 * half(power / 2) * half(power - power / 2);
    let is_out_of_range = number.is_infinite() || number == 0.0 && bits != 0;
    (!is_out_of_range).then_some(if text[0] == b'-' { -number } else { number })
}

/// Reads a number as C's `strtod` does, and refuses one that is out of its range: no text is 0, blanks may
/// come before a number, and the text ends at a NUL.
pub(super) fn c_number(text: &[u8]) -> Option<f64> {
    let text = quotable(text);
    let number = c_number_or_infinity(text)?;
    let is_written = |text: &[u8]| text.iter().any(|byte| byte.is_ascii_digit());
    let is_out_of_range = number.is_infinite() && is_written(text)
        || number == 0.0
            && text.iter().take_while(|byte| !b"eEpP".contains(byte)).any(|b| (b'1'..=b'9').contains(b));
    (!number.is_nan() && !is_out_of_range).then_some(number)
}

/// Reads a number as C's `strtod` does: a number that is too large is infinite.
fn c_number_or_infinity(text: &[u8]) -> Option<f64> {
    match quotable(text) {
        b"" => Some(0.0),
        text => {
            let text = text.trim_ascii_start();
            hexadecimal(text).or_else(|| std::str::from_utf8(text).ok()?.parse().ok())
        }
    }
}

/// The two ends of a range of scores, the lower one first.
pub(super) fn score_range(min: &[u8], max: &[u8]) -> Answer<[Cut<'static>; 2]> {
    let refused = || Fault::Error("ERR min or max is not a float");
    let ((low, low_out), (high, high_out)) =
        (score_end(min).ok_or_else(refused)?, score_end(max).ok_or_else(refused)?);
    Ok([Cut::Score { score: low, behind: low_out }, Cut::Score { score: high, behind: !high_out }])
}

/// An end of a range, and whether the range excludes it.
fn score_end(arg: &[u8]) -> Option<(Score, bool)> {
    let (text, is_out) = arg.strip_prefix(b"(").map_or((arg, false), |text| (text, true));
    let number = c_number_or_infinity(text)?;
    (!f64::is_nan(number)).then(|| (Score::new(number), is_out))
}

/// The end of a range of members.
#[derive(Clone, Copy)]
pub(super) enum LexEnd<'a> {
    First,
    Last,
    Member { member: &'a [u8], is_out: bool },
}

impl<'a> LexEnd<'a> {
    fn read(arg: &'a [u8]) -> Option<Self> {
        match arg {
            b"-" | [b'-', 0, ..] => Some(LexEnd::First),
            b"+" | [b'+', 0, ..] => Some(LexEnd::Last),
            [b'[', member @ ..] => Some(LexEnd::Member { member, is_out: false }),
            [b'(', member @ ..] => Some(LexEnd::Member { member, is_out: true }),
            _ => None,
        }
    }

    /// The place of this end among members that all have this score.
    pub(super) fn cut(self, score: Score, is_upper: bool) -> Cut<'a> {
        match self {
            LexEnd::First => Cut::First,
            LexEnd::Last => Cut::Last,
            LexEnd::Member { member, is_out } => Cut::Member { score, member, behind: is_out != is_upper },
        }
    }
}

/// The two ends of a range of members, the lower one first.
pub(super) fn lex_range<'a>(min: &'a [u8], max: &'a [u8]) -> Answer<[LexEnd<'a>; 2]> {
    let refused = || Fault::Error("ERR min or max not valid string range item");
    Ok([LexEnd::read(min).ok_or_else(refused)?, LexEnd::read(max).ok_or_else(refused)?])
}

/// Reads the number of keys at a place, and checks that this many follow.
pub(super) fn keys_at(request: &Request<'_>, at: usize, count: usize) -> Option<std::ops::Range<usize>> {
    let end = (at + 1).checked_add(count)?;
    (end <= request.arg_count()).then_some(at + 1..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        for (number, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (-1.5, "-1.5"),
            (0.1, "0.10000000000000001"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_678.0, "1.2345678901234568e+17"),
            (1e20, "1e+20"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9.999999999999999e16, "99999999999999984"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(String::from_utf8(format(number)).unwrap(), text);
        }
    }

    #[test]
    fn ends_of_ranges_are_read_as_c_does() {
        for (text, expected) in [
            ("", Some((0.0, false))),
            ("(", Some((0.0, true))),
            ("(1.5", Some((1.5, true))),
            ("0x1.8p1", Some((3.0, false))),
            ("(-0X10", Some((-16.0, true))),
            ("0x", None),
            ("1\0x", Some((1.0, false))),
            (" 2", Some((2.0, false))),
            ("-inf", Some((f64::NEG_INFINITY, false))),
            ("1e999", Some((f64::INFINITY, false))),
            ("2 ", None),
            (" ", None),
            ("((2", None),
            ("nan", None),
        ] {
            let read = score_end(text.as_bytes()).map(|(score, is_out)| (score.number(), is_out));
            assert_eq!(read, expected, "{text:?}");
        }
    }
}
