//! Settings: how each is shown and changed, and how its values are read.

use std::fmt::Display;

use tembo_wire::number::parse_i64;

use crate::config::Config;
use crate::state::State;

/// A setting: its name, how it is shown, and how it is changed if it can be.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) get: fn(&State) -> String,
    pub(super) set: Option<Setter>,
    /// How a configuration file changes the setting, if `set` does not.
    pub(super) start: Option<Setter>,
}

/// Changes a setting, or says why not.
pub(super) type Setter = fn(&mut Config, &[u8]) -> Result<(), String>;

impl Parameter {
    pub(super) const fn fixed(name: &'static str, get: fn(&State) -> String) -> Self {
        Parameter { name, get, set: None, start: None }
    }

    pub(super) const fn settable(name: &'static str, get: fn(&State) -> String, set: Setter) -> Self {
        Parameter { name, get, set: Some(set), start: None }
    }

    /// Settable in a configuration file only.
    pub(super) const fn at_start(name: &'static str, get: fn(&State) -> String, start: Setter) -> Self {
        Parameter { name, get, set: None, start: Some(start) }
    }
}

pub(super) fn yes_or_no(on: bool) -> String {
    if on { "yes" } else { "no" }.to_owned()
}

pub(super) fn read_yes_or_no(value: &[u8]) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    }
}

pub(super) fn integer(value: &[u8], min: i64, max: i64) -> Result<i64, String> {
    let number = parse_i64(value).ok_or("argument couldn't be parsed into an integer")?;
    in_range(number, min, max)
}

/// Reads a number of bytes within a range.
pub(super) fn memory(value: &[u8], min: u64, max: u64) -> Result<u64, String> {
    let bytes = memory_value(value).ok_or("argument must be a memory value")?;
    in_range(bytes, min, max)
}

pub(super) fn in_range<T: PartialOrd + Display>(number: T, min: T, max: T) -> Result<T, String> {
    if number >= min && number <= max {
        return Ok(number);
    }
    Err(format!("argument must be between {min} and {max} inclusive"))
}

/// Reads a number of bytes with Redis's units: k, m, g are powers of 1000, kb, mb, gb of 1024. Nothing is
/// zero.
pub(super) fn memory_value(value: &[u8]) -> Option<u64> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = value.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number = number
        .iter()
        .try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    number?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_units() {
        for (text, expected) in [
            ("1024", 1024),
            ("1k", 1000),
            ("1KB", 1024),
            ("2mb", 2 << 20),
            ("1Gb", 1 << 30),
            ("7b", 7),
            ("", 0),
            ("007", 7),
            ("kb", 0),
        ] {
            assert_eq!(memory_value(text.as_bytes()), Some(expected), "{text}");
        }
        for text in ["1x", "-1", "99999999999gb", "99999999999999999999", "1 kb", "0x10", "5%"] {
            assert_eq!(memory_value(text.as_bytes()), None, "{text}");
        }
        assert_eq!(memory(b"1", 2, 3), Err("argument must be between 2 and 3 inclusive".to_owned()));
    }
}
