//! Sizes in bytes, as people write and read them.

use std::str::FromStr;

/// Binary suffixes; an `iB` may follow. With a `B` alone the unit is the decimal one.
const UNITS: &str = "KMGTPE";

/// A number of bytes given on the command line: `4096`, `64K` or `64KiB` (times 1024), `64KB` (times 1000).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = text.split_at(digits);
        let expected = "expected a number with an optional K, M, G or T (times 1024; KB, MB, ... times 1000)";
        if number.is_empty() {
            return Err(expected.to_owned());
        }
        let unit = unit_bytes(suffix).ok_or_else(|| expected.to_owned())?;
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        bytes.map(|bytes| Size { bytes }).ok_or_else(|| "that is more than 2^64 bytes".to_owned())
    }
}

/// The factor that a suffix stands for.
fn unit_bytes(suffix: &str) -> Option<u64> {
    let suffix = suffix.trim_start().to_ascii_uppercase();
    let Some(first) = suffix.chars().next().filter(|c| *c != 'B') else {
        return ["", "B"].contains(&suffix.as_str()).then_some(1);
    };
    let power = UNITS.find(first)? as u32 + 1;
    match &suffix[first.len_utf8()..] {
        "" | "IB" => Some(1 << (10 * power)),
        "B" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

/// A number of bytes for people: three digits and a binary unit.
pub(crate) fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = None;
    for letter in UNITS.chars() {
        // A value that would be rounded to 1024 of a unit is shown as 1 of the next.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = Some(letter);
    }
    match unit {
        None => format!("{bytes} B"),
        Some(unit) if value < 9.995 => format!("{value:.2} {unit}iB"),
        Some(unit) if value < 99.95 => format!("{value:.1} {unit}iB"),
        Some(unit) => format!("{value:.0} {unit}iB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        text.parse::<Size>().ok().map(|size| size.bytes)
    }

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("7B", 7),
            ("64k", 64 << 10),
            ("64K", 64 << 10),
            ("64KiB", 64 << 10),
            ("64 KiB", 64 << 10),
            ("64kB", 64_000),
            ("3M", 3 << 20),
            ("3mb", 3_000_000),
            ("8G", 8 << 30),
            ("2TiB", 2 << 40),
            ("15E", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "G", "-1", "+1", "1.5G", "1X", "1Kb3", "1iB", "1é", "16E", "99999999999999999999", "0x10"]
        {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_with_three_digits() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (64 << 20, "64.0 MiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            ((10 << 20) - 1, "10.0 MiB"),
            (999 << 30, "999 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(human_bytes(bytes), expected);
        }
    }
}
