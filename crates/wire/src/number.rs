//! Integers and doubles as Redis reads and writes them.
//!
//! The rules are strict so that a text and its number stand for each other: a value that reads as an integer
//! is written back as exactly the same bytes.

/// Reads a signed integer: `0`, or an optional `-` before digits of which the first is not zero. Nothing
/// else: no `+`, `-0`, blanks or leading zeros, and no number outside of `i64`.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        None => i64::try_from(parse_u64(text)?).ok(),
        Some(b"0") => None,
        Some(digits) => 0i64.checked_sub_unsigned(parse_u64(digits)?),
    }
}

/// Reads an unsigned integer by the rules of [`parse_i64`].
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        b"0" => Some(0),
        [b'1'..=b'9', ..] if text.len() <= 20 => text.iter().try_fold(0u64, |number, byte| {
            let digit = byte.checked_sub(b'0').filter(|&digit| digit <= 9)?;
            number.checked_mul(10)?.checked_add(u64::from(digit))
        }),
        _ => None,
    }
}

/// Reads a double: an optional sign, then digits with an optional point and an optional decimal exponent, or
/// `inf` or `infinity` in any case. `None` for anything else, for NaN, and for a number too large or, not
/// being zero, too small for a double. (Redis also takes C's hexadecimal floats. They are not supported.)
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let out_of_range = match value {
        value if value.is_nan() => true,
        value if value.is_infinite() => text.iter().any(u8::is_ascii_digit),
        0.0 => mantissa(text).any(|byte| matches!(byte, b'1'..=b'9')),
        _ => false,
    };
    (!out_of_range).then_some(value)
}

fn mantissa(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().copied().take_while(|byte| !matches!(byte, b'e' | b'E'))
}

/// Appends the shortest text that [`parse_f64`] reads back as `value`, in the layout of C's `%.17g`: integers
/// up to 17 digits and fractions down to 0.0001 are written plainly, others as `d.ddde+XX`. Infinities are
/// `inf` and `-inf`, NaN is `nan`.
pub fn write_f64(out: &mut Vec<u8>, value: f64) {
    if !value.is_finite() {
        out.extend_from_slice(match value {
            f64::INFINITY => b"inf",
            f64::NEG_INFINITY => b"-inf",
            _ => b"nan",
        });
        return;
    }
    let exponential = format!("{value:e}");
    // `{:e}` writes `[-]d[.ddd]e[-]x`. Should it write no `e`, there is no exponent.
    let (mantissa, exponent) = exponential.split_once('e').unwrap_or((&exponential, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        out.extend_from_slice(value.to_string().as_bytes());
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("{mantissa}e{sign}{:02}", exponent.abs()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_size() {
        for number in [0, 1, -1, 9, 10, -10, 1 << 32, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(parse_i64(number.to_string().as_bytes()), Some(number));
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn no_other_text_is_an_integer() {
        for text in [
            "",
            "-",
            "--1",
            "+1",
            " 1",
            "1 ",
            "01",
            "-01",
            "-0",
            "00",
            "1.0",
            "1e3",
            "0x1",
            "a",
            "1a",
            "/",
            ":",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "100000000000000000000",
            "1\0",
            "\u{661}",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
        for text in
            ["-1", "18446744073709551616", "99999999999999999999", "100000000000000000000", "+1", "00"]
        {
            assert_eq!(parse_u64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn doubles_are_read() {
        for (text, expected) in [
            ("0", 0.0),
            ("-0.0", 0.0),
            ("3.", 3.0),
            (".5", 0.5),
            ("+1.5e3", 1500.0),
            ("1E-2", 0.01),
            ("007", 7.0),
            ("0e999", 0.0),
            ("1.7976931348623157e308", f64::MAX),
            ("5e-324", f64::from_bits(1)),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn no_other_text_is_a_double() {
        for text in [
            "", " 1", "1 ", "1 2", "nan", "NaN", "-nan", "1e", "e5", ".", "+", "1.2.3", "abc", "1e400",
            "-1e400", "1e-400", "0x1p3", "1_0", "1\0", "infinit",
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_f64(b"\xff"), None);
    }

    #[test]
    fn doubles_are_written_as_c_does() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (12345678901234567.0, "12345678901234568"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (-1.25e300, "-1.25e+300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let mut out = Vec::new();
            write_f64(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
