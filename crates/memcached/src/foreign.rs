//! Input that something other than a memcached client sent.
//!
//! A web page can make its visitor's browser send any text to a port of the visitor's machine, in the
//! body of an HTTP request. Were its head taken for unknown commands, the lines of its body would be run.
//! So the connection is closed, unanswered, at the first line that is HTTP's; likewise at the beginning
//! of a record of TLS, of a request to a Redis server, or of one in the binary protocol, none of which a
//! line can be.

use std::time::{Duration, Instant};

const BINARY_REQUEST: u8 = 0x80;
const TLS_HANDSHAKE: u8 = 0x16;
const REDIS_ARRAY: u8 = b'*';

/// Messages in a second; further ones are counted.
const MESSAGES_PER_SECOND: u32 = 5;

/// The protocol that a command begins with, by its first byte, if that is another one.
pub(crate) fn protocol_of(first: u8) -> Option<&'static str> {
    match first {
        BINARY_REQUEST => Some("the binary protocol"),
        TLS_HANDSHAKE => Some("TLS"),
        REDIS_ARRAY => Some("the protocol of Redis"),
        _ => None,
    }
}

/// Whether a line is one of HTTP's: a request line of any method, or the header that every request of
/// HTTP/1.1 has. Commands of memcached are in small letters, and none of them is a method.
pub(crate) fn is_http(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (name, third) = (words.next().unwrap_or_default(), words.nth(1));
    let is_request_line =
        || name.iter().all(u8::is_ascii_uppercase) && third.is_some_and(|third| third.starts_with(b"HTTP/"));
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") || is_request_line()
}

/// Warnings about clients, of which a few in a second are logged.
#[derive(Debug)]
pub(crate) struct Warnings {
    began: Instant,
    logged: u32,
    suppressed: u32,
}

impl Warnings {
    pub(crate) fn new(now: Instant) -> Self {
        Warnings { began: now, logged: 0, suppressed: 0 }
    }

    /// Whether a message may be logged now. To be called now and then with `is_message` unset, so that
    /// the count of those that were not does not wait for the next one.
    pub(crate) fn admit(&mut self, now: Instant, is_message: bool) -> bool {
        if now.saturating_duration_since(self.began) >= Duration::from_secs(1) {
            if self.suppressed > 0 {
                tracing::warn!(
                    "{} more messages about clients of memcached were not logged",
                    self.suppressed
                );
            }
            *self = Warnings::new(now);
        }
        let may = is_message && self.logged < MESSAGES_PER_SECOND;
        self.logged += u32::from(may);
        self.suppressed += u32::from(is_message && !may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_http_are_no_commands() {
        for line in
            ["GET / HTTP/1.1", "POST / HTTP/1.0", "post /", "PRI * HTTP/2.0", "Host: x", "host: 127.0.0.1"]
        {
            assert!(is_http(line.as_bytes()), "{line}");
        }
        for line in
            ["get / HTTP/1.1", "get Host: x", "mg POST v", "set HTTP/1 0 0 1", "gets GET / HTTP/1.1", ""]
        {
            assert!(!is_http(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn a_storm_of_warnings_is_cut() {
        let start = Instant::now();
        let mut warnings = Warnings::new(start);
        let admitted = (0..100).filter(|_| warnings.admit(start, true)).count();
        assert_eq!((admitted, warnings.suppressed), (MESSAGES_PER_SECOND as usize, 95));
        assert!(!warnings.admit(start + Duration::from_secs(1), false));
        assert_eq!(warnings.suppressed, 0);
        assert!(warnings.admit(start + Duration::from_secs(1), true));
    }
}
