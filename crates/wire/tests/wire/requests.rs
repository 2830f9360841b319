//! Requests cut at every byte, at their limits, and broken in every way; with Redis's error texts.

use crate::properties::{Transcript, receive_requests};
use tembo_wire::{Limits, ProtocolError};

fn strings(transcript: &Transcript<Vec<Vec<u8>>, ProtocolError>) -> Vec<Vec<String>> {
    let text = |arg: &Vec<u8>| arg.escape_ascii().to_string();
    transcript.items.iter().map(|args| args.iter().map(text).collect()).collect()
}

/// Asserts what is received of `stream`: whole, byte by byte, and cut into two at every byte.
#[track_caller]
fn assert_received(stream: &[u8], limits: &Limits, requests: &[&[&str]], error: Option<ProtocolError>) {
    let whole = receive_requests(&[stream], limits);
    assert_eq!(strings(&whole), requests, "{}", stream.escape_ascii());
    assert_eq!(whole.error, error, "{}", stream.escape_ascii());
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(receive_requests(&bytes, limits), whole);
    for at in 0..=stream.len() {
        let (front, back) = stream.split_at(at);
        assert_eq!(receive_requests(&[front, back], limits), whole, "cut at {at}");
    }
}

#[test]
fn a_pipeline_of_every_kind_of_request() {
    let stream = b"*1\r\n$4\r\nPING\r\n\r\n*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\nget k\r\n\n*0\r\n*-1\r\n   \r\n\
        set \"a b\" '\\'' \"\\x00\\n\"\n*2\r\n$4\r\nECHO\r\n$12\r\n123456789012\r\n*-9223372036854775808\r\nquit\n";
    let requests: &[&[&str]] = &[
        &["PING"],
        &["SET", "a\\r\\nb", ""],
        &["get", "k"],
        &["set", "a b", "\\'", "\\x00\\n"],
        &["ECHO", "123456789012"],
        &["quit"],
    ];
    assert_received(stream, &Limits::default(), requests, None);
    assert_eq!(receive_requests(&[stream], &Limits::default()).consumed, stream.len());
}

#[test]
fn malformed_requests_have_their_errors() {
    use ProtocolError::*;
    let table: &[(&[u8], ProtocolError, &str)] = &[
        (b"*x\r\n", InvalidCount, "invalid multibulk length"),
        (b"*\r\n", InvalidCount, "invalid multibulk length"),
        (b"*-\r\n", InvalidCount, "invalid multibulk length"),
        (b"*+1\r\n", InvalidCount, "invalid multibulk length"),
        (b"* 1\r\n", InvalidCount, "invalid multibulk length"),
        (b"*01\r\n", InvalidCount, "invalid multibulk length"),
        (b"*-0\r\n", InvalidCount, "invalid multibulk length"),
        (b"*1.0\r\n", InvalidCount, "invalid multibulk length"),
        (b"*1\rx", InvalidCount, "invalid multibulk length"),
        (b"*1\n$4\r\n", InvalidCount, "invalid multibulk length"),
        (b"*1048577\r\n", InvalidCount, "invalid multibulk length"),
        (b"*3000000000\r\n", InvalidCount, "invalid multibulk length"),
        (b"*9223372036854775808\r\n", InvalidCount, "invalid multibulk length"),
        (b"*1\r\nfoo\r\n", ExpectedBulk { got: b'f' }, "expected '$', got 'f'"),
        (b"*1\r\n\r\n", ExpectedBulk { got: b'\r' }, "expected '$', got '\\x0d'"),
        (b"*1\r\n\xff\r\n", ExpectedBulk { got: 0xff }, "expected '$', got '\\xff'"),
        (b"*1\r\n:1\r\n", ExpectedBulk { got: b':' }, "expected '$', got ':'"),
        (b"*1\r\n*1\r\n", ExpectedBulk { got: b'*' }, "expected '$', got '*'"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n", ExpectedBulk { got: b'f' }, "expected '$', got 'f'"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$-10\r\n", InvalidLength, "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$2000000000\r\n", InvalidLength, "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$blabla\r\n", InvalidLength, "invalid bulk length"),
        (b"*1\r\n$\r\n", InvalidLength, "invalid bulk length"),
        (b"*1\r\n$-1\r\n", InvalidLength, "invalid bulk length"),
        (b"*1\r\n$04\r\nPING\r\n", InvalidLength, "invalid bulk length"),
        (b"*1\r\n$4\rPPING\r\n", InvalidLength, "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", InvalidLength, "invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n", InvalidLength, "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGS\r\n", UnterminatedBulk, "expected CRLF after bulk"),
        (b"*1\r\n$4\r\nPING\n\n", UnterminatedBulk, "expected CRLF after bulk"),
        (b"*1\r\n$4\r\nPING\r*", UnterminatedBulk, "expected CRLF after bulk"),
        (b"set \"\"\"test-key\"\"\" test-value\r\n", UnbalancedQuotes, "unbalanced quotes in request"),
        (b"get a\0b\r\n", NulInInline, "NUL in inline request"),
        (b"\0\n", NulInInline, "NUL in inline request"),
        (b"get 'k\r\n", UnbalancedQuotes, "unbalanced quotes in request"),
        (b"get \"k\n", UnbalancedQuotes, "unbalanced quotes in request"),
    ];
    for (input, error, text) in table {
        assert_received(input, &Limits::default(), &[], Some(*error));
        assert_eq!(error.to_string(), format!("Protocol error: {text}"));
        // Behind a request that is whole, which must be received all the same.
        let behind = [b"ping\n", *input].concat();
        assert_received(&behind, &Limits::default(), &[&["ping"]], Some(*error));
    }
}

#[test]
fn lines_may_have_64_kib() {
    let limits = Limits::default();
    for (head, error) in [
        ("", ProtocolError::InlineTooBig),
        ("*", ProtocolError::CountTooBig),
        ("*1\r\n$", ProtocolError::LengthTooBig),
    ] {
        let line_start = head.rfind('\n').map_or(0, |at| at + 1);
        let filled = |bytes: usize| format!("{head}{}", "1".repeat(bytes - (head.len() - line_start)));
        let (longest, too_long) = (filled(65536), filled(65537));
        assert_eq!(receive_requests(&[longest.as_bytes()], &limits).error, None, "{head:?}");
        assert_eq!(receive_requests(&[too_long.as_bytes()], &limits).error, Some(error), "{head:?}");
        // The line end behind the limit makes no difference, whether or not it is there at once.
        let ended = too_long + "\r\n";
        assert_eq!(receive_requests(&[ended.as_bytes()], &limits).error, Some(error), "{head:?}");
        let pieces: Vec<&[u8]> = ended.as_bytes().chunks(1000).collect();
        assert_eq!(receive_requests(&pieces, &limits).error, Some(error), "{head:?}");
    }
    let longest = format!("{}\n", "x".repeat(65536));
    assert_eq!(receive_requests(&[longest.as_bytes()], &limits).items[0][0].len(), 65536);
}

#[test]
fn limits_are_what_they_are_set_to() {
    let limits = Limits { max_bulk_bytes: 4, max_args: 2, max_line_bytes: 6, ..Limits::default() };
    assert_received(b"*2\r\n$4\r\nECHO\r\n$4\r\nabcd\r\n", &limits, &[&["ECHO", "abcd"]], None);
    assert_received(b"*1\r\n$5\r\n", &limits, &[], Some(ProtocolError::InvalidLength));
    assert_received(b"*3\r\n", &limits, &[], Some(ProtocolError::InvalidCount));
    assert_received(b"get ab\r\n", &limits, &[], Some(ProtocolError::InlineTooBig));
    // A length line is not cut short by that limit, however its bytes come in.
    assert_received(b"*000002\r\n", &limits, &[], Some(ProtocolError::InvalidCount));
    assert_received(b"*-1234567890\r\nping\n", &limits, &[&["ping"]], None);
    assert_received(b"get ab\n", &limits, &[&["get", "ab"]], None);
}

#[test]
fn a_request_as_large_as_allowed_and_one_byte_more() {
    let request = b"*2\r\n$3\r\nGET\r\n$2\r\nab\r\n";
    let limit = |max_request_bytes| Limits { max_request_bytes, ..Limits::default() };
    assert_received(request, &limit(request.len()), &[&["GET", "ab"]], None);
    assert_received(request, &limit(request.len() - 1), &[], Some(ProtocolError::RequestTooBig));
    // Each request has the whole allowance, whatever came before it in the buffer.
    let twice = request.repeat(2);
    assert_received(&twice, &limit(request.len()), &[&["GET", "ab"], &["GET", "ab"]], None);
}

#[test]
fn no_configured_limit_overflows() {
    let limits = Limits {
        max_line_bytes: usize::MAX,
        max_bulk_bytes: usize::MAX,
        max_args: usize::MAX,
        max_request_bytes: usize::MAX,
    };
    assert_received(b"ping\r\n", &limits, &[&["ping"]], None);
    assert_received(b"*9223372036854775807\r\n$1\r\nx\r\n", &limits, &[], None);
    assert_received(b"*1\r\n$9223372036854775807\r\nx", &limits, &[], None);
}
