//! The setting of how long replaced data are kept.

use std::time::Duration;

use super::parameter::Parameter;

/// The units, with their seconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
/// The longest time: a year.
const SECONDS_MAX: u64 = 366 * 86_400;

fn shown(grace: Duration) -> String {
    let seconds = grace.as_secs();
    let unit = UNITS.iter().find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit));
    unit.map_or_else(|| "0".to_owned(), |(name, unit)| format!("{}{name}", seconds / unit))
}

fn read(value: &[u8]) -> Result<Duration, String> {
    let expected = || "argument must be a time of at most a year, as 10m, 30s, 12h or 1d, or 0".to_owned();
    let text = str::from_utf8(value).map_err(|_| expected())?.to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        name => UNITS.iter().find(|(unit, _)| *unit == name).ok_or_else(expected)?.1,
    };
    let number = tembo_wire::number::parse_u64(digits.as_bytes()).ok_or_else(expected)?;
    let seconds = number.checked_mul(unit).filter(|seconds| *seconds <= SECONDS_MAX).ok_or_else(expected)?;
    Ok(Duration::from_secs(seconds))
}

pub(super) const PARAMETERS: &[Parameter] = &[Parameter::settable(
    "flush-grace",
    |state| shown(state.config.flush_grace),
    |config, value| read(value).map(|grace| config.flush_grace = grace),
)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, seconds, again) in [
            ("0", 0, "0"),
            ("10m", 600, "10m"),
            ("90", 90, "90s"),
            ("24H", 86_400, "1d"),
            ("3600s", 3600, "1h"),
        ] {
            assert_eq!(read(text.as_bytes()), Ok(Duration::from_secs(seconds)), "{text}");
            assert_eq!(shown(Duration::from_secs(seconds)), again);
        }
        for text in ["", "m", "10 m", "-1", "1w", "367d", "99999999999999999999d", "1\u{e9}"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
