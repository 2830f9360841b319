//! Requests and responses of HTTP/1.1, one of each on a connection.

use httparse::{EMPTY_HEADER, Error, Request, Status};

/// Longest request, in bytes.
pub(super) const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// The answers that paths lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Home,
    Metrics,
    Live,
    Ready,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRequest {
    pub(super) page: Page,
    /// The client takes the text format of OpenMetrics.
    pub(super) takes_openmetrics: bool,
    /// The client wants no body.
    pub(super) is_head: bool,
}

/// The state of a request of which these bytes have arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Partial,
    Whole(PageRequest),
    /// The request is refused with this status.
    Refused(&'static str),
}

pub(super) const OK: &str = "200 OK";
pub(super) const UNAVAILABLE: &str = "503 Service Unavailable";
/// The status of a request that is not HTTP.
pub(super) const BAD: &str = "400 Bad Request";
const NOT_FOUND: &str = "404 Not Found";
const NOT_ALLOWED: &str = "405 Method Not Allowed";
const TOO_LARGE: &str = "431 Request Header Fields Too Large";

/// Reads a request.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(Status::Partial) if bytes.len() < REQUEST_BYTES_MAX => return Parsed::Partial,
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => return Parsed::Refused(TOO_LARGE),
        Ok(Status::Complete(_)) => {}
        Err(_) => return Parsed::Refused(BAD),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Parsed::Refused(NOT_ALLOWED),
    };
    let path = request.path.unwrap_or_default();
    let page = match path.split('?').next().unwrap_or_default() {
        "/" => Page::Home,
        "/metrics" => Page::Metrics,
        "/health/live" => Page::Live,
        "/health/ready" => Page::Ready,
        _ => return Parsed::Refused(NOT_FOUND),
    };
    let accepted = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let takes_openmetrics =
        accepted.filter_map(|header| str::from_utf8(header.value).ok()).any(names_openmetrics);
    Parsed::Whole(PageRequest { page, takes_openmetrics, is_head })
}

/// Whether an Accept header names OpenMetrics, and not to refuse it.
fn names_openmetrics(value: &str) -> bool {
    value.split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_named =
            parts.next().is_some_and(|name| name.eq_ignore_ascii_case("application/openmetrics-text"));
        is_named && !parts.any(|part| part == "q=0" || part == "q=0.0")
    })
}

/// A response, after which the connection is closed.
pub(super) fn response(status: &str, content_type: &str, body: &str, is_head: bool) -> Vec<u8> {
    let allow = if status == NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if is_head { "" } else { body };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_pages_and_all_else_is_refused() {
        let asked = |page, takes_openmetrics, is_head| {
            Parsed::Whole(PageRequest { page, takes_openmetrics, is_head })
        };
        let open = "Accept: text/html, application/OpenMetrics-text;version=1.0.0;q=0.5\r\n";
        let not_open = "Accept: application/openmetrics-text; q=0, */*\r\n";
        for (line, headers, expected) in [
            ("GET /metrics HTTP/1.1", "", asked(Page::Metrics, false, false)),
            ("GET /metrics?x=y HTTP/1.0", open, asked(Page::Metrics, true, false)),
            ("GET /metrics HTTP/1.1", not_open, asked(Page::Metrics, false, false)),
            ("HEAD /health/live HTTP/1.1", "", asked(Page::Live, false, true)),
            ("GET /health/ready HTTP/1.1", "Host: x\r\n", asked(Page::Ready, false, false)),
            ("GET / HTTP/1.1", "", asked(Page::Home, false, false)),
            ("GET /metrics/../etc HTTP/1.1", "", Parsed::Refused(NOT_FOUND)),
            ("POST /metrics HTTP/1.1", "", Parsed::Refused(NOT_ALLOWED)),
            ("*1 $4 PING", "", Parsed::Refused(BAD)),
        ] {
            let text = format!("{line}\r\n{headers}\r\n");
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
            for cut in 0..text.len() {
                let cut = parse(&text.as_bytes()[..cut]);
                assert!(cut == Parsed::Partial || matches!(cut, Parsed::Refused(BAD)), "{text}");
            }
        }
    }

    #[test]
    fn a_request_has_a_length_and_so_many_headers() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parse(many.as_bytes()), Parsed::Refused(TOO_LARGE));
        let long = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(REQUEST_BYTES_MAX));
        assert_eq!(parse(&long.as_bytes()[..REQUEST_BYTES_MAX - 1]), Parsed::Partial);
        assert_eq!(parse(&long.as_bytes()[..REQUEST_BYTES_MAX]), Parsed::Refused(TOO_LARGE));
    }
}
