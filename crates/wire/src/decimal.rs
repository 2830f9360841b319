//! Exact decimal fractions, for INCRBYFLOAT.
//!
//! Redis adds in the processor's 80-bit floats and writes the sum with 17 decimals less trailing zeros and
//! without an exponent. In doubles, 0.1 plus 0.2 would then be 0.30000000000000004, and not every machine has
//! the 80-bit format; so the text is taken as the decimal number it says, the sum is exact, and only the
//! writing rounds, to 17 decimals. The result is the same as Redis's as far as 80 bits reach, some 19 digits
//! in all. Beyond, Redis shows rounding noise and this does not: 123456789.123 less 0.003 is 123456789.12
//! here, and 123456789.12000000000261934 there.

use std::cmp::Ordering;
use std::iter::repeat_n;
use std::ops::RangeInclusive;

/// Decimals that are written.
const WRITTEN_DECIMALS: usize = 17;
/// Bounds of an 80-bit float: no number has more digits before the point, or more zeros behind it.
const MAX_INTEGER_DIGITS: usize = 4933;
const MAX_LEADING_ZEROS: usize = 4951;
/// The powers of 2 in which an 80-bit float may begin.
const BINARY_EXPONENTS: RangeInclusive<i64> = -16_445..=16_383;
/// Longest text that is read, as in Redis.
const MAX_TEXT_BYTES: usize = 5 * 1024 - 1;

/// A decimal fraction of at most some ten thousand digits, exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    /// Values 0 to 9, most significant first, at least `decimals` of them. Leading zeros carry no meaning.
    digits: Vec<u8>,
    /// How many of the digits stand behind the point.
    decimals: usize,
}

/// Why a text is no number that can be added to.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// Not a number, or outside of an 80-bit float's range. Redis: "value is not a valid float".
    #[error("value is not a valid float")]
    Invalid,
    /// An infinity, or a sum as good as one.
    #[error("increment would produce NaN or Infinity")]
    Infinite,
}

impl Decimal {
    /// Reads an optional sign, then digits with an optional point and an optional decimal exponent; or,
    /// behind `0x`, hexadecimal digits with an optional point and an optional binary exponent.
    ///
    /// # Errors
    /// [`DecimalError::Infinite`] for `inf` and `infinity` in any case, [`DecimalError::Invalid`] for any
    /// other text.
    pub fn parse(text: &[u8]) -> Result<Self, DecimalError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(DecimalError::Invalid);
        }
        let negative = text.first() == Some(&b'-');
        let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Err(DecimalError::Infinite);
        }
        if let [b'0', b'x' | b'X', hexadecimal @ ..] = unsigned {
            return Self::parse_hexadecimal(negative, hexadecimal);
        }
        let (mantissa, exponent) = split_exponent(unsigned, b'e')?;
        let (digits, decimals) = mantissa_digits(mantissa, 10)?;
        let Some(zeros) = digits.iter().position(|&digit| digit != 0) else {
            return Ok(Decimal { negative: false, digits: Vec::new(), decimals: 0 });
        };
        Self::scaled(negative, digits[zeros..].to_vec(), decimals, exponent)
    }

    /// Parses the rest of a float after `0x`, as C writes it: hexadecimal digits, times 2 to the power of the
    /// exponent.
    fn parse_hexadecimal(negative: bool, text: &[u8]) -> Result<Self, DecimalError> {
        let (mantissa, exponent) = split_exponent(text, b'p')?;
        let (digits, places) = mantissa_digits(mantissa, 16)?;
        let Some(zeros) = digits.iter().position(|&digit| digit != 0) else {
            return Ok(Decimal { negative: false, digits: Vec::new(), decimals: 0 });
        };
        let significant = &digits[zeros..];
        let exponent = exponent.saturating_sub(4 * places as i64);
        // The power of 2 of the leading bit.
        let leading = 4 * significant.len() as i64 - 4 + i64::from(significant[0].ilog2());
        if !BINARY_EXPONENTS.contains(&exponent.saturating_add(leading)) {
            return Err(DecimalError::Invalid);
        }
        let mut number = Vec::new();
        significant.iter().for_each(|&digit| multiply_add(&mut number, 16, digit.into()));
        // A factor of 2 less is a factor of 5 more and a decimal place.
        let (factor, count) = if exponent < 0 { (5, -exponent) } else { (2, exponent) };
        multiply_by_power(&mut number, factor, count.unsigned_abs());
        Self::scaled(negative, decimal_digits(&number), 0, exponent.min(0))
    }

    /// `digits`, of which the first is not zero, times 10 to the power of `exponent - decimals`.
    fn scaled(
        negative: bool,
        mut digits: Vec<u8>,
        decimals: usize,
        exponent: i64,
    ) -> Result<Self, DecimalError> {
        let digit_count = i64::try_from(digits.len()).map_err(|_| DecimalError::Invalid)?;
        let decimals = i64::try_from(decimals).map_err(|_| DecimalError::Invalid)?.saturating_sub(exponent);
        let integer_digits = digit_count.saturating_sub(decimals);
        if integer_digits > MAX_INTEGER_DIGITS as i64 || integer_digits < -(MAX_LEADING_ZEROS as i64) {
            return Err(DecimalError::Invalid);
        }
        // The bounds on `integer_digits` bound both the zeros that are put behind and those put before.
        let behind = usize::try_from(-decimals).unwrap_or(0);
        digits.extend(repeat_n(0, behind));
        let decimals = usize::try_from(decimals).unwrap_or(0);
        let before = decimals.saturating_sub(digits.len());
        digits.splice(0..0, repeat_n(0, before));
        Ok(Decimal { negative, digits, decimals })
    }

    /// The exact sum. Linear in the number of digits.
    ///
    /// # Errors
    /// [`DecimalError::Infinite`] if the sum has more than 4933 digits before the point.
    pub fn checked_add(mut self, mut other: Self) -> Result<Self, DecimalError> {
        self.align(&mut other);
        let (negative, digits) = if self.negative == other.negative {
            (self.negative, add(&self.digits, &other.digits))
        } else {
            match self.digits.cmp(&other.digits) {
                Ordering::Less => (other.negative, subtract(&other.digits, &self.digits)),
                Ordering::Equal => (false, Vec::new()),
                Ordering::Greater => (self.negative, subtract(&self.digits, &other.digits)),
            }
        };
        let zeros = digits.iter().take_while(|&&digit| digit == 0).count();
        if digits.len() - zeros > MAX_INTEGER_DIGITS + self.decimals {
            return Err(DecimalError::Infinite);
        }
        let decimals = if digits.is_empty() { 0 } else { self.decimals };
        Ok(Decimal { negative, digits, decimals })
    }

    /// Gives both numbers the same count of digits before and behind the point.
    fn align(&mut self, other: &mut Self) {
        let decimals = self.decimals.max(other.decimals);
        for number in [&mut *self, &mut *other] {
            number.digits.extend(repeat_n(0, decimals - number.decimals));
            number.decimals = decimals;
        }
        let digit_count = self.digits.len().max(other.digits.len());
        for number in [self, other] {
            let before = digit_count - number.digits.len();
            number.digits.splice(0..0, repeat_n(0, before));
        }
    }

    /// Appends the number as Redis writes it: plain digits, rounded (half to even) to 17 decimals, no
    /// trailing zeros, no point without decimals, no minus before zero.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (mut digits, mut decimals) = self.rounded();
        while decimals > 0 && digits.last() == Some(&0) {
            digits.pop();
            decimals -= 1;
        }
        let (integer, fraction) = digits.split_at(digits.len() - decimals);
        let zeros = integer.iter().take_while(|&&digit| digit == 0).count();
        let integer = if zeros == integer.len() { &[0] } else { &integer[zeros..] };
        if self.negative && (integer != [0] || !fraction.is_empty()) {
            out.push(b'-');
        }
        out.extend(integer.iter().map(|digit| digit + b'0'));
        if !fraction.is_empty() {
            out.push(b'.');
            out.extend(fraction.iter().map(|digit| digit + b'0'));
        }
    }

    /// The digits with at most [`WRITTEN_DECIMALS`] decimals, and how many they are.
    fn rounded(&self) -> (Vec<u8>, usize) {
        let Some(excess) = self.decimals.checked_sub(WRITTEN_DECIMALS) else {
            return (self.digits.clone(), self.decimals);
        };
        let (kept, cut) = self.digits.split_at(self.digits.len() - excess);
        let odd = kept.last().is_some_and(|digit| digit % 2 == 1);
        let up = match cut.split_first() {
            Some((5, rest)) => odd || rest.iter().any(|&digit| digit != 0),
            Some((first, _)) => *first > 5,
            None => false,
        };
        let mut unit = vec![0; kept.len()];
        if let Some(last) = unit.last_mut() {
            *last = u8::from(up);
        }
        (add(kept, &unit), WRITTEN_DECIMALS)
    }
}

/// The base of the numbers below, whose parts are given least significant first.
const PART: u64 = 1_000_000_000;
const PART_DIGITS: usize = 9;

/// Multiplies by `factor`, of less than 2^32, and adds to it.
fn multiply_add(number: &mut Vec<u64>, factor: u64, summand: u64) {
    let mut carry = summand;
    for part in &mut *number {
        carry += *part * factor;
        *part = carry % PART;
        carry /= PART;
    }
    while carry > 0 {
        number.push(carry % PART);
        carry /= PART;
    }
}

/// Multiplies by `factor`, at most 5, to the power of `count`.
fn multiply_by_power(number: &mut Vec<u64>, factor: u64, count: u64) {
    /// The largest for which the power of 5 is less than 2^32.
    const STEP: u32 = 13;
    (0..count / u64::from(STEP)).for_each(|_| multiply_add(number, factor.pow(STEP), 0));
    multiply_add(number, factor.pow((count % u64::from(STEP)) as u32), 0);
}

/// The digits, most significant first and not zero.
fn decimal_digits(number: &[u64]) -> Vec<u8> {
    let text: String = number.iter().rev().map(|part| format!("{part:0PART_DIGITS$}")).collect();
    text.trim_start_matches('0').bytes().map(|digit| digit - b'0').collect()
}

/// Cuts a text at its exponent, behind `mark` in either case, and reads that; a text without one has exponent
/// 0.
fn split_exponent(text: &[u8], mark: u8) -> Result<(&[u8], i64), DecimalError> {
    let Some(at) = text.iter().position(|byte| byte.to_ascii_lowercase() == mark) else {
        return Ok((text, 0));
    };
    let exponent = &text[at + 1..];
    let digits = exponent.strip_prefix(b"-").or(exponent.strip_prefix(b"+")).unwrap_or(exponent);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DecimalError::Invalid);
    }
    let magnitude = digits
        .iter()
        .fold(0i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    Ok((&text[..at], if exponent.starts_with(b"-") { -magnitude } else { magnitude }))
}

/// The digits, to this base, of a text without sign and exponent, and how many of them stand behind the
/// point.
fn mantissa_digits(text: &[u8], base: u32) -> Result<(Vec<u8>, usize), DecimalError> {
    let point = text.iter().position(|&byte| byte == b'.');
    let (integer, fraction) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[][..]),
    };
    let digit = |&byte: &u8| char::from(byte).to_digit(base).map(|digit| digit as u8);
    let digits: Option<Vec<u8>> = integer.iter().chain(fraction).map(digit).collect();
    let digits = digits.filter(|digits| !digits.is_empty()).ok_or(DecimalError::Invalid)?;
    Ok((digits, fraction.len()))
}

/// The sum of two numbers of the same count of digits, with one digit more.
fn add(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut sum = vec![0; a.len() + 1];
    let mut carry = 0;
    for index in (0..a.len()).rev() {
        let digit = a[index] + b[index] + carry;
        sum[index + 1] = digit % 10;
        carry = digit / 10;
    }
    sum[0] = carry;
    sum
}

/// The difference of two numbers of the same count of digits, the first not being the smaller.
fn subtract(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut difference = vec![0; a.len()];
    let mut borrow = 0;
    for index in (0..a.len()).rev() {
        let digit = a[index] + 10 - b[index] - borrow;
        difference[index] = digit % 10;
        borrow = u8::from(digit < 10);
    }
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Decimal, DecimalError> {
        Decimal::parse(text.as_bytes())
    }

    fn written(number: &Decimal) -> String {
        let mut out = Vec::new();
        number.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[track_caller]
    fn assert_sum(a: &str, b: &str, expected: &str) {
        for (a, b) in [(a, b), (b, a)] {
            let sum = parse(a).unwrap().checked_add(parse(b).unwrap()).unwrap();
            assert_eq!(written(&sum), expected, "{a} + {b}");
        }
    }

    #[test]
    fn sums_have_no_binary_noise() {
        assert_sum("10.50", "0.1", "10.6");
        assert_sum("0.1", "0.2", "0.3");
        assert_sum("5.0e3", "2.0e2", "5200");
        assert_sum("3", "1.1", "4.1");
        assert_sum("17179869184", "1.5", "17179869185.5");
        assert_sum("1", "-1.1", "-0.1");
        assert_sum("999.9", "0.1", "1000");
        assert_sum("-999.9", "-.1", "-1000");
        assert_sum("100", "-0.001", "99.999");
        assert_sum("1e300", "-1e300", "0");
        assert_sum("123456789.123", "-0.003", "123456789.12");
        assert_sum("1e18", "0.1", "1000000000000000000.1");
    }

    #[test]
    fn numbers_are_written_plainly() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.000", "0"),
            ("0e99999", "0"),
            ("007.500", "7.5"),
            ("3.", "3"),
            ("+.5", "0.5"),
            ("1e3", "1000"),
            ("1.25E1", "12.5"),
            ("12345e-2", "123.45"),
            ("-1e-17", "-0.00000000000000001"),
            ("1e25", "10000000000000000000000000"),
        ] {
            assert_eq!(written(&parse(text).unwrap()), expected, "{text}");
        }
    }

    /// INCRBYFLOAT refused what Redis's strtold takes.
    #[test]
    fn hexadecimal_floats_of_c_are_read() {
        for (text, expected) in [
            ("0x10", "16"),
            ("-0X1f", "-31"),
            ("+0x0", "0"),
            ("0x1p3", "8"),
            ("0x1.8P+1", "3"),
            ("0x.8", "0.5"),
            ("0x1.", "1"),
            ("0x00A.8p-1", "5.25"),
            ("0x1p-30", "0.00000000093132257"),
            ("0x1p64", "18446744073709551616"),
            ("0xffffffffffffffff", "18446744073709551615"),
            ("0x0p99999", "0"),
            ("0x1p-16445", "0"),
        ] {
            assert_eq!(written(&parse(text).unwrap()), expected, "{text}");
        }
        assert_eq!(written(&parse("0x1p16383").unwrap()).len(), 4932);
        assert!(parse("0x1p-16445").unwrap().decimals <= 16_445);
        assert!(parse(&format!("0x{}", "f".repeat(4000))).is_ok());
    }

    #[test]
    fn writing_rounds_half_to_even_at_17_decimals() {
        for (text, expected) in [
            ("0.123456789012345678", "0.12345678901234568"),
            ("0.123456789012345674", "0.12345678901234567"),
            ("0.123456789012345665", "0.12345678901234566"),
            ("0.123456789012345675", "0.12345678901234568"),
            ("0.1234567890123456650001", "0.12345678901234567"),
            ("0.999999999999999999", "1"),
            ("-9.9999999999999999999", "-10"),
            ("-1e-18", "0"),
            ("5e-18", "0"),
            ("6e-18", "0.00000000000000001"),
            ("1e-4000", "0"),
        ] {
            assert_eq!(written(&parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "-",
            "+",
            ".",
            "-.",
            "e5",
            "1e",
            "1e+",
            "1e5.5",
            "1.2.3",
            " 1",
            "1 ",
            "--1",
            "+-1",
            "nan",
            "0x",
            "0x.",
            "0xg",
            "0x1p",
            "0xp1",
            "0x1e+5",
            "x10",
            "0x1p16384",
            "0xfp16381",
            "0x1p-16446",
            "0x1p99999999999999999999",
            "abc",
            "1\0",
            "1_0",
            "1e4933",
            "1e-4960",
            "1e99999999999999999999",
            "1e-99999999999999999999",
        ] {
            assert_eq!(parse(text), Err(DecimalError::Invalid), "{text:?}");
        }
        for text in ["inf", "-INF", "+Infinity"] {
            assert_eq!(parse(text), Err(DecimalError::Infinite), "{text:?}");
        }
        assert!(parse(&"1".repeat(4933)).is_ok());
        assert_eq!(parse(&"1".repeat(4934)), Err(DecimalError::Invalid));
        assert_eq!(parse(&"0".repeat(5120)), Err(DecimalError::Invalid));
    }

    #[test]
    fn a_sum_past_the_range_is_infinite() {
        let largest = parse(&"9".repeat(4933)).unwrap();
        let sum = largest.clone().checked_add(parse("1").unwrap());
        assert_eq!(sum, Err(DecimalError::Infinite));
        assert!(largest.checked_add(parse("-1").unwrap()).is_ok());
    }
}
