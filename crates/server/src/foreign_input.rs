//! Input that something other than a Redis client sent.
//!
//! A web page can make its visitor's browser send any text to a port of the visitor's machine, in the body
//! of an HTTP request. Were the lines of such a request taken one by one, its head would be unknown
//! commands, and the commands in its body would be run. So a connection is closed, unanswered, at the first
//! line that is HTTP's.

use tembo_wire::Request;

/// The first byte of a TLS handshake, and the major version that follows.
const TLS_BEGINNING: [u8; 2] = [0x16, 3];

/// Whether a request that is no command is a line of HTTP: a request line of any method, or the header that
/// every request of HTTP/1.1 has.
pub(crate) fn is_http(request: &Request<'_>) -> bool {
    let name = request.name();
    let is_request_line = || request.arg_count() == 3 && request[2].starts_with(b"HTTP/");
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") || is_request_line()
}

/// Whether the first bytes of a connection are TLS. No command begins with these.
pub(crate) fn begins_tls(input: &[u8]) -> bool {
    let known = input.len().min(TLS_BEGINNING.len());
    known > 0 && input[..known] == TLS_BEGINNING[..known]
}
