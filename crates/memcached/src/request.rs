//! Lines and words of requests, and what a command tells the client's connection.

use crate::items::Failure;
use memchr::memchr;

/// The longest key.
pub(crate) const KEY_BYTES_MAX: usize = 250;
/// Relative times end here, in seconds; larger ones are times since 1970.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

pub(crate) const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format";
pub(crate) const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache";

/// The progress of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The command ran; the next one begins this many bytes further.
    Done(usize),
    /// The command has not arrived as a whole; it has at least this many bytes.
    Needs(usize),
    /// The command's replies have become long. It continues at this byte once they are sent.
    Paused(usize),
    /// The command ran; this many bytes after it are a value that is not wanted.
    Skip(usize, usize),
    /// The connection ends, after the replies so far.
    Close,
}

/// The line at the beginning of `input`, without its end, and the bytes up to the next one.
pub(crate) fn line_of(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr(b'\n', input)?;
    let line = &input[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// The words of a line.
pub(crate) fn words_of(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// A whole decimal number without a sign.
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(word).ok()?.parse().ok())?
}

/// The decimal number with which data begins, as C reads one: blanks before it, and a blank or nothing behind
/// it.
pub(crate) fn leading_number(data: &[u8]) -> Option<u64> {
    let data = data.trim_ascii_start();
    let digits = data.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    number(digits.strip_prefix(b"+").unwrap_or(digits))
}

/// A decimal number, which may be negative.
pub(crate) fn signed(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The deadline of an item, in seconds since 1970, for the time that a client gave: 0 for none; up to 30 days
/// from now on; or since 1970. A negative one is over already.
pub(crate) fn deadline(time: i64, now: u32) -> u32 {
    match time {
        0 => 0,
        ..0 => 1,
        1..=RELATIVE_MAX => now.saturating_add(time as u32),
        _ => u32::try_from(time).unwrap_or(u32::MAX),
    }
}

/// The answer to a client whose command failed.
pub(crate) fn failure_line(failure: &Failure) -> Vec<u8> {
    match failure {
        Failure::NoRoom => b"SERVER_ERROR out of memory storing object".to_vec(),
        Failure::Pool(error) => {
            tracing::error!("a command failed: {error}");
            b"SERVER_ERROR the pool failed; its log says more".to_vec()
        }
        Failure::Damaged(bytes) => {
            tracing::error!("an item of the map \"memcached\" has only {bytes} bytes");
            b"SERVER_ERROR the item is damaged".to_vec()
        }
    }
}

/// Appends a line.
pub(crate) fn put_line(output: &mut Vec<u8>, line: &[u8]) {
    output.extend_from_slice(line);
    output.extend_from_slice(b"\r\n");
}

/// Appends a number.
pub(crate) fn put_number(output: &mut Vec<u8>, number: u64) {
    output.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_or_without_a_carriage_return() {
        assert_eq!(line_of(b"get a\r\nget b"), Some((&b"get a"[..], 7)));
        assert_eq!(line_of(b"get a\nx"), Some((&b"get a"[..], 6)));
        assert_eq!((line_of(b"get a\r"), line_of(b"")), (None, None));
        assert_eq!(words_of(b"  a  bc ").collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
    }

    #[test]
    fn numbers_and_times_are_read_as_memcached_does() {
        assert_eq!((number(b"42"), number(b"-1"), number(b"+1"), number(b"")), (Some(42), None, None, None));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!((signed(b"-5"), signed(b"x")), (Some(-5), None));
        assert_eq!((leading_number(b" 12 x"), leading_number(b"007")), (Some(12), Some(7)));
        assert_eq!((leading_number(b"12x"), leading_number(b"-1"), leading_number(b" ")), (None, None, None));
        let now = 1_000_000_000;
        let of = |time| deadline(time, now);
        assert_eq!((of(0), of(-1), of(60)), (0, 1, now + 60));
        assert_eq!((of(RELATIVE_MAX), of(RELATIVE_MAX + 1)), (now + 2_592_000, 2_592_001));
        assert_eq!(of(i64::MAX), u32::MAX);
    }
}
