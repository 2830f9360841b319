//! Times of commits, for people: their numbers are nanoseconds since 1970.

/// A commit's number as a time of UTC, to the microsecond. If several commits fall into one nanosecond, each
/// number is one more than the one before, so the time is late by that many nanoseconds.
pub(super) fn of_number(unix_ns: u64) -> String {
    let (seconds, ns) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:06}Z", second % 60, ns / 1000)
}

/// The date this many days after 1 January 1970. Years are counted from 1 March, so that the leap day is
/// their last, in eras of 400 years, which have 146,097 days.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_FROM_YEAR_0: u64 = 719_468;
    let since = days + DAYS_FROM_YEAR_0;
    let (era, of_era) = (since / 146_097, since % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (400 * era + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_times() {
        let second = 1_000_000_000;
        let cases = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400 * second, "2000-02-29T00:00:00.000000Z"),
            (951_868_799 * second + 999_999_999, "2000-02-29T23:59:59.999999Z"),
            (4_107_542_400 * second, "2100-03-01T00:00:00.000000Z"),
            (1_764_103_540 * second + 123_456_789, "2025-11-25T20:45:40.123456Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551Z"),
        ];
        for (number, text) in cases {
            assert_eq!(of_number(number), text);
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..200_000 {
            let now = date(days);
            let is_next = now == (before.0, before.1, before.2 + 1)
                || now == (before.0, before.1 + 1, 1) && before.2 >= 28
                || now == (before.0 + 1, 1, 1) && (before.1, before.2) == (12, 31);
            assert!(is_next, "{before:?} and {now:?}");
            before = now;
        }
    }
}
