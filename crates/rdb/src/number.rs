//! Integers and scores as text.

/// The integer that `text` is the shortest form of: the one that prints as `text`.
pub(crate) fn parse_canonical(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_shortest = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if is_shortest { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}

/// The score that `text` stands for; none if that is no number.
pub(crate) fn parse_score(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!score.is_nan()).then_some(score)
}

/// Writes a score as Redis 7.0 does in packed values: with 17 digits where it is no integer.
pub(crate) fn write_score(score: f64, out: &mut Vec<u8>) {
    out.clear();
    if score.is_infinite() {
        out.extend_from_slice(if score > 0.0 { b"inf" } else { b"-inf" });
    } else if score.fract() == 0.0 && score.abs() <= INTEGERS_END {
        out.extend_from_slice(itoa::Buffer::new().format(score as i64).as_bytes());
    } else {
        write_significant(score, out);
    }
}

/// Up to here integers are written as such, and there is no negative zero among them.
const INTEGERS_END: f64 = (1u64 << 62) as f64;
/// Digits that tell any two doubles apart.
const DIGITS: i32 = 17;

/// C's `%.17g`.
fn write_significant(score: f64, out: &mut Vec<u8>) {
    let text = format!("{score:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let text = if !(-4..DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
    } else {
        let fixed = format!("{score:.*}", (DIGITS - 1 - exponent) as usize);
        without_zeros(&fixed).to_owned()
    };
    out.extend_from_slice(text.as_bytes());
}

/// A decimal fraction without the zeros at its end.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shortest_form_is_an_integer() {
        for text in ["0", "-1", "12", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(parse_canonical(text.as_bytes()), Some(text.parse().unwrap()));
        }
        for text in ["", "-", "-0", "00", "01", "+1", " 1", "1 ", "1.0", "9223372036854775808"] {
            assert_eq!(parse_canonical(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn scores_are_written_as_redis_writes_them() {
        for (score, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (-1e15, "-1000000000000000"),
            (1e17, "100000000000000000"),
            (-1e19, "-1e+19"),
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (1.5e300, "1.5000000000000001e+300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            let mut out = Vec::new();
            write_score(score, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
            assert_eq!(parse_score(&out).map(f64::to_bits), Some(score.to_bits()));
        }
        let mut out = Vec::new();
        write_score(-0.0, &mut out);
        assert_eq!(out, b"0");
        assert_eq!(parse_score(b"nan"), None);
        assert_eq!(parse_score(b"abc"), None);
    }
}
