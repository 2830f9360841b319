//! The client's side of the protocol: encoding requests and decoding replies, for tests, benchmarks and
//! tools.
//!
//! ```text
//!   reply     = line / bulk / null / aggregate
//!   line      = ( "+" / "-" / ":" / "," / "(" / "#" ) text CRLF / "_" CRLF
//!   bulk      = ( "$" / "=" / "!" ) length CRLF length*byte CRLF
//!   null      = "$-1" CRLF / "*-1" CRLF
//!   aggregate = ( "*" / "~" / ">" ) count CRLF count*reply
//!             / "%" count CRLF count*( reply reply )
//!   attribute = "|" count CRLF count*( reply reply )     ; may stand before any reply, and is skipped
//! ```
//!
//! Unlike the server's parser, this one copies: a [`Value`] owns its bytes. RESP3's streamed strings and
//! aggregates, which no server sends, are refused.

use crate::error::ReplyError;
use crate::limits::ReplyLimits;
use crate::number::{parse_f64, parse_i64};

/// Appends a request with these arguments, the command's name first, to `out`.
pub fn write_request<I>(out: &mut Vec<u8>, args: I)
where
    I: IntoIterator<Item: AsRef<[u8]>, IntoIter: ExactSizeIterator>,
{
    let args = args.into_iter();
    header(out, b'*', args.len());
    for arg in args {
        let arg = arg.as_ref();
        header(out, b'$', arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

fn header(out: &mut Vec<u8>, kind: u8, len: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+`: a simple string.
    Simple(Vec<u8>),
    /// `-` or `!`: an error, beginning with its code.
    Error(Vec<u8>),
    /// `:`: an integer.
    Integer(i64),
    /// `$`: a bulk string.
    Bulk(Vec<u8>),
    /// `_`, or RESP2's `$-1` and `*-1`: nothing.
    Null,
    /// `*`: an array.
    Array(Vec<Value>),
    /// `%`: a map, in the order sent.
    Map(Vec<(Value, Value)>),
    /// `~`: a set, in the order sent.
    Set(Vec<Value>),
    /// `>`: a push message, which answers no request.
    Push(Vec<Value>),
    /// `,`: a double.
    Double(f64),
    /// `#`: a boolean.
    Boolean(bool),
    /// `(`: an integer of any size, as decimal digits with an optional sign.
    BigNumber(Vec<u8>),
    /// `=`: a text with its format (`txt`, `mkd`).
    Verbatim {
        /// The format.
        format: [u8; 3],
        /// The text, without the format.
        text: Vec<u8>,
    },
}

impl Value {
    /// The bytes of a simple, bulk or verbatim string.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes) | Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Whether the server refused the request.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }
}

/// The outcome of parsing the front of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Bytes to drop from the front of the buffer, also when there is no value yet.
    pub consumed: usize,
    /// The reply that ends there, if one does.
    pub value: Option<Value>,
}

/// Decodes the replies of one connection; holds the progress within the reply under way.
///
/// After an error the stream is lost and the connection must be closed.
#[derive(Debug, Default)]
pub struct ReplyParser {
    limits: ReplyLimits,
    /// The aggregates that are begun and not complete, outermost first.
    open: Vec<Aggregate>,
    /// Bytes at the front of the next input that were searched for a line's end.
    scanned: usize,
}

#[derive(Debug)]
struct Aggregate {
    kind: AggregateKind,
    /// Replies that it still lacks.
    missing: u64,
    items: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AggregateKind {
    Array,
    Set,
    Push,
    Map,
    Attribute,
}

/// One line, with the bytes that belong to it.
enum Token {
    Scalar(Value),
    Open(AggregateKind, u64),
}

impl ReplyParser {
    /// A parser at the beginning of a connection.
    pub fn new(limits: ReplyLimits) -> Self {
        ReplyParser { limits, ..Self::default() }
    }

    /// Decodes the reply at the front of `input`, which must begin right behind the bytes consumed so far.
    /// Without a value, call again when more bytes are there.
    ///
    /// # Errors
    /// The input is not a reply, or breaks a limit.
    pub fn parse(&mut self, input: &[u8]) -> Result<Decoded, ReplyError> {
        let mut consumed = 0;
        while let Some((token, bytes)) = self.token(&input[consumed..])? {
            consumed += bytes;
            self.scanned = 0;
            let value = match token {
                Token::Scalar(value) => self.close(value),
                Token::Open(kind, missing) => self.open(kind, missing)?,
            };
            if value.is_some() {
                return Ok(Decoded { consumed, value });
            }
        }
        Ok(Decoded { consumed, value: None })
    }

    /// Begins an aggregate. An empty one is complete at once; if it completes the whole reply, returns that.
    fn open(&mut self, kind: AggregateKind, missing: u64) -> Result<Option<Value>, ReplyError> {
        if self.open.len() >= self.limits.max_depth {
            return Err(ReplyError::TooDeep);
        }
        self.open.push(Aggregate { kind, missing, items: Vec::new() });
        Ok(self.close_complete())
    }

    /// Puts `value` where it belongs; returns the reply that is complete with it.
    fn close(&mut self, value: Value) -> Option<Value> {
        match self.open.last_mut() {
            None => return Some(value),
            Some(aggregate) => {
                aggregate.items.push(value);
                aggregate.missing -= 1;
            }
        }
        self.close_complete()
    }

    /// Closes the innermost aggregates as long as they are complete. A complete attribute is dropped, and
    /// ends that: the reply that it stands before is still to come, so nothing around it is complete.
    fn close_complete(&mut self) -> Option<Value> {
        while let Some(aggregate) = self.open.pop_if(|aggregate| aggregate.missing == 0) {
            let value = aggregate.into_value()?;
            match self.open.last_mut() {
                None => return Some(value),
                Some(outer) => {
                    outer.items.push(value);
                    outer.missing -= 1;
                }
            }
        }
        None
    }

    /// Decodes one token and the bytes it takes, if it is complete.
    fn token(&mut self, input: &[u8]) -> Result<Option<(Token, usize)>, ReplyError> {
        let Some(line_bytes) = self.line(input)? else {
            return Ok(None);
        };
        let (kind, text) = (input[0], &input[1..line_bytes - 2]);
        let token = match kind {
            b'$' | b'=' | b'!' => return self.bulk(kind, text, input, line_bytes),
            b'*' if text == b"-1" => Token::Scalar(Value::Null),
            b'*' => Token::Open(AggregateKind::Array, count(text)?),
            b'~' => Token::Open(AggregateKind::Set, count(text)?),
            b'>' => Token::Open(AggregateKind::Push, count(text)?),
            b'%' => Token::Open(AggregateKind::Map, twice(count(text)?)?),
            b'|' => Token::Open(AggregateKind::Attribute, twice(count(text)?)?),
            _ => Token::Scalar(scalar(kind, text)?),
        };
        Ok(Some((token, line_bytes)))
    }

    /// The length of the line at the front of `input`, line end included, if it is complete.
    fn line(&mut self, input: &[u8]) -> Result<Option<usize>, ReplyError> {
        match input.first() {
            None => return Ok(None),
            Some(b'+' | b'-' | b':' | b'$' | b'*' | b'_' | b',' | b'#' | b'(') => {}
            Some(b'=' | b'!' | b'%' | b'~' | b'>' | b'|') => {}
            Some(&got) => return Err(ReplyError::UnknownType { got }),
        }
        let window = &input[..input.len().min(self.limits.max_line_bytes.saturating_add(1))];
        let unseen = window.get(self.scanned..).unwrap_or_default();
        let Some(end) = memchr::memchr2(b'\r', b'\n', unseen).map(|index| self.scanned + index) else {
            self.scanned = window.len();
            return if window.len() > self.limits.max_line_bytes {
                Err(ReplyError::LineTooLong)
            } else {
                Ok(None)
            };
        };
        self.scanned = end;
        match (input[end], input.get(end + 1)) {
            (b'\r', Some(b'\n')) => Ok(Some(end + 2)),
            (b'\r', None) => Ok(None),
            _ => Err(ReplyError::UnterminatedLine),
        }
    }

    /// Decodes a bulk whose length is `text` and whose bytes begin at `start`.
    fn bulk(
        &self,
        kind: u8,
        text: &[u8],
        input: &[u8],
        start: usize,
    ) -> Result<Option<(Token, usize)>, ReplyError> {
        if kind == b'$' && text == b"-1" {
            return Ok(Some((Token::Scalar(Value::Null), start)));
        }
        let len = usize::try_from(count(text)?).map_err(|_| ReplyError::InvalidLength)?;
        if len > self.limits.max_bulk_bytes {
            return Err(ReplyError::InvalidLength);
        }
        let (bytes, end) = match input[start..].split_at_checked(len) {
            Some((bytes, [b'\r', b'\n', ..])) => (bytes, start + len + 2),
            Some((_, [] | [b'\r'])) | None => return Ok(None),
            Some(_) => return Err(ReplyError::UnterminatedBulk),
        };
        let value = match kind {
            b'$' => Value::Bulk(bytes.to_vec()),
            b'!' => Value::Error(bytes.to_vec()),
            _ => verbatim(bytes)?,
        };
        Ok(Some((Token::Scalar(value), end)))
    }
}

impl Aggregate {
    /// The value of a complete aggregate; none for an attribute.
    fn into_value(self) -> Option<Value> {
        match self.kind {
            AggregateKind::Array => Some(Value::Array(self.items)),
            AggregateKind::Set => Some(Value::Set(self.items)),
            AggregateKind::Push => Some(Value::Push(self.items)),
            AggregateKind::Map => Some(Value::Map(into_pairs(self.items))),
            AggregateKind::Attribute => None,
        }
    }
}

fn into_pairs(items: Vec<Value>) -> Vec<(Value, Value)> {
    let mut items = items.into_iter();
    std::iter::from_fn(|| Some((items.next()?, items.next()?))).collect()
}

fn count(text: &[u8]) -> Result<u64, ReplyError> {
    parse_i64(text).and_then(|count| u64::try_from(count).ok()).ok_or(ReplyError::InvalidLength)
}

fn twice(pairs: u64) -> Result<u64, ReplyError> {
    pairs.checked_mul(2).ok_or(ReplyError::InvalidLength)
}

fn verbatim(bytes: &[u8]) -> Result<Value, ReplyError> {
    match *bytes {
        [a, b, c, b':', ref text @ ..] => Ok(Value::Verbatim { format: [a, b, c], text: text.to_vec() }),
        _ => Err(ReplyError::InvalidValue { kind: b'=' }),
    }
}

/// The value of a reply that is one line.
fn scalar(kind: u8, text: &[u8]) -> Result<Value, ReplyError> {
    let value = match (kind, text) {
        (b'+', _) => Some(Value::Simple(text.to_vec())),
        (b'-', _) => Some(Value::Error(text.to_vec())),
        (b':', _) => parse_i64(text).map(Value::Integer),
        (b'_', b"") => Some(Value::Null),
        (b'#', b"t") => Some(Value::Boolean(true)),
        (b'#', b"f") => Some(Value::Boolean(false)),
        (b',', b"nan") => Some(Value::Double(f64::NAN)),
        (b',', _) => parse_f64(text).map(Value::Double),
        (b'(', _) => is_big_number(text).then(|| Value::BigNumber(text.to_vec())),
        _ => None,
    };
    value.ok_or(ReplyError::InvalidValue { kind })
}

fn is_big_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(input: &str) -> Result<Decoded, ReplyError> {
        ReplyParser::default().parse(input.as_bytes())
    }

    /// Asserts that `input` is one whole reply, in one piece and in single bytes.
    #[track_caller]
    fn assert_value(input: &str, expected: Value) {
        let decoded = Decoded { consumed: input.len(), value: Some(expected) };
        assert_eq!(parse(input), Ok(decoded.clone()), "{input:?}");
        let mut parser = ReplyParser::default();
        let mut consumed = 0;
        for end in 0..input.len() {
            let partial = parser.parse(&input.as_bytes()[consumed..end]).unwrap();
            assert_eq!(partial.value, None, "{input:?} cut at {end}");
            consumed += partial.consumed;
        }
        let last = parser.parse(&input.as_bytes()[consumed..]).unwrap();
        assert_eq!(last.value, decoded.value);
        assert_eq!(consumed + last.consumed, input.len());
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn resp2_replies() {
        assert_value("+OK\r\n", Value::Simple("OK".into()));
        assert_value("-ERR no\r\n", Value::Error("ERR no".into()));
        assert_value(":-42\r\n", Value::Integer(-42));
        assert_value("$0\r\n\r\n", bulk(""));
        assert_value("$4\r\na\r\nb\r\n", bulk("a\r\nb"));
        assert_value("$-1\r\n", Value::Null);
        assert_value("*-1\r\n", Value::Null);
        assert_value("*0\r\n", Value::Array(vec![]));
        let nested = Value::Array(vec![Value::Array(vec![]), Value::Array(vec![bulk("x")]), Value::Null]);
        assert_value("*3\r\n*0\r\n*1\r\n$1\r\nx\r\n$-1\r\n", nested);
    }

    #[test]
    fn resp3_replies() {
        assert_value("_\r\n", Value::Null);
        assert_value("#t\r\n", Value::Boolean(true));
        assert_value("#f\r\n", Value::Boolean(false));
        assert_value(",-1.5e3\r\n", Value::Double(-1500.0));
        assert_value(",-inf\r\n", Value::Double(f64::NEG_INFINITY));
        assert!(matches!(parse(",nan\r\n").unwrap().value, Some(Value::Double(nan)) if nan.is_nan()));
        assert_value("(-123456789012345678901234567890\r\n", {
            Value::BigNumber("-123456789012345678901234567890".into())
        });
        assert_value("!5\r\nERR x\r\n", Value::Error("ERR x".into()));
        assert_value("=6\r\ntxt:ab\r\n", Value::Verbatim { format: *b"txt", text: "ab".into() });
        assert_value("~1\r\n:1\r\n", Value::Set(vec![Value::Integer(1)]));
        assert_value(">1\r\n+x\r\n", Value::Push(vec![Value::Simple("x".into())]));
        let map = Value::Map(vec![(bulk("a"), Value::Map(vec![])), (bulk("b"), Value::Null)]);
        assert_value("%2\r\n$1\r\na\r\n%0\r\n$1\r\nb\r\n_\r\n", map);
    }

    #[test]
    fn attributes_are_skipped_wherever_they_stand() {
        assert_value("|1\r\n+ttl\r\n:5\r\n+OK\r\n", Value::Simple("OK".into()));
        assert_value("|0\r\n+OK\r\n", Value::Simple("OK".into()));
        let array = Value::Array(vec![Value::Integer(1), Value::Integer(2)]);
        assert_value("*2\r\n:1\r\n|1\r\n+ttl\r\n*1\r\n:5\r\n:2\r\n", array);
    }

    #[test]
    fn replies_follow_each_other() {
        let decoded = parse("+OK\r\n:1\r\n").unwrap();
        assert_eq!(decoded, Decoded { consumed: 5, value: Some(Value::Simple("OK".into())) });
    }

    #[test]
    fn malformed_replies_have_their_errors() {
        for (input, expected) in [
            ("x\r\n", ReplyError::UnknownType { got: b'x' }),
            ("\r\n", ReplyError::UnknownType { got: b'\r' }),
            ("+a\n", ReplyError::UnterminatedLine),
            ("+a\rb", ReplyError::UnterminatedLine),
            (":+1\r\n", ReplyError::InvalidValue { kind: b':' }),
            (":\r\n", ReplyError::InvalidValue { kind: b':' }),
            ("#x\r\n", ReplyError::InvalidValue { kind: b'#' }),
            ("_x\r\n", ReplyError::InvalidValue { kind: b'_' }),
            (",1.5x\r\n", ReplyError::InvalidValue { kind: b',' }),
            ("(-\r\n", ReplyError::InvalidValue { kind: b'(' }),
            ("=3\r\ntxt\r\n", ReplyError::InvalidValue { kind: b'=' }),
            ("$-2\r\n", ReplyError::InvalidLength),
            ("=-1\r\n", ReplyError::InvalidLength),
            ("~-1\r\n", ReplyError::InvalidLength),
            ("$?\r\n", ReplyError::InvalidLength),
            ("$536870913\r\n", ReplyError::InvalidLength),
            ("%9223372036854775808\r\n", ReplyError::InvalidLength),
            ("$1\r\nabc", ReplyError::UnterminatedBulk),
            ("$1\r\na\rc", ReplyError::UnterminatedBulk),
        ] {
            assert_eq!(parse(input), Err(expected), "{input:?}");
        }
    }

    #[test]
    fn depth_and_line_length_are_limited() {
        let nested = |depth: usize| "*1\r\n".repeat(depth) + ":1\r\n";
        assert!(parse(&nested(32)).unwrap().value.is_some());
        assert_eq!(parse(&nested(33)), Err(ReplyError::TooDeep));
        let line = |bytes: usize| format!("+{}\r\n", "x".repeat(bytes - 1));
        assert!(parse(&line(64 << 10)).unwrap().value.is_some());
        assert_eq!(parse(&line((64 << 10) + 1)), Err(ReplyError::LineTooLong));
    }

    #[test]
    fn announced_sizes_reserve_nothing() {
        let mut parser = ReplyParser::default();
        let decoded = parser.parse(b"*9223372036854775807\r\n%4611686018427387903\r\n").unwrap();
        assert_eq!(decoded.value, None);
        assert!(parser.open.iter().all(|aggregate| aggregate.items.capacity() == 0));
    }

    #[test]
    fn requests_are_multibulks() {
        let mut out = Vec::new();
        write_request(&mut out, [&b"SET"[..], b"k", b"\r\n"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
    }
}
