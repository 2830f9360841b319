//! Decoding requests, incrementally and without copying.
//!
//! ```text
//!   request   = multibulk / inline
//!   multibulk = "*" count CRLF count*( "$" length CRLF length*byte CRLF )
//!   inline    = line [ CR ] LF                       ; not beginning with "*"; see the inline module
//!   count, length = "0" / [ "-" ] nonzero *digit     ; nothing else: no "+", blanks or leading zeros
//! ```
//!
//! An inline command has no NUL. A count of zero or less and a blank line are requests for nothing: consumed,
//! and not answered.
//!
//! # Progress
//!
//! The caller keeps unconsumed bytes in one buffer and calls [`RequestParser::parse`] on it, from the first
//! byte of the request under way, whenever more has arrived. The parser remembers, as offsets from that first
//! byte, what it has understood, so each byte is looked at once (payload bytes not at all) however small the
//! pieces are, and the buffer may move in memory between calls.
//!
//! The decoded request, or the error, depends on the bytes only, never on how they were cut into pieces.
//!
//! # Memory
//!
//! Arguments are ranges of the caller's buffer. The parser's own memory is one range per argument *received*
//! (an argument takes at least six bytes on the wire) and the unescaped text of one inline command, both kept
//! for the next request unless they are large. A steady stream of requests allocates nothing.

use std::fmt;
use std::ops::{ControlFlow, Index};

use crate::error::ProtocolError;
use crate::inline;
use crate::limits::Limits;
use crate::number::parse_i64;
use crate::span::Span;

/// Argument ranges and bytes of inline text that an idle parser may keep allocated.
const KEPT_ARGS: usize = 1024;
const KEPT_TEXT_BYTES: usize = 4096;

/// A line with a number may always be this long, so that [`short_number`] need not look at the limit and a
/// line cut into pieces is judged like one that is not.
const MIN_NUMBER_LINE_BYTES: usize = 32;

/// A complete request: one or more arguments, of which the first is the command's name.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The bytes that `args` are ranges of: the caller's buffer, or the unescaped text of an inline command.
    bytes: &'a [u8],
    args: &'a [Span],
    consumed: usize,
}

impl<'a> Request<'a> {
    /// A request out of a queue.
    pub(crate) fn kept(bytes: &'a [u8], args: &'a [Span]) -> Self {
        Request { bytes, args, consumed: 0 }
    }

    /// The command's name, in the client's spelling.
    pub fn name(&self) -> &'a [u8] {
        self.get(0).unwrap_or_default()
    }

    /// The number of arguments, the command's name included: at least one.
    pub fn arg_count(&self) -> usize {
        self.args.len()
    }

    /// The request that begins with the argument at `index`: that of a command which runs another one. It
    /// consumes nothing.
    ///
    /// # Panics
    ///
    /// If there are not this many arguments.
    pub fn from(&self, index: usize) -> Request<'a> {
        Request::kept(self.bytes, &self.args[index..])
    }

    /// The argument at `index`, where 0 is the command's name.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.args.get(index).map(|span| &self.bytes[span.start..span.end])
    }

    /// All arguments in order, beginning with the command's name.
    pub fn args(&self) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.args.iter() }
    }

    /// How many bytes of the input the request took. The next one begins there.
    pub fn consumed(&self) -> usize {
        self.consumed
    }
}

impl Index<usize> for Request<'_> {
    type Output = [u8];

    /// The argument at `index`, where 0 is the command's name. Panics if there is none, so check
    /// [`Request::arg_count`] first, as a command's arity check does.
    fn index(&self, index: usize) -> &[u8] {
        let span = self.args[index];
        &self.bytes[span.start..span.end]
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({}", self.name().escape_ascii())?;
        self.args().skip(1).try_for_each(|arg| write!(f, " \"{}\"", arg.escape_ascii()))?;
        write!(f, ")")
    }
}

/// The arguments of a [`Request`], in order.
#[derive(Clone, Debug)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: std::slice::Iter<'a, Span>,
}

impl<'a> Iterator for Args<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.spans.next().map(|span| &self.bytes[span.start..span.end])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl DoubleEndedIterator for Args<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.spans.next_back().map(|span| &self.bytes[span.start..span.end])
    }
}

impl ExactSizeIterator for Args<'_> {}

/// The outcome of parsing the front of the input.
#[derive(Clone, Copy, Debug)]
pub enum Parsed<'a> {
    /// A complete request. Answer it, then drop [`Request::consumed`] bytes from the buffer.
    Request(Request<'a>),
    /// A request for nothing. Drop `consumed` bytes from the buffer, answer nothing, and go on.
    Empty {
        /// Bytes to drop from the front of the buffer; at least one.
        consumed: usize,
    },
    /// The input ends inside a request. Drop nothing.
    Incomplete {
        /// Parsing makes no progress before this many more bytes are there; at least one. The client
        /// *announced* them: use it to save calls and to choose a read's size, not to reserve memory.
        needed: usize,
    },
}

/// Decodes the requests of one connection; holds the progress within the request under way.
///
/// After an error the connection must be closed: parsing the same input again gives the same error.
#[derive(Debug, Default)]
pub struct RequestParser {
    phase: Phase,
    /// Bytes of the request under way that are understood; the current line or payload begins here.
    pos: usize,
    /// Bytes of the request that need no second look for the end of the current line. `scanned >= pos`
    /// while a line is sought.
    scanned: usize,
    /// Arguments received so far.
    args: Vec<Span>,
    /// The unescaped arguments of an inline command.
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// Before the end of a request's first line.
    #[default]
    FirstLine,
    /// Before the end of the line that announces an argument; that many arguments are missing.
    Length { missing: usize },
    /// Before the end of an argument of that length, which is the first of those missing.
    Payload { missing: usize, len: usize },
}

/// The outcome of [`RequestParser::advance`]: [`Parsed`] without its borrows.
enum Step {
    Multibulk { consumed: usize },
    Inline { consumed: usize },
    Empty { consumed: usize },
    Incomplete { needed: usize },
}

impl RequestParser {
    /// A parser at the beginning of a connection. Allocates nothing.
    pub const fn new() -> Self {
        RequestParser { phase: Phase::FirstLine, pos: 0, scanned: 0, args: Vec::new(), text: Vec::new() }
    }

    /// Memory held for arguments, in bytes. It depends on the bytes that were received, and is a few KiB
    /// between requests.
    pub fn memory_bytes(&self) -> usize {
        self.args.capacity() * size_of::<Span>() + self.text.capacity()
    }

    /// Decodes the request at the front of `input`.
    ///
    /// `input` must begin with the same bytes as in the call before if that was [`Parsed::Incomplete`], and
    /// right behind the consumed ones otherwise. An input that breaks this rule gives wrong requests or
    /// errors, but never a panic. The cost over all calls is linear in the length of lines plus the number of
    /// arguments.
    ///
    /// # Errors
    /// The input is not a request, or breaks one of the `limits`; the connection must be closed.
    pub fn parse<'a>(&'a mut self, input: &'a [u8], limits: &Limits) -> Result<Parsed<'a>, ProtocolError> {
        let step = self.advance(input, limits)?;
        if !matches!(step, Step::Incomplete { .. }) {
            (self.phase, self.pos, self.scanned) = (Phase::FirstLine, 0, 0);
        }
        let args = &self.args[..];
        Ok(match step {
            Step::Multibulk { consumed } => Parsed::Request(Request { bytes: input, args, consumed }),
            Step::Inline { consumed } => Parsed::Request(Request { bytes: &self.text, args, consumed }),
            Step::Empty { consumed } => Parsed::Empty { consumed },
            Step::Incomplete { needed } => Parsed::Incomplete { needed },
        })
    }

    /// Runs the phases until the request is complete or the input ends.
    fn advance(&mut self, input: &[u8], limits: &Limits) -> Result<Step, ProtocolError> {
        loop {
            self.phase = match self.phase {
                Phase::FirstLine => match self.first_line(input, limits)? {
                    ControlFlow::Continue(phase) => phase,
                    ControlFlow::Break(step) => return Ok(step),
                },
                Phase::Length { missing: 0 } => return Ok(Step::Multibulk { consumed: self.pos }),
                Phase::Length { missing } => match self.length(input, limits)? {
                    Some(len) => Phase::Payload { missing, len },
                    None => return Ok(Step::Incomplete { needed: 1 }),
                },
                Phase::Payload { missing, len } => match self.payload(input, len)? {
                    0 => Phase::Length { missing: missing - 1 },
                    needed => return Ok(Step::Incomplete { needed }),
                },
            }
        }
    }

    /// Reads a request's first line: the next phase of a multibulk request, or what ends this call.
    fn first_line(
        &mut self,
        input: &[u8],
        limits: &Limits,
    ) -> Result<ControlFlow<Step, Phase>, ProtocolError> {
        self.forget_args();
        match input.first() {
            None => return Ok(ControlFlow::Break(Step::Incomplete { needed: 1 })),
            Some(b'*') => {}
            Some(_) => return self.inline(input, limits).map(ControlFlow::Break),
        }
        let Some((count, next)) = self.number(input, limits, &COUNT)? else {
            return Ok(ControlFlow::Break(Step::Incomplete { needed: 1 }));
        };
        if count <= 0 {
            return Ok(ControlFlow::Break(Step::Empty { consumed: next }));
        }
        let missing = usize::try_from(count).ok().filter(|&count| count <= limits.max_args);
        let missing = missing.ok_or(ProtocolError::InvalidCount)?;
        (self.pos, self.scanned) = (next, next);
        Ok(ControlFlow::Continue(Phase::Length { missing }))
    }

    /// Drops the arguments of the request before, and the memory of an unusually large one.
    fn forget_args(&mut self) {
        self.args.clear();
        self.text.clear();
        if self.args.capacity() > KEPT_ARGS {
            self.args.shrink_to(KEPT_ARGS);
        }
        if self.text.capacity() > KEPT_TEXT_BYTES {
            self.text.shrink_to(KEPT_TEXT_BYTES);
        }
    }

    fn inline(&mut self, input: &[u8], limits: &Limits) -> Result<Step, ProtocolError> {
        let Some(newline) = self.find(b'\n', input, limits.max_line_bytes, ProtocolError::InlineTooBig)?
        else {
            return Ok(Step::Incomplete { needed: 1 });
        };
        let line = &input[..newline];
        if memchr::memchr(0, line).is_some() {
            return Err(ProtocolError::NulInInline);
        }
        inline::split(line.strip_suffix(b"\r").unwrap_or(line), &mut self.text, &mut self.args)?;
        let consumed = newline + 1;
        Ok(if self.args.is_empty() { Step::Empty { consumed } } else { Step::Inline { consumed } })
    }

    /// Reads the line that announces an argument's length, if it is there, and moves `pos` behind it.
    fn length(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        match input.get(self.pos) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&got) => return Err(ProtocolError::ExpectedBulk { got }),
        }
        let Some((len, next)) = self.number(input, limits, &LENGTH)? else {
            return Ok(None);
        };
        let len = usize::try_from(len).ok().filter(|&len| len <= limits.max_bulk_bytes);
        let len = len.ok_or(ProtocolError::InvalidLength)?;
        // With this, no later sum of `pos` and `len` can overflow.
        let end = next.checked_add(len).and_then(|end| end.checked_add(2));
        if end.is_none_or(|end| end > limits.max_request_bytes) {
            return Err(ProtocolError::RequestTooBig);
        }
        (self.pos, self.scanned) = (next, next);
        Ok(Some(len))
    }

    /// Takes an argument if it is there whole and moves `pos` behind it; else says how many bytes it lacks.
    fn payload(&mut self, input: &[u8], len: usize) -> Result<usize, ProtocolError> {
        let span = Span { start: self.pos, end: self.pos + len };
        let next = span.end + 2;
        match input.get(span.end..next) {
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::UnterminatedBulk),
            None => return Ok(next - input.len()),
        }
        self.args.push(span);
        (self.pos, self.scanned) = (next, next);
        Ok(0)
    }

    /// Reads the number in the line at `pos`, behind its type byte: the number and where the next line
    /// begins, or `None` if the line is not complete.
    #[inline]
    fn number(
        &mut self,
        input: &[u8],
        limits: &Limits,
        line: &NumberLine,
    ) -> Result<Option<(i64, usize)>, ProtocolError> {
        let text = self.pos + 1;
        match short_number(input.get(text..).unwrap_or_default()) {
            Some((number, bytes)) => Ok(Some((number, text + bytes))),
            None => self.any_number(input, limits, line),
        }
    }

    /// [`Self::number`] for lines that are long, odd, wrong or incomplete.
    #[cold]
    fn any_number(
        &mut self,
        input: &[u8],
        limits: &Limits,
        line: &NumberLine,
    ) -> Result<Option<(i64, usize)>, ProtocolError> {
        let max_bytes = limits.max_line_bytes.max(MIN_NUMBER_LINE_BYTES);
        let Some(end) = self.find(b'\r', input, max_bytes, line.too_big)? else {
            return Ok(None);
        };
        match input.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => {
                let number = parse_i64(&input[self.pos + 1..end]).ok_or(line.invalid)?;
                Ok(Some((number, end + 2)))
            }
            Some(_) => Err(line.invalid),
        }
    }

    /// Where the line at `pos` has its `end` byte. A line of more than `max_bytes` without one is `too_big`,
    /// whether or not the byte has arrived behind that.
    fn find(
        &mut self,
        end: u8,
        input: &[u8],
        max_bytes: usize,
        too_big: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        // One byte past the limit may be the end byte itself.
        let window_end = input.len().min(self.pos.saturating_add(max_bytes).saturating_add(1));
        let unseen = input.get(self.scanned..window_end).unwrap_or_default();
        match memchr::memchr(end, unseen) {
            Some(index) => {
                self.scanned += index;
                Ok(Some(self.scanned))
            }
            None if window_end.saturating_sub(self.pos) > max_bytes => Err(too_big),
            None => {
                self.scanned = self.scanned.max(window_end);
                Ok(None)
            }
        }
    }
}

/// The errors of a line that holds a number.
struct NumberLine {
    too_big: ProtocolError,
    invalid: ProtocolError,
}

const COUNT: NumberLine =
    NumberLine { too_big: ProtocolError::CountTooBig, invalid: ProtocolError::InvalidCount };
const LENGTH: NumberLine =
    NumberLine { too_big: ProtocolError::LengthTooBig, invalid: ProtocolError::InvalidLength };

/// A plain number of up to seven digits with its CRLF at the front of `text`, and the bytes it takes; `None`
/// for anything else, right or wrong.
#[inline]
pub(crate) fn short_number(text: &[u8]) -> Option<(i64, usize)> {
    let mut number = 0;
    for (index, &byte) in text.iter().take(8).enumerate() {
        match byte {
            b'0'..=b'9' => number = number * 10 + i64::from(byte - b'0'),
            b'\r' if index > 0 && text.get(index + 1) == Some(&b'\n') => {
                let canonical = index == 1 || text[0] != b'0';
                return canonical.then_some((number, index + 2));
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `input` byte by byte and calls `look` after each incomplete parse; the request must end with it.
    fn feed(parser: &mut RequestParser, input: &[u8], mut look: impl FnMut(&RequestParser, usize)) {
        for end in 0..input.len() {
            let parsed = parser.parse(&input[..end], &Limits::default());
            assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })), "cut at {end}: {parsed:?}");
            look(parser, end);
        }
        let parsed = parser.parse(input, &Limits::default());
        assert!(matches!(parsed, Ok(Parsed::Request(request)) if request.consumed() == input.len()));
    }

    #[test]
    fn no_byte_of_a_line_is_scanned_twice() {
        let inline = [&[b'x'; 5000][..], b"\n"].concat();
        feed(&mut RequestParser::new(), &inline, |parser, end| assert_eq!(parser.scanned, end));
        let header = b"*1\r\n$00000000000000000000";
        let mut parser = RequestParser::new();
        for end in 6..header.len() {
            assert!(matches!(
                parser.parse(&header[..end], &Limits::default()),
                Ok(Parsed::Incomplete { .. })
            ));
            assert_eq!(parser.scanned, end);
        }
    }

    #[test]
    fn a_payload_is_waited_for_and_not_looked_at() {
        let mut parser = RequestParser::new();
        let mut input = b"*2\r\n$3\r\nSET\r\n$1000000\r\n".to_vec();
        let start = input.len();
        for len in [0, 1, 999_999, 1_000_000, 1_000_001] {
            input.resize(start + len, b'\n');
            let parsed = parser.parse(&input, &Limits::default());
            assert!(matches!(parsed, Ok(Parsed::Incomplete { needed }) if needed == 1_000_002 - len));
            assert_eq!((parser.pos, parser.scanned), (start, start));
        }
    }

    #[test]
    fn announced_sizes_reserve_nothing() {
        let mut parser = RequestParser::new();
        let input = b"*1048576\r\n$536870912\r\nx";
        assert!(matches!(parser.parse(input, &Limits::default()), Ok(Parsed::Incomplete { .. })));
        assert_eq!((parser.args.capacity(), parser.text.capacity()), (0, 0));
    }

    #[test]
    fn a_steady_stream_reuses_the_memory_of_the_first_request() {
        let mut parser = RequestParser::new();
        let (multibulk, inline) = (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", b"set k 'v v'\r\n");
        feed(&mut parser, multibulk, |_, _| {});
        feed(&mut parser, inline, |_, _| {});
        let held = (parser.args.as_ptr(), parser.text.as_ptr());
        for _ in 0..100 {
            feed(&mut parser, multibulk, |_, _| {});
            feed(&mut parser, inline, |_, _| {});
        }
        assert_eq!((parser.args.as_ptr(), parser.text.as_ptr()), held);
    }

    #[test]
    fn the_memory_of_a_large_request_is_given_back() {
        let mut parser = RequestParser::new();
        let large = [b"*5000\r\n".to_vec(), b"$1\r\nx\r\n".repeat(5000)].concat();
        assert!(matches!(parser.parse(&large, &Limits::default()), Ok(Parsed::Request(_))));
        let line = [&[b'x'; 60_000][..], b"\n"].concat();
        assert!(matches!(parser.parse(&line, &Limits::default()), Ok(Parsed::Request(_))));
        assert!(parser.args.capacity() <= KEPT_ARGS);
        assert!(matches!(parser.parse(b"", &Limits::default()), Ok(Parsed::Incomplete { .. })));
        assert!(parser.text.capacity() <= KEPT_TEXT_BYTES);
    }

    #[test]
    fn the_short_way_to_a_number_agrees_with_the_long_one() {
        let texts = ["0", "7", "10", "9999999", "1234567", "12345678", "00", "01", "", "-1", "+1", "1x", "x"];
        for text in texts {
            let line = format!("{text}\r\n");
            let short = short_number(line.as_bytes());
            let plain = parse_i64(text.as_bytes()).filter(|_| text.len() <= 7 && !text.starts_with('-'));
            assert_eq!(short, plain.map(|number| (number, line.len())), "{text:?}");
        }
        for cut in [&b"12"[..], b"12\r", b"12\rx", b"12\n", b"1234567\r", b""] {
            assert_eq!(short_number(cut), None);
        }
    }

    #[test]
    fn a_buffer_that_shrinks_or_changes_does_not_panic() {
        let inputs: [&[u8]; 6] =
            [b"*2\r\n$3\r\nabc\r\n$5\r\nx", b"", b"*2", b"abc", b"*2\r\n$3\r\nabc\r\n$9\r", b"a\n"];
        for first in inputs {
            for second in inputs {
                let mut parser = RequestParser::new();
                let _ = parser.parse(first, &Limits::default());
                let _ = parser.parse(second, &Limits::default());
                let _ = parser.parse(first, &Limits::default());
            }
        }
    }
}
