//! Numbers as text, in the forms that C's printf has and scripts see.

/// A number as `%.{precision}g` writes it; `precision` is at least 1.
pub(crate) fn general(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{value:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(digits), exponent.unsigned_abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// A number as an argument of a command: whole numbers without a point.
pub(crate) fn argument(value: f64) -> String {
    match whole(value) {
        Some(whole) => itoa::Buffer::new().format(whole).to_owned(),
        None => general(value, 17),
    }
}

/// The number as an integer, if it is one.
pub(crate) fn whole(value: f64) -> Option<i64> {
    let is_within = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    let integer = value as i64;
    (is_within && integer as f64 == value).then_some(integer)
}

/// The number without its fraction. Beyond the range of integers it is the least integer, as in Redis.
pub(crate) fn truncated(value: f64) -> i64 {
    let is_within = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    if is_within { value as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (0.1, "0.1"),
            (1e14, "1e+14"),
            (99_999_999_999_999.0, "99999999999999"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1e300, "1e+300"),
            (2.0 / 3.0, "0.66666666666667"),
            (f64::INFINITY, "inf"),
            (-f64::NAN.abs(), "-nan"),
        ] {
            assert_eq!(general(value, 14), expected);
        }
        assert_eq!(general(1.2345678901234567e19, 17), "1.2345678901234567e+19");
        assert_eq!(argument(1e15), "1000000000000000");
        assert_eq!(argument(0.1), "0.10000000000000001");
        assert_eq!((truncated(-2.9), truncated(f64::NAN), truncated(1e20)), (-2, i64::MIN, i64::MIN));
    }
}
