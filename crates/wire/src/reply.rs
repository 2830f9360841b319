//! Encoding replies, for RESP2 or RESP3.
//!
//! ```text
//!   reply        RESP3                      RESP2
//!   simple       +text                      same
//!   error        -CODE text                 same
//!   integer      :n                         same
//!   bulk         $len CRLF bytes            same
//!   null         _                          $-1
//!   null array   _                          *-1
//!   array        *n, then n replies         same
//!   map          %n, then n pairs           *2n, the pairs flattened
//!   set          ~n, then n replies         *n
//!   push         >n, then n replies         *n
//!   double       ,text                      bulk
//!   boolean      #t or #f                   :1 or :0
//!   big number   (digits                    bulk
//!   verbatim     =len CRLF fmt:bytes        bulk, without the format
//! ```
//!
//! Each line and each run of bytes is ended by CRLF. Lines (simple strings and errors) cannot hold a CR or
//! LF: each is replaced by a space, so that no client's data can forge a reply.

use std::fmt::{self, Write as _};

use crate::number::write_f64;

/// The version of the protocol that a connection speaks. A connection begins with RESP2; HELLO changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Version 2.
    #[default]
    Resp2,
    /// Version 3.
    Resp3,
}

impl Protocol {
    /// The protocol that HELLO calls `version`, if there is one.
    pub fn from_version(version: i64) -> Option<Self> {
        match version {
            2 => Some(Protocol::Resp2),
            3 => Some(Protocol::Resp3),
            _ => None,
        }
    }

    /// The number by which HELLO calls it: 2 or 3.
    pub fn version(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// Appends replies to a buffer. Costs nothing to make; holds no state but where and how to write.
///
/// The caller keeps the grammar: a header of n elements must be followed by n replies (2n for a map).
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> ReplyWriter<'a> {
    /// A writer that appends to `out` in `protocol`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        ReplyWriter { out, protocol }
    }

    /// The protocol that is written.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string, for fixed short texts; each CR and LF becomes a space.
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        self.out.push(b'+');
        self.rest_of_line(text.as_ref());
    }

    /// An error, beginning with its code (`ERR`, `WRONGTYPE`, ...); each CR and LF becomes a space.
    pub fn error(&mut self, code_and_text: impl AsRef<[u8]>) {
        self.out.push(b'-');
        self.rest_of_line(code_and_text.as_ref());
    }

    /// [`Self::error`] from `format_args!`, without an intermediate string.
    pub fn error_fmt(&mut self, code_and_text: fmt::Arguments<'_>) {
        self.out.push(b'-');
        // Failure could only come from a Display implementation; what it wrote so far is then the text.
        let _ = Line(self.out).write_fmt(code_and_text);
        self.crlf();
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A bulk string: any bytes.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.crlf();
    }

    /// An integer as a bulk string.
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value));
    }

    /// The absent value.
    pub fn null(&mut self) {
        self.by_protocol(b"$-1\r\n", b"_\r\n");
    }

    /// The absent array.
    pub fn null_array(&mut self) {
        self.by_protocol(b"*-1\r\n", b"_\r\n");
    }

    /// The header of an array of `len` replies.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// The header of a map of `pairs` pairs of replies: a key and its value each.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', pairs * 2),
            Protocol::Resp3 => self.header(b'%', pairs),
        }
    }

    /// The header of a set of `len` replies.
    pub fn set(&mut self, len: usize) {
        self.header(self.type_or_array(b'~'), len);
    }

    /// The header of a push message of `len` replies.
    pub fn push(&mut self, len: usize) {
        self.header(self.type_or_array(b'>'), len);
    }

    /// An array whose length is known only once its elements are written: `elements` writes them and returns
    /// their number. If it fails, nothing of it remains in the buffer. Moves the elements once in memory.
    ///
    /// # Errors
    /// That of `elements`.
    pub fn array_with<E>(
        &mut self,
        elements: impl FnOnce(&mut ReplyWriter<'_>) -> Result<usize, E>,
    ) -> Result<(), E> {
        let start = self.out.len();
        match elements(&mut ReplyWriter::new(self.out, self.protocol)) {
            Ok(len) => {
                let body_end = self.out.len();
                self.array(len);
                let header_bytes = self.out.len() - body_end;
                self.out[start..].rotate_right(header_bytes);
                Ok(())
            }
            Err(error) => {
                self.out.truncate(start);
                Err(error)
            }
        }
    }

    /// A double in the shortest form that reads back as the same number; `inf`, `-inf` or `nan` otherwise.
    pub fn double(&mut self, value: f64) {
        let mut text = Vec::with_capacity(32);
        write_f64(&mut text, value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.out.push(b',');
                self.rest_of_line(&text);
            }
        }
    }

    /// A boolean.
    pub fn boolean(&mut self, value: bool) {
        match value {
            true => self.by_protocol(b":1\r\n", b"#t\r\n"),
            false => self.by_protocol(b":0\r\n", b"#f\r\n"),
        }
    }

    /// An integer of any size, given by its decimal digits with an optional sign.
    pub fn big_number(&mut self, digits: impl AsRef<[u8]>) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits),
            Protocol::Resp3 => {
                self.out.push(b'(');
                self.rest_of_line(digits.as_ref());
            }
        }
    }

    /// A text to be shown as it is, with its format: `txt` or `mkd`.
    pub fn verbatim(&mut self, format: [u8; 3], text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.header(b'=', text.len() + 4);
                self.out.extend_from_slice(&format);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.crlf();
            }
        }
    }

    fn header(&mut self, kind: u8, number: impl itoa::Integer) {
        self.out.push(kind);
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.crlf();
    }

    fn rest_of_line(&mut self, text: &[u8]) {
        Line(self.out).push(text);
        self.crlf();
    }

    fn crlf(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    fn by_protocol(&mut self, resp2: &[u8], resp3: &[u8]) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => resp2,
            Protocol::Resp3 => resp3,
        });
    }

    fn type_or_array(&self, resp3: u8) -> u8 {
        match self.protocol {
            Protocol::Resp2 => b'*',
            Protocol::Resp3 => resp3,
        }
    }
}

/// The inside of a line: appends text with each CR and LF replaced by a space.
struct Line<'a>(&'a mut Vec<u8>);

impl Line<'_> {
    fn push(&mut self, text: &[u8]) {
        let start = self.0.len();
        self.0.extend_from_slice(text);
        for byte in &mut self.0[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }
}

impl fmt::Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts what `write` writes in both protocols.
    #[track_caller]
    fn assert_written(write: impl Fn(&mut ReplyWriter<'_>), resp2: &str, resp3: &str) {
        for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = b"before".to_vec();
            write(&mut ReplyWriter::new(&mut out, protocol));
            assert_eq!(String::from_utf8_lossy(&out), format!("before{expected}"), "{protocol:?}");
        }
    }

    #[test]
    fn lines_hold_no_line_ends() {
        assert_written(|w| w.ok(), "+OK\r\n", "+OK\r\n");
        assert_written(|w| w.simple("a\r\nb"), "+a  b\r\n", "+a  b\r\n");
        assert_written(|w| w.error(b"ERR \n:1\r\n"), "-ERR  :1  \r\n", "-ERR  :1  \r\n");
        let forged = "x'\r\n+OK";
        let expected = "-ERR unknown 'x'  +OK'\r\n";
        assert_written(|w| w.error_fmt(format_args!("ERR unknown '{forged}'")), expected, expected);
    }

    #[test]
    fn integers_and_bulks_are_the_same_in_both() {
        assert_written(|w| w.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n");
        assert_written(|w| w.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n");
        assert_written(|w| w.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n");
        assert_written(|w| w.bulk_integer(-12), "$3\r\n-12\r\n", "$3\r\n-12\r\n");
    }

    #[test]
    fn resp2_has_its_own_nulls_and_no_other_types() {
        assert_written(|w| w.null(), "$-1\r\n", "_\r\n");
        assert_written(|w| w.null_array(), "*-1\r\n", "_\r\n");
        assert_written(|w| w.array(3), "*3\r\n", "*3\r\n");
        assert_written(|w| w.map(3), "*6\r\n", "%3\r\n");
        assert_written(|w| w.set(3), "*3\r\n", "~3\r\n");
        assert_written(|w| w.push(3), "*3\r\n", ">3\r\n");
        assert_written(|w| w.boolean(true), ":1\r\n", "#t\r\n");
        assert_written(|w| w.boolean(false), ":0\r\n", "#f\r\n");
        assert_written(|w| w.double(-2.5), "$4\r\n-2.5\r\n", ",-2.5\r\n");
        assert_written(|w| w.double(f64::INFINITY), "$3\r\ninf\r\n", ",inf\r\n");
        assert_written(|w| w.big_number("-123"), "$4\r\n-123\r\n", "(-123\r\n");
        assert_written(|w| w.verbatim(*b"txt", "a\nb"), "$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n");
    }

    #[test]
    fn an_array_of_late_length_gets_its_header_in_front() {
        let write = |w: &mut ReplyWriter<'_>| {
            w.array_with(|w| {
                w.bulk("key");
                w.null();
                Ok::<_, ()>(2)
            })
            .unwrap();
        };
        assert_written(write, "*2\r\n$3\r\nkey\r\n$-1\r\n", "*2\r\n$3\r\nkey\r\n_\r\n");
        assert_written(|w| w.array_with(|_| Ok::<_, ()>(0)).unwrap(), "*0\r\n", "*0\r\n");
    }

    #[test]
    fn a_failed_array_leaves_nothing() {
        let write = |w: &mut ReplyWriter<'_>| {
            let result = w.array_with(|w| {
                w.bulk("half");
                Err("damaged")
            });
            assert_eq!(result, Err("damaged"));
            w.error("ERR damaged");
        };
        assert_written(write, "-ERR damaged\r\n", "-ERR damaged\r\n");
    }

    #[test]
    fn protocols_have_versions() {
        assert_eq!(Protocol::from_version(2), Some(Protocol::Resp2));
        assert_eq!(Protocol::from_version(3).map(Protocol::version), Some(3));
        assert_eq!(Protocol::from_version(4), None);
    }
}
